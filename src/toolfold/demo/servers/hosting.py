"""What the demo's servers are made of: a tool is a definition and a function, a server is a name and tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from toolfold.demo.servers.schema import Schema

Arguments = dict[str, Any]


class Refusal(Exception):
    """The tool cannot do what was asked; the text goes to the caller as an `isError` result."""


@dataclass(frozen=True, kw_only=True)
class DemoTool:
    """One tool. `run` gets checked arguments and returns data.

    With an `output_schema` the data is sent as structured content and once more as JSON text, as the protocol
    asks for the sake of older clients. Without one a `str` is sent as it is and other data as JSON text.
    """

    name: str
    title: str
    description: str
    arguments: Schema
    run: Callable[[Arguments], Any]
    output_schema: Schema | None = None
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    defaults: Arguments = field(default_factory=dict[str, Any])
    """Values for arguments that were left out."""

    @property
    def annotations(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "readOnlyHint": not self.writes,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent or not self.writes,
            "openWorldHint": self.open_world,
        }

    def answer(self, arguments: Arguments) -> tuple[str, Any, bool]:
        """The text, the structured content (or None) and whether it is an error."""
        if problem := self._problem(arguments):
            return problem, None, True
        try:
            data = self.run(self.defaults | arguments)
        except Refusal as refusal:
            return str(refusal), None, True
        if isinstance(data, str):
            return data, None, False
        return compact(data), data if self.output_schema else None, False

    def _problem(self, arguments: Arguments) -> str:
        errors = list(jsonschema_rs.validator_for(self.arguments).iter_errors(arguments))
        if not errors:
            return ""
        where = "/".join(str(step) for step in errors[0].instance_path)
        return f"invalid arguments for {self.name}{f' at {where}' if where else ''}: {errors[0].message}"


@dataclass(frozen=True)
class DemoServer:
    name: str
    tools: tuple[DemoTool, ...]


def compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
