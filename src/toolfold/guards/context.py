"""What every guard and bridge knows of one run: whose it is, how long it may take, who listens, how to ask a person.

A context is made at the edge (gateway, command line, library) and passed down. Nothing about a run is found by a global
or a context variable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, Unpack

from toolfold.errors import InvalidRequest, LimitExceeded
from toolfold.guards.events import Event, Output, Question, Replied, Reply, protected_event

if TYPE_CHECKING:
    from toolfold.config.settings import Settings
    from toolfold.guards.watch import Watch
    from toolfold.privacy.privacy import RunPrivacy

LOCAL_CALLER = "local"
"""The one caller of a stdio client, of the command line, and of a library that names no other."""
LONGEST_PAUSE = 3600.0
"""Seconds for which one run's clock may stand still in total; after that it goes on whatever is being decided."""

_INSTALLATION = 900.0
"""Seconds that installing `sandbox.packages` may take before the first program."""

Ask = Callable[[Question], Awaitable[Reply | Replied]]
_log = logging.getLogger("toolfold")


class Deadline:
    """A run's time limit. It starts when the run is asked for, stands still while paused, and always fires.

    `waits`: seconds for which it also stands still, in total, while servers are waited for. They have limits of their
    own.
    """

    def __init__(self, seconds: float, *, waits: float = 0.0, longest_pause: float = LONGEST_PAUSE) -> None:
        if isinstance(seconds, bool) or not seconds > 0 or seconds == float("inf"):
            raise InvalidRequest(f"A timeout must be a positive number of seconds, not {seconds!r}.")
        self.seconds = seconds
        self._left = seconds
        self._pause_left = longest_pause
        self._pauses = 0
        self._wait_left = waits
        self._waits = 0
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timers: set[asyncio.Timeout] = set()

    @property
    def remaining(self) -> float:
        """Seconds until it fires unless it is paused again; never negative."""
        self._count()
        return max(0.0, self._left)

    @property
    def patience(self) -> float:
        """Seconds for which servers may be waited for now."""
        return self.remaining + self._wait_left

    @property
    def is_paused(self) -> bool:
        self._count()
        return self._pauses > 0 and self._pause_left > 0

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock, as for a person who decides. Pauses may overlap; it goes on when the last one ends."""
        self._count()
        self._pauses += 1
        self._reschedule()
        try:
            yield
        finally:
            self._count()
            self._pauses -= 1
            self._reschedule()

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """Stop the clock, as far as it may wait for servers. Waits may overlap."""
        if self._wait_left <= 0:
            yield
            return
        self._count()
        self._waits += 1
        self._reschedule()
        try:
            yield
        finally:
            self._count()
            self._waits -= 1
            self._reschedule()

    @contextlib.asynccontextmanager
    async def enforced(self, message: str) -> AsyncGenerator[None]:
        """Raise LimitExceeded, with this message, if the time is over before the block ends."""
        timer = asyncio.timeout_at(self._when())
        try:
            async with timer:
                self._timers.add(timer)
                try:
                    yield
                finally:
                    self._timers.discard(timer)
        except TimeoutError:
            if not timer.expired():
                raise
            raise LimitExceeded(message, limit="sandbox.timeout") from None

    def _count(self) -> None:
        """Charge the time since the last look to the run, or to its pauses as far as they may last."""
        now = self._loop.time()
        passed, self._since = now - self._since, now
        if self._pauses:
            paused = min(passed, self._pause_left)
            self._pause_left -= paused
            passed -= paused
        if self._waits:
            waited = min(passed, self._wait_left)
            self._wait_left -= waited
            passed -= waited
        self._left -= passed

    def _when(self) -> float:
        self._count()
        still = (self._pause_left if self._pauses else 0.0) + (self._wait_left if self._waits else 0.0)
        return self._loop.time() + self._left + still

    def _reschedule(self) -> None:
        when = self._when()
        for timer in self._timers:
            if not timer.expired():
                timer.reschedule(when)


@dataclass(frozen=True)
class Caller:
    """Who asks, as far as the edge knows more than a name."""

    name: str
    groups: frozenset[str] = frozenset()
    host: bool = False
    """Whether it is an application that may give context values for its users."""
    owner: bool = False
    """Whether it is the gateway's owner, who may see what all callers do."""
    scraper: bool = False
    """Whether it may read metrics, and nothing else."""


@dataclass
class RunNotes:
    """What was found out about one run on its way, for the record of it."""

    code: str = ""
    """The program as it may be kept: without private values."""
    review: str = ""
    """What the review said of the program: `passed`, `refused` or `off`, with reasons where it has some."""


