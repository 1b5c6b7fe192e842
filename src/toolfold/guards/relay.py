"""What a server asks in the middle of a call, put to the person who approves calls."""

from __future__ import annotations

from urllib.parse import urlsplit

from toolfold.guards.approval import UNANSWERED, put, source_line
from toolfold.guards.events import Question
from toolfold.guards.guard import Call
from toolfold.schema.forms import Form, InvalidValueError
from toolfold.schema.text import clean, one_line
from toolfold.upstream.asking import Answer, Asked

_NAME_CHARS = 200
_MESSAGE_CHARS = 2000


class Relay:
    """Answers for one call: by the same ways, and within the same time, as an approval. A model is never asked."""

    def __init__(self, call: Call, timeout: float) -> None:
        self.run = call.run.id
        self.caller = call.run.caller
        self._call = call
        self._timeout = timeout

    async def answer(self, asked: Asked) -> Answer:
        question = _question(self._call, asked)
        server = one_line(self._call.server, _NAME_CHARS)
        replied = await put(self._call.run, question, self._timeout, f"answer {server}")
        answer = Answer("cancel" if replied.by.startswith(UNANSWERED) else "decline")
        if replied.reply != "no":
            try:
                answer = Answer("accept", asked.form.check(replied.values))
            except InvalidValueError:
                answer, replied = Answer("cancel"), replied._replace(by="the answer was invalid")
        what = "opening an address" if asked.form.url else f"{len(asked.form.fields)} values"
        said = "answered" if answer.action == "accept" else "not answered"
        self._call.notes.asked.append(f"asked for {what}: {said} ({replied.by})")
        return answer


def _question(call: Call, asked: Asked) -> Question:
    name = f"{one_line(call.server, _NAME_CHARS)}.{one_line(call.name, _NAME_CHARS)}"
    source = source_line(call.run.code, call.line)
    message = clean(asked.message)
    if len(message) > _MESSAGE_CHARS:
        message = f"{message[:_MESSAGE_CHARS]} …"
    lines = [f"The server {one_line(call.server, _NAME_CHARS)} asks you, during a call of {name}:"]
    # Each line is marked as the server's, so that none of them passes for one of ours.
    lines += [f"> {line}" for line in message.split("\n")]
    lines += _asked_for(asked.form)
    if source:
        lines.append(f"Line {call.line}: {source}")
    return Question(
        "\n".join(lines),
        call.id,
        server=call.server,
        tool=call.name,
        kind=call.kind,
        arguments=(message,),
        line=call.line,
        source=source,
        replies=("once", "no"),
        form=asked.form,
    )


def _asked_for(form: Form) -> list[str]:
    if form.url:
        return [f"It wants you to open an address of {urlsplit(form.url).hostname}:", form.url]
    names = ", ".join(field.label for field in form.fields)
    return [f"It gets your answers: {names}."] if names else []
