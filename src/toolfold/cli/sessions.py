"""`toolfold sessions`: what agents have kept, from outside."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json, run_async
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.session.store import SessionInfo, SessionStore
    from toolfold.session.transcript import Entry

Name = Annotated[str, typer.Argument(help="The session's name, as `list` prints it.")]
Caller = Annotated[str, typer.Option("--caller", help="Whose session it is; default: yours, on this machine.")]
With = Annotated[str, typer.Option("--with", help="The other caller, by its name in the settings.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_MOST_SHOWN = 40


def register(app: typer.Typer) -> None:
    sessions = typer.Typer(
        help="See, export, share and end sessions.\n\nExample: toolfold sessions list", no_args_is_help=True
    )
    for command in (list_, show, export, reset, end, share, unshare):
        sessions.command(command.__name__.rstrip("_"))(command)
    app.add_typer(sessions, name="sessions")


def list_(
    caller: Annotated[str, typer.Option("--caller", help="Only those of this caller.")] = "",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """List sessions, the last used first: live or put away, last use, size, owner.

    Example: toolfold sessions list --json
    """
    store = session_store(config, data)
    found = run_async(lambda: store.list(caller or None))
    if json:
        write_json(found)
        return
    if not found:
        note("There are no sessions. A run gets one by its name: toolfold run --session NAME …")
        return
    width = max(4, *(len(printable(info.name)[:_MOST_SHOWN]) for info in found))
    for info in found:
        name = printable(info.name)[:_MOST_SHOWN].replace("\n", " ")
        shared = f"  shared with {', '.join(info.shared_with)}" if info.shared_with else ""
        line = (
            f"{name:<{width}}  {info.state:<8}  {_age(info.last_used):>9}  {_size(info.size):>8}  {info.owner}{shared}"
        )
        sys.stdout.write(printable(line) + "\n")


def show(
    name: Name,
    caller: Caller = "local",
    runs: Annotated[int, typer.Option("--runs", min=0, help="How many of the last runs; 0 is all.")] = 20,
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Show a session and its transcript: the code, the output and the calls of each run, and who ran it.

    Example: toolfold sessions show research
    """
    store = session_store(config, data)

    async def look() -> tuple[SessionInfo, list[Entry]]:
        return await store.show(name, caller=caller), await store.transcript(name, caller=caller)

    info, entries = run_async(look)
    shown = entries[-runs:] if runs else entries
    if json:
        write_json({"session": info, "runs": shown})
        return
    _print_info(info)
    if len(shown) < len(entries):
        note(f"{len(entries) - len(shown)} earlier runs are not shown; --runs 0 shows all.")
    for number, entry in enumerate(shown, len(entries) - len(shown) + 1):
        _print_entry(number, entry)


def export(
    name: Name,
    form: Annotated[str, typer.Option("--format", help="ipynb (Jupyter) or md (Markdown).")] = "ipynb",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; default: standard output.")] = None,
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Write a session's transcript as a Jupyter notebook or as Markdown.

    Example: toolfold sessions export research --format ipynb -o research.ipynb
    """
    store = session_store(config, data)
    text = run_async(lambda: store.export(name, form, caller=caller))
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8", errors="replace")
    note(f"Wrote {output}.")


def reset(
    name: Name,
    files: Annotated[bool, typer.Option("--files", help="Also remove its files and kept values.")] = False,
    yes: Yes = False,
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Forget a session's variables; its files and kept values stay unless you say otherwise.

    Example: toolfold sessions reset research
    """
    if files:
        _ask(f"Remove all files and kept values of session {name!r}?", yes)
    store = session_store(config, data)
    run_async(lambda: store.reset(name, caller=caller, files=files))
    note("It was reset; its next run is told.")


def end(name: Name, yes: Yes = False, caller: Caller = "local", config: Config = None, data: DataDir = None) -> None:
    """End a session and remove everything of it: variables, files, kept values, transcript.

    Example: toolfold sessions end research --yes
    """
    store = session_store(config, data)
    run_async(lambda: store.show(name, caller=caller))
    _ask(f"End session {name!r} and remove all its files?", yes)
    run_async(lambda: store.end(name, caller=caller))
    note("It was ended, and its files are removed.")


def share(name: Name, other: With, caller: Caller = "local", config: Config = None, data: DataDir = None) -> None:
    """Let another caller use one of your sessions: its variables, files and kept values.

    Whoever shares it can change what the others' programs do there, so share with callers that you trust.

    Example: toolfold sessions share plan --with worker
    """
    store = session_store(config, data)
    handle = run_async(lambda: store.share(name, other, caller=caller))
    note(f"{other} can use it as the session")
    sys.stdout.write(printable(handle) + "\n")


def unshare(name: Name, other: With, caller: Caller = "local", config: Config = None, data: DataDir = None) -> None:
    """Take that back, from the other caller's next run on.

    Example: toolfold sessions unshare plan --with worker
    """
    store = session_store(config, data)
    run_async(lambda: store.unshare(name, other, caller=caller))
    note(f"{other} cannot use it any more.")


def session_store(config: Path | None, data: Path | None) -> SessionStore:
    from toolfold.config.load import load_here
    from toolfold.session.store import SessionStore

    return SessionStore(load_here(config, data_dir=data).settings)


def _ask(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("This removes files.", hint="Say so: --yes.")
    typer.confirm(question, abort=True)


def _print_info(info: SessionInfo) -> None:
    facts = {
        "owner": info.owner,
        "state": info.state,
        "last used": _age(info.last_used),
        "files": f"{info.files:,} ({_size(info.size)})",
        "variables": ", ".join(info.variables) if info.state == "live" else "",
        "kept": ", ".join(info.kept),
        "shared with": ", ".join(info.shared_with),
    }
    sys.stdout.write(f"{'session':>11}  {printable(info.name)}\n")
    for fact, text in facts.items():
        if text:
            sys.stdout.write(f"{fact:>11}  {printable(text)}\n")


def _print_entry(number: int, entry: Entry) -> None:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    head = f"\n[{number}] {when}  {entry.caller}  {entry.ms:.0f} ms  run {entry.run}"
    lines = [head, *_indented(entry.code, ">>> ")]
    for call in entry.calls:
        outcome = "" if call.ok else f"  {call.error or 'not answered'}"
        lines.append(f"  → {call.target}  {call.ms:.0f} ms{outcome}")
    if entry.more_calls:
        lines.append(f"  → and {entry.more_calls:,} more calls")
    lines += [*_indented(entry.output, ""), *_indented(entry.error, "! ")]
    lines += [f"[image {image.name or image.mime_type}, {image.width} × {image.height}]" for image in entry.images]
    sys.stdout.write(printable("\n".join(lines)) + "\n")


def _indented(text: str, mark: str) -> list[str]:
    return [mark + line for line in text.rstrip().splitlines()]


def _age(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
