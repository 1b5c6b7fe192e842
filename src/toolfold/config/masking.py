"""Showing how a server is reached without showing what it is reached with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

MASK = "•••"
_SECRET_WORD = re.compile(r"key|token|secret|passw|pwd|credential|auth|bearer|session|cookie|dsn", re.IGNORECASE)
_HEADER_FLAGS = frozenset({"--header", "-H", "-u", "--user", "-e", "--env"})
# Keys hold a long unbroken run of letters and digits, or are a UUID; names of packages and files do not.
_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ASSIGNMENT = re.compile(r"(--?[\w.-]+|[\w.-]+)=(.*)", re.DOTALL)


def masked_args(args: Iterable[str]) -> tuple[str, ...]:
    """`args` with what may be a secret replaced: values of telling flags, URLs' secrets, random-looking words."""
    shown: list[str] = []
    hide_next = False
    for arg in args:
        if hide_next and not arg.startswith("--"):
            shown.append(_name_only(arg))
            hide_next = False
            continue
        hide_next = arg in _HEADER_FLAGS or (
            arg.startswith("-") and "=" not in arg and _SECRET_WORD.search(arg) is not None
        )
        shown.append(arg if hide_next else _masked_word(arg))
    return tuple(shown)


def masked_url(url: str) -> str:
    """Scheme, host and path of `url`; user, password, query values and key-like path parts are replaced."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    if not parts.scheme:
        return MASK if _looks_random(url) else url
    user = f"{MASK}@" if "@" in parts.netloc else ""
    query = f"?{MASK}" if parts.query else ""
    path = "/".join(MASK if _looks_random(part) else part for part in parts.path.split("/"))
    return f"{parts.scheme}://{user}{host}{port}{path}{query}"


def _name_only(text: str) -> str:
    """`NAME=value` or `Name: value` → the name; anything else is hidden whole."""
    for mark in ("=", ":"):
        name, found, _ = text.partition(mark)
        if found and re.fullmatch(r"[\w-]+", name):
            return f"{name}{mark}{MASK}"
    return MASK


def _masked_word(arg: str) -> str:
    if "://" in arg and not arg.startswith("-"):
        return masked_url(arg)
    assigned = _ASSIGNMENT.fullmatch(arg)
    if assigned is not None and (_SECRET_WORD.search(assigned[1]) or _looks_random(assigned[2])):
        return f"{assigned[1]}={MASK}"
    if assigned is not None and "://" in assigned[2]:
        return f"{assigned[1]}={masked_url(assigned[2])}"
    return MASK if _looks_random(arg) else arg


def _looks_random(text: str) -> bool:
    if _UUID.search(text):
        return True
    runs = _RUN.findall(text)
    return any(re.search(r"\d", run) and re.search(r"[A-Za-z]", run) for run in runs)
