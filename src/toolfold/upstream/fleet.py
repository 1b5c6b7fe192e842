"""The fleet: every configured MCP server. Each is started when it is first needed, and none can hold up another."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolfold.config.secrets import Redactor
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing, Part, ToolResult
from toolfold.errors import UpstreamError, UpstreamUnavailable
from toolfold.upstream.asking import OnProgress, Person, Roots
from toolfold.upstream.auth.authorization import Authorization, authorization_of
from toolfold.upstream.auth.store import FOLDER
from toolfold.upstream.connection import NOT_SENT, Connection, Transport
from toolfold.upstream.health import Health
from toolfold.upstream.processes.supervisor import Supervisor
from toolfold.upstream.remote import open_remote
from toolfold.upstream.results import InvalidResponseError, completion, prompt_messages, resource_parts
from toolfold.upstream.server import UpstreamServer
from toolfold.upstream.serverlog import ServerLog
from toolfold.upstream.starts import StartQueue
from toolfold.upstream.stdio import MESSAGE_LIMIT, open_stdio
from toolfold.upstream.subscriptions import OnUpdate

CLOSE_TIMEOUT = 8.0


class Fleet:
    """Connections to all upstreams.

    `on_listing` gets what a server offers whenever the server says that it changed. A message of more than
    `message_limit` bytes ends its connection. `starts` limits how many servers start at once. `auth_dir` is where
    sign-ins are kept, by default in `log_dir`; `keyring` puts their tokens into the system's
    keyring.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig],
        *,
        log_dir: Path,
        on_listing: Callable[[Listing], None] | None = None,
        message_limit: int = MESSAGE_LIMIT,
        starts: StartQueue | None = None,
        auth_dir: Path | None = None,
        keyring: bool = False,
    ) -> None:
        starts = starts or StartQueue()
        self.servers = servers
        self.on_listing = on_listing
        self.roots: Roots | None = None
        """The folders that a server is told to work in; without it, none. To be set before a server starts."""
        self._log_dir = log_dir
        auth_dir = auth_dir or log_dir / FOLDER
        self._message_limit = message_limit
        self._supervisor = Supervisor(log_dir)
        self._upstreams = {
            name: UpstreamServer(
                name,
                config,
                log := ServerLog(log_dir, name, Redactor(config)),
                partial(
                    self._open,
                    config,
                    log,
                    authorization := authorization_of(name, config, auth_dir, log, keyring=keyring),
                ),
                starts,
                self._announce,
                authorization,
                lambda: self.roots,
            )
            for name, config in servers.items()
        }

    def _announce(self, listing: Listing) -> None:
        if self.on_listing is not None:
            self.on_listing(listing)

    def _open(
        self, config: ServerConfig, log: ServerLog, authorization: Authorization | None
    ) -> AbstractAsyncContextManager[Transport]:
        if config.transport == "stdio":
            return open_stdio(config, self._supervisor, log, limit=self._message_limit)
        return open_remote(config, log, authorization, limit=self._message_limit)

    async def __aenter__(self) -> Self:
        self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = asyncio.ensure_future(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # A second Ctrl-C must not leave processes behind. Closing takes a bounded time.
            await closing
            raise

    async def _close(self) -> None:
        tasks = [task for upstream in self._upstreams.values() for task in upstream.stop()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)
            for task in late:
                task.cancel()
        await self._supervisor.close()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def _upstream(self, server: str) -> UpstreamServer:
        upstream = self._upstreams.get(server)
        if upstream is None:
            near = difflib.get_close_matches(server, self._upstreams, n=3)
            hint = f"Did you mean {', '.join(near)}?" if near else f"There are: {', '.join(sorted(self._upstreams))}."
            raise UpstreamUnavailable(server, "no server of this name is configured.", hint=hint)
        return upstream

    async def call(
        self,
        server: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        on_progress: OnProgress | None = None,
        person: Person | None = None,
        task: bool = False,
    ) -> ToolResult:
        """Call a tool once, never twice. Raises an `UpstreamError` unless the server answered, with whether the call
        may have taken effect; a tool's own failure is an answer (`is_error`). Cancelling the call cancels it at the
        server. A start takes at most the server's `start_timeout` and the call itself its `call_timeout`, without the
        time in which `person` answers a question of the server. Without a person such a question is declined.
        `task`: the server runs this tool only as a task."""
        connection = self._upstream(server).connection or await self.ready(server)
        with self._upstream(server).redacted():
            return await connection.call(tool, arguments, on_progress, person, task=task)

    def is_ready(self, server: str) -> bool:
        return self._upstream(server).connection is not None

    async def ready(self, server: str) -> Connection:
        """Start the server if it is not up; an error says that nothing was sent."""
        upstream = self._upstream(server)
        with upstream.redacted():
            try:
                return await upstream.connected()
            except UpstreamError as error:
                message = error.message.removeprefix(f"{server}: ")
                raise type(error)(server, message, hint=f"{NOT_SENT} {error.hint}".strip()) from error

    async def listing(self, server: str, *, background: bool = False, now: bool = False) -> Listing:
        """Everything the server offers now, asked afresh.

        A start in the `background` comes after those that a caller waits for. `now` starts the server even if its
        last failure is too recent for an ordinary call to try again.
        """
        upstream = self._upstream(server)
        with upstream.redacted():
            return await upstream.listing(background=background, now=now)

    def signed_in_anew(self, server: str) -> bool:
        """Whether a person has signed in since the server was last refused for want of it."""
        authorization = self._upstream(server).authorization
        return authorization is not None and authorization.changed

    def hurry(self, server: str) -> None:
        """A caller waits for this server: a start in the queue goes first, and the next call may start it at once."""
        self._upstream(server).hurry()

    def log_file(self, server: str) -> Path:
        return self._upstream(server).log_file

    async def listings(
        self, servers: Iterable[str] | None = None
    ) -> AsyncGenerator[tuple[str, Listing | UpstreamError]]:
        """The listings of these servers (or of all), side by side, each as soon as it is there."""
        names = list(dict.fromkeys(self._upstreams if servers is None else servers))
        finished: asyncio.Queue[tuple[str, Listing | UpstreamError]] = asyncio.Queue()

        async def ask(name: str) -> None:
            try:
                finished.put_nowait((name, await self.listing(name, background=True)))
            except UpstreamError as error:
                finished.put_nowait((name, error))
            except Exception as error:
                reason = self._upstream(name).mask(f"could not be listed: {error!r}")
                finished.put_nowait((name, UpstreamError(name, reason)))

        tasks = [asyncio.create_task(ask(name)) for name in names]
        try:
            for _ in names:
                yield await finished.get()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def read_resource(self, server: str, uri: str, *, person: Person | None = None) -> list[Part]:
        upstream = self._upstream(server)
        with upstream.redacted():
            connection = await upstream.connected()
            what = f"resource `{uri}`"
            raw = await connection.request("resources/read", {"uri": uri}, what, name=uri, person=person)
            try:
                return resource_parts(raw)
            except InvalidResponseError as error:
                raise UpstreamError(server, f"sent an invalid response for resource `{uri}`: {error}.") from None

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str], *, person: Person | None = None
    ) -> list[dict[str, Any]]:
        """The prompt's messages, each as `{"role", "content"}`."""
        upstream = self._upstream(server)
        with upstream.redacted():
            connection = await upstream.connected()
            params = {"name": name, "arguments": arguments}
            raw = await connection.request("prompts/get", params, f"prompt `{name}`", name=name, person=person)
            try:
                return prompt_messages(raw)
            except InvalidResponseError as error:
                raise UpstreamError(server, f"sent an invalid response for prompt `{name}`: {error}.") from None

    async def complete(
        self, server: str, ref: dict[str, Any], argument: str, value: str, known: dict[str, str]
    ) -> dict[str, Any]:
        """What an argument of a prompt or a template may become, as `{"values": […]}`; nothing from servers without."""
        upstream = self._upstream(server)
        with upstream.redacted():
            connection = await upstream.connected()
            claims = connection.session.server_capabilities
            if claims is None or claims.completions is None:
                return {"values": []}
            params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
            if known:
                params["context"] = {"arguments": known}
            raw = await connection.request("completion/complete", params, f"completion of `{argument}`", name="")
            try:
                return completion(raw)
            except InvalidResponseError as error:
                raise UpstreamError(server, f"sent an invalid response for a completion: {error}.") from None

    async def subscribe(self, server: str, uri: str, on_update: OnUpdate) -> Callable[[], None]:
        """Have `on_update` called when the server says that a resource has changed, until the returned function is."""
        upstream = self._upstream(server)
        with upstream.redacted():
            return await upstream.subscriptions.add(uri, on_update)

    def health(self) -> list[Health]:
        return [upstream.health() for upstream in self._upstreams.values()]
