"""National ids, by the rules of the countries that issue them.

A rule that accidental numbers rarely pass (a date and check digits, a fixed form with letters) stands alone. The others
count only in the form in which people write them, or after a word that names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from toolfold.privacy.matches import Match
from toolfold.privacy.recognisers.checksums import is_date, luhn, mod_11_10, verhoeff, weighted
from toolfold.privacy.recognisers.keywords import places

Groups = tuple[int, ...]
"""How many digits are in each group of a number, as it is written."""


class Rule(NamedTuple):
    """One country's number of digits. `forms` are groups that stand alone; others need one of the `words` before."""

    length: int
    check: Callable[[str], bool]
    forms: frozenset[Groups]
    words: re.Pattern[str] | None


def _words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(words)})(?![^\W_])", re.IGNORECASE)


def _rule(length: int, check: Callable[[str], bool], words: tuple[str, ...], *forms: Groups) -> Rule:
    return Rule(length, check, frozenset(forms), _words(*words) if words else None)


# ---- numbers of digits


def _us_ssn(digits: str) -> bool:
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in ("000", "666") or group == "00" or serial == "0000":
        return False
    # 900 and above: taxpayers without a social security number (ITIN).
    return area < "900" or group[0] in "5678" or group in ("90", "91", "92", "94", "95", "96", "97", "98", "99")


def _nl_bsn(digits: str) -> bool:
    return len(set(digits)) > 1 and weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def _pt_nif(digits: str) -> bool:
    check = 11 - weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2)) % 11
    return digits[0] in "1235689" and (0 if check > 9 else check) == int(digits[8])


