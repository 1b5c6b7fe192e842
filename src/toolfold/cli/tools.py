"""`toolfold tools`: tools whose definitions have changed since they were accepted."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from toolfold.catalog.catalog import Catalog
    from toolfold.catalog.pins import Change
    from toolfold.config.settings import Settings
    from toolfold.telemetry.audit_records import ToolNoted

Target = Annotated[str, typer.Argument(help="server.tool, a pattern such as 'github.*', or a server.")]


def register(app: typer.Typer) -> None:
    tools = typer.Typer(
        help="See and accept changes of tools.\n\nExample: toolfold tools diff 'github.*'", no_args_is_help=True
    )
    for command in (diff, accept):
        tools.command(command.__name__)(command)
    app.add_typer(tools, name="tools")


def diff(target: Target = "*", config: Config = None, data: DataDir = None, json: Json = False) -> None:
    """Show what has changed in tools since they were first seen or last accepted. Nothing is started.

    Such a tool is held back: programs see what was accepted, and it is not called. Exit code 1 when there is one.

    Examples: toolfold tools diff
              toolfold tools diff github.create_issue
    """
    _, catalog = _catalog(config, data)
    changes = _matching(catalog, target)
    if json:
        write_json([{"tool": change.target, "diff": change.diff} for change in changes])
    else:
        for change in changes:
            sys.stdout.write(printable(f"{change.target}\n{change.diff}\n\n"))
        if not changes:
            note("No tool is held back.")
    if changes:
        raise SystemExit(1)


def accept(
    target: Target,
    yes: Annotated[bool, typer.Option("--yes", help="Accept without showing the changes and asking.")] = False,
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Let changed definitions count. Gateways that are running take them over at their next run.

    Examples: toolfold tools accept github.create_issue
              toolfold tools accept 'github.*' --yes
    """
    settings, catalog = _catalog(config, data)
    changes = _matching(catalog, target)
    if not changes:
        raise ConfigError(f"No tool that matches {target!r} is held back.", hint="`toolfold tools diff` lists them.")
    if not yes:
        for change in changes:
            sys.stdout.write(printable(f"{change.target}\n{change.diff}\n\n"))
        if not sys.stdin.isatty():
            raise ConfigError("Nothing was accepted: there is no terminal to ask at.", hint="Add --yes.")
        if not typer.confirm(f"Accept the changes of these {len(changes)} tools?"):
            raise SystemExit(1)
    _record(settings, catalog.accept(changes))
    note(f"Accepted: {', '.join(change.target for change in changes)}.")


def _catalog(config: Path | None, data: Path | None) -> tuple[Settings, Catalog]:
    from toolfold.catalog.catalog import Catalog
    from toolfold.config.load import load_here

    settings = load_here(config, data_dir=data).settings
    return settings, Catalog.open(settings)


def _matching(catalog: Catalog, target: str) -> list[Change]:
    return [
        change for change in catalog.acceptance.changes if target == change.server or fnmatchcase(change.target, target)
    ]


def _record(settings: Settings, notes: Sequence[ToolNoted]) -> None:
    """Put what was accepted into the audit log, where there is one."""
    if not settings.audit.enabled:
        return
    import asyncio

    from toolfold.telemetry.audit import AuditLog

    async def write() -> None:
        log = AuditLog(settings.data_dir, settings.audit, settings.retention)
        for each in notes:
            await log.append(each)
        log.close()

    asyncio.run(write())
