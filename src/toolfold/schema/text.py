"""Text from upstreams, made safe to stand in a source file.

Whatever a server writes into a name, a description, an enum or a default ends up inside one of three things: a string
literal, a docstring, or a comment. Each has one writer here, and nothing else in `codegen/` puts such text into a file.
Letters that cannot be seen (controls, bidirectional marks, tags, lone surrogates) are left out of prose and written as
escapes in literals: prose is only read, but a literal must stay exactly what goes over the wire.
"""

from __future__ import annotations

import inspect
import math
import re
import unicodedata

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SENTENCE_END = re.compile(r"(?<=[^\s.][.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)\s(?=[^a-z])")
_SPACES = re.compile(r"\s+")
# What type checkers, formatters and linters take as an order when a comment says it.
_ORDER = re.compile(r"((?:^|#)\s*)(type|pyright|mypy|ruff|flake8|fmt|yapf|isort|pylint|pragma)\s*:", re.IGNORECASE)
_SILENCER = re.compile(r"\bno(?=qa\b|sec\b)", re.IGNORECASE)
_REPHRASED = r"\1\2 :"
_LARGEST_INT = 2**63


def clean(text: str) -> str:
    """`text` as prose: visible characters only, lines ended by a newline, no common indentation, no loose ends."""
    if not text.isascii() or not text.isprintable():
        text = _LINE_ENDS.sub("\n", text).expandtabs(4)
        text = "".join(c for c in text if c == "\n" or _is_visible(c))
    # Without empty lines in front: they would decide how the second line is indented.
    return "\n".join(line.rstrip() for line in inspect.cleandoc(text.strip()).split("\n"))


def one_line(text: str, limit: int | None = None) -> str:
    """`text` as one line of prose; what is longer than `limit` ends in an ellipsis, at a word's end if there is one."""
    # The cut comes before the cleaning, so that a huge text costs no more than a long one.
    head = text if limit is None else text[: limit * 8 + 200]
    line = _SPACES.sub(" ", clean(head)).strip()
    if limit is None or (len(line) <= limit and len(head) == len(text)):
        return line
    cut = line[: max(limit - 1, 1)]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-") + "…"


def first_sentence(text: str, limit: int) -> str:
    """The first sentence (or line, where it stands alone) of a description, as one line of at most `limit`."""
    head = clean(text[: limit * 8 + 200])
    paragraph = head.split("\n\n", 1)[0]
    line = _SPACES.sub(" ", paragraph).strip()
    end = _SENTENCE_END.search(line)
    return one_line(line[: end.start()] if end else line, limit)


def opening(text: str, limit: int | None = None) -> str:
    """The beginning of a longer text with its lines kept, ended at a sentence or a line where one ends in time."""
    if limit is None:
        return clean(text)
    head = clean(text[: limit * 4])
    if len(head) <= limit and len(text) <= limit * 4:
        return head
    cut = head[:limit]
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)|(?=\n)", cut)]
    end = ends[-1] if ends and ends[-1] > limit // 2 else cut.rfind(" ")
    return f"{(cut[:end] if end > 0 else cut).rstrip()} …"


def sentences(text: str, limit: int) -> str:
    """As many whole sentences as fit into `limit`, on one line, the first cut if need be; `…` if some are missing."""
    line = one_line(text, limit * 4)
    if len(line) <= limit:
        return line
    ends = [match.start() for match in _SENTENCE_END.finditer(line[: limit + 1])]
    return f"{line[: ends[-1]]} …" if ends else one_line(line, limit)


def docstring(text: str, indent: str) -> list[str]:
    """The lines of a docstring that says `text`, as `ruff format` leaves them. Empty text gives no lines."""
    prose = clean(text)
    # Three quotes are the only thing that could end it; nothing else has to change when the string is raw.
    prose = prose.replace('"""', "'''")
    if not prose:
        return []
    mark = 'r"""' if "\\" in prose else '"""'
    if prose.startswith('"'):
        mark += " "
    lines = prose.split("\n")
    if len(lines) == 1:
        apart = " " if prose.endswith(("\\", '"')) else ""
        return [f'{indent}{mark}{prose}{apart}"""']
    return [f"{indent}{mark}{lines[0]}", *(f"{indent}{line}" if line else "" for line in lines[1:]), f'{indent}"""']


def comment(text: str) -> list[str]:
    """The lines of a comment that says `text`: each starts with `#`, and none is an order to a tool."""
    return [f"# {_SILENCER.sub('no-', _ORDER.sub(_REPHRASED, line))}".rstrip() for line in clean(text).split("\n")]


def literal(value: Json) -> str | None:
    """`value` as a Python literal, as `ruff format` leaves it; None where there is no exact short way to write it."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return str(value) if -_LARGEST_INT < value < _LARGEST_INT else None
    if isinstance(value, float):
        return repr(value).replace("e+", "e") if math.isfinite(value) else None
    if not value:
        return "[]" if isinstance(value, list) else "{}"
    return None


def columns(line: str) -> int:
    """How wide `line` is: East Asian letters take two columns."""
    return len(line) if line.isascii() else len(line) + sum(unicodedata.east_asian_width(c) in "WF" for c in line)


def quote(text: str) -> str:
    """`text` as a string literal: the exact characters, the invisible ones as escapes."""
    mark = "'" if text.count('"') > text.count("'") else '"'
    return mark + "".join(_escaped(c, mark) for c in text) + mark


def _escaped(c: str, mark: str) -> str:
    if c in (mark, "\\"):
        return "\\" + c
    if c.isascii() and c.isprintable():
        return c
    if c in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c]
    if _is_visible(c) and c.isprintable():
        return c
    point = ord(c)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _is_visible(c: str) -> bool:
    if c.isascii():
        return c.isprintable()
    # Cc controls, Cf formats (bidi, zero width, tags), Cs surrogates, Co private use; and the selectors that hide text.
    return unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and not 0xE0100 <= ord(c) <= 0xE01EF
