"""Texts of tools that are aimed at the model that reads them, in place of describing the tool.

A hint for people, never a wall: the same can always be said in words that are not found here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from toolfold.catalog.entries import Entry

# Characters that a reader does not see, or that change the order of what is seen. Left out is what has honest uses:
# joiners inside emoji and Indic words, marks of direction beside right-to-left text, a byte order mark at the start.
_HIDDEN = re.compile(
    "[\x00\x1b\x9b\u00ad\u115f\u1160\u180e\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\u3164\ufff9-\ufffb"
    '\U000e0001\U000e0020-\U000e007e\U000e0100-\U000e01ef]|(?<!\\A)(?<!")\ufeff'
)
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f")
"""The flags of England, Scotland and Wales are written with hidden letters."""
_ESCAPED = re.compile(r"\\u00(?:00|1b|9b)")

_PRIVATE = (
    r"(?:api[ _-]?keys?|passwords?|credentials?|secrets?|access tokens?|private keys?|ssh keys?|environment variables?"
    r"|system prompts?|(?:conversation|chat)(?: history| log)?)"
)
_FILES = (
    "/.ssh",
    ".ssh/",
    "id_rsa",
    "id_ed25519",
    ".aws/credentials",
    "/etc/passwd",
    "/etc/shadow",
    "mcp.json",
)
_PATTERNS: list[tuple[str, tuple[str, ...], re.Pattern[str]]] = [
    (
        "tells the model to ignore its instructions",
        ("ignore", "disregard", "forget", "override", "bypass"),
        re.compile(
            r"(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|every|the|your|my|of|these|those)\s+){0,3}"
            r"(?:previous|prior|above|earlier|preceding|existing|former|system|other)\s+"
            r"(?:\w+\s+)?(?:instructions?|prompts?|rules?|guidelines|directions|messages)\b"
        ),
    ),
    (
        "tells the model to hide something from the person",
        ("the user", "the human", "the person", "the operator"),
        re.compile(
            r"(?:do\s+not|don'?t|never|without)\s+(?:ever\s+)?"
            r"(?:tell|mention|inform|notify|reveal|disclos|alert|warn)(?:e|ing)?\b"
            r"(?:\s+\w+){0,6}\s+the\s+(?:user|human|person|operator)\b"
        ),
    ),
    (
        "hides instructions in a tag",
        ("<important>", "<system>", "<secret>", "<hidden>", "<instructions>", "<instruction>", "<admin>"),
        re.compile(r"(?:^|\s)<(?:important|system|secret|hidden|instructions?|admin)>(?:\s|$)"),
    ),
    (
        "asks for files with secrets",
        _FILES,
        re.compile(
            r"(?:read|open|load|send|pass|include|provide|attach|cat|upload)\b[^\n]{0,80}?"
            rf"(?:{'|'.join(map(re.escape, _FILES))})"
        ),
    ),
    (
        "asks to send secrets elsewhere",
        ("send", "post", "forward", "upload", "transmit", "exfiltrate", "leak", "copy"),
        re.compile(
            rf"(?:send|post|forward|upload|transmit|exfiltrate|leak|copy)\b[^.\n]{{0,60}}\b{_PRIVATE}\b[^.\n]{{0,60}}"
            r"\b(?:to|at|via)\s+(?:https?://|\S+@\S+\.\w|\w[\w-]*\.(?:com|net|org|io|xyz|ru|top|dev)\b)"
        ),
    ),
    (
        "claims to speak for the system",
        ("you are now", "system prompt", "[system]", "<|"),
        re.compile(
            r"\byou\s+are\s+now\s+(?:in\s+)?(?:dan|jailbroken|developer\s+mode|unrestricted)\b"
            r"|\bnew\s+system\s+prompt\s*:|\[system\]\s*:|<\|(?:im_start|system)\|>"
        ),
    ),
]
"""What it says, words without which it cannot, and how to find it in small letters."""


def suspicion(entry: Entry, *, schema: bool = True) -> str:
    """What is suspicious about the texts of an entry, in a few words; empty when nothing is.

    Without `schema` only its names and its description are read, which takes some microseconds.
    """
    return _suspicion(entry.name, entry.title, entry.description, entry.uri, entry.body if schema else b"")


@lru_cache(maxsize=4096)
def _suspicion(name: str, title: str, description: str, uri: str, body: bytes) -> str:
    schema = body.decode("utf-8", "replace")
    if any(_hides(text) for text in (name, title, description, uri, schema)) or _ESCAPED.search(schema):
        return "has hidden characters"
    text = "\n".join((name, title, description, uri, schema.replace("\\n", "\n"))).lower()
    found = (
        reason
        for reason, words, pattern in _PATTERNS
        if any(word in text for word in words) and pattern.search(text) is not None
    )
    return next(found, "")


def _hides(text: str) -> bool:
    if text.isascii():
        return "\x1b" in text or "\x00" in text
    return _HIDDEN.search(text) is not None and _HIDDEN.search(_FLAG.sub("", text)) is not None
