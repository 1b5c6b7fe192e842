"""Payment cards (issuer's range, length and Luhn) and IBANs (the country's length and MOD 97)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolfold.privacy.matches import Match
from toolfold.privacy.recognisers.checksums import luhn, mod_97
from toolfold.privacy.recognisers.keywords import places

_ISSUERS = re.compile(
    r"4[0-9]{12}(?:[0-9]{3}){0,2}"  # Visa
    r"|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"  # Mastercard
    r"|3[47][0-9]{13}"  # American Express
    r"|(?:6011|64[4-9][0-9]|65[0-9]{2})[0-9]{12}(?:[0-9]{3})?"  # Discover
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12}"  # JCB
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}(?:[0-9]{2})?"  # Diners
    r"|62[0-9]{14,17}"  # UnionPay
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])[0-9]{8,15}"  # Maestro
)
CARD_LENGTHS = range(13, 20)
_GROUPS = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1), (4, 4, 5), (8, 8), (6, 7), (6, 13)}

_AFTER_IBAN = re.compile(r"iban(?: (?:no|number|is))?[ :#=]{1,3}", re.IGNORECASE)
IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24,
    "XK": 20,
}  # fmt: skip


def is_card(digits: str, groups: tuple[int, ...]) -> bool:
    """Whether these digits, printed in groups of these lengths, are a card's number."""
    if len(groups) > 1 and groups not in _GROUPS:
        return False
    return _ISSUERS.fullmatch(digits) is not None and len(set(digits)) > 1 and luhn(digits)


def iban_end(text: str, start: int) -> int | None:
    """Where an IBAN that begins at `start` ends; groups may be apart by a space or a dash."""
    length = IBAN_LENGTHS.get(text[start : start + 2].upper())
    if length is None:
        return None
    letters: list[str] = []
    at = start
    while at < len(text) and len(letters) < length:
        character = text[at]
        if character.isascii() and character.isalnum():
            letters.append(character)
        elif character not in " -" or text[at - 1] in " -":
            return None
        at += 1
    if len(letters) < length or text[at : at + 1].isalnum():
        return None
    value = "".join(letters).upper()
    return at if mod_97(value[4:] + value[:4]) else None


def find_named_ibans(text: str, lower: str) -> Iterator[Match]:
    """After the word, in small letters too."""
    for at in places(lower, ("iban",)):
        start = _AFTER_IBAN.match(text, at)
        end = iban_end(text, start.end()) if start is not None else None
        if start is not None and end is not None:
            yield Match(start.end(), end, "iban")
