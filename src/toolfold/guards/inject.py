"""Values of the run's context are put into arguments, so that a program can neither write nor change them."""

from __future__ import annotations

from typing import Any

from toolfold.catalog.filled import FilledIn
from toolfold.config.policy import ContextSettings
from toolfold.definitions import ToolResult
from toolfold.errors import PolicyDenied
from toolfold.guards.guard import Call, Proceed
from toolfold.schema.defaults import properties_at
from toolfold.schema.patterns import read_name
from toolfold.schema.text import one_line


class Inject:
    """Fills in what `context.inject` names. A call with another value, or without a value to fill in, is refused."""

    def __init__(self, settings: ContextSettings) -> None:
        self._filled = FilledIn(settings)

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        filled = self._filled.arguments(call.kind, call.server, call.name)
        if not filled or call.kind == "resource":
            return await proceed(call)
        arguments = dict(call.arguments)
        for name, source in filled.items():
            types = _types(call, name)
            if types is None and read_name(name) not in map(read_name, arguments):
                continue
            value = call.run.values.get(source)
            target = one_line(call.target, 200)
            if value is None:
                raise PolicyDenied(
                    f"{target} needs context.{source}, which was not given with this run.",
                    hint="The application that starts the run gives it (`context=`).",
                )
            known = _as_declared(value, types or ())
            given = [key for key in arguments if key == name or read_name(key) == read_name(name)]
            if given and (given != [name] or arguments[name] != known or isinstance(arguments[name], bool)):
                raise PolicyDenied(
                    f"{target}: {name!r} is filled in from context.{source}, and another value is not allowed.",
                    hint=f"Leave {name!r} out.",
                )
            arguments[name] = known
        return await proceed(call.with_arguments(arguments))


def _types(call: Call, name: str) -> tuple[str, ...] | None:
    """The types that a tool declares for an argument; None when it does not have the argument."""
    if call.tool is None:
        return ()
    places = [schema for schema, rest in properties_at(call.tool.input_schema, [name]) if not rest]
    if not places:
        return None
    declared = [schema.get("type") for schema in places]
    return tuple(one for one in declared if isinstance(one, str))


def _as_declared(value: str, types: tuple[str, ...]) -> Any:
    """Context values are texts; a tool may want the same as a number."""
    if "string" not in types:
        try:
            if "integer" in types:
                return int(value)
            if "number" in types:
                return float(value)
        except ValueError:
            pass
    return value
