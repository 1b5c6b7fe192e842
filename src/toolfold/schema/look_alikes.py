"""Texts that look alike, or that another program is likely to read alike, brought to one form."""

from __future__ import annotations

import unicodedata

# Letters of other scripts that look like Latin ones, and signs that look like ASCII ones. What NFKD takes apart
# (full-width, styled and accented letters) is not here.
_LOOKS_LIKE = str.maketrans(
    "асеорхуіјѕһвкмнтпѵѡқԁӏɡгαευιουχρϲνκτıłøđħ‐‑‒–—―−⁄∕⧸․。",
    "aceopxyijshbkmhtnvwkdlgraeuiouxpcvktilodh-------///..",
)
_INVISIBLE = {"Mn", "Me", "Cf", "Cc"}


def folded(text: str) -> str:
    """`text` without case, accents, invisible characters and letters of other scripts that look like Latin ones."""
    if not text.isascii():
        text = "".join(
            char
            for char in unicodedata.normalize("NFKD", text.casefold())
            if unicodedata.category(char) not in _INVISIBLE
        )
        text = text.translate(_LOOKS_LIKE)
    elif not text.isprintable():
        text = "".join(char for char in text if char.isprintable() or char.isspace())
    return text.lower().strip()
