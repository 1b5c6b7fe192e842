"""The base of every group of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    # Inputs stay out of pydantic's error texts: they may be secrets.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _switched(value: Any) -> Any:
    """`true` and `false` as a table with `enabled`. A table that does not say is on."""
    if isinstance(value, bool):
        return {"enabled": value}
    return {"enabled": True, **cast("Mapping[str, Any]", value)} if isinstance(value, Mapping) else value


switchable = BeforeValidator(_switched)
"""For a group of settings that can be given as a table, or as just `true` or `false`."""
