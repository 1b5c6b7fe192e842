"""How a person gets in: by a link that is good once, and then by a cookie. Both live in memory only."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

LINK_SECONDS = 600.0
COOKIE_SECONDS = 12 * 3600
_MOST_LINKS = 16
_MOST_PEOPLE = 16
_TRIES = 10
_TRIES_SECONDS = 60.0
_MOST_ADDRESSES = 256


@dataclass(frozen=True)
class Person:
    """Somebody who is signed in. `csrf` must come with everything that they send."""

    until: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def sent(self, csrf: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class SignIn:
    """The links and cookies of one gateway. Of the secrets only their digests are kept."""

    def __init__(self) -> None:
        self._links: OrderedDict[str, float] = OrderedDict()
        self._people: OrderedDict[str, Person] = OrderedDict()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def make_link(self) -> str:
        """The secret of a new link. The oldest one is forgotten when there are many."""
        secret = secrets.token_urlsafe(32)
        self._links[_digest(secret)] = time.monotonic() + LINK_SECONDS
        while len(self._links) > _MOST_LINKS:
            self._links.popitem(last=False)
        return secret

    def is_good(self, secret: str) -> bool:
        """Whether the link could be used now; looking does not use it up."""
        return self._links.get(_digest(secret), 0.0) > time.monotonic()

    def use(self, secret: str) -> str | None:
        """Use the link up: the cookie of the person who came with it, or None."""
        if not self.is_good(secret):
            return None
        del self._links[_digest(secret)]
        cookie = secrets.token_urlsafe(32)
        self._people[_digest(cookie)] = Person(time.monotonic() + COOKIE_SECONDS)
        while len(self._people) > _MOST_PEOPLE:
            self._people.popitem(last=False)
        return cookie

    def person(self, cookie: str) -> Person | None:
        found = self._people.get(_digest(cookie))
        return found if found is not None and found.until > time.monotonic() else None

    def is_in(self, person: Person) -> bool:
        """Whether they still are: not after they have signed out, or too long after they signed in."""
        return person.until > time.monotonic() and any(each is person for each in self._people.values())

    def forget(self, cookie: str) -> None:
        self._people.pop(_digest(cookie), None)

    # Links that were guessed

    def may_try(self, address: str) -> bool:
        """Whether links of this address are looked at: not after many wrong ones within a minute."""
        tries = self._wrong.get(address, deque())
        while tries and tries[0] < time.monotonic() - _TRIES_SECONDS:
            tries.popleft()
        return len(tries) < _TRIES

    def was_wrong(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=_TRIES)).append(time.monotonic())
        self._wrong.move_to_end(address)
        while len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
