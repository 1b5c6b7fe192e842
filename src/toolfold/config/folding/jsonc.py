"""Small edits to JSON with comments. Everything that is not edited keeps its bytes.

Paths are tuples of names from the top. The text must have been parsed before: what is not JSON raises `EditError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

Path = tuple[str, ...]

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<line>//[^\r\n]*)"
    r"|(?P<block>/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\]|\\.)*+")'
    r"|(?P<sign>[{}\[\],:])"
    r'|(?P<other>[^\s{}\[\],:"/]+)',
    re.DOTALL,
)
_SPACE = " \t\r\n"
_BOM = "\ufeff"


class EditError(Exception):
    """The text cannot be edited in this way. Nothing of its content is in the message."""


@dataclass(frozen=True, slots=True)
class Item:
    """A member of an object, or an element of an array."""

    name: str | None
    """None in an array."""
    start: int
    """Of its name, or else of its value."""
    value: int
    end: int
    comma: int
    """Where the comma after it is; -1 without one."""
    after: int
    """The end of what stands before it, spaces aside: a bracket, a comma or a comment."""
    under_line_comment: bool
    """Whether that is a `//` comment, which needs the line break that follows."""


@dataclass(frozen=True, slots=True)
class Box:
    """An object or array: from its opening bracket to its closing one."""

    start: int
    end: int
    items: list[Item]

    def find(self, name: str) -> Item | None:
        """The member that counts: the last one of that name."""
        return next((item for item in reversed(self.items) if item.name == name), None)


def remove(text: str, path: Path, name: str) -> str:
    """`text` without the member `name` of the object at `path`. Comments around it stay."""
    box = _at(text, path)
    item = box.find(name) if box is not None else None
    if box is None or item is None or sum(each.name == name for each in box.items) > 1:
        raise EditError(f"expected one `{name}`")
    return _without(text, box, box.items.index(item))


def raw(text: str, path: Path, name: str) -> str:
    """The member `name` of the object at `path` as it is written: name, colon and value."""
    box = _at(text, path)
    item = box.find(name) if box is not None else None
    if item is None:
        raise EditError(f"expected `{name}`")
    return text[item.start : item.end]


def comments(text: str) -> list[str]:
    """The lines of the comments in a piece of JSON, without their signs."""
    found = [token[0] for token in _TOKEN.finditer(text) if token.lastgroup in {"line", "block"}]
    lines = [line.strip() for comment in found for line in re.sub(r"^/[/*]+|\*+/$", "", comment).splitlines()]
    return [line.lstrip("*").strip() for line in lines if line.strip("*")]


def put(text: str, path: Path, name: str, value: Any) -> str:
    """`text` with a new member at the end of the object at `path`, which is made when it is not there."""
    text = _with_objects(text, path)
    box = _object(text, path, name)
    member = f"{json.dumps(name, ensure_ascii=False)}: {_dumped(value, _step(text))}"
    return _with(text, box, member, box.items[-1] if box.items else None, ours=True)


def put_back(text: str, path: Path, name: str, member: str, *, after: str | None) -> str:
    """`text` with a member as it was once written, behind the one called `after`: at the end when that one is gone,
    as the first one when `after` is None."""
    text = _with_objects(text, path)
    box = _object(text, path, name)
    neighbour = None if after is None or not box.items else box.find(after) or box.items[-1]
    return _with(text, box, member, neighbour, ours=False)


def append(text: str, path: Path, value: Any) -> str:
    """`text` with `value` at the end of the array at `path`, which is made when it is not there."""
    text = _with_objects(text, path[:-1])
    box = _at(text, path)
    if box is None:
        return put(text, path[:-1], path[-1], [value])
    if text[box.start] != "[":
        raise EditError(f"expected an array at `{'.'.join(path)}`")
    item = json.dumps(value, ensure_ascii=False)
    return _with(text, box, item, box.items[-1] if box.items else None, ours=True)


def drop(text: str, path: Path, value: Any) -> str:
    """`text` without the first element equal to `value` in the array at `path`."""
    box = _at(text, path)
    for at, item in enumerate(box.items if box is not None and text[box.start] == "[" else []):
        try:
            found = json.loads(text[item.value : item.end])
        except ValueError:
            continue
        if box is not None and found == value and type(found) is type(value):
            return _without(text, box, at)
    raise EditError("expected the element in the array")


# ---- changes to one container


def _without(text: str, box: Box, at: int) -> str:
    item = box.items[at]
    rest = text[item.end :]
    if item.comma >= 0:
        # A comment before the comma stays.
        between = text[item.end : item.comma]
        rest = (between if between.strip() else "") + text[item.comma + 1 :]
    # The spaces before it go too, unless they hold the line break that ends a comment.
    needed = item.under_line_comment and re.match(r"[ \t]*\r?\n", rest) is None
    text = text[: item.start if needed else item.after] + rest
    if item.comma < 0 and at:
        comma = box.items[at - 1].comma
        text = text[:comma] + text[comma + 1 :]
    return text


def _with_objects(text: str, path: Path) -> str:
    """`text` with empty objects where `path` leads through nothing."""
    if not text.strip(_SPACE + _BOM):
        text = f"{text}{{}}\n"
    for depth in range(len(path)):
        if _at(text, path[: depth + 1]) is None:
            text = put(text, path[:depth], path[depth], {})
    return text


def _object(text: str, path: Path, name: str) -> Box:
    """The object at `path`, which must not have a member `name` yet."""
    box = _at(text, path)
    if box is None or text[box.start] != "{":
        raise EditError(f"expected an object at `{'.'.join(path)}`")
    if box.find(name) is not None:
        raise EditError(f"expected no `{name}` yet")
    return box


def _with(text: str, box: Box, item: str, neighbour: Item | None, *, ours: bool) -> str:
    """`text` with `item` behind `neighbour`, or as the first one. Lines that are `ours` are indented to fit."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not box.items:
        outer, step = _indent_of_line(text, box.start), _step(text)
        inside = text[box.start + 1 : box.end]
        kept = inside.rstrip(_SPACE)
        closing = inside[len(kept) :] if "\n" in inside[len(kept) :] else newline + outer
        written = item.replace("\n", newline + outer + step) if ours else item
        return f"{text[: box.start + 1]}{kept}{newline}{outer}{step}{written}{closing}{text[box.end :]}"
    lead = text[box.items[0].after : box.items[0].start]
    indent = lead[lead.rfind("\n") + 1 :]
    in_lines = "\n" in lead
    if ours:
        item = item.replace("\n", newline + indent) if in_lines else re.sub(r"\n[ \t]*", " ", item)
    separator = newline + indent if in_lines else " "
    if neighbour is None:
        place = box.items[0].start
        return f"{text[:place]}{item},{separator}{text[place:]}"
    ending = ""
    if neighbour.comma < 0:
        text = f"{text[: neighbour.end]},{text[neighbour.end :]}"
        place, under_line_comment = _end_of_comments(text, neighbour.end + 1)
    else:
        # Behind the last one this is a trailing comma, as the file has them.
        place, under_line_comment = _end_of_comments(text, neighbour.comma + 1)
        ending = ","
    if under_line_comment and not in_lines:
        separator = newline
    return f"{text[:place]}{separator}{item}{ending}{text[place:]}"


def _dumped(value: Any, step: str) -> str:
    """`value` in lines as people write them: a list of words takes one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    members = cast("dict[str, Any]", value).items()
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {_dumped(each, step)}" for name, each in members]
    inside = ",\n".join(lines).replace("\n", f"\n{step}")
    return f"{{\n{step}{inside}\n}}"


def _end_of_comments(text: str, at: int) -> tuple[int, bool]:
    """Behind the comments that follow `at` on its line, and whether the last one is a `//`."""
    end, under = at, False
    while (token := _TOKEN.match(text, at)) is not None and token.lastgroup in {"space", "line", "block"}:
        if token.lastgroup == "space" and "\n" in token[0]:
            break
        at = token.end()
        if token.lastgroup != "space":
            end, under = at, token.lastgroup == "line"
    return end, under


def _step(text: str) -> str:
    """By how much the text indents."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    found = re.match(r"[ \t]*", text[start:at])
    return found[0] if found else ""


# ---- reading


def _at(text: str, path: Sequence[str]) -> Box | None:
    """The container at `path`; None when there is none, or something else."""
    start = _skip(text, 1 if text.startswith(_BOM) else 0)[0]
    if text[start : start + 1] != "{":
        raise EditError("expected an object at the top")
    box = _box(text, start)
    for name in path:
        item = box.find(name) if text[box.start] == "{" else None
        if item is None or text[item.value] not in "{[":
            return None
        box = _box(text, item.value)
    return box


def _box(text: str, start: int) -> Box:
    """The container that opens at `start`. What is inside its items is passed over."""
    closing = "}" if text[start] == "{" else "]"
    items: list[Item] = []
    at, after, under = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        begin, name = at, None
        if closing == "}":
            token = _TOKEN.match(text, at)
            if token is None or token.lastgroup != "string":
                raise EditError("expected a name")
            name = str(json.loads(token[0], strict=False))
            at = _skip(text, token.end())[0]
            if text[at : at + 1] != ":":
                raise EditError("expected a colon")
            at = _skip(text, at + 1)[0]
        value = at
        end = _end_of_value(text, at)
        at, behind, below = _skip(text, end)
        comma = -1
        if text[at : at + 1] == ",":
            comma = at
            at, behind, below = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise EditError("expected a comma")
        items.append(Item(name, begin, value, end, comma, after, under))
        after, under = behind, below
    return Box(start, at, items)


def _end_of_value(text: str, at: int) -> int:
    depth = 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            raise EditError("expected a value")
        at = token.end()
        if token[0] in {"{", "["}:
            depth += 1
        elif token[0] in {"}", "]"}:
            depth -= 1
        if depth == 0 and token.lastgroup not in {"space", "line", "block"}:
            return at


def _skip(text: str, at: int) -> tuple[int, int, bool]:
    """Behind spaces and comments: where the next sign is, the end of what is before it, whether that is a `//`."""
    after, under = at, False
    while (token := _TOKEN.match(text, at)) is not None and token.lastgroup in {"space", "line", "block"}:
        at = token.end()
        if token.lastgroup != "space":
            after, under = at, token.lastgroup == "line"
    return at, after, under
