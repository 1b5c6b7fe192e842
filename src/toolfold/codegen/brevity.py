"""What a listing leaves out because the signature beside it has said it already.

`owner: Repository owner` tells a reader of `create_issue(owner: str, …)` nothing, and `(optional)` nothing that
`= ...` does not. Only a listing is trimmed so; the module keeps every word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from toolfold.schema import text

_LONGEST_DESCRIPTION = 8000
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Anything else (a digit, a quote, an example in brackets) is information of its own.
_PLAIN = re.compile(r"[A-Za-z\s,.'’/-]*")
_OPTIONAL = re.compile(r"\s*[(\[](?:optional|required)[)\]]|^(?:optional|required)[.:,]\s+", re.IGNORECASE)
# Words that join others. `name` and `id` are not among them: they tell what kind of text is meant.
_JOINTS = frozenset(
    {
        "the",
        "a",
        "an",
        "of",
        "to",
        "for",
        "in",
        "on",
        "by",
        "with",
        "and",
        "or",
        "is",
        "are",
        "be",
        "as",
        "this",
        "that",
    }
    | {"which", "it", "its", "from", "at", "into", "your", "you", "will", "can", "should", "whether", "if", "when"}
    | {"use", "used", "using", "specify", "specifies", "given", "provide", "provided", "want", "specific", "desired"}
)
# "Returns a JSON string", "JSON-formatted text", "Returns: the rows as JSON".
_JSON_PROMISE = re.compile(
    r"\bJSON[- ]?(?:formatted |encoded |serialized |response )?(?:string|str|text)\b"
    r"|\b(?:string|text) (?:containing|of|with|in|as)(?: an?| the)? JSON\b"
    r"|\breturn(?:s|ed)?\b[^.\n]{0,60}\bJSON\b(?! schema| path)"
    r"|\breturns:\s[^\n]{0,80}\bJSON\b",
    re.IGNORECASE,
)
_TRIVIAL = frozenset({"not empty", ">=0", ">=1", ">0"})


def words(*texts: str) -> frozenset[str]:
    """The words that are spelt out in identifiers and sentences alike: `channelId` has two."""
    return frozenset(word.lower() for each in texts for word in _WORD.findall(each))


def worth_saying(description: str, limit: int, known: Set[str]) -> str:
    """The first sentences of a description, or nothing where they only repeat what is `known`."""
    opening = text.sentences(_OPTIONAL.sub("", text.one_line(description, limit * 5)), limit)
    if not _PLAIN.fullmatch(opening):
        return opening
    told = words(opening) - _JOINTS
    return "" if all(_is_among(word, known) for word in told) else opening


def promises_json(description: str) -> bool:
    """Whether a description says that the result is JSON text, which a program would then parse."""
    return _JSON_PROMISE.search(description[:_LONGEST_DESCRIPTION]) is not None


def telling(notes: Iterable[str]) -> list[str]:
    """The notes without those that no caller would break."""
    return [note for note in notes if note not in _TRIVIAL]


def _is_among(word: str, known: Set[str]) -> bool:
    """Whether one of the known words is this one, its plural or its short form: `repo` and `repositories`."""
    if word in known:
        return True
    return len(word) > 2 and any(len(k) > 2 and (k.startswith(word) or word.startswith(k)) for k in known)
