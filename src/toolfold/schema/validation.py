"""Arguments are checked before they leave, results when they come back, against what the server itself declared.

The schema is the server's and may be hostile: nothing is fetched, a schema that is not one checks nothing, and one
whose check could take very long is not used. A message names paths and rules, never the values, which may be private.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any, cast

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from toolfold.definitions import ToolDefinition
from toolfold.schema.effort import DEEPEST_VALUE, Effort
from toolfold.schema.large import depth_and_size
from toolfold.schema.media import mentions_media
from toolfold.schema.text import one_line

_MOST_PROBLEMS = 3
_LONGEST_PROBLEM = 240
_ALL_ERRORS_UP_TO = 500
"""Values in what is checked."""
_KNOWN_DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")


class Validators:
    """Compiled checks, made at the first use of a tool and kept for the `limit` most recent ones."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._checks: OrderedDict[tuple[str, str, str], tuple[dict[str, Any], _Check]] = OrderedDict()

    def argument_problems(self, tool: ToolDefinition, arguments: dict[str, Any]) -> list[str]:
        """What is wrong with a call's arguments, in words; empty when they are valid."""
        return self._check(tool, "arguments", tool.input_schema).problems(arguments)

    def problems_with(self, tool: ToolDefinition, argument: str, value: Any, *, kind_only: bool = False) -> list[str]:
        """What is wrong with one argument, whatever the others are; with `kind_only`, whatever it contains."""
        return self._check(tool, "arguments", tool.input_schema).problems(
            {argument: value}, only=argument, kind_only=kind_only
        )

    def check_result(self, tool: ToolDefinition, structured: Any) -> str | None:
        """A warning when the result is not what the tool's output schema promises, else None."""
        if not tool.output_schema:
            return None
        problems = self._check(tool, "result", tool.output_schema).problems(structured)
        if not problems:
            return None
        return f"the result is not what {one_line(tool.name, 80)} declares: {'; '.join(problems)}"

    def may_hold_media(self, tool: ToolDefinition) -> bool:
        """Whether structured content of this tool can hold images or other bytes; true where nothing is declared."""
        return not tool.output_schema or self._check(tool, "result", tool.output_schema).holds_media

    def _check(self, tool: ToolDefinition, side: str, schema: dict[str, Any]) -> _Check:
        key = (tool.server, tool.name, side)
        kept = self._checks.get(key)
        if kept is not None and (kept[0] is schema or kept[0] == schema):
            # The same object will be asked about again before this call is over.
            self._checks[key] = (schema, kept[1])
            self._checks.move_to_end(key)
            return kept[1]
        check = _Check(schema, "argument" if side == "arguments" else "key")
        self._checks[key] = (schema, check)
        if len(self._checks) > self._limit:
            self._checks.popitem(last=False)
        return check


class _Check:
    """One schema, ready to be applied; or nothing, where the schema cannot be."""

    def __init__(self, schema: dict[str, Any], noun: str) -> None:
        """`noun` is what a property of the whole is called."""
        self._noun = noun
        self._validator: jsonschema_rs.Validator | None = None
        self._schema = schema
        self._effort = Effort(schema)
        self.holds_media = mentions_media(schema)
        declared = schema.get("$schema")
        if declared is not None and not any(draft in str(declared) for draft in _KNOWN_DRAFTS):
            schema = {word: value for word, value in schema.items() if word != "$schema"}
        try:
            self._validator = jsonschema_rs.validator_for(
                schema,
                # A format is advice: servers disagree about what an e-mail address is.
                validate_formats=False,
                retriever=_refuse,
                mask="value",
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000),
            )
        except (ValueError, TypeError, OverflowError, RecursionError):
            # Not a schema: then there is nothing to hold anyone to.
            return

    def _errors(self, instance: Any, size: int) -> Iterator[jsonschema_rs.ValidationError]:
        """All errors, or only the first of a large value: they are all made at once, and each may be long."""
        assert self._validator is not None
        if size <= _ALL_ERRORS_UP_TO:
            yield from self._validator.iter_errors(instance)
            return
        try:
            self._validator.validate(instance)
        except jsonschema_rs.ValidationError as error:
            yield error

    def problems(self, instance: Any, *, only: str | None = None, kind_only: bool = False) -> list[str]:
        """What is wrong, in words; with `only`, what is wrong with that key of `instance` and below it."""
        if self._validator is None:
            return []
        depth, size = depth_and_size(instance, DEEPEST_VALUE)
        if not self._effort.is_bearable(depth):
            return []
        try:
            if self._validator.is_valid(instance):
                return []
            errors = self._errors(instance, size)
            if only is not None:
                errors = (error for error in errors if error.instance_path[:1] == [only])
            if kind_only:
                errors = (error for error in errors if len(error.instance_path) == 1 and _is_about_kind(error))
            found = list(islice(errors, _MOST_PROBLEMS + 1))
        except (ValueError, TypeError, OverflowError, RecursionError):
            return []
        told = [text for error in found for text in _told(error, instance, self._schema, self._noun)]
        problems = list(dict.fromkeys(one_line(text, _LONGEST_PROBLEM) for text in told))
        return problems[:_MOST_PROBLEMS] + (["and more"] if len(problems) > _MOST_PROBLEMS else [])


