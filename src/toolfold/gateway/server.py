"""The MCP server over a fold, for every transport and both protocol eras: our two tools, the servers' own, or both."""

from __future__ import annotations

import base64
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from toolfold import __version__
from toolfold.definitions import OWN_NAME, ToolResult
from toolfold.errors import ToolfoldError
from toolfold.gateway.changes import AnnouncingServer
from toolfold.gateway.exposed import Exposed, gateway_uri, with_output_link
from toolfold.gateway.offers import Offers
from toolfold.gateway.results import call_result
from toolfold.gateway.runs import Runs, caller
from toolfold.gateway.subscriptions import ResourceSubscriptions
from toolfold.gateway.texts import instructions, offered_tools, only_reads
from toolfold.session.direct import CALLS

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolfold.catalog.catalog import Detail
    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.changes import Changes
    from toolfold.gateway.roots import ClientRoots
    from toolfold.gateway.runs import AskLocally, Work

FRESH = "new"
"""As `session`: a run that keeps nothing, also where the connection has a session of its own."""
_KNOWN: dict[Mode, str] = {
    "code": "There are search_tools and run_code.",
    "hybrid": "There are search_tools, run_code and those that tools/list names.",
    "direct": "tools/list names those that there are.",
}


def make_server(
    fold: Toolfold,
    *,
    mode: Mode | None = None,
    default_session: str | None = None,
    ask_locally: AskLocally | None = None,
    roots: ClientRoots | None = None,
    changes: Changes | None = None,
) -> Server[Any]:
    """The gateway's protocol side. The programs that it runs end with the fold at the latest.

    `mode` is which tools are offered, by default what the settings say. `default_session` serves runs that name none
    (stdio: one client, one session). `ask_locally` puts a question to the person at this machine, for clients that
    cannot be asked themselves. `changes` are announced where a list can change; by default there are none.
    `roots` is told about the one client of stdio.
    """
    mode = mode or fold.settings.mode
    own = [types.Tool.model_validate(tool) for tool in offered_tools(read_only=only_reads(fold.settings))]
    runs = Runs(fold, ask_locally)
    offers = Offers(fold, mode) if mode != "code" else None
    # Where programs can run, they find what is too long in the connection's session.
    session_of_calls = default_session if default_session is not None and mode != "direct" else CALLS
    exposed = Exposed(fold, runs, session_of_calls, outputs=mode == "direct")

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        cursor = params.cursor if params is not None else None
        tools = own if mode != "direct" and cursor is None else []
        if offers is None:
            return types.ListToolsResult(tools=tools)
        more, next_cursor = await offers.page(caller(ctx), cursor, ctx.protocol_version)
        return types.ListToolsResult(tools=[*tools, *more], next_cursor=next_cursor)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        if roots is not None:
            roots.seen(ctx)
        try:
            if mode != "direct":
                if params.name == "search_tools":
                    return _text(await _search(fold, caller(ctx), arguments))
                if params.name == "run_code":
                    work, session = _program(fold, arguments, default_session)
                    return await answered(ctx, params, work, session)
            found = await offers.find(caller(ctx), params.name) if offers is not None else None
            if found is None:
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name!r}. {_KNOWN[mode]}")
            return await answered(ctx, params, partial(fold.call, *found, arguments), session_of_calls, found[0])
        except ToolfoldError as error:
            return _text(str(error), error=True)

    async def answered(
        ctx: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        work: Work,
        session: str | None,
        server: str = "",
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.request_state is not None:
            ended = await runs.resume(ctx, params.request_state, dict(params.input_responses or {}))
        else:
            ended = await runs.start(ctx, work, session)
        match ended:
            case types.InputRequiredResult():
                return ended
            case ToolResult():
                link = partial(gateway_uri, server) if "resources" in fold.settings.expose else str
                shown = call_result(ended, ctx.protocol_version, link)
                return with_output_link(shown) if mode == "direct" else shown
            case _:
                shown = _text(ended.text, error=not ended.success)
                for image in ended.images:
                    data = base64.b64encode(image.data).decode()
                    shown.content.append(types.ImageContent(type="image", data=data, mime_type=image.mime_type))
                return shown

    options: dict[str, Any] = {
        "version": __version__,
        "title": "Toolfold",
        "instructions": instructions(mode),
        "on_list_tools": list_tools,
        "on_call_tool": call_tool,
        **exposed.handlers(),
    }
    if changes is not None and (offers is not None or fold.settings.expose):
        updates = "resources" in fold.settings.expose
        subscriptions = ResourceSubscriptions(fold, changes, exposed.split, session_of_calls) if updates else None
        server: Server[Any] = AnnouncingServer(OWN_NAME, changes, subscriptions, **options)
    else:
        server = Server(OWN_NAME, **options)
    # What a client brings back is good for its caller, its tool call and this process only.
    security = RequestStateSecurity(keys=[secrets.token_bytes(32)], ttl=runs.longest_wait, bind_principal=caller)
    server.middleware.append(RequestStateBoundary(security, default_audience=OWN_NAME))
    return server


async def _search(fold: Toolfold, asker: str, arguments: dict[str, Any]) -> str:
    query = _string(arguments, "query", "")
    detail = _string(arguments, "detail", "with_description")
    limit = arguments.get("limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise ToolfoldError(f"`limit` must be a whole number, not {type(limit).__name__}.")
    answer = await fold.search(query, detail=cast("Detail", detail), limit=limit, caller=asker)
    return answer.text


def _program(fold: Toolfold, arguments: dict[str, Any], default_session: str | None) -> tuple[Work, str | None]:
    code = _string(arguments, "code", None)
    session = _string(arguments, "session", "") or default_session
    language = _string(arguments, "language", "python")
    if language != "python":
        raise ToolfoldError(f"`language` {language!r} is not available; write Python.")
    return partial(fold.run, code), None if session == FRESH else session


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
