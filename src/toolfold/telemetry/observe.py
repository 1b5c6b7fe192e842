"""What happens in a fold, as plain data, for those who count, show or trace it.

An observer is told in the process that runs the programs and must be quick: it notes, and works later. It sees what the
model sees: where personal values are kept private, there are none in what it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from time import time as now
from typing import Any

from toolfold.telemetry.otel import is_traced

_log = logging.getLogger("toolfold")


@dataclass(slots=True)
class SeenCall:
    """A call to an upstream. `ok` is None while it is under way."""

    id: str
    kind: str
    """`tool`, `resource` or `prompt`."""
    server: str
    name: str
    line: int | None = None
    """The program's line that makes it, where it is known."""
    after_ms: float = 0.0
    """Since the run began."""
    ms: float = 0.0
    ok: bool | None = None
    error_code: str = ""
    error: str = ""
    result_size: int = 0
    """Bytes or characters of what the upstream answered."""
    text_size: int = 0
    """Those of its text, or of its data where there is no text."""
    text: str | memoryview = field(default="", repr=False)
    """What a model would have read of it: there during `call_ended` only, and empty where values are private or it is
    not at hand."""
    decision: str = ""
    """`allow`, `ask` or `deny`."""
    approved_by: str = ""

    @property
    def target(self) -> str:
        """As policies write it."""
        return f"{self.server}.{self.name}" if self.kind == "tool" else f"{self.kind}:{self.server}:{self.name}"


@dataclass(slots=True)
class SeenRun:
    """A program, or one direct call (`language` is `direct`, `code` its target). `ok` is None while it is under way."""

    id: str
    caller: str
    session: str | None
    """Its name; None for a run without a named session."""
    language: str
    code: str
    time: float = field(default_factory=now)
    """Seconds since 1970."""
    begun: float = field(default_factory=perf_counter)
    ms: float = 0.0
    ok: bool | None = None
    error_code: str = ""
    """As `RunError.code`; `cancelled` for a run that its client gave up."""
    error: str = ""
    text: str = ""
    """All that the model read of its result."""
    calls: list[SeenCall] = field(default_factory=list[SeenCall])
    """In the order in which they began; the first ones of very many."""
    call_count: int = 0


@dataclass(slots=True)
class SeenSearch:
    caller: str
    query: str
    text: str
    """All that the model read of its answer."""
    seconds: float
    time: float = field(default_factory=now)


@dataclass(slots=True)
class SeenQuestion:
    """Something that a person was asked. `reply` is empty until it is answered; `no` where it was not in time."""

    run: str
    server: str
    reply: str = ""
    by: str = ""
    ms: float = 0.0


class Observer:
    """Does nothing; override what you want to know. Called in the event loop, so it must return at once."""

    def run_started(self, run: SeenRun) -> None: ...

    def run_printed(self, run: SeenRun, text: str) -> None: ...

    def run_ended(self, run: SeenRun) -> None: ...

    def call_started(self, run: SeenRun, call: SeenCall) -> None: ...

    def call_ended(self, run: SeenRun, call: SeenCall) -> None: ...

    def searched(self, search: SeenSearch) -> None: ...

    def asked(self, question: SeenQuestion) -> None: ...

    def answered(self, question: SeenQuestion) -> None: ...


class Observers:
    """Those of one fold. One that fails is logged and fails nothing else. Where spans are exported, one makes them."""

    def __init__(self) -> None:
        self._all: list[Observer] = []
        if is_traced():
            from toolfold.telemetry.spans import Spans

            self._all.append(Spans())

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell it everything from now on, until what is returned is called."""
        self._all.append(observer)
        return lambda: self._all.remove(observer)

    def notify(self, method: Callable[..., None], *seen: Any) -> None:
        """`method` is the one of `Observer` to call: `observers.notify(Observer.searched, search)`."""
        for observer in self._all:
            try:
                getattr(observer, method.__name__)(*seen)
            except Exception:
                _log.exception("an observer failed: %s.%s", type(observer).__name__, method.__name__)
