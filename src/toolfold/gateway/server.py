"""The MCP server: two tools over a fold, for every transport and both protocol eras."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from toolfold import __version__
from toolfold.definitions import OWN_NAME
from toolfold.errors import ToolfoldError
from toolfold.gateway.runs import Runs, caller
from toolfold.gateway.texts import INSTRUCTIONS, offered_tools, only_reads

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolfold.catalog.catalog import Detail
    from toolfold.fold import Toolfold
    from toolfold.gateway.roots import ClientRoots
    from toolfold.gateway.runs import AskLocally

FRESH = "new"
"""As `session`: a run that keeps nothing, also where the connection has a session of its own."""


def make_server(
    fold: Toolfold,
    *,
    default_session: str | None = None,
    ask_locally: AskLocally | None = None,
    roots: ClientRoots | None = None,
) -> Server[Any]:
    """The gateway's protocol side. The programs that it runs end with the fold at the latest.

    `default_session` serves runs that name none (stdio: one client, one session). `ask_locally` puts a question to the
    person at this machine, for clients that cannot be asked themselves. `roots` is told about the one client of stdio.
    """
    tools = [types.Tool.model_validate(tool) for tool in offered_tools(read_only=only_reads(fold.settings))]
    runs = Runs(fold, ask_locally)

    async def list_tools(
        _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        if roots is not None:
            roots.seen(ctx)
        try:
            match params.name:
                case "search_tools":
                    return _text(await _search(fold, caller(ctx), arguments))
                case "run_code":
                    return await _run(runs, ctx, params, default_session)
                case other:
                    raise MCPError(
                        types.INVALID_PARAMS, f"Unknown tool: {other!r}. There are search_tools and run_code."
                    )
        except ToolfoldError as error:
            return _text(str(error), error=True)

    server = Server(
        OWN_NAME,
        version=__version__,
        title="Toolfold",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
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


async def _run(
    runs: Runs, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams, default_session: str | None
) -> types.CallToolResult | types.InputRequiredResult:
    arguments = params.arguments or {}
    code = _string(arguments, "code", None)
    session = _string(arguments, "session", "") or default_session
    language = _string(arguments, "language", "python")
    if language != "python":
        raise ToolfoldError(f"`language` {language!r} is not available; write Python.")
    if params.request_state is not None:
        ended = await runs.resume(ctx, params.request_state, dict(params.input_responses or {}))
    else:
        ended = await runs.start(ctx, code, None if session == FRESH else session)
    if isinstance(ended, types.InputRequiredResult):
        return ended
    shown = _text(ended.text, error=not ended.success)
    for image in ended.images:
        data = base64.b64encode(image.data).decode()
        shown.content.append(types.ImageContent(type="image", data=data, mime_type=image.mime_type))
    return shown


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
