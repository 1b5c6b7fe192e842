"""`toolfold doctor`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import typer

from toolfold.cli.console import counted, printable, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, log_to_file, run_async
from toolfold.cli.trust import offer_trust
from toolfold.errors import SignInNeeded, ToolfoldError, UpstreamIsToolfold

if TYPE_CHECKING:
    from toolfold.fold import Toolfold

_EXTRAS = {
    "semantic": ("wordllama", "search finds tools by meaning as well as by words"),
    "tokens": ("rs_bpe", "token counts are exact instead of estimated"),
    "monty": ("pydantic_monty", "programs run where neither bubblewrap nor containers do"),
}
"""Extra → the module that it brings, and what it adds."""
_OURSELVES = "left out (it is Toolfold itself)"
_NO_SERVERS = "no servers are configured"
_ADD_ONE = "Add one to ~/.config/toolfold/toolfold.toml (docs/configuration.md), or name a config with --config."
_PROBE = "from toolfold import search_tools\nprint('ran', len(search_tools('')))"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was checked, how it is, and what to do when it is not well."""

    topic: Literal["config", "server", "tool", "sandbox", "kept", "client", "extra", "summary"]
    name: str
    state: Literal["ok", "warning", "bad"]
    detail: str = ""
    todo: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(config: Config = None, catalog: CatalogDirs = None, data: DataDir = None, json: Json = False) -> None:
    """Check config, every server and the sandbox, by really using them, and say what to do about each red line.

    Each server is started once. The last lines say how things are, and what to type next.

    Examples: toolfold doctor
              toolfold doctor --config .mcp.json
              toolfold doctor --json
    """
    offer_trust(config)
    lines = run_async(lambda: _examine(config, catalog, data))
    lines += _clients() if config is None else []
    lines.append(_summary(lines))
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
            places = [("--config", config), ("--data", data)]
            options = "".join(f" {name} {shlex.quote(str(given))}" for name, given in places if given is not None)
            lines += await _servers(fold, options)
            lines += _definitions(fold) + direct_names(fold)
            # The program that proves the sandbox searches: that is no reason to start a server again that failed.
            await fold.roster.close()
            status.update("proving the sandbox")
            lines += await _sandbox(fold, lambda text: status.update(escape(printable(text))))
            status.update("measuring what is kept")
            return lines + await asyncio.to_thread(_kept, fold) + _extras(fold)


def _config(fold: Toolfold) -> list[Line]:
    lines: list[Line] = []
    if fold.loaded.data_problem:
        todo = "Make that folder writable, or name another one with --data or TOOLFOLD_DATA."
        lines.append(Line(topic="config", name="data folder", state="bad", detail=fold.loaded.data_problem, todo=todo))
    for file in fold.loaded.files:
        parts = [_named(file.servers) or "no servers used"]
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
        lines.append(Line(topic="config", name=_NO_SERVERS, state="warning", todo=_ADD_ONE))
    return lines


async def _servers(fold: Toolfold, options: str) -> list[Line]:
    failures = {server: state.error for server, state in (await fold.roster.refresh(keep_asking=False)).items()}
    counts: dict[str, str] = {}
    for info in fold.catalog.servers:
        offers = {"tool": info.tools, "resource": info.resources, "prompt": info.prompts}
        counts[info.name] = ", ".join(counted(count, kind) for kind, count in offers.items() if count) or "no tools"
    lines: list[Line] = []
    for health in sorted(fold.fleet.health(), key=lambda each: each.server):
        problem = failures.get(health.server)
        if isinstance(problem, UpstreamIsToolfold):
            lines.append(Line(topic="server", name=health.server, state="ok", detail=_OURSELVES))
            continue
        if problem is not None:
            todo = _todo(problem.hint, fold.settings.servers[health.server].source, health.log_file)
            if isinstance(problem, SignInNeeded):
                todo = f"Run: toolfold auth login {shlex.quote(health.server)}{options}"
            lines.append(Line(topic="server", name=health.server, state="bad", detail=problem.message, todo=todo))
            continue
        detail = f"{counts.get(health.server, '')}; protocol {health.protocol_version}; log {health.log_file}"
        lines.append(Line(topic="server", name=health.server, state="ok", detail=detail))
        lines += [Line(topic="server", name=health.server, state="warning", detail=each) for each in health.problems]
    return lines


def _definitions(fold: Toolfold) -> list[Line]:
    """Tools that have changed since they were accepted, and texts that are aimed at models."""
    from toolfold.catalog.suspicion import suspicion

    lines = [
        Line(
            topic="tool",
            name=f"{change.target} has changed since it was accepted",
            state="bad",
            detail=change.diff,
            todo=f"If that is well: toolfold tools accept {shlex.quote(change.target)}",
        )
        for change in fold.catalog.acceptance.changes
    ]
    for entry in fold.catalog.entries:
        if reason := suspicion(entry):
            name = f"{entry.server}.{entry.key}"
            todo = "Read its definition before you let models see it: toolfold search --detail full"
            lines.append(Line(topic="tool", name=f"{name} {reason}", state="warning", todo=todo))
    return lines


def direct_names(fold: Toolfold) -> list[Line]:
    """Names in `direct` that no tool has, so that `hybrid` does not offer what somebody expects it to."""
    from toolfold.schema.patterns import EXACT, TargetPattern

    tools = fold.catalog.entries_in("tool")
    lines: list[Line] = []
    for written in fold.settings.direct:
        pattern = TargetPattern(written)
        if not any(pattern.match("tool", tool.server, tool.name) == EXACT for tool in tools):
            name = f"`direct` names {written}, which no server offers"
            todo = "Find the name: toolfold search WORDS --detail name_only"
            lines.append(Line(topic="config", name=name, state="warning", todo=todo))
    return lines


