"""The settings of privacy: whether personal values become tokens, where, and what counts as one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from toolfold.config.model import Model
from toolfold.config.safe_regex import compiled
from toolfold.config.units import Size

KINDS = (
    "email",
    "phone",
    "card",
    "iban",
    "national_id",
    "ip",
    "mac",
    "date_of_birth",
    "address",
    "secret",
    "person",
)
"""The kinds that are recognised without any setting; patterns and word lists add kinds of their own."""

_KIND = re.compile(r"[a-z][a-z_]{0,30}[a-z]")
_RESERVED = ("text", "ignore", "plain")


def _own_kind(name: str) -> str:
    if not _KIND.fullmatch(name):
        raise ValueError("expected a name of small letters and _, such as employee")
    if name in _RESERVED:
        raise ValueError(f"expected another name than {name}")
    return name


def _region(name: str) -> str:
    if not re.fullmatch("[A-Z]{2}", name):
        raise ValueError("expected a country's two letters, such as US")
    return name


OwnKind = Annotated[str, AfterValidator(_own_kind)]
Region = Annotated[str, AfterValidator(_region)]


class PrivacySettings(Model):
    """Personal values become tokens (`EMAIL_1`) before the program or the model sees them."""

    enabled: bool = False
    mode: Literal["ingress", "egress"] = "ingress"
    """Whether programs get tokens, or real values while only what leaves for the model has tokens."""
    restore: dict[str, tuple[str, ...]] = Field(default={})
    """Server → kinds whose tokens it is sent as values, beside what came from it; `*` stands for all of either."""
    ignore: tuple[str, ...] = ()
    """Kinds that are left alone."""
    regions: tuple[Region, ...] = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "NO", "SE", "PL")
    """Countries whose phone numbers are recognised without their country code."""
    fields: dict[str, str] = Field(default={})
    """Names of fields in results → the kind of value in them, or `ignore` for plain numbers and ids."""
    patterns: dict[OwnKind, str] = Field(default={})
    """Kinds of your own → the regular expression that finds them."""
    words: dict[OwnKind, tuple[str, ...]] = Field(default={})
    """Kinds of your own → words and names to be found."""
    presidio: str = ""
    """A language (`en`): Presidio, where it is installed, is asked too. It is slow."""
    persist: bool = False
    """Whether tokens outlive this process, in an encrypted file for each session."""
    images: bool = False
    """Whether programs may show images to the model, which no one searches for private values."""
    values: int = Field(default=200_000, ge=1, le=1_000_000)
    """Values that one session may hold."""
    memory: Size = 128 * 1000**2
    """Bytes of memory for the values of one session."""

    @field_validator("patterns")
    @classmethod
    def _are_safe(cls, patterns: dict[str, str]) -> dict[str, str]:
        for name, pattern in patterns.items():
            try:
                compiled(pattern)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return patterns

    @field_validator("presidio")
    @classmethod
    def _is_there(cls, language: str) -> str:
        if language and not re.fullmatch("[a-z]{2}", language):
            raise ValueError("expected a language's two letters, such as en")
        if language and find_spec("presidio_analyzer") is None:
            raise ValueError("expected Presidio to be installed: pip install presidio-analyzer")
        return language

    @field_validator("words")
    @classmethod
    def _are_words(cls, words: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, listed in words.items():
            if any(len(word.strip()) < 2 for word in listed):
                raise ValueError(f"{name}: expected words of at least two characters")
        return words

    @model_validator(mode="after")
    def _names_known_kinds(self) -> PrivacySettings:
        for key, named in (
            ("restore", [kind for kinds in self.restore.values() for kind in kinds if kind != "*"]),
            ("ignore", self.ignore),
            ("fields", [kind for kind in self.fields.values() if kind != "ignore"]),
        ):
            for kind in named:
                if kind not in self.kinds:
                    raise ValueError(f"{key}: expected kinds out of {', '.join(self.kinds)}, not {kind!r}")
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds that there are with these settings."""
        return tuple(dict.fromkeys((*KINDS, *self.patterns, *self.words)))
