"""Habits from other libraries that fail on plain data, each recognised by the values at hand.

Models unwrap results that are the data already, read keys as attributes, and await what has arrived. Every function
here returns one sentence that the values prove, or nothing.
"""

from __future__ import annotations

import ast
import json
import sys
import types
from difflib import get_close_matches
from itertools import islice
from typing import Any, cast

from .place import KEYS, UNKNOWN, Place, exactly, text_of

# What clients of the protocol and of HTTP have around the data.
_WRAPPERS = frozenset(
    {"content", "result", "results", "data", "text", "json", "output", "value", "response", "body"}
    | {"structuredContent", "structured_content", "is_error", "isError"}
)
_KEYS_SHOWN = 12
_TEXT_SHOWN = 60
_LONGEST_JSON = 200_000
_MOST_NODES = 20_000
_PLAIN = (dict, list, tuple, str, int, float, bool, types.NoneType)
_PLAIN_NAMES = frozenset(kind.__name__ for kind in _PLAIN)


def about_attribute(problem: AttributeError, place: Place | None) -> str:
    """`result.content` or `order.total` where the value is plain data."""
    name, value = problem.name, cast("Any", problem.obj)
    if name is None or not exactly(value, *_PLAIN):
        return about_coroutine(value, place) if exactly(value, types.CoroutineType) else ""
    if place is not None and not place.direct:
        return ""
    nodes = place.nodes(ast.Attribute) if place is not None else ()
    shown = next((text_of(node.value) for node in nodes if node.attr == name), "")
    subject = f"`{shown}`" if shown else "This"
    if exactly(value, dict):
        [(key, text)] = value.items() if len(value) == 1 else [("", None)]
        if shown and exactly(text, str) and hasattr(str, name):
            whole = f"({shown})" if shown.startswith("await ") else shown
            return f"{subject} is a dict; its text is `{whole}[{key!r}]`."
        return _about_key(value, name, subject, shown)
    if exactly(value, str) and _is_json(value):
        return f"{subject} is JSON text: `json.loads(...)` gives the data."
    wrapped = f" There is no `.{name}` around it." if name in _WRAPPERS else ""
    return f"{subject} is already the data: {described(value)}.{wrapped}"


def about_missing_key(problem: KeyError, place: Place | None) -> str:
    """`result["content"]` or a key that is spelled otherwise."""
    if not problem.args or place is None or not place.direct:
        return ""
    key = problem.args[0]
    if not exactly(key, *KEYS):
        return ""
    for node in place.nodes(ast.Subscript):
        value = place.value(node.value)
        if exactly(value, dict) and key not in value and _is_same(place.value(node.slice), key):
            shown = text_of(node.value)
            return _about_key(value, key, f"`{shown}`" if shown else "The dict", shown)
        if _is_tool_call(node.value, place) and _is_same(place.value(node.slice), key):
            return f"What the tool returns is already the data, and has no key {key!r}."
    return ""


def about_index(place: Place | None) -> str:
    """`rows["id"]` where `rows` is a list or a text."""
    if place is None or not place.direct:
        return ""
    for node in place.nodes(ast.Subscript):
        value, key = place.value(node.value), place.value(node.slice)
        shown = text_of(node.value)
        if exactly(value, *_PLAIN) and not exactly(value, dict) and exactly(key, str) and shown:
            if exactly(value, str):
                return _about_text_as_dict(place, value, shown)
            if value is None:
                return f"`{shown}` is None."
            drop = f" Drop [{key!r}]." if key in _WRAPPERS else ""
            return f"`{shown}` is already the data: {described(value)}.{drop}"
        if _is_tool_call(node.value, place) and exactly(key, str):
            return f"What the tool returns is already the data, and no dict: drop [{key!r}]."
    return ""


def about_await(kind: str, place: Place | None) -> str:
    """`await rows` where the rows are there; `kind` is the type of what cannot be awaited."""
    nodes = list(place.nodes(ast.Await)) if place is not None else []
    shown = text_of(nodes[0].value) if nodes else ""
    if kind in ("Tool", "function", "method"):
        return f"It must be called: `await {shown or 'function'}(...)`."
    if kind not in _PLAIN_NAMES:
        return ""
    if nodes and isinstance(call := nodes[0].value, ast.Call):
        return f"`{text_of(call.func) or 'The function'}` returned its result already: drop this `await`."
    return f"`{shown or 'This'}` is already the result: drop the `await`."


def about_coroutine(value: Any, place: Place | None) -> str:
    """The result of a call that was not awaited is used."""
    shown = ""
    for node in (*place.nodes(ast.Name), *place.nodes(ast.Subscript)) if place is not None else ():
        found = place.value(node) if place is not None else UNKNOWN
        if exactly(found, types.CoroutineType) and (value is UNKNOWN or value is found):
            value, shown = found, text_of(node)
            break
    name = "tool" if value is UNKNOWN else value.__qualname__.rsplit(".", 1)[-1]
    begin = f"`{shown}` is a call that was not awaited" if shown else "A call must be awaited before its result is used"
    step = f"{begin}: write `await {name}(...)`"
    if place is not None and _is_plain(place.frame.f_code):
        function = place.frame.f_code.co_name
        return f"{step}, make `{function}` an `async def`, and await it where it is called."
    return f"{step}; several at once: `await asyncio.gather(...)`."