def _is_about_kind(error: jsonschema_rs.ValidationError) -> bool:
    """Whether no value of this JSON type would do."""
    match error.kind:
        case Kind.Type():
            return True
        case Kind.AnyOf(context) | Kind.OneOfNotValid(context):
            return all(
                any(_is_about_kind(e) for e in branch if e.instance_path == error.instance_path) for branch in context
            )
        case _:
            return False


def _refuse(uri: str) -> Any:
    raise ValueError("remote schemas are not read")


def _told(error: jsonschema_rs.ValidationError, instance: Any, schema: Any, noun: str) -> Iterator[str]:
    """The error in the words of someone who wrote the call."""
    where = _path(error.instance_path)
    what = "key" if where else noun
    match error.kind:
        case Kind.Required(name):
            yield f"{where}missing required {what} {name!r}"
        case Kind.AdditionalProperties(unexpected) | Kind.UnevaluatedProperties(unexpected):
            declared = _at(_at(schema, error.schema_path[:-1]), ["properties"])
            known = list(cast(dict[str, Any], declared)) if isinstance(declared, dict) else []
            for key in unexpected[:_MOST_PROBLEMS]:
                near = get_close_matches(key[:100], known, 1)
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                yield f"{where}unexpected {what} {one_line(key, 60)!r}{meant}"
        case Kind.Type(types):
            yield f"{where}must be {_any_of(types)}, not {_json_type(_at(instance, error.instance_path))}"
        case Kind.Enum(options):
            shown = ", ".join(repr(option) for option in options[:12])
            yield f"{where}must be one of {shown}"
        case Kind.Constant(value):
            yield f"{where}must be {value!r}"
        case Kind.AnyOf(context) | Kind.OneOfNotValid(context):
            yield from _alternatives(error, context, instance, schema, noun)
        case _:
            yield f"{where or 'the arguments: '}{error.message.removeprefix('value ')}"


def _alternatives(
    error: jsonschema_rs.ValidationError,
    context: list[list[jsonschema_rs.ValidationError]],
    instance: Any,
    schema: Any,
    noun: str,
) -> Iterator[str]:
    """All types that would do, or what is wrong with the alternative that came closest."""
    types: list[str] = []
    for branch in context:
        first = branch[0] if branch else error
        if not isinstance(first.kind, Kind.Type) or len(first.instance_path) > len(error.instance_path):
            break
        types += first.kind.types
    else:
        if types:
            found = _json_type(_at(instance, error.instance_path))
            yield f"{_path(error.instance_path)}must be {_any_of(types)}, not {found}"
            return
    # A branch of another type was not meant; of the others, few problems and deep ones mean close.
    meant = [branch for branch in context if branch and not _is_elsewhere(branch, error)] or context
    closest = min(meant, key=lambda branch: (len(branch), -max((len(e.instance_path) for e in branch), default=0)))
    for inner in closest[:1]:
        yield from _told(inner, instance, schema, noun)
    if not closest:
        yield f"{_path(error.instance_path)}fits none of the alternatives"


def _is_elsewhere(branch: list[jsonschema_rs.ValidationError], error: jsonschema_rs.ValidationError) -> bool:
    return any(isinstance(e.kind, Kind.Type) and e.instance_path == error.instance_path for e in branch)


def _path(parts: list[str | int]) -> str:
    """`filter.tags[2]: `, or nothing for the arguments as a whole."""
    out = ""
    for part in parts:
        out += f"[{part}]" if isinstance(part, int) else f".{one_line(part, 60)}" if out else one_line(part, 60)
    return f"{out}: " if out else ""


def _any_of(types: list[str]) -> str:
    return " or ".join(dict.fromkeys(types))


def _at(instance: Any, path: list[str | int]) -> Any:
    for part in path:
        try:
            instance = instance[part]
        except (LookupError, TypeError):
            return None
    return instance


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"
