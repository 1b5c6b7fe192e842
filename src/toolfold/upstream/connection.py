"""One live connection to a server: sends requests, returns plain data or raises an error that explains itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from toolfold import __version__
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing, TextPart, ToolResult
from toolfold.errors import InvalidArguments, SignInNeeded, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from toolfold.upstream.handshake import Era, negotiate
from toolfold.upstream.listing import ListingReader
from toolfold.upstream.remote import needs_authorization
from toolfold.upstream.results import InvalidResponseError, tool_result
from toolfold.upstream.serverlog import DOCTOR, ServerLog

if TYPE_CHECKING:
    from mcp.client.session import ClientSession, IncomingMessage
    from mcp.shared.dispatcher import CallOptions, ProgressFnT
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    from toolfold.upstream.auth.authorization import AuthProblem

OnProgress = Callable[[float, float | None, str | None], None]

LISTING_TIMES = 5
"""How many call timeouts a whole listing may take, with all its pages."""
END_REASON_TIMEOUT = 5.0
"""Seconds to wait for the reason why a connection ended."""
QUOTED_CHARS = 600
"""Characters that an error quotes of what a server wrote."""
MAY_HAVE_RUN = "The call was sent and may have taken effect."
NOT_SENT = "The call was not sent."
REFUSED = "The server refused the call, so it had no effect."


class Transport(Protocol):
    """Both directions of a connection, and what is known about its other end."""

    reader: Any
    writer: Any

    @property
    def pid(self) -> int | None: ...
    def on_end(self, callback: Callable[[], None]) -> None: ...
    async def wait_for_exit(self) -> None: ...
    def reason(self) -> str: ...
    def stderr_tail(self) -> str: ...
    def probe_was_read(self) -> bool: ...


class Connection:
    """A connection whose handshake is done. Usable from any task until it is `over`."""

    def __init__(
        self,
        server: str,
        config: ServerConfig,
        log: ServerLog,
        session: ClientSession,
        dispatcher: JSONRPCDispatcher[Any],
        transport: Transport,
    ) -> None:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        self.server = server
        self.config = config
        self.log = log
        self.session = session
        self.transport = transport
        self.version = session.protocol_version or ""
        self.modern = self.version in MODERN_PROTOCOL_VERSIONS
        self.answered = False
        """Whether a call has succeeded. A server that worked once is restarted without a pause."""
        self.end_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the connection ended, once it has."""
        self.wake = asyncio.Event()
        self.over = False
        self.closing = False
        self.on_close: Callable[[], None] = lambda: None
        self.stale = False
        self._dispatcher = dispatcher
        self._remote = config.transport != "stdio"
        self._parameter_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._meta = _modern_meta(self.version) if self.modern else None
        transport.on_end(self._ended)

    def _ended(self) -> None:
        self.over = True
        self.on_close()
        self.wake.set()

    def close(self) -> None:
        """Stop using this connection: the next call opens another one."""
        self.closing = True
        self.on_close()
        self.wake.set()

    def mark_stale(self) -> None:
        """Have the server listed again: it says that what it offers has changed."""
        self.stale = True
        self.wake.set()

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> ToolResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import HEADER_MISMATCH

        params = {"name": tool, "arguments": arguments}
        what = f"tool `{tool}`"
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.config.call_timeout
        try:
            try:
                raw = await self._send("tools/call", params, self.config.call_timeout, tool, on_progress)
            except MCPError as error:
                if error.code != HEADER_MISMATCH or not self.modern:
                    raise
                # Refused before it was run, because the headers follow a schema that has changed: read it, send again.
                async with asyncio.timeout_at(deadline):
                    await self.listing()
                raw = await self._send("tools/call", params, deadline - clock(), tool, on_progress)
        except MCPError as error:
            raise await self.explain(error, what, MAY_HAVE_RUN) from error
        except TimeoutError:
            raise self._too_late(what, REFUSED) from None
        try:
            result = tool_result(raw, modern=self.modern)
        except InvalidResponseError as error:
            raise UpstreamError(self.server, f"{what} sent an invalid response: {error}.", hint=MAY_HAVE_RUN) from None
        self.answered = True
        return self._without_secrets(result) if result.is_error else result

    def _without_secrets(self, failure: ToolResult) -> ToolResult:
        """A tool's own error is read by the model, and often quotes the key that it was refused with."""
        mask = self.log.redactor.text
        parts = [TextPart(mask(part.text)) if isinstance(part, TextPart) else part for part in failure.parts]
        return msgspec.structs.replace(failure, parts=parts)

    async def request(self, method: str, params: dict[str, Any], what: str, *, name: str = "") -> dict[str, Any]:
        """One request with the time of a call; every failure is an `UpstreamError` that says `what` it was for."""
        from mcp.shared.exceptions import MCPError

        try:
            return await self._send(method, params, self.config.call_timeout, name)
        except MCPError as error:
            raise await self.explain(error, what) from error

    async def listing(self) -> tuple[Listing, list[str]]:
        """Everything the server offers, and what was wrong with it."""
        from mcp.shared.exceptions import MCPError

        claims = self.session.server_capabilities
        assert claims is not None
        reader = ListingReader(self.server, self._page)
        try:
            async with asyncio.timeout(self.config.call_timeout * LISTING_TIMES):
                listing = await reader.read(
                    instructions=self.session.instructions or "",
                    tools=claims.tools is not None,
                    resources=claims.resources is not None,
                    prompts=claims.prompts is not None,
                )
        except MCPError as error:
            raise await self.explain(error, "its list of tools") from error
        except InvalidResponseError as error:
            raise UpstreamError(self.server, f"sent an invalid response: {error}.", hint=DOCTOR) from None
        except TimeoutError:
            seconds = f"{self.config.call_timeout * LISTING_TIMES:g} s ({LISTING_TIMES} times its `call_timeout`)"
            raise UpstreamTimeout(self.server, f"its list of tools did not end within {seconds}.") from None
        if self.modern and self._remote:
            listing = self._mirror(listing, reader.problems)
        for problem in reader.problems:
            self.log.note(problem)
        return listing, reader.problems

    async def _page(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self._send(method, params, self.config.call_timeout)

    def _mirror(self, listing: Listing, problems: list[str]) -> Listing:
        """Remember which arguments are also sent as headers, and leave out tools with an invalid `x-mcp-header`."""
        from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

        kept = [tool for tool in listing.tools if find_invalid_x_mcp_header(tool.input_schema) is None]
        self._parameter_headers = {tool.name: x_mcp_header_map(tool.input_schema) for tool in kept}
        if len(kept) == len(listing.tools):
            return listing
        names = {tool.name for tool in kept}
        problems += [f"tool `{t.name}` has an invalid x-mcp-header" for t in listing.tools if t.name not in names]
        return Listing(
            server=listing.server,
            instructions=listing.instructions,
            tools=kept,
            resources=listing.resources,
            prompts=listing.prompts,
        )

    async def _send(
        self, method: str, params: dict[str, Any], timeout: float, name: str = "", on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        # Not through the SDK's session: it would validate each answer twice against its own models and each result
        # against the output schema in pure Python, and refuse a list for one bad entry. See `listing` and `results`.
        options: CallOptions = {"timeout": timeout}
        if self._meta is not None:
            params = {**params, "_meta": self._meta}
        if self._remote:
            options["headers"] = self._headers(method, params, name)
        if on_progress is not None:
            options["on_progress"] = _asynchronous(on_progress)
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except TimeoutError:
            from mcp.shared.exceptions import MCPError
            from mcp_types import REQUEST_TIMEOUT

            # The SDK's clock starts after the request is written; a writer that waits has a limit of its own.
            raise MCPError(code=REQUEST_TIMEOUT, message="The request timed out") from None
        except ValueError as error:
            raise InvalidArguments(f"The arguments cannot be sent as JSON: {error}") from None

    def _headers(self, method: str, params: Mapping[str, Any], name: str) -> dict[str, str]:
        from mcp.shared.inbound import (
            MCP_METHOD_HEADER,
            MCP_NAME_HEADER,
            MCP_PROTOCOL_VERSION_HEADER,
            encode_header_value,
            mcp_param_headers,
        )

        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.modern:
            headers[MCP_METHOD_HEADER] = method
            if name:
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            if (mirrored := self._parameter_headers.get(name)) and method == "tools/call":
                headers |= mcp_param_headers(mirrored, cast("dict[str, Any]", params["arguments"]))
        return headers

    async def explain(self, error: MCPError, what: str, effect: str = "") -> UpstreamError:
        """What an error of the protocol means to the person or program that asked for `what`.

        `effect` says what is known about the effect of a request that was sent and not answered.
        """
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        if error.code == REQUEST_TIMEOUT and "timed out" in error.message:
            return self._too_late(what, effect)
        if error.code == CONNECTION_CLOSED:
            # The reason is known a moment after the end. A live server may send this code too.
            await asyncio.wait({self.end_reason}, timeout=END_REASON_TIMEOUT if self.over or self.closed else 0.5)
            if self.end_reason.done():
                return self.lost(what, effect)
        if self._status == 404 and "ession" in error.message:
            self.close()
            return UpstreamUnavailable(
                self.server, "ended the session.", hint=f"{effect and REFUSED} The next call opens a new one.".strip()
            )
        if needs_authorization(self._status):
            refused = unauthorized(self.server, self.log, self._status, self.transport)
            refused.hint = f"{effect and REFUSED} {refused.hint}".strip()
            return refused
        message = self.log.quoted(error.message, QUOTED_CHARS) or "no reason given"
        return UpstreamError(self.server, f"{what} failed: {message} (code {error.code})")

    @property
    def closed(self) -> bool:
        return self.closing or self.end_reason.done()

    @property
    def _status(self) -> int | None:
        """The last HTTP error; None without one, or without HTTP."""
        return getattr(self.transport, "status", None)

    def _too_late(self, what: str, effect: str) -> UpstreamTimeout:
        return UpstreamTimeout(
            self.server,
            f"{what} did not answer within {self.config.call_timeout:g} s (its `call_timeout`) and was cancelled.",
            hint=f"{effect} If it needs longer, raise `call_timeout` of this server.".strip(),
        )

    def lost(self, what: str, effect: str) -> UpstreamUnavailable:
        """The error of a request that was waiting for its answer when the server went away."""
        return UpstreamUnavailable(
            self.server,
            f"the server {self.end_reason.result()} while {what} was running.{last_output(self.transport, self.log)}",
            hint=f"{effect} The next call starts the server again. {DOCTOR}".strip(),
        )


def last_output(transport: Transport, log: ServerLog) -> str:
    output = log.quoted(transport.stderr_tail(), QUOTED_CHARS)
    return f" Last output: “{output}”" if output else ""


def unauthorized(server: str, log: ServerLog, status: int | None, transport: Transport | None) -> UpstreamUnavailable:
    problem: AuthProblem | None = getattr(transport, "auth_problem", None)
    if problem is not None:
        kind = SignInNeeded if problem.needs_person else UpstreamUnavailable
        return kind(server, problem.text, hint=problem.hint)
    return UpstreamUnavailable(
        server,
        f"{log.redactor.address} answered with HTTP {status}: authorization is needed.",
        hint=f"Add an `Authorization` header to this server. {DOCTOR}",
    )


def _asynchronous(on_progress: OnProgress) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        on_progress(progress, total, message)

    return report


def _modern_meta(version: str) -> dict[str, Any]:
    from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: {"name": "toolfold", "version": __version__},
        CLIENT_CAPABILITIES_META_KEY: {},
    }


class PendingConnection:
    """An open transport whose handshake is still to be done."""

    def __init__(self, server: str, config: ServerConfig, log: ServerLog, transport: Transport) -> None:
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import (
            Implementation,
            PromptListChangedNotification,
            ResourceListChangedNotification,
            ToolListChangedNotification,
        )

        self._server = server
        self._config = config
        self._log = log
        self._transport = transport
        self._changes = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
        self._connection: Connection | None = None
        self._dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(transport.reader, transport.writer)
        self.session = ClientSession(
            dispatcher=self._dispatcher,
            message_handler=self._on_message,
            client_info=Implementation(name="toolfold", version=__version__),
        )
        """To be entered before `connect`, and left, by the same task."""

    async def _on_message(self, message: IncomingMessage) -> None:
        if self._connection is not None and isinstance(message, self._changes):
            self._connection.mark_stale()

    async def connect(self, era: Era, budget: float) -> Connection:
        await negotiate(self.session, self._transport, era, budget)
        self._connection = Connection(
            self._server, self._config, self._log, self.session, self._dispatcher, self._transport
        )
        return self._connection


async def follow_changes(connection: Connection) -> None:
    """Subscribe to announcements of changed lists, which the newer protocol sends only on request, and subscribe again
    when the stream breaks. Returns when the server has no such stream."""
    from mcp.client.subscriptions import SubscriptionLost, listen
    from mcp.shared.exceptions import MCPError

    capabilities = connection.session.server_capabilities
    if not connection.modern or capabilities is None:
        return
    tools, prompts, resources = (
        bool(part and part.list_changed) for part in (capabilities.tools, capabilities.prompts, capabilities.resources)
    )
    if not (tools or prompts or resources):
        return
    delay = 1.0
    while True:
        with contextlib.suppress(SubscriptionLost):
            try:
                async with listen(
                    connection.session,
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as events:
                    async for _ in events:
                        delay = 1.0
                        connection.mark_stale()
            except MCPError as error:
                connection.log.note(f"changes cannot be followed: {error}")
                return
        await asyncio.sleep(delay)
        delay = min(delay * 2, 60.0)
        # Changes between two streams are not replayed, so the list is read again.
        connection.mark_stale()
