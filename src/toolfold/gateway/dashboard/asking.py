"""Questions on the dashboard: what is shown of them, and what a form answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from markupsafe import Markup

from toolfold.gateway import approval_html
from toolfold.schema.forms import InvalidValueError

if TYPE_CHECKING:
    from toolfold.gateway.questions import OpenQuestion, Questions
    from toolfold.guards.events import Question

BY = "dashboard"
"""Where an answer came from, for the record."""
ALLOWED = "Allowed. The program goes on."
DENIED = "Not allowed. The program was told so."
SENT = "Sent. The program goes on."
DECLINED = "Declined. The server was told so."
TOO_LATE = "Too late: this was answered already, or the program does not wait any more."
MESSAGES = (ALLOWED, DENIED, SENT, DECLINED, TOO_LATE)


@dataclass(frozen=True)
class Problem:
    """Why an answer was not taken, and what was filled in."""

    id: str
    text: str
    typed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Shown:
    id: str
    question: Question
    caller: str
    session: str
    since: float
    host: str
    """Of the address that the person is to open."""
    inputs: Markup
    replies: list[tuple[str, str]]


def shown_questions(questions: Questions, problem: Problem | None = None) -> list[Shown]:
    return [_shown(each, problem) for each in questions if not each.answer.done()]


def _shown(waiting: OpenQuestion, problem: Problem | None) -> Shown:
    asked = waiting.question
    typed = problem.typed if problem is not None and problem.id == waiting.id else {}
    return Shown(
        id=waiting.id,
        question=asked,
        caller=waiting.caller,
        session=waiting.session or "",
        since=waiting.since,
        host=(urlsplit(asked.form.url).hostname or "") if asked.form is not None else "",
        # Its parts were escaped one by one, as on the approval page.
        inputs=Markup(approval_html.inputs(asked.form, typed) if asked.form is not None else ""),  # noqa: S704
        replies=[(reply, asked.label(reply)) for reply in asked.replies],
    )


def answered(questions: Questions, number: str, sent: dict[str, list[str]]) -> tuple[str, Problem | None]:
    """What became of an answer, for the person; or the problem with it."""
    waiting = questions.get(number)
    if waiting is None:
        return TOO_LATE, None
    form = waiting.question.form
    typed = approval_html.typed(form, sent) if form is not None else {}
    reply = sent.get("answer", [""])
    try:
        if len(reply) != 1 or not waiting.give(reply[0], BY, typed, prefilled=True):
            return TOO_LATE, None
    except InvalidValueError as error:
        return "", Problem(number, str(error), typed)
    if form is not None:
        return (DECLINED if reply[0] == "no" else SENT), None
    return (DENIED if reply[0] == "no" else ALLOWED), None
