"""`toolfold dashboard`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.announce import has_display, opened
from toolfold.cli.console import counted, note
from toolfold.cli.options import DataDir
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.gateway.control import Running


def register(app: typer.Typer) -> None:
    app.command("dashboard")(dashboard)


def dashboard(
    pid: Annotated[int | None, typer.Option("--pid", help="Of several gateways, this one.")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link, and open no browser.")] = False,
    data: DataDir = None,
) -> None:
    """Open the dashboard of a gateway that runs here.

    Asks a running `toolfold serve` (your client has started one) for a link that signs you in, once and within ten
    minutes, and opens it in your browser. Of several gateways the newest is asked. The link is printed on a terminal
    only: it is for a person.

    Examples: toolfold dashboard
              toolfold dashboard --no-open
              toolfold dashboard --pid 4711
    """
    from toolfold.config import edge
    from toolfold.gateway.control import ask_for_link, running

    here = edge.host()
    found = running(here.absolute(data) if data is not None else here.data_dir)
    chosen = _chosen(found, pid)
    terminal = sys.stdout.isatty()
    opens = not no_open and has_display()
    if not terminal and not opens:
        raise ConfigError(
            "`toolfold dashboard` needs a terminal or a display.",
            hint="Run it in a terminal: the link signs a person in.",
        )
    try:
        link = ask_for_link(chosen)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The gateway with process id {chosen.pid} gave no link: {error}", hint="Start it again, then try again."
        ) from None
    if len(found) > 1:
        _list(found, chosen)
    if terminal:
        note("Dashboard (this link works once, for ten minutes):")
        sys.stdout.write(f"{link}\n")
        sys.stdout.flush()
    if opens and not opened(link) and not terminal:
        raise ConfigError("No browser could be opened.", hint="Run `toolfold dashboard` in a terminal.")


def _chosen(found: list[Running], pid: int | None) -> Running:
    if not found:
        raise ConfigError(
            "No gateway runs with this data folder.",
            hint="Your MCP client starts one (`toolfold serve`); or start one: toolfold serve --http 127.0.0.1:8484",
        )
    if pid is None:
        return found[0]
    chosen = next((each for each in found if each.pid == pid), None)
    if chosen is None:
        known = ", ".join(str(each.pid) for each in found)
        raise ConfigError(f"No gateway has process id {pid}.", hint=f"These run: {known}.")
    return chosen


def _list(found: list[Running], chosen: Running) -> None:
    note(f"{len(found)} gateways run here; --pid chooses another one:")
    for each in found:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.since))
        mark = "→" if each is chosen else " "
        note(f"{mark} {each.pid}  {each.kind:5}  since {began}  {counted(each.servers, 'server')}  {each.cwd}")
