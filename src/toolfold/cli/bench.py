"""`toolfold bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.options import DataDir, Json, run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolfold.bench.report import Figure


def register(app: typer.Typer) -> None:
    commands = typer.Typer(help="Print the measured figures, as ratios within one run.", no_args_is_help=True)
    commands.command("runs")(runs)
    app.add_typer(commands, name="bench")


def runs(
    rounds: Annotated[int, typer.Option(help="Timings per figure.")] = 20, data: DataDir = None, json: Json = False
) -> None:
    """Runs, calls, rows, start-up and memory, beside a plain SDK client and FastMCP CodeMode.

    Example: toolfold bench runs --rounds 30
    """
    from toolfold.bench import runs as bench

    progress = _progress()
    figures = run_async(lambda: bench.measure(_home(data), rounds, progress))
    _print(figures, "Runs and calls", json=json)


def _home(data: Path | None) -> Path:
    from toolfold.config.load import load_here

    return load_here({}, data_dir=data).settings.data_dir


def _progress() -> Callable[[str], None]:
    from toolfold.cli.console import stderr

    return lambda text: stderr().print(f"… {text}", markup=False, highlight=False, style="dim")


def _print(figures: list[Figure], title: str, *, json: bool) -> None:
    if json:
        from json import dumps

        sys.stdout.write(dumps([figure.data() for figure in figures], indent=2) + "\n")
        return
    from toolfold.bench.report import show
    from toolfold.cli.console import stdout

    show(figures, title, stdout())
