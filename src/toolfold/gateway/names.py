"""What clients call the tools and prompts of the servers: `github__create_issue`.

Clients accept letters, digits, `_` and `-`, at most 64 characters with what they put before a name themselves
(`mcp__toolfold__`). A name that does not fit is shortened and gets a digest of the whole. A name depends on nothing
else, and stays the same whatever other servers are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

LONGEST = 48
_PREFIX = "mcp__toolfold__"
assert len(_PREFIX) + LONGEST < 64

_SEPARATOR = "__"
_OTHER = re.compile(r"[^a-zA-Z0-9-]+")
_DIGEST_CHARS = 8
_DIGEST = re.compile(rf"_[0-9a-f]{{{_DIGEST_CHARS}}}$")
_SERVER = re.compile(r"[a-zA-Z0-9-]+(?:_[a-zA-Z0-9-]+)*")
_NAME = re.compile(r"[a-zA-Z0-9-][a-zA-Z0-9_-]*")
_LONGEST_SERVER = 16


def offered_name(server: str, name: str, *, salt: str = "") -> str:
    """The name for clients. Two different tools have different names, but for equal digests.

    A name without a digest is read in one way only: the server's part has no `__` in it, and does not end with `_`.
    """
    plain = f"{server}{_SEPARATOR}{name}"
    fits = len(plain) <= LONGEST and not _DIGEST.search(plain)
    if fits and not salt and _SERVER.fullmatch(server) and _NAME.fullmatch(name):
        return plain
    digest = blake2b(f"{server}\0{name}\0{salt}".encode("utf-8", "replace"), digest_size=_DIGEST_CHARS // 2).hexdigest()
    first = _words(server, "server")[:_LONGEST_SERVER].strip("_")
    left = LONGEST - len(first) - len(_SEPARATOR) - 1 - _DIGEST_CHARS
    return f"{first}{_SEPARATOR}{_words(name, 'tool')[:left].strip('_')}_{digest}"


def _words(text: str, otherwise: str) -> str:
    return _OTHER.sub("_", text).strip("_") or otherwise


def offered_names(keys: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Every server and name by the name for clients. Of two with equal digests the later one gets another."""
    found: dict[str, tuple[str, str]] = {}
    for key in keys:
        name = offered_name(*key)
        tries = 0
        while found.setdefault(name, key) != key:
            tries += 1
            name = offered_name(*key, salt=str(tries))
    return found
