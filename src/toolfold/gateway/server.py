"""The MCP server: two tools over a fold, for every transport and both protocol eras."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from toolfold import __version__
from toolfold.definitions import OWN_NAME
from toolfold.errors import ToolfoldError
from toolfold.gateway.texts import INSTRUCTIONS, offered_tools, only_reads
from toolfold.guards.context import LOCAL_CALLER
from toolfold.guards.events import Event, Output, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import ServerRequestContext

    from toolfold.catalog.catalog import Detail
    from toolfold.fold import Toolfold

FRESH = "new"
"""As `session`: a run that keeps nothing, also where the connection has a session of its own."""
_REPORT_EVERY = 0.1


def make_server(fold: Toolfold, *, default_session: str | None = None) -> Server[Any]:
    """The gateway's protocol side. `default_session` serves runs that name none (stdio: one client, one session)."""
    offered = offered_tools(read_only=only_reads(fold.settings))
    tools = [types.Tool.model_validate(tool) for tool in offered]

    async def list_tools(
        _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        try:
            match params.name:
                case "search_tools":
                    return _text(await _search(fold, arguments))
                case "run_code":
                    return await _run(fold, ctx, arguments, default_session)
                case other:
                    raise MCPError(
                        types.INVALID_PARAMS, f"Unknown tool: {other!r}. There are search_tools and run_code."
                    )
        except ToolfoldError as error:
            return _text(str(error), error=True)

    return Server(
        OWN_NAME,
        version=__version__,
        title="Toolfold",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def caller(ctx: ServerRequestContext[Any]) -> str:
    """Who asks: what the HTTP side found out about the request; on stdio, the one person at the other end."""
    return getattr(getattr(ctx.request, "state", None), "caller", LOCAL_CALLER)


async def _search(fold: Toolfold, arguments: dict[str, Any]) -> str:
    query = _string(arguments, "query", "")
    detail = _string(arguments, "detail", "with_description")
    limit = arguments.get("limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise ToolfoldError(f"`limit` must be a whole number, not {type(limit).__name__}.")
    answer = await fold.search(query, detail=cast("Detail", detail), limit=limit)
    return answer.text


async def _run(
    fold: Toolfold, ctx: ServerRequestContext[Any], arguments: dict[str, Any], default_session: str | None
) -> types.CallToolResult:
    code = _string(arguments, "code", None)
    session = _string(arguments, "session", "") or default_session
    language = _string(arguments, "language", "python")
    if language != "python":
        raise ToolfoldError(f"`language` {language!r} is not available; write Python.")
    async with _Reporter(ctx) as reporter:
        result = await fold.run(
            code, session=None if session == FRESH else session, caller=caller(ctx), on_event=reporter.on_event
        )
    return _text(result.text, error=not result.success)


def _string(arguments: dict[str, Any], name: str, default: str | None) -> str:
    value = arguments.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        what = "is missing" if value is None else f"must be a string, not {type(value).__name__}"
        raise ToolfoldError(f"`{name}` {what}.")
    return value


def _text(text: str, *, error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=error)


class _Reporter:
    """Sends what a program prints as progress while it runs, a few times a second, to clients that asked for it."""

    def __init__(self, ctx: ServerRequestContext[Any]) -> None:
        self._session = ctx.session
        self._wanted = bool((ctx.meta or {}).get("progress_token") is not None)
        self._pending: list[str] = []
        self._sent = 0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Reporter:
        if self._wanted:
            self._task = asyncio.create_task(self._report())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            if exc[0] is None:
                await self._send()

    @property
    def on_event(self) -> Callable[[Event], None] | None:
        """Where a run's events go; None for a client that did not ask, so that they are not even made."""
        return self._take if self._wanted else None

    def _take(self, event: Event) -> None:
        match event:
            case Output(text=text):
                self._pending.append(text)
            case Progress(text=text):
                self._pending.append(f"{text}\n")
            case _:
                return
        self._more.set()

    async def _report(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self._send()
            await asyncio.sleep(_REPORT_EVERY)

    async def _send(self) -> None:
        if self._pending:
            text = "".join(self._pending)
            self._pending.clear()
            self._sent += 1
            await self._session.report_progress(self._sent, message=text[-4000:])
