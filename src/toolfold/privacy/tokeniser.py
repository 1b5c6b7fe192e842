"""Values in text become tokens. The work is done in slices: a thread that does it never holds the interpreter long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from toolfold.privacy.folding import Folded
from toolfold.privacy.matches import Match, resolved
from toolfold.privacy.scanner import SEPARATOR, Scanner
from toolfold.privacy.tokens import TokenSyntax
from toolfold.privacy.vault import TEXT, Vault

SLICE = 256 * 1024
"""Characters that are scanned at a time."""
OVERLAP = 8 * 1024
"""Characters that are read beyond a slice: the longest value, a private key, is shorter."""
CONTEXT = 64
"""Characters that are read before a slice, for the words that name a value."""


class Found(NamedTuple):
    """A value at `text[start:end]`; `name` is its token where that is known already."""

    start: int
    end: int
    kind: str
    needs_context: bool
    name: str


class Tokeniser:
    """Replaces what is recognised by the tokens of one session's vault.

    `server` is where a text comes from; without one the text is on its way to the model.
    """

    def __init__(self, vault: Vault, scanner: Scanner, syntax: TokenSyntax, check: Callable[[], None]) -> None:
        self.vault = vault
        self.check = check
        """Called between slices; raises when the work is not wanted any more."""
        self.replaced = 0
        """How many values have been replaced so far."""
        self._scanner = scanner
        self._syntax = syntax

    def text(self, text: str, server: str = "", *, begin: int = 0) -> str:
        """The text from `begin` on, with tokens in place of values."""
        pieces: list[str] = []
        at = written = begin
        while at < len(text):
            self.check()
            first, stop = max(0, at - CONTEXT), at + SLICE + OVERLAP
            limit = at + SLICE if stop < len(text) else len(text)
            for one in self.find(text[first:stop], server):
                start, end = first + one.start, first + one.end
                if max(at, written) <= start < limit:
                    pieces += (text[written:start], self.token(one, text[start:end], server))
                    written = end
            at = max(limit, written)
        return "".join((*pieces, text[written:])) if pieces or begin else text

    def find(self, text: str, server: str) -> Iterator[Found]:
        """The values in a text, in order and without overlaps."""
        folded = Folded(text)
        matches = self._scanner.find(folded.text)
        known = dict(self.vault.find_known(folded.text))
        written: list[Match] = []
        if "_" in folded.text:
            written = [Match(*found.span(), TEXT) for found in self._syntax.pattern.finditer(folded.text)]
        if written and not server:
            # On the way to the model, a token is safe already, and what stands around it does not belong to it.
            taken = resolved([*matches, *known])
            matches = [one for one in taken if not any(one.start < it.end and it.start < one.end for it in written)]
        elif known or written:
            matches = resolved([*matches, *known, *written])
        for match in matches:
            start, end = folded.original(match.start, match.end)
            # A token that the program wrote is what it is. One that a server wrote may be a trap.
            if match.kind == TEXT and (not server or self.vault.is_free_text(text[start:end], server)):
                continue
            yield Found(start, end, match.kind, match.needs_context, "" if server else known.get(match, ""))

    def has_tokens(self, text: str) -> bool:
        return "_" in text and self._syntax.pattern.search(text) is not None

    def token(self, found: Found, value: str, server: str) -> str:
        self.replaced += 1
        return found.name or self.vault.token_for(found.kind, value, server, known=found.needs_context)


def joined(texts: list[str]) -> str:
    """Several texts to be scanned as one: nothing is recognised across their borders."""
    return SEPARATOR.join(text.replace(SEPARATOR, " ") for text in texts)
