"""The base of every group of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    # Inputs stay out of pydantic's error texts: they may be secrets.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
