"""Dates of birth: a date after a word that says so. A date alone is nobody's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolfold.privacy.matches import Match

_WITH_B = re.compile(r"b(?:orn|irth|oren|\.|urt|oort|(?<=dob)|(?<=d\.o\.b))")
_HINTS = (
    "naissance", "nacid", "nacimiento", "nato il", "nata il", "nasc", "urodz", "syntyn",
    "né le", "née le", "né(e)", "født", "fødsel", "född", "födelse",
)  # fmt: skip
_WORDS = re.compile(
    r"(?<![^\W_])(?:born|d\.?o\.?b|date[ _]of[ _]birth|birth[ _]?da(?:te|y)|geb(?:oren|\.)|geburts(?:datum|tag)|n[ée]e? le"
    r"|né\(e\)(?: le)?|naissance|nacid[oa]|nacimiento|nat[oa] il|nascita|nascimento|nascid[oa]|født|fødsels?dato|född"
    r"|födelsedatum|geboortedatum|urodzon[ya]|urodzenia|syntynyt)",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?<![0-9])(?:"
    r"(?:18|19|20)[0-9]{2}([-/.])[01]?[0-9]\1[0-3]?[0-9]"
    r"|[0-3]?[0-9]([-/.]) ?[0-3]?[0-9]\2 ?(?:(?:18|19|20)[0-9]{2}|[0-9]{2})"
    r"|[0-3]?[0-9](?:st|nd|rd|th|er|\.|º)?,? (?:of |de |di )?[^\W\d_]{3,10}\.?,? (?:de |di )?(?:18|19|20)[0-9]{2}"
    r"|[^\W\d_]{3,10}\.? [0-3]?[0-9](?:st|nd|rd|th)?,? (?:18|19|20)[0-9]{2}"
    r")(?![0-9])"
)
_NEAR = 32
"""Characters between the word and the date."""


def find(text: str, lower: str) -> Iterator[Match]:
    if _WITH_B.search(lower) is None and not any(hint in lower for hint in _HINTS):
        return
    for word in _WORDS.finditer(text):
        found = _DATE.search(text, word.end(), word.end() + _NEAR + 20)
        if found is not None and found.start() - word.end() <= _NEAR and "\0" not in text[word.end() : found.start()]:
            yield Match(*found.span(), "date_of_birth", needs_context=True)
