"""Who may call over HTTP beside the owner of the gateway: callers with tokens of their own, and an issuer's JWTs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from toolfold.config.model import Model
from toolfold.config.units import Seconds

Mode = Literal["code", "hybrid", "direct"]
"""Which tools a client is offered."""
RESERVED = frozenset({"local", "token", "jwt", "group", "owner", "anyone", "other"})
"""Names that callers of other kinds have, or that rules, readers and metrics use."""

# Public keys only: with a shared secret, or with none, everyone who can check a token could make one.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _check_name(name: str) -> str:
    if name.lower() in RESERVED:
        raise ValueError(f"expected another name: {name!r} is not a caller with a token")
    return name


CallerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"), AfterValidator(_check_name)]
"""Without a colon: names with one belong to other kinds of callers, such as `jwt:ada`."""


class CallerSettings(Model):
    """A caller over HTTP with a token of its own. Sessions of different callers never meet."""

    token_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The token's SHA-256 in hex; the token itself is kept by the caller alone."""
    groups: tuple[str, ...] = ()
    """Groups that it belongs to, for rules."""
    host: bool = False
    """Whether it is an application that speaks for its users: only then may it give context values."""
    mode: Mode | None = None
    """Which tools it is offered, where that is not what everyone is."""
    scraper: bool = False
    """Whether its token opens `/metrics`, and nothing else."""


def _check_tokens(callers: dict[str, CallerSettings]) -> dict[str, CallerSettings]:
    counts = Counter(caller.token_sha256 for caller in callers.values())
    shared = [name for name, caller in callers.items() if counts[caller.token_sha256] > 1]
    if shared:
        raise ValueError(f"expected a token of its own for each of {', '.join(sorted(shared))}")
    return callers


Callers = Annotated[dict[CallerName, CallerSettings], AfterValidator(_check_tokens)]


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}:
        return url
    raise ValueError("expected an https URL: whoever can change the keys on their way can be any caller")


class JwtSettings(Model):
    """Callers who show a JWT of one issuer. Each is called `jwt:` and what the claim `caller` says."""

    issuer: str = Field(min_length=1)
    """What `iss` must be."""
    audience: str = Field(min_length=1)
    """What `aud` must be or hold."""
    jwks_file: Path | None = None
    """The issuer's public keys; read again when the file changes."""
    jwks_url: Annotated[str, AfterValidator(_check_url)] | None = None
    """Where the issuer publishes them; asked again for a key that is not known yet."""
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256", "EdDSA"), min_length=1)
    caller: str = Field(default="sub", min_length=1)
    """The claim that names the caller."""
    groups: str = "groups"
    """The claim that lists the caller's groups, as a list or as words."""
    required: dict[str, str] = Field(default={})
    """Claims that must be there with these values, for example a tenant."""
    hosts: tuple[str, ...] = ()
    """Callers, as the claim names them, that may give context values."""
    leeway: Seconds = 30.0
    """Seconds that the issuer's clock may differ from ours."""

    @model_validator(mode="after")
    def _one_source_of_keys(self) -> JwtSettings:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("expected either `jwks_file` or `jwks_url`")
        return self
