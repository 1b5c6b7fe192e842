"""Everything that is recognised in a text, by all recognisers together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolfold.privacy.matches import Match, Recogniser, resolved
from toolfold.privacy.recognisers import address, birth, email, national, network, payment, secrets
from toolfold.privacy.recognisers.numbers import START, Numbers

SEPARATOR = "\0"
"""Stands between texts that are scanned together; nothing is recognised across it."""

# Where something with digits may begin: one pass for all that are found from a digit or a capital. A pattern that
# begins with one set of characters is fast, because `re` skips to the next of them.
_PLACES = re.compile(
    r"[A-Z0-9u](?<!\w.)(?:"
    r"(?<=[0-9])(?![0-9]{0,5}(?:[^0-9 .,()/A-Za-z+-]|$))"  # a short number that ends here is nothing
    rf"(?:(?={START})|(?={network.V4_START})|(?={address.NUMBER_START})|(?={national.DIGIT_START}))"
    rf"|(?<=[A-Z])(?=[A-Z][0-9]{{2}}[ -]?[0-9A-Z]{{4}}|{secrets.CAPITAL_START}|{national.LETTER_START})"
    rf"|(?<=[ACPRVLTu])(?={address.TYPE_START}|l\.|lica )"
    r")"
)


class Scanner:
    """Finds values. `own` are the person's patterns and words, and recognisers from elsewhere."""

    def __init__(self, regions: Sequence[str], ignored: Sequence[str] = (), own: Sequence[Recogniser] = ()) -> None:
        self._numbers = Numbers(regions)
        self._ignored = frozenset(ignored)
        self._own = tuple(own)

    def find(self, text: str) -> list[Match]:
        """Every value, in order and without overlaps. `text` has been folded."""
        found = [match for match in self._all(text) if match.kind not in self._ignored]
        for recogniser in self._own:
            found += recogniser.find(text)
        return resolved(found) if len(found) > 1 else found

    def _all(self, text: str) -> Iterator[Match]:
        if "@" in text:
            yield from email.find(text)
        lower = text.lower()
        if len(lower) != len(text):
            lower = text
        yield from secrets.find(text, lower)
        yield from network.find(text)
        yield from address.find(text)
        yield from birth.find(text, lower)
        yield from national.find_named(text, lower)
        yield from payment.find_named_ibans(text, lower)
        done = 0
        for place in _PLACES.finditer(text):
            start = place.start()
            if text[start].isdigit():
                if start >= done:
                    matches, done = self._numbers.find_at(text, start)
                    yield from matches
                found = network.find_v4_at(text, start)
            else:
                end = payment.iban_end(text, start)
                found = Match(start, end, "iban") if end is not None else secrets.find_capital_at(text, start)
            yield from filter(None, (found, national.find_lettered_at(text, start), address.find_at(text, start)))