def _au_tfn(digits: str) -> bool:
    return weighted(digits, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0


def _ca_sin(digits: str) -> bool:
    return digits[0] not in "08" and luhn(digits)


def _uk_nhs(digits: str) -> bool:
    check = 11 - weighted(digits, range(10, 1, -1)) % 11
    return check != 10 and check % 11 == int(digits[9])


def _dk_cpr(digits: str) -> bool:
    known = weighted(digits, (4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0
    return known and is_date(2000 + int(digits[4:6]), int(digits[2:4]), int(digits[:2]))


def _se_short(digits: str) -> bool:
    day = int(digits[4:6])
    return is_date(2000 + int(digits[:2]), int(digits[2:4]), day - 60 if day > 60 else day) and luhn(digits)


def _se_long(digits: str) -> bool:
    return digits[:2] in ("18", "19", "20") and _se_short(digits[2:])


def _no_fnr(digits: str) -> bool:
    day, month = int(digits[:2]), int(digits[2:4])
    if not is_date(2000, month - 40 if month > 40 else month, day - 40 if day > 40 else day):
        return False
    first = weighted(digits, (3, 7, 6, 1, 8, 9, 4, 5, 2, 1)) % 11
    return first == 0 and weighted(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0


def _de_tax_id(digits: str) -> bool:
    counts = sorted(digits[:10].count(digit) for digit in set(digits[:10]))
    # One digit twice or three times, all others once.
    return digits[0] != "0" and counts[-1] in (2, 3) and counts[-2] == 1 and mod_11_10(digits)


def _pl_pesel(digits: str) -> bool:
    century = (1900, 2000, 2100, 2200, 1800)[int(digits[2]) // 2]
    if not is_date(century + int(digits[:2]), int(digits[2:4]) % 20, int(digits[4:6])):
        return False
    return weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)) % 10 == 0


def _br_cpf(digits: str) -> bool:
    if len(set(digits)) == 1:
        return False
    first = weighted(digits[:9], range(10, 1, -1)) * 10 % 11 % 10
    return first == int(digits[9]) and weighted(digits[:10], range(11, 1, -1)) * 10 % 11 % 10 == int(digits[10])


def _be_number(digits: str) -> bool:
    if not is_date(2000, int(digits[2:4]) or 1, int(digits[4:6]) or 1):
        return False
    return int(digits[9:]) in (97 - int(digits[:9]) % 97, 97 - int("2" + digits[:9]) % 97)


def _in_aadhaar(digits: str) -> bool:
    return digits[0] not in "01" and len(set(digits)) > 2 and verhoeff(digits)


def _ch_ahv(digits: str) -> bool:
    return digits.startswith("756") and weighted(digits, (1, 3) * 6 + (1,)) % 10 == 0


def _za_id(digits: str) -> bool:
    return digits[10] in "01" and is_date(2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:6])) and luhn(digits)


def _ro_cnp(digits: str) -> bool:
    if digits[0] == "0" or not is_date(2000 + int(digits[1:3]), int(digits[3:5]), int(digits[5:7])):
        return False
    check = weighted(digits, (2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)) % 11
    return (1 if check == 10 else check) == int(digits[12])


def _kr_rrn(digits: str) -> bool:
    if not is_date(2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:6])) or digits[6] not in "12345678":
        return False
    return (11 - weighted(digits, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10 == int(digits[12])


def _fr_nir(digits: str) -> bool:
    month = int(digits[3:5])
    if digits[0] not in "123478" or not (1 <= month <= 12 or 20 <= month <= 42 or 50 <= month <= 99):
        return False
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


_ID = ("national id", "id number", "identity number", "personal number", "national number")
RULES: dict[int, list[Rule]] = {}
for _each in (
    _rule(9, _us_ssn, ("ssn", "social security", "itin", "taxpayer"), (3, 2, 4)),
    _rule(9, _nl_bsn, ("bsn", "burgerservicenummer", "sofinummer", *_ID)),
    _rule(9, _pt_nif, ("nif", "contribuinte", *_ID)),
    _rule(9, _au_tfn, ("tfn", "tax file")),
    _rule(9, _ca_sin, ("sin", "social insurance", "nas")),
    _rule(10, _uk_nhs, ("nhs",)),
    _rule(10, _dk_cpr, ("cpr", *_ID), (6, 4)),
    _rule(10, _se_short, ("personnummer", *_ID), (6, 4)),
    _rule(11, _no_fnr, (), (11,), (6, 5)),
    _rule(11, _de_tax_id, (), (11,), (2, 3, 3, 3)),
    _rule(11, _pl_pesel, (), (11,)),
    _rule(11, _br_cpf, ("cpf", *_ID), (3, 3, 3, 2)),
    _rule(11, _be_number, (), (11,), (2, 2, 2, 3, 2), (6, 3, 2), (6, 5)),
    _rule(12, _se_long, (), (8, 4), (12,)),
    _rule(12, _in_aadhaar, ("aadhaar", "aadhar", "uidai", "uid"), (4, 4, 4)),
    _rule(13, _ch_ahv, (), (13,), (3, 4, 4, 2)),
    _rule(13, _za_id, ("south african", "sa id", *_ID)),
    _rule(13, _ro_cnp, ("cnp", *_ID)),
    _rule(13, _kr_rrn, (), (6, 7)),
    _rule(15, _fr_nir, (), (15,), (1, 2, 2, 2, 3, 3, 2), (13, 2)),
):
    RULES.setdefault(_each.length, []).append(_each)


# ---- numbers with letters

LETTER_START = r"[A-Z]{5}[0-9LMNPQRSTUV]{2}|[A-Z]{3}[0-9]{6}|[A-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2}|-?[0-9]{7}-?[A-Z]"
DIGIT_START = r"[0-9]{7}-?[A-Z]|[0-9]{5}[-+A-FU-Y][0-9]{3}|[0-9]{16}[0-9X]| ?[0-9]{2} ?[0-9]{2} ?2[AB]"
"""What may follow the first character, a letter or a digit, of an id that mixes both."""
_LETTERED = re.compile(
    r"[A-Z0-9](?:"
    r"(?P<it>[A-Z]{5}[0-9LMNPQRSTUV]{2}[ABCDEHLMPRST][0-9LMNPQRSTUV]{2}[A-Z][0-9LMNPQRSTUV]{3}[A-Z])"
    r"|(?P<mx>[AEIOUX][A-Z]{2}[0-9]{6}[HMX][A-Z]{5}[0-9A-Z][0-9])"
    r"|(?P<uk>(?<=[ABCEGHJ-PRSTW-Z])[ABCEGHJ-NPRSTW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D])"
    r"|(?P<es_nie>(?<=[XYZ])-?[0-9]{7}-?[A-Z])"
    r"|(?P<sg>(?<=[STFG])[0-9]{7}[A-Z])"
    r"|(?P<es_dni>[0-9]{7}-?[A-Z])"
    r"|(?P<cn>[0-9]{5}(?:19|20)[0-9]{2}[01][0-9][0-3][0-9]{4}[0-9X])"
    r"|(?P<fi>[0-9][01][0-9]{3}[-+A-FU-Y][0-9]{3}[0-9A-FHJ-NPR-Y])"
    r"|(?P<fr>(?<=[1-478]) ?[0-9]{2} ?[0-9]{2} ?2[AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2})"
    r")(?![\w])"
)
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_FI_LETTERS = "0123456789ABCDEFHJKLMNPRSTUVWXY"
_IT_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (
            1,
            0,
            5,
            7,
            9,
            13,
            15,
            17,
            19,
            21,
            1,
            0,
            5,
            7,
            9,
            13,
            15,
            17,
            19,
            21,
            2,
            4,
            18,
            20,
            11,
            3,
            6,
            8,
            12,
            14,
            16,
            10,
            22,
            25,
            24,
            23,
        ),
        strict=True,
    )
)
_IT_EVEN = {character: place for place, character in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")} | {
    digit: int(digit) for digit in "0123456789"
}
_MX_LETTERS = "0123456789ABCDEFGHIJKLMNÑOPQRSTUVWXYZ"


