"""Questions that wait for the person at this machine. Whoever shows them may answer; the first answer counts."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from toolfold.guards.events import Question, Replied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator


@dataclass(frozen=True, eq=False)
class OpenQuestion:
    """A question that waits for its answer. `id` names it; `token` is the secret of the link that only it has."""

    question: Question
    caller: str
    session: str | None
    answer: asyncio.Future[Replied] = field(repr=False)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    since: float = field(default_factory=time.time)

    def give(self, reply: Any, by: str, typed: dict[str, str] | None = None, *, prefilled: bool = False) -> bool:
        """Whether this was an answer, and the first one. Raises InvalidValueError for values that do not fit.

        `prefilled`: the defaults were filled in from the start, so that what is empty in `typed` was made so.
        """
        if self.answer.done() or reply not in self.question.replies:
            return False
        form = self.question.form
        values = form.parse(typed or {}, defaults=not prefilled) if form is not None and reply != "no" else {}
        self.answer.set_result(Replied(reply, by, values=values))
        return True


class AskLocally(Protocol):
    """Puts a question to the person at this machine; `caller` and `session` are the run's."""

    questions: Questions
    """What waits for them, also where their client was asked first."""

    async def __call__(self, question: Question, caller: str, session: str | None) -> Replied: ...


class Questions:
    """Those of one gateway."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}
        self._watchers: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenQuestion]:
        """The oldest first."""
        return iter([*self._open.values()])

    def get(self, number: str) -> OpenQuestion | None:
        return self._open.get(number)

    @contextlib.contextmanager
    def waiting(self, question: Question, caller: str, session: str | None) -> Generator[OpenQuestion]:
        """The question is open meanwhile, and gone afterwards."""
        waiting = OpenQuestion(question, caller, session, asyncio.get_running_loop().create_future())
        self._open[waiting.id] = waiting
        self._changed()
        try:
            yield waiting
        finally:
            del self._open[waiting.id]
            self._changed()

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever one is asked or gone, until what is returned is called."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def _changed(self) -> None:
        for changed in [*self._watchers]:
            changed()
