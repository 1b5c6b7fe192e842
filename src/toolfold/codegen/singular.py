"""English singulars, for naming the type of what a list holds: `entities` is a list of `Entity`."""

from __future__ import annotations

import re

_LAST_WORD = re.compile(r"[A-Z]?[a-z]+$|[A-Z]+$")
_INITIALS = re.compile(r"[A-Z]{2,}s$")
# fmt: off
_IRREGULAR = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "feet": "foot", "teeth": "tooth",
    "mice": "mouse", "indices": "index", "vertices": "vertex", "matrices": "matrix", "appendices": "appendix",
    "vortices": "vortex", "criteria": "criterion", "phenomena": "phenomenon", "quizzes": "quiz", "axes": "axis",
    "analyses": "analysis", "hypotheses": "hypothesis", "diagnoses": "diagnosis", "synopses": "synopsis",
    "crises": "crisis", "theses": "thesis", "parentheses": "parenthesis", "emphases": "emphasis", "oases": "oasis",
    "leaves": "leaf", "shelves": "shelf", "halves": "half", "lives": "life", "knives": "knife", "wolves": "wolf",
    "movies": "movie", "cookies": "cookie", "calories": "calorie", "ties": "tie", "pies": "pie", "zombies": "zombie",
    "caches": "cache", "headaches": "headache", "niches": "niche", "shoes": "shoe", "toes": "toe", "menus": "menu",
    "ids": "id",
}
# The same word for one and for many, or a singular that ends like a plural.
_UNCHANGED = frozenset({"series", "species", "news", "means", "lens", "gas", "atlas", "canvas", "always", "aws", "dns"})
_ENDS_IN_US = frozenset({
    "status", "bonus", "campus", "virus", "focus", "corpus", "census", "consensus", "radius", "bus", "plus", "genius",
    "nexus", "locus", "apparatus", "prospectus", "stimulus", "chorus", "opus", "syllabus", "thesaurus", "surplus",
})
_TAKES_ES = frozenset({*_ENDS_IN_US, "alias", "bias", "lens", "gas", "atlas", "canvas", "iris"})
# fmt: on
_SINGULAR_ENDINGS = ("ss", "sis", "axis", "iris", "ois", "alias", "bias", "chaos")
_ADDED_ES = ("sses", "shes", "ches", "xes", "zzes", "oes")


def singular(name: str) -> str:
    """`name` with its last word in the singular; a name that is no plural stays: `status`, `address`, `series`."""
    if _INITIALS.search(name):
        return name[:-1]
    found = _LAST_WORD.search(name)
    if found is None:
        return name
    word = found[0]
    one = _one(word.lower())
    if one is None:
        return name
    if word.isupper() and len(word) > 1:
        one = one.upper()
    elif word[0].isupper():
        one = one.capitalize()
    return name[: found.start()] + one


def _one(word: str) -> str | None:
    """The singular of a plural in lower case; None where `word` is no plural."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _UNCHANGED or word in _ENDS_IN_US or word.endswith(_SINGULAR_ENDINGS):
        return None
    if word.endswith("es") and word[:-2] in _TAKES_ES:
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(_ADDED_ES) and len(word) > 4:
        return word[:-2]
    return word[:-1] if word.endswith("s") and len(word) > 3 else None