def _todo(hint: str, source: str, log: Path) -> str:
    """The files are named here and nowhere else: everything else that says what is wrong is read by models too."""
    from toolfold.upstream.serverlog import DOCTOR

    hint = hint.removesuffix(DOCTOR).rstrip()
    return f"{hint} Log: {log}{f'; configured in {source}' if source else ''}".lstrip()


async def _sandbox(fold: Toolfold, log: Callable[[str], None]) -> list[Line]:
    from toolfold.sandbox.choose import choose

    try:
        # What holds now, whatever was proved and remembered before.
        choice = await choose(fold.settings.sandbox, fold.settings.data_dir, live=True, log=log)
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


def _kept(fold: Toolfold) -> list[Line]:
    """What is on disk, for how long, and the settings that change it."""
    from toolfold.session.retention import survey

    rules = fold.settings.retention
    rows = {
        "sessions": ("named session{}", rules.sessions, None, "`retention.sessions`"),
        "runs": (
            "long output{} of runs without a session",
            rules.runs,
            f"{_size(rules.runs_size)} for each caller",
            "`retention.runs`, `retention.runs_size`",
        ),
        "outputs": (
            "long output{} in sessions",
            rules.outputs,
            f"{_size(rules.outputs_size)} in each session",
            "`retention.outputs`, `retention.outputs_size`",
        ),
        "logs": ("log{} of servers", rules.logs, _size(rules.logs_size), "`retention.logs`, `retention.logs_size`"),
    }
    lines: list[Line] = []
    for kind, kept in survey(fold.settings.data_dir).items():
        name, age, limit, settings = rows[kind]
        what = f"{kept.count} {name.format('' if kept.count == 1 else 's')}, {_size(kept.size)}"
        until = f"go when unused for {_age(age)}" if age is not None else "stay until they are removed"
        detail = f"{until}{f', the oldest beyond {limit}' if limit else ''} ({settings})"
        lines.append(Line(topic="kept", name=what, state="ok", detail=detail))
    return lines


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:g} {unit}"
        size = round(size / 1000, 1) if size < 10_000 else round(size / 1000)
    return f"{size:,g} GB"


def _age(seconds: float) -> str:
    return f"{seconds / 86_400:g} days" if seconds >= 2 * 86_400 else f"{seconds / 3600:g} h"


def _extras(fold: Toolfold) -> list[Line]:
    lines: list[Line] = []
    for extra, (module, adds) in _EXTRAS.items():
        if find_spec(module) is None:
            todo = f"Run: pip install 'toolfold[{extra}]'"
            lines.append(Line(topic="extra", name=f"{extra} is not installed", state="warning", detail=adds, todo=todo))
        elif extra == "semantic" and not fold.catalog.semantic:
            lines.append(Line(topic="extra", name=extra, state="ok", detail="switched off (`semantic = false`)"))
        else:
            lines.append(Line(topic="extra", name=extra, state="ok", detail=adds))
    return lines


def _clients() -> list[Line]:
    """Which clients of this machine know Toolfold."""
    from toolfold.cli.changes import shown
    from toolfold.config import edge
    from toolfold.config.folding.survey import clients_here
    from toolfold.config.folding.targets import TARGETS

    lines: list[Line] = []
    for here in clients_here(edge.host()):
        title, todo = here.target.title, f"Run: toolfold fold {here.target.name}"
        own = f"it starts {_named(here.servers)} itself" if here.servers else ""
        if here.registered:
            detail = f"knows Toolfold ({', '.join(shown(path) for path in here.registered)})"
            detail += f"; {own}" if own else ""
            lines.append(Line(topic="client", name=title, state="ok", detail=detail, todo=todo if own else ""))
        else:
            detail = f"does not know Toolfold; {own}" if own else "does not know Toolfold"
            lines.append(Line(topic="client", name=title, state="warning", detail=detail, todo=todo))
    if not lines:
        names = ", ".join(target.name for target in TARGETS)
        todo = f"Run: toolfold fold CLIENT ({names})"
        lines.append(Line(topic="client", name="no client was found", state="warning", todo=todo))
    return lines


def _summary(lines: list[Line]) -> Line:
    """How things are, in one sentence, and the one thing to do next."""
    bad = [line for line in lines if line.state == "bad"]
    if bad:
        text = f"{len(bad)} to put right: {', '.join(dict.fromkeys(line.name for line in bad))}"
        return Line(topic="summary", name=text, state="bad", todo=next((line.todo for line in bad if line.todo), ""))
    if any(line.name == _NO_SERVERS for line in lines):
        untrusted = [line for line in lines if line.topic == "config" and "toolfold trust" in line.todo]
        text = "Toolfold works, but it has no servers to offer"
        return Line(topic="summary", name=text, state="warning", todo=untrusted[0].todo if untrusted else _ADD_ONE)
    clients = [line for line in lines if line.topic == "client"]
    knowing = [line.name for line in clients if line.state == "ok"]
    if clients and not knowing:
        text = "the servers work, but no client knows Toolfold"
        return Line(topic="summary", name=text, state="warning", todo=clients[0].todo)
    working = [
        line.name for line in lines if line.topic == "server" and line.state == "ok" and line.detail != _OURSELVES
    ]
    parts = [_named(working), f"{', '.join(knowing)} can use them" if knowing and working else ""]
    return Line(topic="summary", name="; ".join(filter(None, ["all well", *parts])), state="ok")


def _named(servers: Sequence[str]) -> str:
    """How many servers these are, and which; empty when there is none."""
    count = "1 server" if len(servers) == 1 else f"{len(servers)} servers"
    return f"{count} ({', '.join(servers)})" if servers else ""


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
