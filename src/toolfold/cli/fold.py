"""`toolfold fold`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.changes import agreed, show, shown
from toolfold.cli.console import note
from toolfold.cli.trust import offer_trust
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.config.edge import Host
    from toolfold.config.folding.plan import Launch, Options, Plan
    from toolfold.config.folding.targets import Target

Client = Annotated[str | None, typer.Argument(help="The client; without it, every client that is found here.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Make the change without asking.")]
Print = Annotated[bool, typer.Option("--print", help="Only show what would change.")]


def register(app: typer.Typer) -> None:
    app.command("fold")(fold)


def fold(
    client: Client = None,
    yes: Yes = False,
    only_print: Print = False,
    hybrid: Annotated[
        list[str] | None, typer.Option("--hybrid", metavar="NAME", help="Leave this server in the client (repeatable).")
    ] = None,
    user: Annotated[bool, typer.Option("--user", help="Only your own files.")] = False,
    project: Annotated[bool, typer.Option("--project", help="Only the files of this project.")] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Do not write the lines that let the client call Toolfold without asking.")
    ] = False,
    instructions: Annotated[
        bool,
        typer.Option("--instructions", help="Also tell this project's agents (AGENTS.md, CLAUDE.md, ...)."),
    ] = False,
) -> None:
    """Move a client's servers into Toolfold, and register Toolfold in the client.

    The change is shown first. `toolfold unfold` puts everything back.
    Clients: claude-code, claude-desktop, cursor, windsurf, vscode, codex, gemini, zed, opencode.

    Examples: toolfold fold claude-code
              toolfold fold codex --print
              toolfold fold cursor --hybrid github --yes
    """
    from toolfold.config import edge
    from toolfold.config.folding.plan import Options

    here, launch = edge.host(), _launch()
    options = Options(
        hybrid=frozenset(hybrid or ()),
        user=user or not project,
        project=project or not user,
        granted=not ask,
        instructions=instructions,
    )
    chosen = _targets(client, here)
    if not chosen:
        _print_entry(launch, client, only_print=only_print)
        return
    done = [_fold(target, here, launch, options, yes=yes, only_print=only_print) for target in chosen]
    if not all(done):
        raise SystemExit(1)


def _fold(target: Target, here: Host, launch: Launch, options: Options, *, yes: bool, only_print: bool) -> bool:
    """Whether the client is folded now, or only had to be shown."""
    from toolfold.config.folding import undo
    from toolfold.config.folding.journal import Journal
    from toolfold.config.folding.plan import plan_fold
    from toolfold.config.load import project_of

    known = Journal.of(here)
    if not only_print:
        for name in undo.recover(known):
            note(f"{name}: an earlier fold was cut off; what it had done was undone.", "yellow")
    plan = plan_fold(target, here, launch, options)
    if not plan.changes:
        note(f"{target.title}: nothing to change.")
        _explain(plan)
        return True
    show(plan.changes, plan.servers)
    _explain(plan)
    if only_print:
        return True
    if not yes and not agreed(f"Fold {target.title} like this?"):
        return False
    undo.fold(plan, known)
    note(f"{target.title} is folded. `toolfold unfold {target.name}` puts everything back.", "green")
    if target.asks:
        note(target.asks)
    if any(change.path.parent == Path(os.path.realpath(here.cwd)) for change in plan.changes):
        offer_trust(None)
        project = project_of(here)
        if project is not None and not project.trusted:
            note("The servers of this project are used once you trust it: toolfold trust", "yellow")
    note("Next: toolfold doctor")
    return True


def _explain(plan: Plan) -> None:
    for name, place in plan.moved.items():
        note(f"  {name} → {shown(place)}")
    for name, reason in plan.left.items():
        note(f"  {name} stays: {reason}")
    for line in plan.notes:
        note(f"  {line}")


def _targets(client: str | None, here: Host) -> list[Target]:
    """The client that was named, or all that have a file here; none when the name is not known."""
    from toolfold.config.clients import locations
    from toolfold.config.folding.targets import TARGETS, target

    if client is not None:
        known = target(client)
        return [known] if known is not None else []
    there = {place.format.name for place in locations(here) if place.path.exists()}
    chosen = [each for each in TARGETS if each.name in there]
    if not chosen:
        names = ", ".join(each.name for each in TARGETS)
        raise ConfigError("No client with a config file was found.", hint=f"Name one: toolfold fold CLIENT ({names}).")
    return chosen


def _print_entry(launch: Launch, client: str | None, *, only_print: bool) -> None:
    """The entry that most clients take, for those that we do not know."""
    import json

    from toolfold.config.folding.targets import NAME, TARGETS

    if not only_print:
        names = ", ".join(each.name for each in TARGETS)
        raise ConfigError(
            f"Unknown client {client!r}. Known are: {names}.",
            hint="For another client, `toolfold fold NAME --print` shows the entry that most of them take.",
        )
    entry = {"command": launch.full[0], "args": list(launch.full[1:])}
    sys.stdout.write(json.dumps({"mcpServers": {NAME: entry}}, indent=2) + "\n")
    note("Move the other servers of that file to ~/.config/toolfold/toolfold.toml: only Toolfold is to start them.")


def _launch() -> Launch:
    """How a client would start this Toolfold: by its name where PATH has it, or by the path of the program."""
    from toolfold.config.folding.plan import Launch

    found = shutil.which("toolfold")
    beside = Path(sys.executable).with_name("toolfold")
    if found is not None:
        full = (str(Path(found).absolute()), "serve")
    else:
        full = (str(beside), "serve") if beside.exists() else (sys.executable, "-m", "toolfold", "serve")
    return Launch(short=("toolfold", "serve") if found is not None else full, full=full)
