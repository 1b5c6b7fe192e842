"""Arguments are checked against the tool's schema before they leave; results against its output schema."""

from __future__ import annotations

from toolfold.codegen.validation import Validators
from toolfold.definitions import ToolResult
from toolfold.guards.guard import Proceed, ToolRequest


class Arguments:
    def __init__(self, validators: Validators) -> None:
        self._validators = validators

    async def __call__(self, request: ToolRequest, proceed: Proceed) -> ToolResult:
        self._validators.check_arguments(request.tool, request.arguments)
        return await proceed(request)
