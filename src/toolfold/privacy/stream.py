"""Text that comes in chunks: a value that may go on in the next chunk is held back until it is known."""

from __future__ import annotations

from toolfold.privacy.tokeniser import CONTEXT, OVERLAP, Tokeniser

_LINE = 4 * 1024
"""Characters of an unfinished line that are held back."""
_TAIL = 1024
"""Characters that are held back of a longer one."""
_KEY, _KEY_END = "-----BEGIN ", "-----END "


class StreamTokeniser:
    """One per run. What it returns may be shown; half a value never is."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self._tokeniser = tokeniser
        self._before = ""
        """The end of what was returned already, as it came."""
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be shown by now."""
        self._held += text
        cut = self._held.rfind("\n") + 1
        if not cut and len(self._held) > _LINE:
            cut = self._inside_line()
        # A private key goes over many lines.
        key = self._held.rfind(_KEY, 0, cut)
        if key >= 0 and self._held.find(_KEY_END, key) < 0 and len(self._held) - key < OVERLAP:
            cut = key
        return self._release(cut)

    def end(self) -> str:
        """The rest."""
        return self._release(len(self._held))

    def _inside_line(self) -> int:
        """A place in a long line at which no value is cut, unless it is longer than any."""
        cut = len(self._held) - _TAIL
        for found in self._tokeniser.find(self._before + self._held, ""):
            start, end = found.start - len(self._before), found.end - len(self._before)
            if start < cut < end:
                return start if len(self._held) - start < OVERLAP else cut
        return cut

    def _release(self, cut: int) -> str:
        if cut <= 0:
            return ""
        ready, self._held = self._before + self._held[:cut], self._held[cut:]
        shown = self._tokeniser.text(ready, begin=len(self._before))
        self._before = ready[-CONTEXT:]
        return shown
