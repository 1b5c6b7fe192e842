"""What runs now and what ran last in this process, held in memory within limits, and told to those who watch."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from toolfold.telemetry.observe import Observer, SeenCall, SeenRun, SeenSearch

MOST_RUNS = 500
"""Ended runs that are kept."""
MOST_CHARS = 8_000_000
"""Characters of code, output and calls that all ended runs may hold."""
MOST_CODE = 64_000
MOST_OUTPUT = 64_000
MOST_CALLS = 200
"""Of one run; all are counted."""
_CALL_CHARS = 300
"""What one call is taken for, beside its name and its error."""
_NAME_CHARS = 500
_MOST_CALLERS = 1000
_MOST_EVENTS = 1000
_MOST_UNREAD = 256_000
"""Characters of output that wait for one watcher."""

EventKind = Literal["run", "output", "call", "call_end", "run_end", "lost"]


@dataclass(slots=True)
class ActiveRun:
    """One run as it is now; `ok` is None while it is under way."""

    id: str
    caller: str
    session: str | None
    language: str
    time: float
    """When it began, in seconds since 1970."""
    code: str = ""
    """The program, or its beginning. Where values are kept private it is known only when the run has ended."""
    code_cut: bool = False
    ms: float = 0.0
    ok: bool | None = None
    error_code: str = ""
    error: str = ""
    calls: list[SeenCall] = field(default_factory=list[SeenCall])
    """The first ones of very many, in the order in which they began."""
    call_count: int = 0
    printed: int = 0
    """Characters that it has printed."""
    _output: list[str] = field(default_factory=list[str])
    _held: int = 0

    @property
    def output(self) -> str:
        """What it printed, or the end of it."""
        self._output = ["".join(self._output)[-MOST_OUTPUT:]]
        self._held = len(self._output[0])
        return self._output[0]

    @property
    def output_cut(self) -> bool:
        return self.printed > MOST_OUTPUT

    @property
    def size(self) -> int:
        calls = sum(_CALL_CHARS + len(call.name) + len(call.error) for call in self.calls)
        return len(self.code) + len(self.output) + len(self.error) + calls

    def print(self, text: str) -> None:
        self._output.append(text[-MOST_OUTPUT:])
        self.printed += len(text)
        self._held += len(self._output[-1])
        # Joined now and then, so that neither long outputs nor very many short ones cost much.
        if self._held > 2 * MOST_OUTPUT or len(self._output) > 1000:
            _ = self.output

    def set_code(self, code: str) -> None:
        self.code, self.code_cut = code[:MOST_CODE], len(code) > MOST_CODE


@dataclass(frozen=True, slots=True)
class ActivityEvent:
    """Something that happened. `run` is as it is now, not as it was then."""

    kind: EventKind
    """`lost`: so much came that the watcher has missed some, `count` events in all."""
    run: ActiveRun | None = None
    text: str = ""
    """What was printed."""
    call: SeenCall | None = None
    count: int = 0


class Before(NamedTuple):
    """The last run of a page of `recent`, where the next page goes on."""

    time: float
    id: str


@dataclass(slots=True)
class Counts:
    """What a caller has done since this process began."""

    runs: int = 0
    failed_runs: int = 0
    calls: int = 0
    failed_calls: int = 0
    searches: int = 0


class Activity(Observer):
    """One per gateway: `fold.observers.add(Activity())`."""

    def __init__(self) -> None:
        self._running: dict[str, ActiveRun] = {}
        self._ended: OrderedDict[str, ActiveRun] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._held = 0
        self._watchers: set[Watcher] = set()
        self._counts: OrderedDict[str, Counts] = OrderedDict()
        self.total = Counts()
        self.started = time.time()

    def running(self, *, caller: str | None = None) -> list[ActiveRun]:
        """The runs that are under way, the newest first."""
        return sorted(
            (run for run in self._running.values() if caller in (None, run.caller)),
            key=lambda run: (run.time, run.id),
            reverse=True,
        )

    def recent(
        self,
        limit: int = 50,
        before: Before | None = None,
        *,
        caller: str | None = None,
        session: str | None = None,
        failed: bool = False,
    ) -> list[ActiveRun]:
        """The last runs by when they began, the newest first, with those that are under way."""
        found = [
            run
            for run in (*self._running.values(), *self._ended.values())
            if caller in (None, run.caller)
            and session in (None, run.session)
            and (not failed or run.ok is False)
            and (before is None or (run.time, run.id) < before)
        ]
        return sorted(found, key=lambda run: (run.time, run.id), reverse=True)[:limit]

    def get(self, run: str) -> ActiveRun | None:
        return self._running.get(run) or self._ended.get(run)

    def counts(self, caller: str | None = None) -> Counts:
        """Of one caller, or of all. The counts of the longest unseen of very many callers are forgotten."""
        return self.total if caller is None else self._counts.get(caller, Counts())

    def watch(self) -> Watcher:
        """Everything that happens from now on.

        with activity.watch() as events:
            async for event in events: ...
        """
        return Watcher(self._watchers)

    def close(self) -> None:
        """End every watch."""
        for watcher in [*self._watchers]:
            watcher.end()

    # What it observes

    def run_started(self, run: SeenRun) -> None:
        seen = ActiveRun(run.id, run.caller, run.session, run.language, run.time)
        seen.set_code(run.code)
        self._running[run.id] = seen
        for counts in self._counted(run.caller):
            counts.runs += 1
        self._notify(ActivityEvent("run", seen))

    def run_printed(self, run: SeenRun, text: str) -> None:
        seen = self._running.get(run.id)
        if seen is not None and text:
            seen.print(text)
            self._notify(ActivityEvent("output", seen, text[-_MOST_UNREAD:]))

    def call_started(self, run: SeenRun, call: SeenCall) -> None:
        seen = self._running.get(run.id)
        if seen is None:
            return
        seen.call_count += 1
        if len(seen.calls) < MOST_CALLS:
            seen.calls.append(call)
        self._notify(ActivityEvent("call", seen, call=call))

    def call_ended(self, run: SeenRun, call: SeenCall) -> None:
        for counts in self._counted(run.caller):
            counts.calls += 1
            counts.failed_calls += not call.ok
        seen = self._running.get(run.id)
        if seen is not None:
            self._notify(ActivityEvent("call_end", seen, call=call))

    def run_ended(self, run: SeenRun) -> None:
        seen = self._running.pop(run.id, None)
        if seen is None:
            return
        seen.set_code(run.code)
        seen.calls = [each if len(each.name) <= _NAME_CHARS else _cut(each) for each in seen.calls]
        seen.ok, seen.ms, seen.error_code, seen.error = run.ok, run.ms, run.error_code, run.error[:MOST_OUTPUT]
        for counts in self._counted(run.caller):
            counts.failed_runs += not run.ok
        self._ended[run.id] = seen
        self._sizes[run.id] = size = seen.size
        self._held += size
        while len(self._ended) > MOST_RUNS or (self._held > MOST_CHARS and len(self._ended) > 1):
            forgotten, _ = self._ended.popitem(last=False)
            self._held -= self._sizes.pop(forgotten)
        self._notify(ActivityEvent("run_end", seen))

    def searched(self, search: SeenSearch) -> None:
        for counts in self._counted(search.caller):
            counts.searches += 1

    def _counted(self, caller: str) -> Iterator[Counts]:
        yield self.total
        yield self._counts.setdefault(caller, Counts())
        self._counts.move_to_end(caller)
        if len(self._counts) > _MOST_CALLERS:
            self._counts.popitem(last=False)

    def _notify(self, event: ActivityEvent) -> None:
        for watcher in self._watchers:
            watcher.put(event)


class Watcher:
    """The events of one watch. One that is slow misses the oldest output, and is told so; it holds nothing up."""

    def __init__(self, watchers: set[Watcher]) -> None:
        self._watchers = watchers
        self._events: deque[ActivityEvent] = deque()
        self._chars = 0
        self._lost = 0
        self._ended = False
        self._more = asyncio.Event()

    def __enter__(self) -> Watcher:
        self._watchers.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._watchers.discard(self)

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> ActivityEvent:
        while not self._events and not self._lost:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return ActivityEvent("lost", count=lost)
        event = self._events.popleft()
        self._chars -= len(event.text)
        return event

    def end(self) -> None:
        self._ended = True
        self._more.set()

    def put(self, event: ActivityEvent) -> None:
        last = self._events[-1] if self._events else None
        if last is not None and event.kind == last.kind == "output" and last.run is event.run and len(last.text) < 4096:
            self._events[-1] = ActivityEvent("output", event.run, last.text + event.text)
        else:
            self._events.append(event)
        self._chars += len(event.text)
        while self._chars > _MOST_UNREAD or len(self._events) > _MOST_EVENTS:
            self._drop()
        self._more.set()

    def _drop(self) -> None:
        """Output first: it is the bulk, and the run still has the end of it."""
        at = next((at for at, event in enumerate(self._events) if event.kind == "output"), 0)
        self._chars -= len(self._events[at].text)
        del self._events[at]
        self._lost += 1


def _cut(call: SeenCall) -> SeenCall:
    return replace(call, name=f"{call.name[:_NAME_CHARS]}…")