def about_json(problem: json.JSONDecodeError, place: Place | None) -> str:
    """`json.loads` of what is not JSON."""
    text = problem.doc
    if not text.strip():
        return "The text is empty."
    begins = f"The text begins with {_quoted(text)}"
    if len(text) <= _LONGEST_JSON:
        if _is_literal(text):
            return f"{begins}: it is Python's notation, not JSON; `ast.literal_eval(text)` reads it."
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and all(map(_is_json, lines)):
            return f"{begins}: it is one JSON value per line; `[json.loads(line) for line in text.splitlines()]`."
    if text.lstrip()[:1] in ("{", "["):
        return f"{begins}: it looks like JSON, and is not valid from the position above on."
    return f"{begins}: it is plain text, not JSON. Use it as it is."


def described(value: Any) -> str:
    """What plain data is, in a few words."""
    if exactly(value, dict):
        return f"a dict with the keys {_keys(value)}" if value else "an empty dict"
    if exactly(value, list, tuple):
        if not value:
            return "an empty list"
        first = value[0]
        inner = f", each {described(first)}" if exactly(first, dict) else ""
        return f"a list of {len(value)}{inner}"
    if exactly(value, str):
        return f"the text {_quoted(value)}"
    return f"{value!r}"[:_TEXT_SHOWN] if exactly(value, *_PLAIN) else f"a {type(value).__name__}"


def _about_key(value: dict[Any, Any], key: Any, subject: str, shown: str) -> str:
    if key in value:
        return f"{subject} is a dict: write `{shown or '...'}[{key!r}]`."
    if key in _WRAPPERS:
        return f"{subject} is already the data: {described(value)}."
    return f"{subject} is {described(value) if not value else f'a dict; its keys are {_keys(value, near=key)}'}."


def _about_text_as_dict(place: Place, value: str, shown: str) -> str:
    if _is_json(value):
        return f"`{shown}` is JSON text: `json.loads({shown})` gives the data."
    for node in islice(ast.walk(place.tree), _MOST_NODES):
        if isinstance(node, ast.For | ast.comprehension) and text_of(node.target) == shown:
            whole, name = place.value(node.iter), text_of(node.iter)
            if exactly(whole, dict) and value in whole:
                if len(whole) == 1 and not exactly(inner := whole[value], dict):
                    inside = f"{name}[{value!r}]"
                    step = f"json.loads({inside})" if exactly(inner, str) and _is_json(inner) else inside
                    return f"`{shown}` is the one key of the dict `{name}`: write `{step}`."
                return f"`{shown}` is a key of the dict `{name}`: loop over `{name}.values()` or `{name}.items()`."
    return f"`{shown}` is {described(value)}, not a dict."


def _is_tool_call(node: ast.expr, place: Place) -> bool:
    """`await tool(...)`."""
    function = (
        place.value(node.value.func) if isinstance(node, ast.Await) and isinstance(node.value, ast.Call) else UNKNOWN
    )
    return exactly(function, getattr(sys.modules.get("servers._call"), "Tool", types.NoneType))


def _keys(value: dict[Any, Any], near: Any = None) -> str:
    """Some keys, those like `near` first."""
    keys = [key for key in islice(value, 500) if exactly(key, *KEYS)]
    if exactly(near, str):
        texts = [key for key in keys if exactly(key, str) and len(key) <= 200]
        first = get_close_matches(near, texts, 3, 0.5) if len(near) <= 200 else []
        first += [key for key in texts if key not in first and (key in near or near in key)]
        keys = [*first, *(key for key in keys if key not in first)]
    shown = ", ".join(repr(key)[:_TEXT_SHOWN] for key in keys[:_KEYS_SHOWN])
    return shown + (f" and {len(value) - _KEYS_SHOWN} more" if len(value) > _KEYS_SHOWN else "")


def _quoted(text: str) -> str:
    flat = text[: _TEXT_SHOWN * 2].strip()
    return repr(flat[:_TEXT_SHOWN] + ("…" if len(flat) > _TEXT_SHOWN or len(text) > len(flat) + 10 else ""))


def _is_json(text: str) -> bool:
    """Whether it is an object or a list."""
    if text[:64].lstrip()[:1] not in ("{", "[") or len(text) > _LONGEST_JSON:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_literal(text: str) -> bool:
    if text[:64].lstrip()[:1] not in ("{", "[", "("):
        return False
    try:
        ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _is_plain(code: types.CodeType) -> bool:
    return code.co_name.isidentifier() and not code.co_flags & 0x80  # inspect.CO_COROUTINE
