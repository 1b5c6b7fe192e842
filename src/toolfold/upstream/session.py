"""The SDK's session with one server: how it is opened, and what the server may ask and tell us by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequest,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotificationParams,
    ProgressNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    Root,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from toolfold import __version__
from toolfold.config.settings import ServerConfig
from toolfold.upstream.asking import Flight, Flights, Roots
from toolfold.upstream.connection import Connection, Transport
from toolfold.upstream.handshake import Era, negotiate
from toolfold.upstream.results import InvalidResponseError
from toolfold.upstream.serverlog import ServerLog

FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
"""Seconds until a stream of changes that broke is opened again."""
NO_SAMPLING = "Toolfold does not offer sampling: it has no model to ask."
_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)


class _Session(ClientSession):
    """Refuses sampling in our own words, and notes that it was wanted. Without roots to offer there are none."""

    on_sampling: Callable[[], None] = staticmethod(lambda: None)

    async def dispatch_input_request(
        self, ctx: ClientRequestContext, request: InputRequest
    ) -> InputResponse | ErrorData:
        answer = await super().dispatch_input_request(ctx, request)
        if isinstance(request, CreateMessageRequest):
            self.on_sampling()
            return ErrorData(code=INVALID_REQUEST, message=NO_SAMPLING)
        if isinstance(request, ListRootsRequest) and isinstance(answer, ErrorData):
            return ListRootsResult(roots=[])
        return answer


class PendingConnection:
    """An open transport whose handshake is still to be done."""

    def __init__(
        self, server: str, config: ServerConfig, log: ServerLog, transport: Transport, roots: Roots | None = None
    ) -> None:
        self._server = server
        self._config = config
        self._log = log
        self._transport = transport
        self._roots = roots
        self._flights = Flights(log)
        self._connection: Connection | None = None
        self._dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(transport.reader, transport.writer)
        session = _Session(
            dispatcher=self._dispatcher,
            message_handler=self._on_message,
            elicitation_callback=self._on_elicitation,
            list_roots_callback=None if roots is None else self._on_roots,
            logging_callback=self._on_log,
            client_info=Implementation(name="toolfold", version=__version__),
        )
        session.on_sampling = self._on_sampling
        self.session: ClientSession = session
        """To be entered before `connect`, and left, by the same task."""

    async def connect(self, era: Era, budget: float) -> Connection:
        await negotiate(self.session, self._transport, era, budget)
        self._connection = Connection(
            self._server,
            self._config,
            self._log,
            self.session,
            self._dispatcher,
            self._transport,
            self._flights,
            self._answer_input,
            offers_roots=self._roots is not None,
        )
        return self._connection

    async def _on_message(self, message: IncomingMessage) -> None:
        if self._connection is None:
            return
        if isinstance(message, _CHANGES):
            self._connection.mark_stale()
        elif isinstance(message, ResourceUpdatedNotification):
            self._connection.on_updated(str(message.params.uri))
        elif isinstance(message, ProgressNotification):
            told = message.params
            self._connection.task_progress(told.progress_token, told.progress, told.total, told.message)

    async def _on_elicitation(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return await self._flights.ask(params)

    async def _on_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return await self._named_roots()

    async def _named_roots(self) -> ListRootsResult:
        given = [] if self._roots is None else await self._roots()
        roots: list[Root] = []
        for each in given:
            with contextlib.suppress(ValidationError):  # a client's root that is no file
                roots.append(Root.model_validate({"uri": each["uri"], "name": each.get("name") or None}))
        return ListRootsResult(roots=roots)

    def _on_sampling(self) -> None:
        if self._connection is not None:
            self._connection.unmet.add("it asks for sampling (answers of a model), which Toolfold does not offer")

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        self._log.message(params.level, params.logger or "", params.data)

    async def _answer_input(self, raw: dict[str, Any], flight: Flight) -> dict[str, Any]:
        """For a server of the newer era, which asks in place of an answer: what is sent with the request again."""
        try:
            asked = InputRequiredResult.model_validate(raw)
        except ValidationError:
            raise InvalidResponseError("what it asks for cannot be read") from None
        more: dict[str, Any] = {}
        if asked.request_state is not None:
            more["requestState"] = asked.request_state
        if asked.input_requests:
            # One after the other, as a person reads them.
            answers = {key: await self._input(request, flight) for key, request in asked.input_requests.items()}
            more["inputResponses"] = answers
        return more

    async def _input(self, request: InputRequest, flight: Flight) -> dict[str, Any]:
        match request:
            case ElicitRequest(params=params):
                answer: InputResponse = await self._flights.ask(params, flight)
            case ListRootsRequest():
                answer = await self._named_roots()
            case CreateMessageRequest():
                self._on_sampling()
                raise MCPError(INVALID_REQUEST, NO_SAMPLING)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


async def follow_changes(connection: Connection) -> None:
    """Subscribe to announcements of changed lists, which the newer protocol sends only on request, and subscribe again
    when the stream breaks. Returns when the server has no such stream."""
    capabilities = connection.session.server_capabilities
    if not connection.modern or capabilities is None:
        return
    tools, prompts, resources = (
        bool(part and part.list_changed) for part in (capabilities.tools, capabilities.prompts, capabilities.resources)
    )
    if not (tools or prompts or resources):
        return
    delay = FIRST_DELAY
    has_streams = False
    while True:
        with contextlib.suppress(SubscriptionLost):
            try:
                async with listen(
                    connection.session,
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as events:
                    has_streams = True
                    async for _ in events:
                        delay = FIRST_DELAY
                        connection.mark_stale()
            except MCPError as error:
                connection.log.note(f"changes cannot be followed: {error}")
                if not has_streams:
                    return
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)
        # Changes between two streams are not replayed, so the list is read again.
        connection.mark_stale()
