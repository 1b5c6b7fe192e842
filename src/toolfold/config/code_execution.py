"""The settings block `mcpCodeExecution`, as other code-execution projects write it, mapped onto ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from toolfold.config.problems import known_key
from toolfold.config.settings import parse_backend

KEY = "mcpCodeExecution"
Report = Callable[[str, str], None]
"""Takes a key inside the block and what was expected there."""

NAMES = {
    "enabled": f"{KEY}.enabled",
    "security": f"{KEY}.securityLevel",
    "privacy": f"{KEY}.piiTokenization",
    "audit": f"{KEY}.auditLogging",
    "sandbox.backend": f"{KEY}.sandboxMode",
    "sandbox.timeout": f"{KEY}.maxExecutionTime",
    "sandbox.memory": f"{KEY}.resourceLimits.memory",
    "sandbox.cpu": f"{KEY}.resourceLimits.cpu",
    "sandbox.disk": f"{KEY}.resourceLimits.disk",
}
"""Our settings' names → what this block calls them, for messages."""

_LEVELS = {
    **dict.fromkeys(("low", "minimal", "relaxed", "permissive"), "low"),
    **dict.fromkeys(("standard", "medium", "normal", "default", "balanced", "moderate"), "standard"),
    **dict.fromkeys(("high", "strict", "maximum", "max", "paranoid"), "high"),
}
_DURATION = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|)\s*", re.IGNORECASE)
_PER_UNIT = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0}
_LIMITS = ("memory", "cpu", "disk")
_LEAST_BARE_SIZE = 1_000_000


def read(block: object, report: Report) -> dict[str, Any]:
    """Our settings for `block`; what cannot be taken over is reported. No value can weaken the sandbox."""
    if not isinstance(block, Mapping):
        report("", "expected an object; it is ignored")
        return {}
    settings: dict[str, Any] = {}
    for name, value in cast("Mapping[object, Any]", block).items():
        key = str(name)
        take = _KEYS.get(key)
        if take is None:
            report(key, known_key(key, _KEYS))
            continue
        for setting, taken in take(value, lambda inner, text, key=key: report(f"{key}{inner}", text)).items():
            if isinstance(taken, dict):
                settings.setdefault(setting, {}).update(taken)
            else:
                settings[setting] = taken
    return settings


def _sandbox_mode(value: object, report: Report) -> dict[str, Any]:
    backend = parse_backend(value)
    if backend in ("auto", "bubblewrap", "container", "monty"):
        return {"sandbox": {"backend": backend}}
    choices = "expected auto, bubblewrap, container or monty"
    report("", f"{choices}; programs never run without a sandbox, so this is ignored")
    return {}


def _security_level(value: object, report: Report) -> dict[str, Any]:
    level = _LEVELS.get(value.strip().lower()) if isinstance(value, str) else None
    if level is not None:
        return {"security": level}
    report("", "expected low, standard or high; this is ignored")
    return {}


def _max_execution_time(value: object, report: Report) -> dict[str, Any]:
    seconds = 0.0
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        seconds = float(match[1]) * _PER_UNIT[match[2].lower()]
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e12:
        seconds = value / 1000
    if seconds > 0:
        return {"sandbox": {"timeout": seconds}}
    report("", "expected milliseconds above 0; this is ignored")
    return {}


def _resource_limits(value: object, report: Report) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        report("", "expected an object with memory, cpu and disk; this is ignored")
        return {}
    taken: dict[str, Any] = {}
    for name, limit in cast("Mapping[object, Any]", value).items():
        key = str(name)
        if key not in _LIMITS:
            report(f".{key}", known_key(key, _LIMITS))
        elif isinstance(limit, bool) or not isinstance(limit, str | int | float):
            report(f".{key}", "expected a number or a text with a unit; this is ignored")
        elif key != "cpu" and not isinstance(limit, str) and limit < _LEAST_BARE_SIZE:
            # Somebody's 512 is megabytes; taken as bytes it would stop every program.
            report(f".{key}", "expected the unit too, such as 512MB; this is ignored")
        else:
            taken[key] = limit
    return {"sandbox": taken} if taken else {}


def _switch(setting: str) -> Callable[[object, Report], dict[str, Any]]:
    """Takes true or false, or an object with `enabled`, for `setting`."""

    def take(value: object, report: Report) -> dict[str, Any]:
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get("enabled", True)
        if isinstance(value, bool):
            return {setting: value}
        report("", "expected true or false; this is ignored")
        return {}

    return take


_KEYS: dict[str, Callable[[object, Report], dict[str, Any]]] = {
    "enabled": _switch("enabled"),
    "sandboxMode": _sandbox_mode,
    "securityLevel": _security_level,
    "maxExecutionTime": _max_execution_time,
    "piiTokenization": _switch("privacy"),
    "auditLogging": _switch("audit"),
    "resourceLimits": _resource_limits,
}
