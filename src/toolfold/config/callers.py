"""Who may call over HTTP, and what is theirs."""

from __future__ import annotations

from pydantic import Field

from toolfold.config.model import Model


class CallerSettings(Model):
    """A caller over HTTP with a token of its own. Sessions of different callers never meet."""

    token_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The token's SHA-256 in hex; the token itself is kept by the caller alone."""
