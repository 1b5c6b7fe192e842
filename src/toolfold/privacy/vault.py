"""Which value a token stands for, in one session of one caller. Kept in memory; nothing here prints a value."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from toolfold.errors import LimitExceeded
from toolfold.privacy.matches import Match
from toolfold.privacy.tokens import kind_of, token

_ENTRY_BYTES = 400
"""What one value costs beside its text."""
_MOST_LITERALS = 10_000
_WORD = re.compile(r"\w+")
_PUNCTUATION = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "_"}
_SURE_WORD = 6
"""Letters from which one word is recognised whatever its case."""
_SURE_PART = 4
"""Letters from which a further word of a value leads to it."""
_SURE = 8
"""Characters from which a value is recognised in the middle of other letters."""
TEXT = "text"
"""The kind of text that only looks like a token."""


@dataclass(slots=True, repr=False)
class Entry:
    """One value. `servers` gave it to us; to `sent` its token went as it is."""

    text: str
    is_number: bool = False
    servers: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()

    @property
    def value(self) -> str | int | float:
        """As it came: a number is a number again."""
        return msgspec.json.decode(self.text) if self.is_number else self.text


class Snapshot(msgspec.Struct, repr_omit_defaults=True):
    """What a vault holds, as it is written (sealed) to disk."""

    counts: dict[str, int] = {}
    entries: dict[str, tuple[str, bool, list[str], list[str]]] = {}
    known: list[str] = []

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.entries)} values>"


class Vault:
    """Values and tokens, both ways. One thread at a time gives out tokens."""

    def __init__(self, values: int, size: int) -> None:
        self._most_values = values
        self._most_bytes = size
        self._entries: dict[str, Entry] = {}
        self._tokens: dict[tuple[str, bool], str] = {}
        self._counts: dict[str, int] = {}
        self._literals: set[str] = set()
        self._known = _Known()
        self._lock = threading.Lock()
        self.bytes = 0
        self.changed = False
        """Whether there is something that was not kept yet."""
        self.has_numbers = False
        """Whether some value is a number."""

    def __repr__(self) -> str:
        return f"<Vault of {len(self._entries)} values>"

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def knows(self, text: str) -> bool:
        return (text, False) in self._tokens

    def number(self, text: str) -> str:
        """The token of a number that was recognised by its field before; empty for others."""
        return self._tokens.get((text, True), "")

    def token_for(self, kind: str, text: str, server: str = "", *, is_number: bool = False, known: bool = False) -> str:
        """The token of a value: always the same one. With `known` the value is found in any text from now on.

        Raises LimitExceeded when the session holds as many values as it may.
        """
        with self._lock:
            name = self._tokens.get((text, is_number))
            if name is None:
                name = self._new(kind, text, is_number=is_number)
            entry = self._entries[name]
            if server and server not in entry.servers:
                entry.servers |= {server}
                self.changed = True
            if known:
                self._known.add(text, name)
            return name

    def _new(self, kind: str, text: str, *, is_number: bool) -> str:
        size = len(text) + _ENTRY_BYTES
        if len(self._entries) >= self._most_values:
            raise LimitExceeded(
                f"This session holds its {self._most_values:,} private values.",
                limit="privacy.values",
                hint="Ask for fewer rows or in a new session, or raise `privacy.values` in the settings.",
            )
        if self.bytes + size > self._most_bytes:
            raise LimitExceeded(
                "The private values of this session are too large.",
                limit="privacy.memory",
                hint="Ask for fewer rows or in a new session, or raise `privacy.memory` in the settings.",
            )
        while True:
            number = self._counts.get(kind, 0)
            name = token(kind, number)
            if name is None:
                raise LimitExceeded(f"This session has no more tokens for {kind} values.", limit="privacy.values")
            self._counts[kind] = number + 1
            if name not in self._literals:
                break
        self._entries[name] = Entry(text, is_number)
        self.has_numbers |= is_number
        self._tokens[text, is_number] = name
        self.bytes += size
        self.changed = True
        return name

    def is_free_text(self, name: str, server: str) -> bool:
        """Whether a server that wrote a token's name may be taken by its word: it has been sent that very token, or
        the name means nothing here, and then it never will."""
        entry = self._entries.get(name)
        if entry is not None:
            return server in entry.sent
        if name in self._literals:
            return True
        if len(self._literals) < _MOST_LITERALS:
            self._literals.add(name)
            return True
        return False

    def is_literal(self, name: str) -> bool:
        """Whether a server wrote this name without knowing of tokens."""
        return name in self._literals

    def note_sent(self, name: str, server: str) -> None:
        """This token goes to the server as it is."""
        entry = self._entries[name]
        if server not in entry.sent:
            entry.sent |= {server}
            self.changed = True

    def find_known(self, text: str) -> Iterator[tuple[Match, str]]:
        """Values that were recognised by a field's name or by other words, wherever they stand, with their tokens.

        A line of a longer value is found too; it has no token yet.
        """
        return self._known.find(text)

    # What is kept

    def snapshot(self, *, with_values: bool) -> Snapshot:
        with self._lock:
            if not with_values:
                return Snapshot(dict(self._counts))
            entries = {
                name: (entry.text, entry.is_number, sorted(entry.servers), sorted(entry.sent))
                for name, entry in self._entries.items()
            }
            return Snapshot(dict(self._counts), entries, self._known.texts())

    def load(self, kept: Snapshot) -> None:
        with self._lock:
            self._counts = dict(kept.counts)
            for name, (text, is_number, servers, sent) in kept.entries.items():
                self._entries[name] = Entry(text, is_number, frozenset(servers), frozenset(sent))
                self._tokens[text, is_number] = name
                self.has_numbers |= is_number
                self.bytes += len(text) + _ENTRY_BYTES
            for text in kept.known:
                name = self._tokens.get((text, False)) or self._tokens.get((text, True))
                if name is not None:
                    self._known.add(text, name)


@dataclass(slots=True)
class _Known:
    """Values to look for in text, found by their words."""

    lengths: dict[str, set[tuple[int, int]]] = field(default_factory=dict[str, set[tuple[int, int]]])
    """A word in small letters → (characters before it, length of the value) of all values with it."""
    names: dict[str, tuple[str, str, bool]] = field(default_factory=dict[str, tuple[str, str, bool]])
    """Value in small letters → how it is written, its token, and whether it is but a line of the token's value."""

    def add(self, text: str, name: str) -> None:
        for line in {text, *text.splitlines()}:
            value = line.strip()
            lower = _lower(value)
            words = list(_WORD.finditer(lower))
            if not words or len(value) < 2 or lower in self.names:
                continue
            self.names[lower] = (value, name, line != text)
            for number, word in enumerate(words):
                if number == 0 or len(word[0]) >= _SURE_PART:
                    self.lengths.setdefault(word[0], set()).add((word.start(), len(value)))

    def texts(self) -> list[str]:
        return [value for value, _, is_line in self.names.values() if not is_line]

    def find(self, text: str) -> Iterator[tuple[Match, str]]:
        if not self.lengths:
            return
        lower = _lower(text)
        if lower.isascii() and self.lengths.keys().isdisjoint(lower.translate(_PUNCTUATION).split()):
            return
        done = 0
        for word in _WORD.finditer(lower):
            if word.start() < done:
                continue
            lengths = self.lengths.get(word[0])
            for before, length in sorted(lengths, key=lambda pair: -pair[1]) if lengths else ():
                start = word.start() - before
                end = start + length
                found = self.names.get(lower[start:end]) if start >= 0 else None
                if found is None or start < done or (length < _SURE and _goes_on(text, start, end)):
                    continue
                value, name, is_line = found
                if text[start:end] != value and " " not in value and length < _SURE_WORD:
                    continue
                done = end
                yield Match(start, end, kind_of(name), needs_context=True), "" if is_line else name
                break


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether it is a part of a longer word."""
    before = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
    return before or (end < len(text) and text[end - 1].isalnum() and text[end].isalnum())


def _lower(text: str) -> str:
    """In small letters, where that moves no character."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text
