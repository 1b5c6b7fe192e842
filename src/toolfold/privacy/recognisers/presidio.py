"""Microsoft's Presidio as one more recogniser: it knows names and places in running text.

It is not installed with Toolfold: `pip install presidio-analyzer` and a spaCy model for the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from toolfold.errors import ConfigError
from toolfold.privacy.matches import Match

KINDS = {
    "PERSON": "person",
    "LOCATION": "address",
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
    "MAC_ADDRESS": "mac",
}
"""Presidio's entities → our kinds. Others with a country's prefix (`US_SSN`, `UK_NHS`, …) are national ids."""
_LEAST_SCORE = 0.5


class Analyzer(Protocol):
    """What is used of `presidio_analyzer.AnalyzerEngine`."""

    def analyze(self, text: str, language: str, *, score_threshold: float) -> Sequence[Any]: ...


class Presidio:
    """Asks an analyzer for everything that it knows and that is a kind of ours."""

    def __init__(self, analyzer: Analyzer, language: str = "en") -> None:
        self._analyzer = analyzer
        self._language = language

    @classmethod
    def for_language(cls, language: str) -> Presidio:
        """With Presidio's own settings for that language. Raises ConfigError where it is not installed."""
        try:
            from presidio_analyzer import AnalyzerEngine  # pyright: ignore

            return cls(AnalyzerEngine(supported_languages=[language]), language)  # pyright: ignore
        except (ImportError, OSError, SystemExit, ValueError) as error:
            raise ConfigError(
                f"`privacy.presidio` needs Presidio and a model for {language!r} ({type(error).__name__}).",
                hint=f"pip install presidio-analyzer, and python -m spacy download a model for {language}.",
            ) from None

    def find(self, text: str) -> Iterator[Match]:
        for result in self._analyzer.analyze(text, self._language, score_threshold=_LEAST_SCORE):
            kind = KINDS.get(result.entity_type) or ("national_id" if result.entity_type[2:3] == "_" else "")
            if kind and "\0" not in text[result.start : result.end]:
                yield Match(result.start, result.end, kind, needs_context=True)