def _it_codice_fiscale(value: str) -> bool:
    total = sum((_IT_EVEN if place % 2 else _IT_ODD)[character] for place, character in enumerate(value[:15]))
    return chr(65 + total % 26) == value[15]


def _mx_curp(value: str) -> bool:
    total = sum(_MX_LETTERS.index(character) * (18 - place) for place, character in enumerate(value[:17]))
    return (10 - total % 10) % 10 == int(value[17])


def _uk_nino(value: str) -> bool:
    return value[:2] not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ") and len(set(value[2:8])) > 1


def _es_dni(value: str) -> bool:
    return _DNI_LETTERS[int(value[:8]) % 23] == value[8]


def _es_nie(value: str) -> bool:
    return _es_dni(str("XYZ".index(value[0])) + value[1:])


def _sg_nric(value: str) -> bool:
    total = weighted(value[1:8], (2, 7, 6, 5, 4, 3, 2)) + (4 if value[0] in "TG" else 0)
    return ("JZIHGFEDCBA" if value[0] in "ST" else "XWUTRQPNMLK")[total % 11] == value[8]


def _cn_id(value: str) -> bool:
    if not is_date(int(value[6:10]), int(value[10:12]), int(value[12:14])):
        return False
    total = weighted(value, (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return "10X98765432"[total % 11] == value[17]


def _fi_hetu(value: str) -> bool:
    if not is_date(2000 + int(value[4:6]), int(value[2:4]), int(value[:2])):
        return False
    return _FI_LETTERS[int(value[:6] + value[7:10]) % 31] == value[10]


def _fr_corsica(value: str) -> bool:
    return _fr_nir(value.replace("2A", "19").replace("2B", "18"))


_LETTERED_CHECKS: dict[str, Callable[[str], bool]] = {
    "it": _it_codice_fiscale,
    "mx": _mx_curp,
    "uk": _uk_nino,
    "es_nie": _es_nie,
    "sg": _sg_nric,
    "es_dni": _es_dni,
    "cn": _cn_id,
    "fi": _fi_hetu,
    "fr": _fr_corsica,
}
_NAMES = (
    "ssn", "nino", "pass", "pasaporte", "licen", "social security", "national i", "identity card", "steuer", "ausweis",
    "tax id",
)  # fmt: skip
_NAMED = re.compile(
    r"(?:ssn|nino|pass(?:port|eport|aporto)?|pasaporte|licen[cs]e|social security|national i(?:nsurance|d)"
    r"|identity card|steuer-?id|ausweis|tax id)\b"
    r"[ \t]*(?:no\.?|number|num\.?|nr\.?|id|card|is|\(\w{2,8}\))?[ \t]*(?:is|[:#=])?[ \t]*"
    r"(?-i:([A-Z0-9](?:[ -]?[A-Z0-9]){5,17}))(?![\w])",
    re.IGNORECASE,
)


def find_lettered_at(text: str, start: int) -> Match | None:
    """An id that mixes letters and digits in a form of its own."""
    found = _LETTERED.match(text, start)
    if found is None:
        return None
    value = found[0] if found.lastgroup == "fi" else found[0].replace(" ", "").replace("-", "")
    return Match(*found.span(), "national_id") if _LETTERED_CHECKS[str(found.lastgroup)](value) else None


def find_named(text: str, lower: str) -> Iterator[Match]:
    """What stands after the name of an id: passports and licences have no check digit that all countries share."""
    for at in places(lower, _NAMES):
        found = _NAMED.match(text, at)
        if found is None or (text[at - 1 : at].isalnum() and not lower.startswith(("pass", "ausweis"), at)):
            continue
        value = found[1]
        if lower.startswith("licen", at) and not lower[max(0, at - 10) : at].rstrip(" '’s").endswith(
            ("driver", "driving")
        ):
            continue
        if sum(map(str.isdigit, value)) >= 5:
            yield Match(*found.span(1), "national_id", needs_context=True)


def is_national_id(digits: str, groups: Groups, before: str) -> tuple[bool, bool]:
    """Whether these digits are an id, and whether only the words before them say so."""
    if before[-1:] == "+":
        return False, False
    for rule in RULES.get(len(digits), ()):
        by_words = groups not in rule.forms
        if by_words and (rule.words is None or len(groups) == 2 or not rule.words.search(before)):
            continue
        if rule.check(digits):
            return True, by_words
    return False, False
