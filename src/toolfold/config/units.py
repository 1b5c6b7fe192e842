"""How sizes, cores and ages are written in a config file."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*")
_SIZES = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_CORES = {"": 1.0, "core": 1.0, "cores": 1.0, "cpu": 1.0, "cpus": 1.0, "vcpu": 1.0, "vcpus": 1.0, "m": 0.001}
_DAY = 86_400.0
_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY, "w": 7 * _DAY, "y": 365 * _DAY} | {
    f"{unit}{plural}": seconds
    for unit, seconds in {"hour": 3600.0, "day": _DAY, "week": 7 * _DAY, "year": 365 * _DAY}.items()
    for plural in ("", "s")
}


def parse_size(value: Any) -> Any:
    """`"512MB"`, `"1 GiB"` or a plain number of bytes → bytes; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in _SIZES:
        raise ValueError("expected a size such as 512MB or 1GiB")
    return int(float(match[1]) * _SIZES[match[2].lower()])


def parse_cores(value: Any) -> Any:
    """`"1 core"`, `"2 cores"`, `"500m"` or a plain number → cores; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in _CORES:
        raise ValueError('expected a number of cores such as 1, "2 cores" or "500m"')
    return float(match[1]) * _CORES[match[2].lower()]


def parse_age(value: Any) -> Any:
    """`"30d"`, `"12h"`, `"1y"` or a plain number of seconds → seconds; `"never"` → None."""
    if not isinstance(value, str):
        return value
    if value.strip().lower() == "never":
        return None
    match = _NUMBER.fullmatch(value)
    if match is None or match[2].lower() not in _AGES:
        raise ValueError("expected an age such as 12h, 30d or 1y, or never")
    return float(match[1]) * _AGES[match[2].lower()]


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0, le=2**62)]
Cores = Annotated[float, BeforeValidator(parse_cores), Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Age = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(parse_age)]
"""Seconds, or None for no end."""
