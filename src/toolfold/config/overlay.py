"""Settings from several files laid over one another: each value checked where it stands, the nearest file wins.

Besides our own names, any file may hold the block `mcpCodeExecution`, as other code-execution projects write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from toolfold.config.documents import Problem, known_key, nearest, one_line
from toolfold.config.expand import UnsetError, Variables
from toolfold.config.logseq import LogseqSettings
from toolfold.config.policy import (
    ApprovalSettings,
    ContextSettings,
    LimitSettings,
    PolicySettings,
    ReviewSettings,
    combined,
)
from toolfold.config.retention import RetentionSettings
from toolfold.config.settings import SandboxSettings, Settings, parse_backend
from toolfold.config.skills import SkillSettings

BLOCK = "mcpCodeExecution"
BLOCK_NAMES = {
    "enabled": f"{BLOCK}.enabled",
    "policy.profile": f"{BLOCK}.securityLevel",
    "privacy": f"{BLOCK}.piiTokenization",
    "audit": f"{BLOCK}.auditLogging",
    "sandbox.backend": f"{BLOCK}.sandboxMode",
    "sandbox.timeout": f"{BLOCK}.maxExecutionTime",
    "sandbox.memory": f"{BLOCK}.resourceLimits.memory",
    "sandbox.cpu": f"{BLOCK}.resourceLimits.cpu",
    "sandbox.disk": f"{BLOCK}.resourceLimits.disk",
}
"""Our settings' names → what the block calls them, for messages."""

_SECTIONS: dict[str, type[BaseModel]] = {
    "sandbox": SandboxSettings,
    "retention": RetentionSettings,
    "skills": SkillSettings,
    "logseq": LogseqSettings,
    "policy": PolicySettings,
    "approval": ApprovalSettings,
    "context": ContextSettings,
    "review": ReviewSettings,
    "limits": LimitSettings,
}
"""Tables whose keys are settings of their own: each is checked, and given by a file, by itself."""
_KNOWN = {"": Settings.model_fields.keys() - {"servers"}} | {
    name: model.model_fields.keys() for name, model in _SECTIONS.items()
}
STRICT = ("policy", "approval", "context", "review", "limits", "callers", "jwt", "audit", "privacy", "skills")
"""Settings that keep something closed. An error in one stops the start: its default would leave that open."""
_TYPES = frozenset({"str", "int", "float", "bool", "none"})
"""What pydantic names in the place of an error beside the keys."""

Report = Callable[[str, str], None]
"""Takes a key and what was expected there."""


def settings_of(
    values: Mapping[str, Any], blocks: Iterable[object], *, file: str, variables: Variables, problems: list[Problem]
) -> dict[str, Any]:
    """The usable settings of one file by their dotted names, with a problem for each value that is not usable.

    `values` are settings by our own names, which win over those of `blocks`; an earlier block wins over a later one.
    """

    def report(key: str, expected: str) -> None:
        fatal = _is_strict(key)
        if fatal:
            expected = expected.partition("; this key is ignored")[0]
        problems.append(Problem(file, key, expected, fatal=fatal))

    layers = [_checked(values, variables, report)]
    for block in blocks:
        mapped = _from_block(block, variables, lambda key, text: report(f"{BLOCK}.{key}".rstrip("."), text))
        layers.append(_checked(mapped, variables, lambda key, text: report(BLOCK_NAMES.get(key, key), text)))
    return _flat(layers)


def _is_strict(key: str) -> bool:
    """Whether `key` belongs to a strict setting, or is most likely a misspelling of one."""
    outer, _, inner = key.partition(".")
    if outer == BLOCK:
        name = nearest(inner.partition(".")[0], _BLOCK_KEYS, likeness=0.75)
        ours = next((ours for ours, theirs in BLOCK_NAMES.items() if theirs == f"{BLOCK}.{name}"), "")
        return ours.partition(".")[0] in STRICT
    return outer in STRICT or (outer not in _KNOWN[""] and nearest(outer, _KNOWN[""], likeness=0.7) in STRICT)


def merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Dotted settings of several files as one nested whole; earlier layers win."""
    nested: dict[str, Any] = {}
    for key, value in _flat(layers).items():
        outer, _, inner = key.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[outer] = value
    return nested


def _flat(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for layer in reversed(list(layers)):
        flat |= {key: combined(key, value, flat[key]) if key in flat else value for key, value in layer.items()}
    return flat


_MOST_ERRORS = 3
_KEY_ERRORS = {"missing": "this key is missing", "extra_forbidden": "there is no such key"}


def _checked(values: Mapping[str, Any], variables: Variables, report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KNOWN[""]:
            report(key, known_key(key, _KNOWN[""]))
        elif key not in _SECTIONS:
            _take(found, key, value, variables, report)
        elif not isinstance(value, Mapping):
            report(key, "expected a table; it is ignored")
        else:
            for limit, given in cast("Mapping[str, Any]", value).items():
                if limit in _KNOWN[key]:
                    _take(found, f"{key}.{limit}", given, variables, report)
                else:
                    report(f"{key}.{limit}", known_key(str(limit), _KNOWN[key]))
    return found


def _take(found: dict[str, Any], key: str, value: Any, variables: Variables, report: Report) -> None:
    """Puts `value` into `found` under its dotted name, when it is one that the setting can have."""
    outer, _, inner = key.partition(".")
    try:
        filled = _expanded(value, variables)
        checked = Settings.model_validate({outer: {inner: filled} if inner else filled}, strict=False)
    except UnsetError as unset:
        report(key, f"expected {one_line(unset.wanted)}{_instead(key)}")
        return
    except ValidationError as error:
        # A key that does not exist often is the one that is missing, with another name: it comes first.
        errors = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        for each in errors[: _MOST_ERRORS if _is_strict(key) else 1]:
            inside = [str(part) for part in each["loc"][1 + bool(inner) :] if part not in _TYPES]
            place = ".".join([key, *(part for part in inside if "[" not in part)])
            report(place, f"{_continuing(each['type'], each['msg'])}{_instead(key)}")
        return
    except RecursionError:
        report(key, f"expected a plain value{_instead(key)}")
        return
    model: Any = getattr(checked, outer)
    found[key] = getattr(model, inner) if inner else model


def _instead(key: str, otherwise: str = "the default is used") -> str:
    return "" if _is_strict(key) else f"; {otherwise}"


def _expanded(value: Any, variables: Variables) -> Any:
    """`value` with the variables in its strings filled in; raises `UnsetError`."""
    if isinstance(value, str):
        return variables.expand(value)
    if isinstance(value, list | tuple):
        return [_expanded(item, variables) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _expanded(item, variables) for key, item in cast("Mapping[str, Any]", value).items()}
    return value


def _continuing(kind: str, text: str) -> str:
    """Pydantic's sentence as the continuation of ours."""
    if kind in _KEY_ERRORS:
        return _KEY_ERRORS[kind]
    if kind == "tuple_type":
        return "expected a list"
    text = text.removeprefix("Value error, ").removeprefix("Input should be ")
    return text if text.startswith("expected") else f"expected {text[:1].lower()}{text[1:]}"


# ---- the block `mcpCodeExecution`

_PROFILES = {
    **dict.fromkeys(("low", "minimal", "relaxed", "permissive"), "open"),
    **dict.fromkeys(("standard", "medium", "normal", "default", "balanced", "moderate"), "careful"),
    **dict.fromkeys(("high", "strict", "maximum", "max", "paranoid"), "strict"),
}
"""What `securityLevel` may be → the profile of the policy."""
_DURATION = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|)\s*", re.IGNORECASE)
_PER_UNIT = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0}
_LIMITS = ("memory", "cpu", "disk")
_LEAST_BARE_SIZE = 1_000_000


def _from_block(block: object, variables: Variables, report: Report) -> dict[str, Any]:
    """Our settings for `block`; what cannot be taken over is reported. No value can weaken the sandbox."""
    if not isinstance(block, Mapping):
        report("", "expected an object; it is ignored")
        return {}
    settings: dict[str, Any] = {}
    for name, value in cast("Mapping[object, Any]", block).items():
        key = str(name)
        take = _BLOCK_KEYS.get(key)
        if take is None:
            report(key, known_key(key, _BLOCK_KEYS))
            continue
        try:
            filled = _expanded(value, variables)
        except UnsetError as unset:
            report(key, f"expected {one_line(unset.wanted)}{_instead(f'{BLOCK}.{key}', 'this is ignored')}")
            continue
        for setting, taken in take(filled, lambda inner, text, key=key: report(f"{key}{inner}", text)).items():
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
    profile = _PROFILES.get(value.strip().lower()) if isinstance(value, str) else None
    if profile is not None:
        return {"policy": {"profile": profile}}
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
            # A bare 512 means megabytes; taken as bytes it would stop every program.
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
        report("", "expected true or false" if setting in STRICT else "expected true or false; this is ignored")
        return {}

    return take


_BLOCK_KEYS: dict[str, Callable[[object, Report], dict[str, Any]]] = {
    "enabled": _switch("enabled"),
    "sandboxMode": _sandbox_mode,
    "securityLevel": _security_level,
    "maxExecutionTime": _max_execution_time,
    "piiTokenization": _switch("privacy"),
    "auditLogging": _switch("audit"),
    "resourceLimits": _resource_limits,
}
