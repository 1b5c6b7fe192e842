"""What every group of settings is made of: the frozen base, and values with units."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*")


def parse_size(value: Any) -> Any:
    """`"512MB"`, `"1 GiB"` or a plain number of bytes → bytes; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = NUMBER_AND_UNIT.fullmatch(value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("expected a size such as 512MB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0, le=2**62)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    # Inputs stay out of pydantic's error texts: they may be secrets.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
