"""What a request asks for: its parts, the action that each asks for, and what it implies without saying it.

"read the sheet, then open an issue for each row" asks for two things; a path implies a file, a sum a calculation. The
action (create, read, delete …) is compared with that of a tool: `drop the collection` and `make a collection` share
their only topical word, and the verb decides between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from toolfold.catalog.search.words import STOPWORDS, lexicon

# What is implied

_EXTENSIONS = (
    "md|txt|csv|tsv|json|jsonl|yaml|yml|toml|xml|html|htm|css|js|ts|tsx|jsx|py|rb|go|rs|java|c|cpp|h|sh|sql|log|ini|cfg|"
    "pdf|doc|docx|xls|xlsx|ppt|pptx|odt|rtf|tex|epub|png|jpg|jpeg|gif|svg|webp|bmp|mp3|wav|ogg|flac|mp4|mov|avi|mkv|zip|"
    "tar|gz|parquet|ipynb"
)
_FILE = re.compile(
    rf"(?:(?<![\w:/])(?:~|\.{{1,2}}|[A-Za-z]:)?(?:[/\\][\w.\-]+)+\.\w{{1,5}}\b|\b[\w\-]+\.(?:{_EXTENSIONS})\b)"
)
_SAVING = re.compile(r"\b(?:sav|stor|writ|export|output|record|dump|put)\w{0,4}\b[^.;\n]*$", re.IGNORECASE)
_BEFORE_PATH = 80
"""Characters before a path in which a verb speaks of it."""
_LINK = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
_SUM = re.compile(r"\d\s*(?:[*+×÷^]|\s[-/]\s)\s*\(?\s*\d")
_ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+\.\w+")


def with_implied_words(query: str) -> str:
    """The request with what it implies written beside it, each hint in the clause it belongs to."""
    query = _LINK.sub(lambda match: f"{match[0]} url webpage", query)
    query = _ADDRESS.sub(lambda match: f"{match[0]} email", query)
    query = _FILE.sub(_with_file_words, query)
    return _SUM.sub(lambda match: f"{match[0]} calculate expression", query)


def _with_file_words(match: re.Match[str]) -> str:
    saved = _SAVING.search(match.string[max(0, match.start() - _BEFORE_PATH) : match.start()])
    return f"{match[0]} file write file" if saved else f"{match[0]} file"


# Actions, as bits

_ACTIONS = lexicon("actions")
_ACTION_OF: dict[str, int] = {}
for _place, _verbs in enumerate(_ACTIONS):
    for _verb in _verbs:
        _ACTION_OF[_verb] = _ACTION_OF.get(_verb, 0) | 1 << _place
_VERBS = {word for line in lexicon("verbs") for word in line} | _ACTION_OF.keys()
_POLITENESS = STOPWORDS - _ACTION_OF.keys()
"""What may stand before the verb of a request."""


def requested_action(words: Sequence[str]) -> int:
    """The actions that a request opens with, politeness aside; 0 when it opens with a thing."""
    return next((_ACTION_OF.get(word, 0) for word in words[:10] if word not in _POLITENESS), 0)


def offered_action(fields: Mapping[str, Sequence[str]]) -> int:
    """The actions of an entry with these words in its fields: the first verb of its name, its description's first word.

    A name often begins with its server's: `slack_post_message`.
    """
    name, server = fields.get("name", ()), fields.get("server", ())
    own = [word for word in name if word not in server] or name
    bits = next((_ACTION_OF[word] for word in own if word in _ACTION_OF), 0)
    for word in fields.get("description", ())[:1]:
        forms = (word, word.removesuffix("s"), word.removesuffix("es"))
        bits |= next((_ACTION_OF[form] for form in forms if form in _ACTION_OF), 0)
    return bits


def action_names(bits: int) -> list[str]:
    return [verbs[0] for place, verbs in enumerate(_ACTIONS) if bits & 1 << place]


# Parts

MOST_PARTS = 8
"""Parts that one request may have; what follows is read with the last."""

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=[。！？；])")
_JOINT = re.compile(
    r"(,?\s+(?:and\s+then|and\s+also|after\s+that|afterwards|as\s+well\s+as|and|then|plus|before|while|finally)\s+|[,:]\s*)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_LEADS = frozenset(("also", "finally", "then", "next", "please", "afterwards", "later", "lastly"))
_WISHES = frozenset(("need", "want", "please", "help", "like", "must", "should", "me"))


def parts(query: str) -> list[str]:
    """The clauses of `query`: those that ask for something, in order, then those that only tell; at least one."""
    clauses: list[str] = []
    for sentence in _SENTENCE.split(query):
        clause = ""
        pieces = _JOINT.split(sentence)
        for place in range(0, len(pieces), 2):
            piece = pieces[place]
            if clause and _is_order(piece):
                clauses.append(clause)
                clause = piece
            else:
                clause += (pieces[place - 1] if place and clause else "") + piece
        clauses.append(clause)
    found: list[str] = []
    for clause in clauses:
        if found and (len(found) == MOST_PARTS or _topics(clause) < 2):
            found[-1] += f" {clause}"
        elif clause.strip():
            found.append(clause.strip())
    if len(found) > 1 and _topics(found[0]) < 2:
        found[:2] = [f"{found[0]} {found[1]}"]
    return sorted(found, key=lambda clause: not _asks(clause)) or [query]


def _asks(clause: str) -> bool:
    """Whether a clause asks for something: an order, a question, a wish."""
    if clause.rstrip().endswith(("?", "？")) or not clause.isascii():
        return True
    words = _WORD.findall(clause.lower())
    if _WISHES.intersection(words):
        return True
    return next((word for word in words if word not in _LEADS and word not in _POLITENESS), "") in _VERBS


def _is_order(piece: str) -> bool:
    """Whether what follows a joint is an order of its own: a verb and what it is done to."""
    words = _WORD.findall(piece.lower())
    while words and words[0] in _LEADS:
        del words[0]
    # "size, weight and order of the items": a verb before "of" is a noun.
    return len(words) > 1 and words[0] in _VERBS and words[1] != "of"


def _topics(clause: str) -> int:
    return sum(word not in STOPWORDS for word in _WORD.findall(clause.lower()))
