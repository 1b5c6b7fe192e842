"""Programs and calls that run for MCP clients, and the questions about them that their clients are asked.

A client of 2025-11-25 is sent a request of ours while its own is open. A client of 2026-07-28 gets an
`InputRequiredResult` in place of the result and calls again with the answer; the program lives on in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolfold.gateway import elicitation
from toolfold.gateway.progress import Reporter
from toolfold.guards.context import LOCAL_CALLER
from toolfold.guards.events import Progress, Replied

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from mcp.server.context import ServerRequestContext

    from toolfold.definitions import ToolResult
    from toolfold.fold import Toolfold
    from toolfold.gateway.questions import AskLocally
    from toolfold.guards.events import Event, Question, RunResult

    Ended = RunResult | ToolResult
    Work = Callable[..., Coroutine[Any, Any, Ended]]
    """`fold.run` or `fold.call` with what is to be run or called; the arguments that both take are given here."""

_ROUNDS = 9
"""Rounds after which a client is not asked any more: the SDK's client gives up after ten."""
_GRACE = 60.0
"""Seconds that a client has left, after its time to answer is over, to fetch what became of the program."""
_END_TIMEOUT = 5.0
_CANCELLED = -32800
_ASKED_HERE = "a person is asked on this machine: in its browser, or in a terminal by `toolfold approve`"

_log = logging.getLogger(__name__)


def caller(ctx: ServerRequestContext[Any]) -> str:
    """Who asks: what the HTTP side found out about the request; on stdio, the one person at the other end."""
    return _state(ctx, "caller", LOCAL_CALLER)


def who_asks(ctx: ServerRequestContext[Any]) -> dict[str, Any]:
    """The same with what came along about the caller, as the fold takes it."""
    return {"caller": caller(ctx), "groups": _state(ctx, "groups", ()), "context": _state(ctx, "context", None)}


def _state(ctx: ServerRequestContext[Any], name: str, default: Any) -> Any:
    return getattr(getattr(ctx.request, "state", None), name, default)


class Runs:
    """The programs of one gateway. Those that wait for their client are kept here, by the state that it brings back."""

    def __init__(self, fold: Toolfold, ask_locally: AskLocally | None) -> None:
        self._ask_locally = ask_locally if fold.settings.approval.without_form == "page" else None
        self._waits = fold.settings.approval.on_disconnect == "wait"
        self._waiting: dict[str, _ClientRun] = {}
        self.longest_wait = fold.settings.approval.timeout + _GRACE
        """Seconds until a client that was asked must have come back."""

    async def start(
        self, ctx: ServerRequestContext[Any], work: Work, session: str | None
    ) -> Ended | types.InputRequiredResult:
        """Do the work until it ends or its client must be asked something."""
        run = _ClientRun(ctx, session, self._ask_locally, waits=self._waits)
        return await self._continue(run, ctx, work)

    async def resume(
        self, ctx: ServerRequestContext[Any], state: str, responses: dict[str, Any]
    ) -> Ended | types.InputRequiredResult:
        """Go on with the program that the state belongs to. Each state is good for one time."""
        run = self._waiting.get(state)
        if run is None or run.caller != caller(ctx):
            raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState")
        del self._waiting[state]
        run.returned(responses)
        return await self._continue(run, ctx)

    async def _continue(
        self, run: _ClientRun, ctx: ServerRequestContext[Any], work: Work | None = None
    ) -> Ended | types.InputRequiredResult:
        try:
            async with Reporter(ctx) as reporter:
                with run.attached(ctx, reporter):
                    if work is not None:
                        run.start(work, on_event=reporter.is_wanted)
                    requests = await run.until_asked_or_ended()
        except BaseException:
            await run.end()
            raise
        if requests is None:
            return run.result()
        state = secrets.token_urlsafe(24)
        self._waiting[state] = run
        run.await_return(self.longest_wait, lambda: self._waiting.pop(state, None))
        return types.InputRequiredResult(input_requests=requests, request_state=state)


