"""Settings from several files laid over one another: each value checked where it stands, the nearest file wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from toolfold.config.expand import UnsetError, Variables
from toolfold.config.problems import Problem, known_key, one_line
from toolfold.config.settings import SandboxSettings, Settings

_KNOWN = {"": Settings.model_fields.keys() - {"servers"}, "sandbox": SandboxSettings.model_fields.keys()}
# What is asked for is kept in the settings, but nothing acts on it yet, and nobody may believe otherwise.
_NOT_YET = {
    "privacy": "not available in this version: personal data is not tokenised",
    "audit": "not available in this version: no audit log is written",
    "security": "not available in this version: there is one level, standard, and it is used",
}


def checked(
    values: Mapping[str, Any], *, file: str, variables: Variables, names: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The usable part of one file's settings, and a problem for each value that is not.

    `names` says what the file calls a setting when it is not our own name.
    """
    problems: list[Problem] = []

    def report(key: str, text: str) -> None:
        problems.append(Problem(file, names.get(key, key), text))

    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KNOWN[""]:
            report(key, known_key(key, _KNOWN[""]))
        elif key != "sandbox":
            _take(found, key, value, variables, report)
        elif not isinstance(value, Mapping):
            report(key, "expected a table of limits; it is ignored")
        else:
            for limit, given in cast("Mapping[str, Any]", value).items():
                if limit in _KNOWN[key]:
                    _take(found, f"{key}.{limit}", given, variables, report)
                else:
                    report(f"{key}.{limit}", known_key(str(limit), _KNOWN[key]))
    for key, text in _NOT_YET.items():
        if key in found and found[key] != Settings.model_fields[key].default:
            report(key, text)
    return found, problems


def _take(found: dict[str, Any], key: str, value: Any, variables: Variables, report: Any) -> None:
    """Puts `value` into `found` under its dotted name, when it is one that the setting can have."""
    try:
        filled = expanded(value, variables)
        outer, _, inner = key.partition(".")
        checked_model = Settings.model_validate({outer: {inner: filled} if inner else filled}, strict=False)
    except UnsetError as unset:
        report(key, f"expected {one_line(unset.wanted)}; the default is used")
        return
    except (ValidationError, RecursionError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "expected a plain value"
        report(key, f"{_lower(text.removeprefix('Value error, '))}; the default is used")
        return
    model: Any = getattr(checked_model, outer)
    found[key] = getattr(model, inner) if inner else model


def expanded(value: Any, variables: Variables) -> Any:
    """`value` with the variables in its strings filled in; raises `UnsetError`."""
    if isinstance(value, str):
        return variables.expand(value)
    if isinstance(value, list | tuple):
        return [expanded(item, variables) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: expanded(item, variables) for key, item in cast("Mapping[str, Any]", value).items()}
    return value


def _lower(text: str) -> str:
    """Pydantic's sentence as the continuation of ours."""
    text = text.removeprefix("Input should be ")
    return text if text.startswith("expected") else f"expected {text[:1].lower()}{text[1:]}"


def merged(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Dotted settings of several files as one nested whole; earlier layers win."""
    flat: dict[str, Any] = {}
    for layer in reversed(layers):
        flat |= layer
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        outer, _, inner = key.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[outer] = value
    return nested
