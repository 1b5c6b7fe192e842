"""`toolfold serve`."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.options import CatalogDirs, Config, DataDir, exported_spans, open_fold, run_async
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.approval_page import ApprovalPage
    from toolfold.gateway.dashboard.door import Door
    from toolfold.gateway.questions import Questions
    from toolfold.guards.events import Question, Replied

_WARM_UP_DELAY = 0.3


class Modes(StrEnum):
    code = "code"
    hybrid = "hybrid"
    direct = "direct"


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    config: Config = None,
    catalog: CatalogDirs = None,
    http: Annotated[str | None, typer.Option("--http", help="HOST:PORT for streamable HTTP at /mcp.")] = None,
    token: Annotated[
        str | None, typer.Option("--token", help="Bearer token (or TOOLFOLD_TOKEN); by default one is made and kept.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every user of this machine in (only on loopback).")
    ] = False,
    mode: Annotated[
        Modes | None,
        typer.Option("--mode", help="code: our two tools; hybrid: also a few of the servers' own; direct: only those."),
    ] = None,
    data: DataDir = None,
) -> None:
    """Be an MCP server: two tools over all your servers.

    Examples: toolfold serve
              toolfold serve --mode hybrid
              toolfold serve --config .mcp.json
              toolfold serve --http 127.0.0.1:8484
    """

    chosen: Mode | None = mode.value if mode is not None else None

    async def work() -> None:
        async with open_fold(config, catalog, data) as fold:
            if http is None:
                await _serve_stdio(fold, chosen, data)
            else:
                await _serve_http(fold, http, token, chosen, data, no_token=no_token)

    # Clients show what is on stderr as an error, so over stdio nothing is said.
    with exported_spans(quiet=http is None):
        run_async(work)


async def _serve_stdio(fold: Toolfold, mode: Mode | None, data: Path | None) -> None:
    from toolfold.gateway.greeting import Greeting
    from toolfold.gateway.texts import only_reads

    fold.ledger.mode = mode = mode or fold.settings.mode
    greeting = Greeting(read_only=only_reads(fold.settings))
    if mode == "code" and not fold.settings.expose:
        await greeting.while_importing("toolfold.gateway.stdio")
    from toolfold.gateway.questions import Questions
    from toolfold.gateway.stdio import serve_stdio

    programs = mode != "direct"
    questions = Questions()
    async with (
        _prepared(fold, programs, lambda text: None),
        _AskLocally(fold, data, questions) as ask_locally,
        _dashboard(fold, data, questions, "stdio"),
    ):
        await serve_stdio(fold, greeting, mode=mode, ask_locally=ask_locally)


async def _serve_http(
    fold: Toolfold, address: str, token: str | None, mode: Mode | None, data: Path | None, *, no_token: bool
) -> None:
    from toolfold.cli.console import note
    from toolfold.gateway.http import parse_address, serve_http
    from toolfold.gateway.questions import Questions
    from toolfold.gateway.token import own_token

    host, port = parse_address(address)
    given = token or os.environ.get("TOOLFOLD_TOKEN")
    if no_token and given:
        raise ConfigError("A token was given together with --no-token.", hint="Leave one of them out.")
    made = None if given or no_token else own_token(fold.settings.data_dir)

    fold.ledger.mode = mode = mode or fold.settings.mode
    programs = {mode, *(caller.mode or mode for caller in fold.settings.callers.values())} != {"direct"}
    questions = Questions()
    async with _AskLocally(fold, data, questions) as ask_locally, _dashboard(fold, data, questions, "http") as door:

        def started(url: str) -> None:
            note(f"toolfold listens at {url}")
            if made is not None:
                note("Its clients need the token of this data folder. For example:")
                note(f'claude mcp add --transport http toolfold {url} --header "Authorization: Bearer {made}"')
            if door is None:
                return
            # A log is read by others as well, agents among them; a link is for the person at the terminal.
            link = door.link_at_once() if sys.stderr.isatty() else ""
            note(f"Dashboard (once): {link}" if link else f"Dashboard: run `{door.command}` in a terminal.")

        prepared = _prepared(fold, programs, note)
        token = given or made
        await serve_http(
            fold,
            host,
            port,
            token=token,
            started=started,
            mode=mode,
            ask_locally=ask_locally,
            prepared=prepared,
            dashboard=door,
        )


def _command(name: str, data: Path | None) -> str:
    """What a person types to reach this gateway."""
    return f"toolfold {name}" if data is None else f"toolfold {name} --data {shlex.quote(str(data))}"


class _AskLocally:
    """The way to the person at this machine. Nothing of it is imported or started before the first question."""

    def __init__(self, fold: Toolfold, data: Path | None, questions: Questions) -> None:
        self.questions = questions
        self._data_dir = fold.settings.data_dir
        self._command = _command("approve", data)
        self._page: ApprovalPage | None = None

    async def __call__(self, question: Question, caller: str, session: str | None) -> Replied:
        if self._page is None:
            from toolfold.cli.announce import announce
            from toolfold.gateway.approval_page import ApprovalPage

            self._page = ApprovalPage(self._data_dir, partial(announce, self._command), self.questions)
        return await self._page.ask(question, caller, session)

    async def __aenter__(self) -> _AskLocally:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._page is not None:
            await self._page.close()


@asynccontextmanager
async def _dashboard(fold: Toolfold, data: Path | None, questions: Questions, kind: str) -> AsyncGenerator[Door | None]:
    """What `toolfold dashboard` needs to get in, unless the settings say that there is none."""
    if fold.settings.dashboard == "off":
        yield None
        return
    from toolfold.gateway.control import reachable
    from toolfold.gateway.dashboard.door import Door
    from toolfold.telemetry.activity import Activity

    async with (
        Door(fold, questions, Activity(), command=_command("dashboard", data)) as door,
        reachable(fold.settings.data_dir, kind, len(fold.settings.servers), door.make_link),
    ):
        yield door


@asynccontextmanager
async def _prepared(fold: Toolfold, programs: bool, log: Callable[[str], None]) -> AsyncGenerator[None]:
    """Everything is imported: garbage is collected from now on, and the sandbox made ready in the background.

    `programs` is whether any can run here at all. `log` is told which sandbox it is. Clients show what is on stderr as
    an error, so over stdio nothing is said.
    """
    gc.freeze()
    gc.enable()
    warming = asyncio.create_task(_warm_up(fold, programs, log))
    try:
        yield
    finally:
        warming.cancel()


async def _warm_up(fold: Toolfold, programs: bool, log: Callable[[str], None]) -> None:
    """Prepare in the background; the client's first questions come first. What fails here fails again, with words."""
    await asyncio.sleep(_WARM_UP_DELAY)
    fold.roster.want()
    if not programs:
        return
    await fold.warm_up()
    choice = await fold.choice()
    log(f"sandbox: {choice.backend.name} ({choice.evidence})")