class _ClientRun:
    """One program and the client that it runs for."""

    def __init__(
        self,
        ctx: ServerRequestContext[Any],
        session: str | None,
        ask_locally: AskLocally | None,
        *,
        waits: bool,
    ) -> None:
        self.caller = caller(ctx)
        self._session = session
        # The name of a connection's session is ours; `@OWNER/NAME` is one that another caller shares.
        is_ours = session is not None and session.startswith("@") and "/" not in session
        self._shown_session = None if is_ours else session
        self._ask_locally = ask_locally
        self._waits = waits
        self._ctx = ctx
        self._reporter: Reporter | None = None
        self._modern = elicitation.is_modern(ctx)
        self._rounds = 0
        self._asked: dict[str, tuple[Question, asyncio.Future[Replied]]] = {}
        """What the client is to be asked by the next `InputRequiredResult`, or was by the last one."""
        self._asking = 0
        """Questions to a person that are open, whichever way they were put."""
        self._left = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[Ended] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    # The program's side

    def start(self, work: Work, *, on_event: bool) -> None:
        """`on_event`: whether the client wants to know what happens; otherwise events are not even made."""
        can_ask = elicitation.offers_forms(self._ctx) or self._ask_locally is not None
        self._task = asyncio.create_task(
            work(
                session=self._session,
                **who_asks(self._ctx),
                on_event=self._on_event if on_event else None,
                ask=self._ask if can_ask else None,
            )
        )
        self._task.add_done_callback(lambda _: self._news.set())

    def _on_event(self, event: Event) -> None:
        if self._reporter is not None:
            self._reporter.on_event(event)

    async def _ask(self, question: Question) -> Replied:
        self._asking += 1
        try:
            if elicitation.offers_forms(self._ctx) and not self._left.is_set() and self._rounds < _ROUNDS:
                replied = await self._ask_client(question)
                if replied is not None:
                    return replied
            if self._ask_locally is None:
                return Replied("no", "elicitation", "the client could not be asked")
            self._on_event(Progress(_ASKED_HERE))
            return await self._ask_locally(question, self.caller, self._shown_session)
        finally:
            self._asking -= 1

    async def _ask_client(self, question: Question) -> Replied | None:
        """None where the client cannot answer. The person may answer here as well: the first answer counts."""
        asking = asyncio.ensure_future(self._ask_in_rounds(question) if self._modern else self._elicit(question))
        try:
            if self._ask_locally is None:
                return await asking
            with self._ask_locally.questions.waiting(question, self.caller, self._shown_session) as here:
                await asyncio.wait([asking, here.answer], return_when=asyncio.FIRST_COMPLETED)
                return here.answer.result() if here.answer.done() else asking.result()
        finally:
            asking.cancel()

    async def _ask_in_rounds(self, question: Question) -> Replied | None:
        key = secrets.token_hex(8)
        answer: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        self._asked[key] = question, answer
        self._news.set()
        try:
            return await answer
        finally:
            self._asked.pop(key, None)

    async def _elicit(self, question: Question) -> Replied | None:
        """None where the client cannot answer: it refuses to be asked, or is not there any more."""
        form = elicitation.form(question)
        session = self._ctx.session
        asked = asyncio.ensure_future(
            session.elicit_form(form.message, form.requested_schema, related_request_id=self._ctx.request_id)
        )
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait([asked, left], return_when=asyncio.FIRST_COMPLETED)
            return elicitation.replied(question, asked.result()) if asked.done() else None
        except ValidationError:
            return elicitation.replied(question, None)
        except MCPError as error:
            _log.warning("The client did not take a question: %s", error)
            return None
        finally:
            left.cancel()
            asked.cancel()

    # The client's side

    @contextlib.contextmanager
    def attached(self, ctx: ServerRequestContext[Any], reporter: Reporter) -> Generator[None]:
        """Meanwhile the client waits for the run by this request."""
        self._ctx, self._reporter = ctx, reporter
        if ctx.request is not None:
            ctx.request.state.on_disconnect = self._client_left
        try:
            yield
        finally:
            self._reporter = None

    async def until_asked_or_ended(self) -> types.InputRequests | None:
        """What the client must be asked, or None when the run has ended."""
        assert self._task is not None
        while not self._task.done():
            if self._asked:
                self._rounds += 1
                return {
                    key: types.ElicitRequest(params=elicitation.form(question))
                    for key, (question, _) in self._asked.items()
                }
            self._news.clear()
            await self._news.wait()
        return None

    def await_return(self, seconds: float, forget: Callable[[], object]) -> None:
        """End the run if the client has not come back by then."""

        def expire() -> None:
            forget()
            if self._task is not None:
                self._task.cancel()

        self._expiry = asyncio.get_running_loop().call_later(seconds, expire)

    def returned(self, responses: dict[str, Any]) -> None:
        """Take the client's answers. Those to questions that are not open any more are too late and not used."""
        if self._expiry is not None:
            self._expiry.cancel()
        for key, response in responses.items():
            if key in self._asked:
                question, answer = self._asked.pop(key)
                answer.set_result(elicitation.replied(question, response))

    def result(self) -> Ended:
        assert self._task is not None
        if self._task.cancelled():
            raise MCPError(_CANCELLED, "Request cancelled")
        return self._task.result()

    async def end(self) -> None:
        """End the program, whatever it waits for."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            # The SDK cancels a request by a scope that would end this wait as well.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task], timeout=_END_TIMEOUT)

    def _client_left(self) -> None:
        """The connection was lost while the client waited for a result."""
        assert self._task is not None
        if self._asking and self._waits:
            self._left.set()
        elif self._asking or self._modern:
            # In the older era a lost connection means nothing by itself: the client cancels with a notification.
            self._task.cancel()
