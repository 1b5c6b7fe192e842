"""One live connection to a server: sends requests, returns plain data or raises an error that explains itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from toolfold import __version__
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing, TextPart, ToolResult
from toolfold.errors import InvalidArguments, SignInNeeded, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from toolfold.upstream.asking import CallClock, Flight, Flights, OnProgress, Person
from toolfold.upstream.listing import ListingReader
from toolfold.upstream.remote import needs_authorization
from toolfold.upstream.results import InvalidResponseError, tool_result
from toolfold.upstream.serverlog import DOCTOR, ServerLog
from toolfold.upstream.tasks import Tasks

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions, ProgressFnT
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    from toolfold.upstream.auth.authorization import AuthProblem

AnswerInput = Callable[[dict[str, Any], Flight], Awaitable[dict[str, Any]]]
"""From an answer that asks for input to what is sent with the same request again."""

LISTING_TIMES = 5
"""How many call timeouts a whole listing may take, with all its pages."""
END_REASON_TIMEOUT = 5.0
"""Seconds to wait for the reason why a connection ended."""
QUOTED_CHARS = 600
"""Characters that an error quotes of what a server wrote."""
FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0
"""Seconds until a request is sent again whose server only wants to be asked later."""
INPUT_ROUNDS = 200
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
        flights: Flights,
        answer_input: AnswerInput,
        *,
        offers_roots: bool = False,
    ) -> None:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        self.server = server
        self.config = config
        self.log = log
        self.session = session
        self.transport = transport
        self.version = session.protocol_version or ""
        self.modern = self.version in MODERN_PROTOCOL_VERSIONS
        self.unmet: set[str] = set()
        """What the server wanted of its client that we do not offer, for `doctor`."""
        self.answered = False
        """Whether a request of a program has succeeded. A server that worked once is restarted without a pause."""
        self.end_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the connection ended, once it has."""
        self.wake = asyncio.Event()
        self.over = False
        self.closing = False
        self.on_close: Callable[[], None] = lambda: None
        self.on_updated: Callable[[str], None] = lambda uri: None
        """Called with the URI of a resource that the server says has changed."""
        self.stale = False
        self._dispatcher = dispatcher
        self._remote = config.transport != "stdio"
        self._parameter_headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._flights = flights
        self._offers_roots = offers_roots
        self._answer_input = answer_input
        self._tasks = Tasks(lambda method, params: self._send(method, params, None))
        self._meta = self._modern_meta(asks=False) if self.modern else None
        self._asking_meta = self._modern_meta(asks=True) if self.modern else None
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

    def task_progress(self, token: str | int, done: float, total: float | None, message: str | None) -> None:
        """What a server reports about a task, after its request was answered."""
        self._tasks.report(token, done, total, message)

    def mark_stale(self) -> None:
        """Have the server listed again: it says that what it offers has changed."""
        self.stale = True
        self.wake.set()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: OnProgress | None = None,
        person: Person | None = None,
        *,
        task: bool = False,
    ) -> ToolResult:
        """`person` answers what the server asks during the call; without one, it is declined. `task`: the server runs
        the tool only as a task."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import HEADER_MISMATCH

        params = {"name": tool, "arguments": arguments}
        what = f"tool `{tool}`"
        effect = MAY_HAVE_RUN
        try:
            async with CallClock(self.config.call_timeout) as clock:
                with self._flights.call(person, clock) as flight:
                    try:
                        raw = await self._called(params, flight, on_progress, task=task)
                    except MCPError as error:
                        # Refused before it was run, for something that can be mended: then it is sent again, once.
                        effect = REFUSED
                        if error.code == HEADER_MISMATCH and self.modern:
                            await self.listing()  # the headers follow a schema that has changed
                        elif not await self._flights.opened(error, flight):
                            raise
                        effect = MAY_HAVE_RUN
                        raw = await self._called(params, flight, on_progress, task=task)
            result = tool_result(raw, modern=self.modern)
        except MCPError as error:
            raise await self.explain(error, what, MAY_HAVE_RUN) from error
        except TimeoutError:
            raise self._too_late(what, effect) from None
        except InvalidResponseError as error:
            raise UpstreamError(self.server, f"{what} sent an invalid response: {error}.", hint=MAY_HAVE_RUN) from None
        self.answered = True
        return self._without_secrets(result) if result.is_error else result

    async def _called(
        self, params: dict[str, Any], flight: Flight, on_progress: OnProgress | None, *, task: bool
    ) -> dict[str, Any]:
        if task:
            return await self._tasks.run(params, flight, on_progress)
        return await self._answered("tools/call", params, flight, params["name"], on_progress)

    async def _answered(
        self, method: str, params: dict[str, Any], flight: Flight, name: str, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """The answer to a request of a program, once everything that the server asked in between is answered."""
        meta = self._meta if flight.person is None else self._asking_meta
        more: dict[str, Any] = {}
        delay = FIRST_DELAY
        for _ in range(INPUT_ROUNDS):
            raw = await self._send(method, {**params, **more}, None, name, on_progress, meta)
            if not self.modern or raw.get("resultType") != "input_required":
                return raw
            more = await self._answer_input(raw, flight)
            if "inputResponses" not in more:
                # The server only wants to be asked again later.
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY)
        raise InvalidResponseError("it asked for input again and again")

    def _without_secrets(self, failure: ToolResult) -> ToolResult:
        """A tool's own error is read by the model, and often quotes the key that it was refused with."""
        mask = self.log.redactor.text
        parts = [
            msgspec.structs.replace(part, text=mask(part.text)) if isinstance(part, TextPart) else part
            for part in failure.parts
        ]
        return msgspec.structs.replace(failure, parts=parts)

    async def request(
        self, method: str, params: dict[str, Any], what: str, *, name: str, person: Person | None = None
    ) -> dict[str, Any]:
        """One request with the time of a call; every failure is an `UpstreamError` that says `what` it was for."""
        from mcp.shared.exceptions import MCPError

        try:
            async with CallClock(self.config.call_timeout) as clock:
                with self._flights.call(person, clock) as flight:
                    raw = await self._answered(method, params, flight, name)
        except MCPError as error:
            raise await self.explain(error, what) from error
        except TimeoutError:
            raise self._too_late(what, "") from None
        except InvalidResponseError as error:
            raise UpstreamError(self.server, f"sent an invalid response for {what}: {error}.") from None
        self.answered = True
        return raw

    async def listing(self) -> tuple[Listing, list[str]]:
        """Everything the server offers, and what was wrong with it."""
        from mcp.shared.exceptions import MCPError

        claims = self.session.server_capabilities
        assert claims is not None
        tasks = claims.tasks.requests.tools if claims.tasks is not None and claims.tasks.requests is not None else None
        can_run_tasks = not self.modern and tasks is not None and tasks.call is not None
        reader = ListingReader(self.server, self._page, tasks=can_run_tasks)
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
        return await self._send(method, params, self.config.call_timeout, meta=self._meta)

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
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        name: str = "",
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        # Not through the SDK's session: it would validate each answer twice against its own models and each result
        # against the output schema in pure Python, and refuse a list for one bad entry. See `listing` and `results`.
        options: CallOptions = {} if timeout is None else {"timeout": timeout}
        if meta is not None:
            params = {**params, "_meta": meta}
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
        from opentelemetry.propagate import inject

        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.modern:
            headers[MCP_METHOD_HEADER] = method
            if name:
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            if (mirrored := self._parameter_headers.get(name)) and method == "tools/call":
                headers |= mcp_param_headers(mirrored, cast("dict[str, Any]", params["arguments"]))
        inject(headers)  # `traceparent`, where a span is current; the SDK puts its own into `_meta`
        return headers

    async def explain(self, error: MCPError, what: str, effect: str = "") -> UpstreamError:
        """What an error of the protocol means to the person or program that asked for `what`.

        `effect` says what is known about the effect of a request that was sent and not answered.
        """
        from mcp_types import CONNECTION_CLOSED, MISSING_REQUIRED_CLIENT_CAPABILITY, REQUEST_TIMEOUT

        if error.code == REQUEST_TIMEOUT and "timed out" in error.message:
            return self._too_late(what, effect)
        if error.code == CONNECTION_CLOSED:
            # The reason is known a moment after the end. A live server may send this code too.
            await self.transport.wait_for_exit()
            await asyncio.wait({self.end_reason}, timeout=END_REASON_TIMEOUT if self.over or self.closed else 0.5)
            if self.end_reason.done():
                return self.lost(what, effect)
        if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            wanted = _wanted(error.error.data) or "more"
            if wanted != "elicitation":
                self.unmet.add(f"it needs a client that offers {wanted}, which Toolfold does not")
            needs = f"{what} needs a client that offers {wanted}, which is not possible here."
            return UpstreamError(self.server, needs)
        if self._status == 404 and "ession" in error.message:
            self.close()
            return UpstreamUnavailable(
                self.server, "ended the session.", hint=f"{effect and REFUSED} The next call opens a new one.".strip()
            )
        if needs_authorization(self._status):
            problem: AuthProblem | None = getattr(self.transport, "auth_problem", None)
            refused = unauthorized(self.server, self.log, self._status, problem)
            refused.hint = f"{effect and REFUSED} {refused.hint}".strip()
            return refused
        message = self.log.quoted(error.message, QUOTED_CHARS) or "no reason given"
        return UpstreamError(self.server, f"{what} failed: {message} (code {error.code})")

    def _modern_meta(self, *, asks: bool) -> dict[str, Any]:
        """What the newer protocol wants with each request. `asks`: whether there is a person who can answer."""
        from mcp_types import (
            CLIENT_CAPABILITIES_META_KEY,
            CLIENT_INFO_META_KEY,
            LOG_LEVEL_META_KEY,
            PROTOCOL_VERSION_META_KEY,
        )

        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}} if asks else {}
        if self._offers_roots:
            capabilities["roots"] = {}
        meta: dict[str, Any] = {
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: {"name": "toolfold", "version": __version__},
            CLIENT_CAPABILITIES_META_KEY: capabilities,
        }
        claims = self.session.server_capabilities
        if claims is not None and claims.logging is not None:
            meta[LOG_LEVEL_META_KEY] = "info"
        return meta

    @property
    def offers_updates(self) -> bool:
        """Whether its resources can be subscribed to."""
        claims = self.session.server_capabilities
        return claims is not None and claims.resources is not None and claims.resources.subscribe is True

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


def _wanted(data: Any) -> str:
    """The capabilities that a server says it needs of its client."""
    wanted = cast("dict[str, Any]", data).get("requiredCapabilities") if isinstance(data, dict) else None
    named = cast("dict[str, Any]", wanted) if isinstance(wanted, dict) else {}
    return ", ".join(sorted(name[:50] for name in named)[:5])


def last_output(transport: Transport, log: ServerLog) -> str:
    output = log.quoted(transport.stderr_tail(), QUOTED_CHARS)
    return f" Last output: “{output}”" if output else ""


def unauthorized(server: str, log: ServerLog, status: int | None, problem: AuthProblem | None) -> UpstreamUnavailable:
    """The error of a request that was refused; `problem` is what is known beyond its status."""
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
