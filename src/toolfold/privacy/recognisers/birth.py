"""Dates of birth: a date after a word that says so. A date alone is nobody's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolfold.privacy.matches import Match
from toolfold.privacy.recognisers.keywords import places

_STEMS = (
    "birth", "born", "dob", "d.o.b", "geb", "naissance", "nac", "nasc", "nato il", "nata il", "urodz", "syntynyt",
)  # fmt: skip
_ACCENTED = ("né le", "née le", "né(e)", "født", "fødsel", "född", "födelse")
_WORDS = re.compile(
    r"birth|born|dob|d\.o\.b|geb(?:oren|oortedatum|\.|urts)|naissance|nac(?:id[oa]|imiento)|nasc(?:ita|imento|id[oa])"
    r"|nat[oa] il|urodz|syntynyt|né|født|føds|född|föde"
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
    for at in places(lower, _STEMS if lower.isascii() else (*_STEMS, *_ACCENTED)):
        word = _WORDS.match(lower, at)
        if word is None or (text[at - 1 : at].isalpha() and not lower.startswith(("birth", "dob"), at)):
            continue
        found = _DATE.search(text, word.end(), at + _NEAR + 40)
        if found is not None and found.start() - at <= _NEAR + 12 and "\0" not in text[at : found.start()]:
            yield Match(*found.span(), "date_of_birth", needs_context=True)
