"""Arguments are checked against the tool's own schema before they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolfold.codegen import render
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.errors import InvalidArguments
from toolfold.guards.guard import Call, Proceed
from toolfold.schema.text import one_line
from toolfold.schema.validation import Validators


def usage(tool: ToolDefinition) -> str:
    """The signature that would be right."""
    return render.usage(ApiNames.of([tool]), tool)


def check_arguments(
    validators: Validators,
    tool: ToolDefinition,
    arguments: dict[str, Any],
    usage_of: Callable[[ToolDefinition], str] = usage,
) -> None:
    """Raise `InvalidArguments`, naming what is wrong where and the signature that would be right."""
    problems = validators.argument_problems(tool, arguments)
    if problems:
        what = f"{one_line(tool.server, 80)}.{one_line(tool.name, 80)}: {'; '.join(problems)}."
        raise InvalidArguments(what, hint=usage_of(tool))


class CheckArguments:
    """Refuses a tool call whose arguments its schema does not allow."""

    def __init__(self, validators: Validators) -> None:
        self._validators = validators
        self._usages: dict[tuple[str, str], str] = {}
        """Written once for each tool: a program may call it wrongly thousands of times."""

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        if call.tool is not None:
            check_arguments(self._validators, call.tool, call.arguments, self._usage)
        return await proceed(call)

    def _usage(self, tool: ToolDefinition) -> str:
        key = (tool.server, tool.name)
        if key not in self._usages:
            self._usages[key] = usage(tool)
        return self._usages[key]
