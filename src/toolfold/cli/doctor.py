"""`toolfold doctor`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import typer

from toolfold.cli.console import printable, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, log_to_file, run_async
from toolfold.cli.trust import offer_trust
from toolfold.errors import ToolfoldError, UpstreamError, UpstreamIsToolfold

if TYPE_CHECKING:
    from toolfold.fold import Toolfold

_PROBE = "from toolfold import search_tools\nprint('ran', len(search_tools('')))"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was checked, how it is, and what to do when it is not well."""

    topic: Literal["config", "server", "sandbox"]
    name: str
    state: Literal["ok", "warning", "bad"]
    detail: str = ""
    todo: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(config: Config = None, catalog: CatalogDirs = None, data: DataDir = None, json: Json = False) -> None:
    """Check config, every server and the sandbox, by really using them, and say what to do about each red line.

    Example: toolfold doctor --config .mcp.json
    """
    offer_trust(config)
    lines = run_async(lambda: _examine(config, catalog, data))
    if json:
        write_json(lines)
    else:
        _show(lines)
    if any(line.state == "bad" for line in lines):
        raise SystemExit(1)


async def _examine(config: Any, catalog: Any, data: Any) -> list[Line]:
    from rich.markup import escape

    from toolfold.cli.console import stderr
    from toolfold.fold import Toolfold

    status = stderr().status("reading config")
    with status:
        async with Toolfold.open(config, catalog_dirs=tuple(catalog or ()), data_dir=data) as fold:
            log_to_file(fold.settings.data_dir / "logs")
            lines = _config(fold)
            status.update("starting every server")
            lines += await _servers(fold)
            status.update("proving the sandbox")
            return lines + await _sandbox(fold, lambda text: status.update(escape(printable(text))))


def _config(fold: Toolfold) -> list[Line]:
    lines: list[Line] = []
    if fold.loaded.data_problem:
        todo = "Make that folder writable, or name another one with --data or TOOLFOLD_DATA."
        lines.append(Line(topic="config", name="data folder", state="bad", detail=fold.loaded.data_problem, todo=todo))
    for file in fold.loaded.files:
        parts = [f"{len(file.servers)} servers: {', '.join(file.servers)}" if file.servers else "no servers used"]
        parts += [f"{name} shadowed by {winner}" for name, winner in file.shadowed.items()]
        parts += [f"{name} left out ({reason})" for name, reason in file.skipped.items()]
        parts += [f"settings: {', '.join(file.settings)}"] if file.settings else []
        lines.append(Line(topic="config", name=f"{file.path} ({file.format})", state="ok", detail="; ".join(parts)))
    lines += [
        Line(topic="config", name=str(each), state="bad", todo="Edit that file.") for each in fold.loaded.problems
    ]
    lines += [
        Line(
            topic="config",
            name=str(each.folder),
            state="warning",
            detail=each.text,
            todo=f"See what it would start, and allow it: toolfold trust {shlex.quote(str(each.folder))}",
        )
        for each in fold.loaded.untrusted
    ]
    lines += [Line(topic="config", name=str(each), state="warning") for each in fold.catalog.problems]
    if not fold.settings.servers and not fold.settings.catalog_dirs:
        todo = "Write a toolfold.toml, or name a config with --config."
        lines.append(Line(topic="config", name="no servers are configured", state="warning", todo=todo))
    return lines


async def _servers(fold: Toolfold) -> list[Line]:
    failures: dict[str, UpstreamError] = {}
    counts: dict[str, str] = {}
    async for server, listing in fold.fleet.listings():
        if isinstance(listing, UpstreamError):
            failures[server] = listing
        else:
            fold.catalog.update(listing)
            offers = {"tools": listing.tools, "resources": listing.resources, "prompts": listing.prompts}
            counts[server] = ", ".join(f"{len(kind)} {name}" for name, kind in offers.items() if kind) or "no tools"
    lines: list[Line] = []
    for health in sorted(fold.fleet.health(), key=lambda each: each.server):
        problem = failures.get(health.server)
        if isinstance(problem, UpstreamIsToolfold):
            lines.append(
                Line(topic="server", name=health.server, state="ok", detail="left out (it is Toolfold itself)")
            )
            continue
        if problem is not None:
            lines.append(
                Line(
                    topic="server",
                    name=health.server,
                    state="bad",
                    detail=problem.message,
                    todo=problem.hint or f"Its log: {health.log_file}",
                )
            )
            continue
        detail = f"{counts.get(health.server, '')}; protocol {health.protocol_version}; log {health.log_file}"
        lines.append(Line(topic="server", name=health.server, state="ok", detail=detail))
        lines += [Line(topic="server", name=health.server, state="warning", detail=each) for each in health.problems]
    return lines


async def _sandbox(fold: Toolfold, tell: Callable[[str], None]) -> list[Line]:
    from toolfold.sandbox.choose import choose

    try:
        # What holds now, whatever was proved and remembered before.
        choice = await choose(fold.settings.sandbox, fold.settings.data_dir, live=True, tell=tell)
        result = await fold.run(_PROBE, timeout=20)
    except ToolfoldError as error:
        return [Line(topic="sandbox", name="no sandbox", state="bad", detail=error.message, todo=error.hint)]
    if not result.success:
        return [Line(topic="sandbox", name=choice.backend.name, state="bad", detail=str(result.error or ""))]
    ran = f"a program ran in {result.execution_time_ms:.1f} ms"
    best = Line(topic="sandbox", name=choice.backend.name, state="ok", detail=f"{choice.evidence}; {ran}")
    held = "; ".join(f"{what}: {how}" for what, how in choice.walls.items())
    walls = [Line(topic="sandbox", name="held by", state="ok", detail=held)] if held else []
    tried = [
        Line(topic="sandbox", name="tried first", state="warning", detail=reason.message, todo=reason.hint)
        for reason in choice.passed_over
    ]
    return [best, *walls, *tried]


def _show(lines: list[Line]) -> None:
    from rich.markup import escape

    from toolfold.cli.console import stdout

    console = stdout()
    marks = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "bad": "[red]✗[/]"}
    topic = ""
    for line in lines:
        if line.topic != topic:
            topic = line.topic
            console.print(f"[bold]{topic}[/]")
        console.print(f"  {marks[line.state]} {escape(printable(line.name))}", highlight=False, soft_wrap=True)
        if line.detail:
            console.print(f"      {escape(printable(line.detail))}", highlight=False, soft_wrap=True, style="dim")
        if line.todo:
            console.print(f"      → {escape(printable(line.todo))}", highlight=False, soft_wrap=True)
    bad = sum(line.state == "bad" for line in lines)
    console.print(f"[red]{bad} to put right[/]" if bad else "[green]all well[/]")
