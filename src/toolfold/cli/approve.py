"""`toolfold approve`."""

from __future__ import annotations

import http.client
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import typer

from toolfold.cli.console import note
from toolfold.cli.options import DataDir
from toolfold.cli.question import is_interactive, show, typed_reply
from toolfold.errors import ConfigError
from toolfold.schema.forms import Form

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT = 5.0


def register(app: typer.Typer) -> None:
    app.command("approve")(approve)


def approve(data: DataDir = None) -> None:
    """Answer programs that wait for a person's approval.

    Shows each question of the gateways that run with this data folder, and asks for the answer. Only on a terminal: the
    answer must come from a person.

    Examples: toolfold approve
              toolfold approve --data ~/other
    """
    from toolfold.config import edge
    from toolfold.gateway.approval_page import FOLDER

    if not is_interactive():
        raise ConfigError("`toolfold approve` needs a terminal.", hint="Run it in one: the answer is a person's.")
    here = edge.host()
    folder = (here.absolute(data) if data is not None else here.data_dir) / FOLDER
    asked = 0
    for gateway in _gateways(folder):
        for question in gateway.questions():
            asked += 1
            show(question["text"], _about(question))
            form = msgspec.convert(question["form"], Form) if question.get("form") else None
            replied = typed_reply(question["replies"], question["waiting"], form, skip=True)
            if replied is not None:
                note(gateway.answer(question["id"], *replied))
    if not asked:
        note("Nothing waits for approval.")


def _about(question: dict[str, Any]) -> str:
    session = question["session"]
    of = f", session {session}" if session else ""
    return f"(caller {question['caller']}{of})"


@dataclass(frozen=True)
class _Gateway:
    """A gateway that runs on this machine, as its file describes it."""

    file: Path
    port: int
    key: str

    def questions(self) -> list[dict[str, Any]]:
        """What waits there; nothing where the gateway has ended."""
        try:
            status, found = self._request("GET", "/questions")
        except ConnectionRefusedError:
            self.file.unlink(missing_ok=True)
            return []
        except (OSError, http.client.HTTPException, ValueError) as error:
            note(f"A gateway did not answer: {error}", "yellow")
            return []
        return cast("list[dict[str, Any]]", found) if status == 200 else []

    def answer(self, number: str, reply: str, typed: dict[str, str]) -> str:
        """What became of it, for the person."""
        try:
            body = json.dumps({"reply": reply, "typed": typed})
            status, found = self._request("POST", f"/questions/{number}", body)
        except (OSError, http.client.HTTPException, ValueError):
            return "Too late: the gateway has ended."
        if status != 200:
            return f"Not accepted: {str(found.get('error', status)).removesuffix('.')}."
        return "Not allowed." if reply == "no" else "Sent." if typed else "Allowed."

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.key}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def _gateways(folder: Path) -> list[_Gateway]:
    found: list[_Gateway] = []
    for file in sorted(folder.glob("*.json")):
        try:
            told = json.loads(file.read_text(encoding="ascii"))
            found.append(_Gateway(file, int(told["port"]), str(told["key"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.stderr.write(f"{file.name} cannot be read: {type(error).__name__}\n")
    return found
