"""Numbers of seven digits and more: one pass finds them, and cards, ids and phones are told apart by their rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolfold.privacy.matches import Match
from toolfold.privacy.recognisers.national import is_national_id
from toolfold.privacy.recognisers.payment import CARD_LENGTHS, is_card
from toolfold.privacy.recognisers.phone import LENGTHS, Phones

# An ISO date is no beginning of a number: logs are full of them.
START = r"(?![0-9]{3}-[01][0-9]-[0-3][0-9](?![0-9-]))(?:[ ()./-]{0,2}[0-9]){6}"
"""What follows the first digit of a number."""
_RUN = re.compile(r"[0-9](?:[ ()./-]{0,2}[0-9]){6,}")
_GROUP = re.compile(r"[0-9]+")
_MOST_GROUPS = 8
_TABLE = 12
_CONTEXT = 48
"""Characters before a number in which the word that names it may stand."""


class Numbers:
    def __init__(self, regions: Sequence[str]) -> None:
        self._phones = Phones(regions)

    def find_at(self, text: str, start: int) -> tuple[list[Match], int]:
        """What is in the digits and separators that begin here, and where they end."""
        run = _RUN.match(text, start)
        if run is None:
            return [], start
        if text[run.end() : run.end() + 1].isalnum():
            return [], run.end()  # part of a word
        if start > 1 and text[start - 1] in ".,:-/" and text[start - 2].isdigit():
            return [], start  # the rest of a date, a time or a decimal number
        return list(self._in_run(text, start, run[0])), run.end()

    def _in_run(self, text: str, offset: int, run: str) -> Iterator[Match]:
        """What is in digits and separators: every sequence of groups is tried, the longest first."""
        groups = [found.span() for found in _GROUP.finditer(run)]
        # A long row of numbers is a table: only cards, in their four groups, and long numbers are looked for in it.
        most = _MOST_GROUPS if len(groups) <= _TABLE else 4
        first = 0
        while first < len(groups):
            begin = groups[first][0]
            follows = first > 0 and run[groups[first - 1][1] : begin] == " "
            # What goes on in the same way as it began before is a part of something else, unless it is a card.
            is_part = follows or _follows_number(text, offset + begin)
            for last in range(min(len(groups), first + most) - 1, first - 1, -1):
                end = groups[last][1]
                if end - begin < (13 if is_part else 7):
                    break
                if last - first + 1 < len(groups) and not _are_apart(run, groups, first, last):
                    continue
                match = self._judge(text, offset + begin, offset + end, groups[first : last + 1], is_part=is_part)
                if match is not None:
                    yield match
                    first = last
                    break
            first += 1

    def _judge(self, text: str, start: int, end: int, spans: list[tuple[int, int]], *, is_part: bool) -> Match | None:
        written = text[start:end]
        groups = tuple(stop - begin for begin, stop in spans)
        digits = written if len(groups) == 1 else "".join(_GROUP.findall(written))
        if not 7 <= len(digits) <= 19:
            return None
        if len(digits) in CARD_LENGTHS and is_card(digits, groups):
            return Match(start, end, "card")
        if is_part:
            return None
        line = max(text.rfind("\n", 0, start), text.rfind("\0", 0, start)) + 1
        before = text[max(line, start - _CONTEXT) : start]
        found, by_words = is_national_id(digits, groups, before)
        if found:
            return Match(start, end, "national_id", by_words)
        if len(digits) not in LENGTHS:
            return None
        if before[-1:] == "(" and ")" in written:
            start, before = start - 1, before[:-1]
        if before[-1:] == "+":
            start, before = start - 1, before[:-1]
        found, by_words = self._phones.judge(text[start:end], digits, before)
        return Match(start, end, "phone", by_words) if found else None


def _follows_number(text: str, start: int) -> bool:
    """Whether something like `GB82` stands right before: then this is the rest of an account's number."""
    return start > 2 and text[start - 1] == " " and text[start - 2].isdigit()


def _are_apart(run: str, groups: list[tuple[int, int]], first: int, last: int) -> bool:
    """Whether the groups outside are apart by a space: `1-2-3` is one number, and not three."""
    before = run[groups[first - 1][1] : groups[first][0]] if first else " "
    after = run[groups[last][1] : groups[last + 1][0]] if last + 1 < len(groups) else " "
    return before[:1] in " (/" and after[:1] in " (/."
