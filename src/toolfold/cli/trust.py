"""`toolfold trust`, and the question that other commands ask on a terminal."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.console import note, printable
from toolfold.cli.options import Json
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.config.edge import Host
    from toolfold.config.trust import Project, ProjectServer

_QUESTION = "Trust this folder, as its files are now? [y/N] "
_LONGEST_TEXT = 2_000
_MOST_SHOWN = 100


def register(app: typer.Typer) -> None:
    app.command("trust")(trust)


def trust(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Allow what the files hold now, without asking.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Forget what was said about the folder.")] = False,
    every: Annotated[bool, typer.Option("--list", help="List the folders that something was said about.")] = False,
    json: Json = False,
) -> None:
    """Show what a project's own config files would start, and allow it.

    Servers and settings in a project's files (.mcp.json, toolfold.toml, .cursor/mcp.json, ...) are not used before.

    Examples: toolfold trust
              toolfold trust ~/src/project --yes
              toolfold trust --list
    """
    from toolfold.config import edge
    from toolfold.config.load import project_of
    from toolfold.config.trust import Decisions

    here = edge.host()
    decisions = Decisions(here)
    if every:
        _list(decisions.all(), json=json)
        return
    place = Path(os.path.realpath(here.absolute(folder)))
    if revoke:
        if not decisions.forget(place):
            raise ConfigError(f"Nothing was said about {place}.")
        note(f"{place} is not trusted any more.")
        return
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder.")
    project = project_of(dataclasses.replace(here, cwd=place))
    if yes and project is not None:
        decisions.record(project, "yes")
        project = dataclasses.replace(project, answer="yes")
    if json:
        _write_json(dataclasses.asdict(project) if project is not None else {"folder": place, "files": []})
    elif project is None:
        note(f"{place}: no config file here would start a server or change a setting.")
    else:
        _show(project)
        if not project.trusted and _interactive():
            project = _ask(project, here)
        note("It is trusted." if project.trusted else "It is not trusted. `toolfold trust --yes` allows it.")
    if project is not None and not project.trusted:
        raise SystemExit(1)


def offer_trust(config: Path | None) -> None:
    """On a terminal, ask about a project that nothing was said about yet. Naming a config is a yes already."""
    if config is not None or not _interactive():
        return
    from toolfold.config import edge
    from toolfold.config.load import project_of

    here = edge.host()
    project = project_of(here)
    if project is not None and project.answer in {"", "changed"}:
        _show(project)
        _ask(project, here)


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(project: Project, here: Host) -> Project:
    """The project with the person's answer, which is kept. What was shown is what is allowed."""
    from toolfold.config.trust import Decisions

    sys.stderr.write(_QUESTION)
    sys.stderr.flush()
    answer = "yes" if sys.stdin.readline().strip().lower() in {"y", "yes"} else "no"
    try:
        Decisions(here).record(project, answer)
    except ConfigError:
        # A no that cannot be kept is asked for again; a yes that cannot be kept is none.
        if answer == "yes":
            raise
    return dataclasses.replace(project, answer=answer)


def _show(project: Project) -> None:
    note(f"{project.folder}\nThe config files in this folder would do this:", "bold")
    if project.answer == "changed":
        note("They have changed since they were trusted.", "yellow")
    for file in project.files:
        note(f"\n{file.name}", "bold")
        for server in file.servers[:_MOST_SHOWN]:
            note(f"  {_line(server.name)}")
            for label, text in _facts(server):
                note(f"      {label} {_line(text)}")
        for setting in file.settings[:_MOST_SHOWN]:
            note(f"  sets {_line(setting)}")
        if max(len(file.servers), len(file.settings)) > _MOST_SHOWN:
            note(f"  and more: {len(file.servers)} servers and {len(file.settings)} settings in all.", "yellow")
    note("")


def _facts(server: ProjectServer) -> list[tuple[str, str]]:
    facts = [
        ("starts", server.command),
        ("connects to", server.url),
        ("in the folder", server.cwd),
        ("with the variables", ", ".join(server.sets)),
        ("with the headers", ", ".join(server.sends)),
        ("reads", ", ".join(server.reads)),
    ]
    return [(label, text) for label, text in facts if text]


def _line(text: str) -> str:
    """One line of bounded length; that something was cut is said."""
    shown = printable(text).replace("\n", "\\n")
    more = len(shown) - _LONGEST_TEXT
    return shown if more <= 0 else f"{shown[:_LONGEST_TEXT]}… ({more} more characters: read the file)"


def _list(decisions: dict[str, dict[str, str]], *, json: bool) -> None:
    if json:
        _write_json(decisions)
        return
    for folder, said in sorted(decisions.items()):
        sys.stdout.write(f"{'trusted' if said.get('answer') == 'yes' else 'refused'}  {_line(folder)}\n")
    if not decisions:
        note("No folder is trusted.")


def _write_json(document: object) -> None:
    # ASCII: names in a project's files may hold anything.
    from json import dumps

    sys.stdout.write(dumps(document, indent=2, default=str) + "\n")
