"""Servers that ask: what a server may ask for while it works on a call, and whose call that is.

A connection is shared by all runs, and a request of a server of the older era does not say which call it is about. It
belongs to a run only if every call in flight is of that run; otherwise nobody is asked. A model never answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast

import msgspec

from toolfold.schema.forms import Form, UnsupportedFormError, Value, read_form, url_form
from toolfold.upstream.serverlog import ServerLog

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError
    from mcp_types import ElicitRequestParams, ElicitResult

OnProgress = Callable[[float, float | None, str | None], None]
Roots = Callable[[], Awaitable[list[dict[str, str]]]]
"""The folders that our own client works in: `uri` and `name` of each."""

QUESTIONS = 10
"""Questions that a server may ask during one call."""
MESSAGE_CHARS = 8000
LEFT_BEHIND = 60.0
"""Seconds for which a server may still be working on a call that was given up: its question may be about that one."""
RELATED_TASK = "io.modelcontextprotocol/related-task"


class Asked(msgspec.Struct, frozen=True):
    """What a server wants to know, in its own words."""

    message: str
    form: Form


class Answer(msgspec.Struct, frozen=True):
    action: Literal["accept", "decline", "cancel"]
    values: dict[str, Value] = {}


class Person(Protocol):
    """Who answers what is asked during one call."""

    @property
    def run(self) -> str:
        """The run that made the call."""
        ...

    @property
    def caller(self) -> str: ...

    async def answer(self, asked: Asked) -> Answer: ...


class CallClock:
    """One call's time limit as an asynchronous context; raises TimeoutError. It stands still while it is paused."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pauses = 0
        self._timer = asyncio.timeout(seconds)

    async def __aenter__(self) -> Self:
        await self._timer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._timer.__aexit__(kind, error, trace)

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        clock = asyncio.get_running_loop().time
        if not self._pauses:
            self._seconds = (self._timer.when() or clock()) - clock()
            self._set(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._set(clock() + self._seconds)

    def _set(self, when: float | None) -> None:
        with contextlib.suppress(RuntimeError):  # it has fired, or the call has ended
            self._timer.reschedule(when)


class Flight:
    """One call in flight."""

    def __init__(self, person: Person | None, clock: CallClock) -> None:
        self.person = person
        self.clock = clock
        self.task = ""
        """The server's name for it, where it runs as a task."""
        self.questions = 0
        self.open: set[_OpenQuestion] = set()

    def end(self) -> None:
        for question in list(self.open):
            question.ended(self)


class _OpenQuestion:
    """A question that can be about any of these calls. When all of them have ended, it is withdrawn."""

    def __init__(self, flights: list[Flight], person: Person, asked: Asked) -> None:
        self._flights = set(flights)
        self._task = asyncio.create_task(person.answer(asked))

    async def answer(self) -> Answer:
        flights = list(self._flights)
        with contextlib.ExitStack() as stack:
            for flight in flights:
                flight.questions += 1
                flight.open.add(self)
                stack.callback(flight.open.discard, self)
                stack.enter_context(flight.clock.paused())
            try:
                await asyncio.wait([self._task])
                return Answer("cancel") if self._task.cancelled() else self._task.result()
            finally:
                self._task.cancel()

    def ended(self, flight: Flight) -> None:
        self._flights.discard(flight)
        if not self._flights:
            self._task.cancel()


class Flights:
    """The calls in flight on one connection."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._flights: set[Flight] = set()
        self._left_behind: dict[str, float] = {}
        """By caller: until when the server may still be working on a call that was given up."""

    @contextlib.contextmanager
    def call(self, person: Person | None, clock: CallClock) -> Generator[Flight]:
        flight = Flight(person, clock)
        self._flights.add(flight)
        try:
            yield flight
        except (asyncio.CancelledError, TimeoutError):
            if person is not None:
                self._left_behind[person.caller] = asyncio.get_running_loop().time() + LEFT_BEHIND
            raise
        finally:
            self._flights.discard(flight)
            flight.end()

    async def ask(self, params: ElicitRequestParams, flight: Flight | None = None) -> ElicitResult:
        """Relay a question of the server about `flight`, or about the only call that it can be about."""
        from mcp_types import ElicitResult

        answer = await self._answer(params, flight)
        values = cast("dict[str, Any]", answer.values) if answer.action == "accept" and params.mode == "form" else None
        return ElicitResult(action=answer.action, content=values)

    async def opened(self, error: MCPError, flight: Flight) -> bool:
        """Whether the call was refused until a person has opened some addresses, and a person now has."""
        from mcp_types import URL_ELICITATION_REQUIRED, ElicitationRequiredErrorData
        from pydantic import ValidationError

        if error.code != URL_ELICITATION_REQUIRED or flight.person is None:
            return False
        try:
            addresses = ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
        except ValidationError:
            return False
        for params in addresses:
            if (await self.ask(params, flight)).action != "accept":
                return False
        return bool(addresses)

    async def _answer(self, params: ElicitRequestParams, flight: Flight | None) -> Answer:
        flights = [flight] if flight is not None else self._meant(_task_of(params))
        person = flights[0].person if flights else None
        if person is None:
            self._log.note("asked a question that belongs to no run with a person to ask; it was declined")
            return Answer("decline")
        if max(each.questions for each in flights) >= QUESTIONS:
            self._log.note(f"asked more than {QUESTIONS} questions during one call; the rest was declined")
            return Answer("decline")
        try:
            form = url_form(params.url) if params.mode == "url" else read_form(params.requested_schema)
        except UnsupportedFormError as error:
            self._log.note(f"asked with a form that cannot be shown, which was declined: {error}")
            return Answer("decline")
        return await _OpenQuestion(flights, person, Asked(params.message[:MESSAGE_CHARS], form)).answer()

    def _meant(self, task: str) -> list[Flight]:
        """The calls, all of one run, that a question can be about; none if it cannot be known."""
        if task:
            return [flight for flight in self._flights if flight.task == task]
        people = [flight.person for flight in self._flights]
        first = people[0] if people else None
        if first is None or any(each is None or each.run != first.run for each in people):
            return []
        now = asyncio.get_running_loop().time()
        self._left_behind = {caller: until for caller, until in self._left_behind.items() if until > now}
        return list(self._flights) if {*self._left_behind} <= {first.caller} else []


def _task_of(params: ElicitRequestParams) -> str:
    related: Any = (params.meta or {}).get(RELATED_TASK)
    if not isinstance(related, Mapping):
        return ""
    task: Any = cast("Mapping[str, Any]", related).get("taskId")
    return task if isinstance(task, str) else ""
