"""What the parts of the settings are made of: one frozen kind of model, and values as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*")
"""A number and its unit."""
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_AGES = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600}


class Model(BaseModel):
    # Inputs stay out of pydantic's error texts: they may be secrets.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def parse_size(value: Any) -> Any:
    """`"512MB"`, `"1 GiB"` or a plain number of bytes → bytes; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("expected a size such as 512MB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_age(value: Any) -> Any:
    """`"30d"`, `"12h"`, `"1y"` or a plain number of seconds → seconds; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in _AGES:
        raise ValueError("expected an age such as 12h, 30d or 1y")
    return float(match[1]) * _AGES[match[2].lower()]


def _switched(value: Any) -> Any:
    """`true` and `false` for a table with `enabled`. A table that does not say is on: it would not be there else."""
    if isinstance(value, bool):
        return {"enabled": value}
    return {"enabled": True, **cast("Mapping[str, Any]", value)} if isinstance(value, Mapping) else value


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0, le=2**62)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Age = Annotated[float, BeforeValidator(parse_age), Field(gt=0, allow_inf_nan=False)]
switchable = BeforeValidator(_switched)
"""For a part of the settings that can be given as a table, or as just `true` or `false`."""
