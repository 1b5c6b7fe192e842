"""Phone numbers, judged by the rules of `phonenumbers`.

A number with its country's code stands alone. One without is a phone's in a form in which people write phone numbers,
where one of the given regions has such a number, or after a word such as "phone".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

LENGTHS = range(7, 16)
_WORDS = re.compile(
    r"(?:\b(?:tel|tele?phones?|phones?|mobile|mob|cell|call|fax|ring|text|sms|dial|whatsapp|signal|telegram"
    r"|tfno|tlf|tfn|handy|mobil|portable|móvil|movil|cellulare|celular|telemóvel|ph)"
    r"|t[ée]l[ée]phone|tel[ée]fono|telefon[oe]?|telefoon|telefoni|puhelin)\b"
    r"(?:[ \t]*(?:no|nr|number|num|me|us|him|her|them|at|on|is|nummer|numéro))*[.:#=]*[ \t]*"
    r"(?:is|at|on)?[ \t]*\"?\(?\+?$",
    re.IGNORECASE,
)
_NORTH_AMERICAN = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}([ .-]))[2-9][0-9]{2}(?(1)\1|[ .-])[0-9]{4}"
)
_DATE = re.compile(
    r"(?:1[89]|20)[0-9]{2}([-/.])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:1[89]|20)[0-9]{2}"
    r"|(?:1[89]|20)[0-9]{2} ?[-/] ?(?:1[89]|20)[0-9]{2}"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}([ .])[0-9]{3}(?:\1[0-9]{3})*")
_DOTTED = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_DECIMAL = re.compile(r"[0-9]+\.[0-9]+")


class Phones:
    """Judges numbers, with these regions' forms for those without a country's code."""

    def __init__(self, regions: Sequence[str]) -> None:
        self._regions = tuple(regions)
        self._is_national = lru_cache(4096)(self._national)

    def judge(self, written: str, digits: str, before: str) -> tuple[bool, bool]:
        """Whether `written` is a phone number, and whether only the words before it say so."""
        if len(set(digits)) < 3:
            return False, False
        if written[0] == "+":
            if _is_international("+" + digits):
                return True, False
            by_words = _WORDS.search(before) is not None
            return by_words, by_words
        if _DOTTED.fullmatch(written):
            return False, False
        if _DATE.fullmatch(written) or _DECIMAL.fullmatch(written):
            return False, False
        if _NORTH_AMERICAN.fullmatch(written) and "US" in self._regions:
            return True, False
        if digits.startswith("00") and len(digits) > 10 and _is_international("+" + digits[2:]):
            return True, False
        if written != digits and not _THOUSANDS.fullmatch(written) and self._is_written(written, digits):
            return True, False
        if _WORDS.search(before):
            return True, True
        return False, False

    def _is_written(self, written: str, digits: str) -> bool:
        """Whether it is grouped as people group phone numbers, and some region has that number."""
        groups = re.split(r"[^0-9]+", written.strip("()"))
        if len(groups) > 6 or len(digits) < 8:
            return False
        leading = digits[0] == "0"
        pairs = len(groups) >= 4 and all(len(group) == 2 for group in groups[1:]) and len(groups[0]) <= 3
        pairs = pairs and len(set(re.sub(r"[0-9]", "", written))) == 1
        if not leading and not pairs and not written.startswith("("):
            return False
        return self._is_national(digits)

    def _national(self, digits: str) -> bool:
        import phonenumbers

        for region in self._regions:
            try:
                number = phonenumbers.parse(digits, region)
            except phonenumbers.NumberParseException:
                continue
            if phonenumbers.is_valid_number_for_region(number, region):
                return True
        return False


def _is_international(number: str) -> bool:
    """Whether a number with its country's code has a length that the country has numbers of."""
    import phonenumbers

    for size in (1, 2, 3):
        lengths = _lengths(number[1 : 1 + size])
        if lengths:
            if len(number) - 1 - size in lengths:
                return True
            break
    # With the digit that is dialled inside the country, as in +44 (0)20: the library takes it off.
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(number, None))
    except phonenumbers.NumberParseException:
        return False


@lru_cache
def _lengths(code: str) -> frozenset[int]:
    """How many digits the numbers of a country's code have; nothing for what is no country's code."""
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

    if not code.isdigit() or int(code) not in COUNTRY_CODE_TO_REGION_CODE:
        return frozenset()
    region = COUNTRY_CODE_TO_REGION_CODE[int(code)][0]
    metadata = PhoneMetadata.metadata_for_region_or_calling_code(int(code), region)
    described = metadata.general_desc if metadata is not None else None
    return frozenset(described.possible_length if described is not None else ())
