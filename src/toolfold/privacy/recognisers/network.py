"""IP and MAC addresses. Those that every machine has (127.0.0.1, ::1, 0.0.0.0) name nobody and are left alone."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from toolfold.privacy.matches import Match

V4_START = r"[0-9]{0,2}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]"
_V4 = re.compile(r"(?<!\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w])(?!\.[0-9])")
_V6_START = re.compile(r":[0-9a-fA-F]{0,4}:")
_V6 = re.compile(r"[0-9a-fA-F:]{2,39}(?:(?<=:)[0-9]{1,3}(?:\.[0-9]{1,3}){3})?")
_MAC_COLONS = re.compile(r":[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:")
_MAC_DASHES = re.compile(r"-[0-9a-fA-F]{2}-[0-9a-fA-F]{2}-[0-9a-fA-F]{2}-")
_MAC = re.compile(r"[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}(?![0-9a-zA-Z])(?!\1[0-9a-fA-F]{2})")
_VERSION = re.compile(r"(?:\bv|[vV]ersion|[rR]elease|build)[ =:]*$")
_HEX = frozenset("0123456789abcdefABCDEF:")


def find(text: str) -> Iterator[Match]:
    """MAC and IPv6 addresses."""
    if ":" in text:
        yield from _find_v6(text)
        yield from _find_mac(text, _MAC_COLONS)
    if "-" in text:
        yield from _find_mac(text, _MAC_DASHES)


def find_v4_at(text: str, start: int) -> Match | None:
    found = _V4.match(text, start)
    if found is None:
        return None
    numbers = [int(part) for part in found[0].split(".")]
    if max(numbers) > 255 or numbers[0] in (0, 127) or numbers == [255] * 4:
        return None
    if max(numbers) < 10 or _VERSION.search(text[max(0, start - 10) : start]):
        return None  # 1.0.2.1 is a version more often than a machine
    return Match(start, found.end(), "ip")


def _find_v6(text: str) -> Iterator[Match]:
    done = 0
    for anchor in _V6_START.finditer(text):
        start = anchor.start()
        if start < done:
            continue
        while start > done and text[start - 1] in _HEX and anchor.start() - start < 40:
            start -= 1
        found = _V6.match(text, start)
        if found is None:
            continue
        done = found.end()
        value = found[0].rstrip(":") if not found[0].endswith("::") else found[0]
        before, after = text[start - 1 : start], text[start + len(value) : start + len(value) + 1]
        if before.isalnum() or after.isalnum() or value.count(":") < 2:
            continue
        try:
            address = ipaddress.IPv6Address(value)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_unspecified) and len(value) > 4:
            yield Match(start, start + len(value), "ip")


def _find_mac(text: str, middle: re.Pattern[str]) -> Iterator[Match]:
    done = 0
    for anchor in middle.finditer(text):
        start = anchor.start() - 2
        if start < done or text[start - 1 : start].isalnum() or start < 0:
            continue
        found = _MAC.match(text, start)
        if found is not None:
            done = found.end()
            if len(set(found[0])) > 3:  # neither all zeros nor all ones
                yield Match(start, done, "mac")
