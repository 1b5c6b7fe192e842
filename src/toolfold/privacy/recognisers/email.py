"""E-mail addresses, found from their `@`: text without one costs nothing."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from toolfold.privacy.matches import Match

_LOCAL = string.ascii_letters + string.digits + "._+-%'~&!#$*"
_NOT_FIRST = ".'-%&!#$*~"
_LONGEST_LOCAL = 128
_DOMAIN = re.compile(r"(?:[^\W_][\w-]{0,62}\.){1,8}(?:xn--[a-zA-Z0-9-]{1,59}|[^\W\d_]{2,24})")
_ENDS_LOGIN = frozenset(" /\n\t\0\"'<>")
_FILES = frozenset({"css", "gif", "html", "jpeg", "jpg", "js", "json", "md", "pdf", "png", "py", "svg", "ts", "webp"})


def find(text: str) -> Iterator[Match]:
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        if domain is not None:
            start = _local_start(text, at)
            if start < at and not _is_something_else(text, start, domain):
                yield Match(start, domain.end(), "email")
        at = text.find("@", at + 1)


def _local_start(text: str, at: int) -> int:
    begin = max(0, at - _LONGEST_LOCAL)
    before = text[begin:at]
    rest = before.rstrip(_LOCAL)
    while rest and not rest.isascii() and rest[-1].isalnum():
        # Letters beyond ASCII, which are allowed too.
        rest = rest[:-1].rstrip(_LOCAL)
    local = before[len(rest) :]
    return at - len(local.lstrip(_NOT_FIRST))


def _is_something_else(text: str, start: int, domain: re.Match[str]) -> bool:
    """A picture's name for sharp screens (`logo@2x.png`), a git repository, or who logs in at an address on the web."""
    before = text[max(0, start - _LONGEST_LOCAL) : start]
    if "://" in before and not any(map(_ENDS_LOGIN.__contains__, before.rpartition("://")[2])):
        return True
    name, _, last = domain[0].rpartition(".")
    if "." not in name and last.lower() in _FILES:
        return True
    return text.startswith("git@", start) and text.startswith((":", "/"), domain.end())
