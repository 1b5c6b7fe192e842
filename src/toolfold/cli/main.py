"""`toolfold`: the table of commands. A command's file is imported only when it is asked for."""

from __future__ import annotations

import gc
import importlib
import shutil
import sys
from collections.abc import Iterable
from typing import Any, cast

import typer

from toolfold.errors import ToolfoldError

COMMANDS = {
    "fold": "Move a client's servers into Toolfold, and register Toolfold there.",
    "unfold": "Put a client's files back as they were before.",
    "serve": "Be an MCP server: two tools over all your servers.",
    "run": "Run a program in the sandbox, as an agent would.",
    "search": "Find tools.",
    "generate": "Write the typed API of all tools into a folder.",
    "doctor": "Check config, servers and sandbox, and say what to do.",
    "savings": "Count what the definitions of your own servers cost, and what Toolfold's do.",
    "stats": "Show runs, calls and errors until now, and the tokens and money that they saved.",
    "auth": "Sign in to remote servers.",
    "dashboard": "Open the dashboard of a gateway that runs here.",
    "approve": "Answer programs that wait for a person's approval.",
    "trust": "Show what a project's own config files would start, and allow it.",
    "audit": "Read the audit log, and prove that it is whole.",
    "tools": "See and accept changes of tools.",
    "skills": "See, share, promote, approve and remove saved functions.",
    "token": "Say who may call over HTTP with a token of their own.",
    "policy": "Say what may be called: list, test and write rules.",
    "sessions": "See, export, share and end sessions.",
    "files": "List, fetch, add and remove files of a session.",
    "demo": "Run six scenarios on embedded servers and measure them.",
}

_NOT_ON_WINDOWS = (
    "Toolfold does not run on Windows itself. Install it in WSL 2 (`wsl --install`), and start it from there:\n"
    "wsl -- toolfold serve. See docs/platforms.md."
)


def main() -> None:
    """The console script. Exit code 0 only on success."""
    if sys.platform == "win32":
        sys.exit(_NOT_ON_WINDOWS)
    wanted = next((word for word in sys.argv[1:] if word in COMMANDS), None)
    # Importing one command instead of all of them keeps `serve` fast; --help imports all.
    chosen = [wanted] if wanted is not None and sys.argv[1:2] == [wanted] else list(COMMANDS)
    if chosen == ["serve"]:
        gc.disable()  # what it imports is never garbage; looking through it takes a tenth of the start
    try:
        build(chosen, completion=wanted is None)()
    except KeyboardInterrupt:  # while the command was being imported; a command that runs ends itself
        raise SystemExit(130) from None
    except ToolfoldError as error:
        from toolfold.cli.console import note

        note(error.message, "bold red")
        if error.hint:
            note(error.hint)
        raise SystemExit(1) from None
    except OSError as error:
        from toolfold.cli.console import note

        # Most often a disk that is full, or has become read-only since the command began.
        note(_first_reason(error), "bold red")
        note("--data or TOOLFOLD_DATA names another data folder.")
        raise SystemExit(1) from None


def build(commands: Iterable[str], *, completion: bool = False) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        name="toolfold",
        help="Fold any number of MCP servers into two tools.",
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name in commands:
        module: Any = importlib.import_module(f"toolfold.cli.{name}")
        module.register(app)
    return app


def serve() -> None:
    """The console script `mcp-code-execution-server`: `toolfold serve`, with the same options."""
    sys.argv.insert(1, "serve")
    main()


def _first_reason(error: OSError) -> str:
    """What the system said, in one line; copying a tree collects what it said about each file."""
    if isinstance(error, shutil.Error):
        [(_, _, reason), *_] = cast("list[tuple[str, str, str]]", error.args[0])
        return reason
    return str(error)


def _print_version(wanted: bool) -> None:
    if wanted:
        from toolfold import __version__

        typer.echo(__version__)
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass
