"""Python as HTML with the parts of speech marked, by the standard library's tokenizer."""

from __future__ import annotations

import builtins
import io
import keyword
import tokenize

from markupsafe import Markup, escape

from toolfold.gateway.dashboard.render import plain

_LONGEST = 100_000
"""Characters that are marked; a longer program is shown as it is."""
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_STRINGS = {tokenize.STRING} | {
    getattr(tokenize, name)
    for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_START", "TSTRING_MIDDLE", "TSTRING_END")
    if hasattr(tokenize, name)
}

Mark = tuple[int, int, int, int, str]
"""From line and column to line and column, and the class."""


def highlight(code: str) -> list[Markup]:
    """The lines of a program, each escaped. One that cannot be read as Python is plain from there on."""
    code = plain(code, 1_000_000)
    lines = code.split("\n")
    by_line: dict[int, list[tuple[int, int, str]]] = {}
    if len(code) <= _LONGEST:
        for first, start, last, end, kind in _marks(code):
            for line in range(first, last + 1):
                begin = start if line == first else 0
                stop = end if line == last else len(lines[line - 1])
                by_line.setdefault(line, []).append((begin, stop, kind))
    return [_marked(text, by_line.get(number, [])) for number, text in enumerate(lines, 1)]


def _marks(code: str) -> list[Mark]:
    found: list[Mark] = []
    previous = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            kind = _kind(token, previous)
            if kind:
                found.append((*token.start, *token.end, kind))
            previous = token.string
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return found


def _kind(token: tokenize.TokenInfo, previous: str) -> str:
    match token.type:
        case tokenize.COMMENT:
            return "c"
        case tokenize.NUMBER:
            return "n"
        case tokenize.NAME if keyword.iskeyword(token.string):
            return "k"
        case tokenize.NAME if previous in ("def", "class"):
            return "f"
        case tokenize.NAME if token.string in _BUILTINS and previous != ".":
            return "b"
        case kind if kind in _STRINGS:
            return "s"
        case _:
            return ""


def _marked(text: str, marks: list[tuple[int, int, str]]) -> Markup:
    parts: list[Markup] = []
    at = 0
    for start, end, kind in marks:
        parts += [escape(text[at:start]), Markup('<span class="{}">{}</span>').format(kind, text[start:end])]
        at = end
    parts.append(escape(text[at:]))
    return Markup("").join(parts)
