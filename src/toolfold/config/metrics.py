"""The settings of `/metrics`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from toolfold.config.model import Model

OWNER = "owner"
ANYONE = "anyone"

Reader = Annotated[str, Field(min_length=1)]
Readers = Annotated[tuple[Reader, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class MetricsSettings(Model):
    """What the HTTP gateway tells Prometheus, and who may read it."""

    enabled: bool = True
    readers: Readers = (OWNER,)
    """Beside callers that are scrapers: `owner` (the gateway's own token), names of other callers, or `anyone`, without
    a token and on loopback only."""
