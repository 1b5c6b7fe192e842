"""Postal addresses: a house's number and a street's name in the order of the country, and the town that follows.

A place without a number ("Main Street") is nobody's address. Everything is found from its number, and every repeat is
bounded, so that text without addresses costs little whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolfold.privacy.matches import Match

_WORD = r"[^\W\d_][\w'’-]{0,30}"
_CAPITAL = r"(?![A-Z]{1,2}[0-9])[A-ZÀ-ÖØ-ÞŁŚŻ][\w'’-]{0,30}"
_CODE = r"[ ,]{1,2}(?:[A-Z]{1,2}-)?[0-9]{2,5}(?:[- ][0-9A-Z]{2,4})?(?![\w])"
_TOWN = rf"(?:{_CODE}(?: {_CAPITAL}){{0,3}}|, (?:{_CAPITAL})(?: {_CAPITAL}){{0,2}})?"
_HOUSE = r"[0-9]{1,4}(?: ?[a-zA-Z])?(?:[-/][0-9]{1,4}[a-zA-Z]?)?(?![\w])"

_ENGLISH_TYPES = (
    "Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Ter|Way|Close"
    "|Crescent|Cres|Parkway|Pkwy|Highway|Hwy|Circle|Cir|Grove|Gardens|Mews|Row|Walk|Trail|Trl|Loop|Plaza|Alley|Broadway"
)
_FRENCH_TYPES = "rue|avenue|av\\.|boulevard|bd|place|chemin|allée|impasse|quai|cours|route|square|passage|voie"
_NUMBER_FIRST = re.compile(
    r"[0-9]{1,5}(?:"
    # 221B Baker Street, London NW1 6XE; 350 Fifth Avenue, New York, NY 10118
    rf"[A-Za-z]?(?:-[0-9]{{1,4}})?,? (?:[NSEW]{{1,2}}\.? )?(?:(?:{_CAPITAL}\.?|[0-9]{{1,3}}(?:st|nd|rd|th)) ){{1,4}}?"
    rf"(?:{_ENGLISH_TYPES}|{_ENGLISH_TYPES.upper()})\b\.?(?: [NSEW]{{1,2}}\b)?"
    r"(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Flat|Floor|#)\.? ?#?[\w-]{1,6})?"
    rf"(?:, {_CAPITAL}(?: {_CAPITAL}){{0,2}})?"
    r"(?:,? (?:[A-Z]{2} [0-9]{5}(?:-[0-9]{4})?|[A-Z]{1,2}[0-9][0-9A-Z]? ?[0-9][A-Z]{2}|[A-Z]{2,3} [0-9]{4})\b)?"
    # 12 bis, rue de la Paix, 75002 Paris
    rf"|(?: ?(?:bis|ter|quater|[A-Z]))?,? (?:{_FRENCH_TYPES}|{_FRENCH_TYPES.title()})"
    rf"(?: {_WORD}){{1,6}}?(?=[,;!?)\"\n\0]|\. |\.$|$|[ ,]+[0-9]{{5}} ){_TOWN}"
    r")"
)
_TYPE_ENDS = (
    "straße", "strasse", "str.", "Straße", "Strasse", "Str.", "weg", "Weg", "platz", "Platz", "allee", "Allee",
    "gasse", "ring", "damm", "ufer", "straat", "laan", "plein", "gracht", "kade", "singel", "dreef", "gata", "gaten",
    "gate", "veien", "vegen", "vei", "plass", "allé", "gatan", "vägen", "väg", "vej", "gade", "katu", "tie",
)  # fmt: skip
_AFTER_TYPE = re.compile(r"[0-9](?<=[gzemrtnlfaisju.é] .)")
_PARTICLES = "der|den|dem|des|von|van|de|am|an|la|del|della|di|da|do|dos|das|los|las|el|of"
_TYPE_LAST = re.compile(
    rf"(?:(?:{_CAPITAL} |(?:{_PARTICLES}) ){{1,3}}"
    r"(?:[Ss]traße|[Ss]trasse|[Ss]tr\.|[Ww]eg|[Pp]latz|[Aa]llee|gate|gata|vei"
    rf"|allé|plass|väg|vej|tie)|[A-ZÀ-ÖØ-Þ][\w'’-]{{0,30}}(?:{'|'.join(map(re.escape, _TYPE_ENDS))})) {_HOUSE}{_TOWN}"
)
_TYPE_FIRST = re.compile(
    r"[ACPRVLTu](?:(?<=C)(?:alle|/|arrer|orso)|(?<=A)(?:venida|vda\.?|v\.|lameda)|(?<=P)(?:laza|aseo|iazzale|iazza|raça)"
    r"|(?<=R)(?:ua|onda)|(?<=V)(?:iale|ia|icolo)|(?<=L)argo|(?<=T)ravessa|(?<=u)(?:l\.|lica))"
    rf" ?(?:(?:{_PARTICLES}) ){{0,2}}{_CAPITAL}(?: (?:{_WORD}|[0-9]{{1,2}})){{0,4}}?,? "
    rf"(?:n[.ºo°]{{0,2}} ?|núm\. )?{_HOUSE}{_TOWN}"
)
_WINDOW = 64
NUMBER_START = (
    r"[0-9]{0,4}(?:[A-Za-z]?(?:-[0-9]{1,4})?,? (?:[0-9]{1,3}[snrt][tdh] )?[A-ZÀ-Þ]"
    rf"|(?: ?(?:bis|ter|quater))?,? (?=[rabpciqsv])(?:{_FRENCH_TYPES}) )"
)
"""What follows the first digit of a house's number that begins an address."""
TYPE_START = (
    r"(?:alle |/|arrer|orso |venida|vda|v\.|lameda|laza |aseo|iazz|raça|ua |onda |iale |ia |icolo|argo |ravessa"
    r"|\. ?O\.? Box |O Box )"
)
"""What follows the first letter of a word with which an address begins."""
_BOX = re.compile(r"P\.? ?O\.? Box [0-9]{2,6}")


def find_at(text: str, start: int) -> Match | None:
    """An address whose first word or house's number begins here."""
    if text[start].isdigit():
        found = _NUMBER_FIRST.match(text, start)
    else:
        found = _TYPE_FIRST.match(text, start) or _BOX.match(text, start)
    return None if found is None else _match(found)


def find(text: str) -> Iterator[Match]:
    """Addresses that begin with the street's name, found from the number after it."""
    done = 0
    for number in _AFTER_TYPE.finditer(text):
        at = number.start()
        if at < done or not text.endswith(_TYPE_ENDS, max(0, at - 12), at - 1):
            continue
        for found in _TYPE_LAST.finditer(text, max(done, at - _WINDOW), at + _WINDOW):
            done = found.end()
            if not text[found.start() - 1 : found.start()].isalnum():
                yield _match(found)


def _match(found: re.Match[str]) -> Match:
    return Match(found.start(), found.start() + len(found[0].rstrip(" ,.-")), "address")
