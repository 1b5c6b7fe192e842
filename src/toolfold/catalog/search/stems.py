"""English words cut down to what their forms share: `creating`, `created` and `creates` all become `creat`.

This is Porter's algorithm (1980) with British spellings folded into American ones first. Words of other languages pass
through mostly unharmed; whatever happens to a word happens to it in documents and in queries alike.
"""

from __future__ import annotations

import re

from toolfold.catalog.search import lexicon

_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_SHORT = re.compile(r"[^aeiou][aeiouy][^aeiouwxy]$")
_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_GROUPS = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)+[^aeiouy]+")

_BRITISH = (
    ("isation", "ization"), ("ising", "izing"), ("ised", "ized"), ("iser", "izer"), ("ises", "izes"), ("ise", "ize"),
    ("ysing", "yzing"), ("ysed", "yzed"), ("yse", "yze"), ("ours", "ors"), ("our", "or"),
)  # fmt: skip
_UNSTEMMED = lexicon.words("unstemmed")
_NOT_BRITISH = lexicon.words("not_british")
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
    "al", "er", "ic", "ou",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word. Short words, numbers and other scripts are left as they are."""
    if len(word) <= 3 or word in _UNSTEMMED or not (word.isascii() and word.isalpha()):
        return word
    if word not in _NOT_BRITISH:
        word = _respelt(word)
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            if _measure(rest) > 1 and (suffix != "ion" or rest.endswith(("s", "t"))):
                word = rest
            elif suffix == "ion" and len(rest) >= 4 and rest.endswith(("s", "t")):
                # Beyond Porter, who keeps `creation` apart from `create`.
                word = rest
            break
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _SHORT.search(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _respelt(word: str) -> str:
    if len(word) > 5:
        for british, american in _BRITISH:
            if word.endswith(british) and len(word) - len(british) >= 3:
                return word[: -len(british)] + american
    return word


def _plural(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + ("y" if len(word) > 4 else "ie")
    return word[:-1]


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and _VOWEL.search(word[: -len(suffix)]):
            rest = word[: -len(suffix)]
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _DOUBLE.search(rest):
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _SHORT.search(rest) else rest
    return word


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, other in rules:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + other if _measure(rest) > 0 else word
    return word


def _measure(word: str) -> int:
    """How many vowel-consonant groups the word has: Porter's m."""
    return len(_GROUPS.findall(word))