@dataclass(frozen=True)
class RunContext:
    """One run. Guards find it at `call.run`."""

    caller: str
    session: str | None
    deadline: Deadline
    language: str = "python"
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    groups: frozenset[str] = frozenset()
    """The caller's groups, for rules."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the host application gave with the run (`context=`): for example the user's id."""
    on_event: Callable[[Event], None] | None = None
    asker: Ask | None = None
    """How a person is asked; None where no person can be asked."""
    privacy: RunPrivacy | None = field(default=None, compare=False, repr=False)
    """Where personal values are kept private: how."""
    notes: RunNotes = field(default_factory=RunNotes, compare=False, repr=False)
    watch: Watch | None = field(default=None, compare=False, repr=False)
    """How the fold's observers are told of it, where there are any."""
    code: str = field(default="", repr=False)
    """The program."""
    direct: bool = False
    """Whether it is one call of the model's own, without a program: its result goes to the model as it is."""
    read_only: bool = False
    """Whether it may call only what is marked as read-only, whatever the policy allows."""
    session_of: tuple[str, str] | None = None
    """Owner and name of the session, where it is another caller's."""
    answered: dict[str, Replied] = field(default_factory=dict[str, Replied], compare=False, repr=False)
    """A person's answers that hold for the rest of this run, by the target of the calls."""

    @property
    def shown_session(self) -> str | None:
        """The session by the name that somebody gave it; None for the one of a connection, whose name is ours."""
        if self.session is None or (self.session_of is None and self.session.startswith("@")):
            return None
        return self.session

    @property
    def session_key(self) -> tuple[str, str]:
        """Whose session it is, and its name there. Only for a run that has one."""
        assert self.session is not None
        return self.session_of or (self.caller, self.session)

    @property
    def has_listeners(self) -> bool:
        """Whether what it prints is reported while it runs."""
        return self.on_event is not None or self.watch is not None

    def printed(self, text: str) -> None:
        """Report what the program has printed to the listener and the observers."""
        if self.watch is not None:
            self.watch.printed(text)
        if self.on_event is not None:
            self.emit(Output(text))

    def emit(self, event: Event) -> None:
        """Tell the listener, if there is one. A listener that fails does not fail the run."""
        if self.on_event is not None:
            try:
                self.on_event(event if self.privacy is None else protected_event(event, self.privacy))
            except Exception:
                _log.exception("a listener failed on %s", type(event).__name__)

    async def ask(self, question: Question) -> Reply:
        """Ask the person responsible for this run; its clock stands still meanwhile. "no" where no one can be asked."""
        return (await self.replied(question)).reply

    async def replied(self, question: Question) -> Replied:
        """The same, with who gave the answer."""
        if self.asker is None:
            return Replied("no", "nobody to ask")
        with self.deadline.paused():
            return await (self._asked(question) if self.watch is None else self.watch.ask(question, self._asked))

    async def _asked(self, question: Question) -> Replied:
        assert self.asker is not None
        reply = await self.asker(question)
        return reply if isinstance(reply, Replied) else Replied(reply, "host application")


class RunOptions(TypedDict, total=False):
    """Whose run it is and who listens, as `Toolfold.run` explains."""

    session: str | None
    caller: str
    groups: Iterable[str]
    context: Mapping[str, str] | None
    on_event: Callable[[Event], None] | None
    ask: Ask | None


def run_deadline(settings: Settings, timeout: float | None) -> Deadline:
    """The clock of a program. By default it leaves time for what one call of a server may take, its start included, and
    for installing `sandbox.packages`; a time that somebody has chosen always holds."""
    sandbox = settings.sandbox
    if timeout is not None:
        return Deadline(timeout)
    if "timeout" in sandbox.model_fields_set:
        return Deadline(sandbox.timeout)
    longest = max((each.start_timeout + each.call_timeout for each in settings.servers.values()), default=0.0)
    return Deadline(sandbox.timeout, waits=longest + (_INSTALLATION if sandbox.packages else 0.0))


def call_deadline(settings: Settings, server: str, timeout: float | None) -> Deadline:
    """The clock of one call without a program: by default what its server may take, its start included."""
    config = settings.servers.get(server)
    usual = config.start_timeout + config.call_timeout if config else settings.sandbox.timeout
    return Deadline(usual if timeout is None else timeout)


def make_context(code: str, deadline: Deadline, *, direct: bool = False, **options: Unpack[RunOptions]) -> RunContext:
    """The context of one run that begins now. Raises InvalidRequest for what is not text and has to be."""
    caller, session, values = options.get("caller", LOCAL_CALLER), options.get("session"), options.get("context") or {}
    check_text(caller, "caller")
    if session is not None:
        check_text(session, "session")
    for name, value in values.items():
        check_text(name, "context")
        check_text(value, f"context[{name!r}]")
    return RunContext(
        caller,
        session,
        deadline,
        language="direct" if direct else "python",
        groups=frozenset(options.get("groups", ())),
        values=values,
        on_event=options.get("on_event"),
        asker=options.get("ask"),
        code=code,
        direct=direct,
    )


def check_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string, not {type(value).__name__}.")
