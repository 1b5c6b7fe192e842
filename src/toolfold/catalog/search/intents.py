"""A task into the things it asks for: "read the sheet, then open an issue for each row" asks for two."""

from __future__ import annotations

import re

from toolfold.catalog.search import lexicon
from toolfold.catalog.search.actions import PREAMBLE, is_verb
from toolfold.catalog.search.words import STOPWORDS

MOST = 8
"""Intents that one query may have; what follows is read as part of the last."""

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=[。！？；])")
_JOINT = re.compile(
    r"(,?\s+(?:and\s+then|and\s+also|after\s+that|afterwards|as\s+well\s+as|and|then|plus|before|while|finally)\s+|[,:]\s*)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_LEADS = frozenset(("also", "finally", "then", "next", "please", "afterwards", "later", "lastly"))
_WISHES = frozenset(("need", "want", "please", "help", "like", "must", "should", "me"))
# Verbs that are more often nouns after "and" or a comma…
_NOUNS = lexicon.words("nouns")
# …but orders after all when something that it is done to follows.
_DETERMINERS = frozenset(
    ("the", "a", "an", "my", "our", "all", "every", "each", "this", "that", "these", "those", "it", "them", "me", "its")
)


def split(query: str) -> list[str]:
    """The clauses of `query`: those that ask for something, in order, then those that only tell; at least one."""
    clauses: list[str] = []
    for sentence in _SENTENCE.split(query):
        clause = ""
        pieces = _JOINT.split(sentence)
        for place in range(0, len(pieces), 2):
            piece = pieces[place]
            if clause and _begins(piece):
                clauses.append(clause)
                clause = piece
            else:
                clause += (pieces[place - 1] if place and clause else "") + piece
        clauses.append(clause)
    found: list[str] = []
    for clause in clauses:
        if found and (len(found) == MOST or _topics(clause) < 2):
            found[-1] += f" {clause}"
        elif clause.strip():
            found.append(clause.strip())
    if len(found) > 1 and _topics(found[0]) < 2:
        found[:2] = [f"{found[0]} {found[1]}"]
    # What only tells of the circumstances comes after what is asked for.
    return sorted(found, key=lambda clause: not _asks(clause)) or [query]


def _asks(clause: str) -> bool:
    """Whether a clause asks for something: an order, a question, a wish."""
    if clause.rstrip().endswith(("?", "？")) or not clause.isascii():
        return True
    words = _WORD.findall(clause.lower())
    if _WISHES.intersection(words):
        return True
    first = next((word for word in words if word not in _LEADS and word not in PREAMBLE), "")
    return is_verb(first)


def _begins(piece: str) -> bool:
    """Whether a piece after a joint begins an order of its own."""
    words = _WORD.findall(piece.lower())
    while words and words[0] in _LEADS:
        del words[0]
    if len(words) < 2 or not is_verb(words[0]):
        return False
    return words[0] not in _NOUNS or words[1] in _DETERMINERS


def _topics(clause: str) -> int:
    return sum(word not in STOPWORDS for word in _WORD.findall(clause.lower()))
