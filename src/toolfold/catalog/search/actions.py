"""What is to be done, apart from what to: `create`, `read`, `delete` …, in a tool's name and in a request's first verb.

`Make an empty collection` and `drop the collection` share their only topical word with every tool about collections;
the verb decides between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolfold.catalog.search import lexicon

_BIT: dict[str, int] = {}
_OF: dict[str, int] = {}
for _place, _line in enumerate(lexicon.lines("actions")):
    _BIT[_line[0]] = 1 << _place
    for _verb in _line:
        _OF[_verb] = _OF.get(_verb, 0) | 1 << _place
_VERBS = lexicon.words("verbs") | _OF.keys()
_NOUNS = lexicon.words("nouns")
PREAMBLE = lexicon.words("preamble")


def of_entry(name: Sequence[str], server: Sequence[str], description: Sequence[str]) -> int:
    """The actions of an entry as bits: the verb its name opens with or else holds, and its description's first word.

    A name often begins with its server's (`slack_post_message`), and later words are often things (`chat_message`).
    """
    own = [word for word in name if word not in server] or list(name)
    bits = _OF.get(own[0], 0) if own else 0
    if not bits:
        bits = next((_OF[word] for word in own[1:] if word in _OF and word not in _NOUNS), 0)
    for word in description[:1]:
        bits |= _OF.get(word, 0) or _OF.get(word.removesuffix("s"), 0) or _OF.get(word.removesuffix("es"), 0)
    return bits


def of_request(words: Sequence[str]) -> int:
    """The actions that a request opens with, politeness aside; 0 when it opens with a thing."""
    for word in words[:10]:
        if word not in PREAMBLE:
            return _OF.get(word, 0)
    return 0


def named(bits: int) -> list[str]:
    return [action for action, bit in _BIT.items() if bits & bit]


def is_verb(word: str) -> bool:
    """Whether a clause that begins with `word` begins with something to do."""
    return word in _VERBS
