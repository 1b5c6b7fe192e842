"""`toolfold files`: the files of a session's `workspace/`, from outside."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json, run_async
from toolfold.cli.sessions import session_store
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.session.files import SessionFiles

Session = Annotated[str, typer.Option("--session", help="Whose files; needed where there are several sessions.")]
Caller = Annotated[str, typer.Option("--caller", help="Whose session it is; default: yours, on this machine.")]


def register(app: typer.Typer) -> None:
    files = typer.Typer(
        help="List, fetch, add and remove files of a session.\n\nExample: toolfold files ls --session research",
        no_args_is_help=True,
    )
    for command in (ls, get, put, rm):
        files.command(command.__name__)(command)
    app.add_typer(files, name="files")


def ls(
    path: Annotated[str, typer.Argument(help="A folder in workspace/.")] = "",
    session: Session = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 1000,
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """List a folder of a session's workspace. Links are shown, never followed.

    Example: toolfold files ls outputs --session research
    """
    found = _files(session, caller, config, data).ls(path, limit=limit)
    if json:
        write_json(found)
        return
    for file in found.files:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.modified))
        mark = {"folder": "/", "link": "@", "other": "?"}.get(file.kind, "")
        sys.stdout.write(printable(f"{file.size:>14,}  {when}  {file.name}{mark}").replace("\n", " ") + "\n")
    if found.more:
        note(f"At least {found.more:,} more are not shown; --limit shows more of them.")


def get(
    path: Annotated[str, typer.Argument(help="A file in workspace/.")],
    target: Annotated[Path | None, typer.Argument(help="A file or folder here, or - for standard output.")] = None,
    session: Session = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is here already.")] = False,
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Copy a file out of a session.

    Example: toolfold files get report.csv --session research
    """
    files = _files(session, caller, config, data)
    if target == Path("-"):
        sys.stdout.buffer.write(files.read(path))
        return
    name = Path(path).name
    place = Path(name) if target is None else target / name if target.is_dir() else target
    if place.exists() and not force:
        raise ConfigError(f"{place} exists already.", hint="--force replaces it.")
    size = files.get(path, place)
    note(f"Wrote {place} ({size:,} bytes).")


def put(
    source: Annotated[Path, typer.Argument(help="A file here.", exists=True, dir_okay=False)],
    path: Annotated[str, typer.Argument(help="Its name in workspace/; default: its own.")] = "",
    session: Session = "",
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Copy a file into a session, within its quota.

    Example: toolfold files put data.csv --session research
    """
    size = _files(session, caller, config, data).put(source, path or source.name)
    note(f"Wrote workspace/{path or source.name} ({size:,} bytes).")


def rm(
    path: Annotated[str, typer.Argument(help="A file in workspace/.")],
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="A folder, with all that is in it.")] = False,
    session: Session = "",
    caller: Caller = "local",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Remove a file of a session; of a link, the link.

    Example: toolfold files rm outputs -r --session research
    """
    _files(session, caller, config, data).rm(path, recursive=recursive)
    note(f"Removed {path}.")


def _files(session: str, caller: str, config: Path | None, data: Path | None) -> SessionFiles:
    store = session_store(config, data)
    if not session:
        found = run_async(lambda: store.list(caller))
        if len(found) != 1:
            names = ", ".join(info.name for info in found[:8]) or "none yet"
            raise ConfigError("Say which session: --session NAME.", hint=f"There are: {names}.")
        session = found[0].name
    return store.files(session, caller=caller)
