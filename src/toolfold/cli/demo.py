"""`toolfold demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.options import Json, run_async

if TYPE_CHECKING:
    from toolfold.demo.run import Report


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    catalog: Annotated[
        Path | None, typer.Option("--catalog", help="Also compare the definitions ({server, tools}) in a folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Run six scenarios on embedded MCP servers, with direct calls and folded, and measure both.

    Example: toolfold demo --catalog ./catalogs
    """
    report = run_async(lambda: _measure(catalog))
    if json:
        from json import dumps

        from toolfold.demo.table import as_data

        sys.stdout.write(dumps(as_data(report), indent=2, ensure_ascii=False) + "\n")
    else:
        from toolfold.cli.console import stdout
        from toolfold.demo.table import show

        show(report, stdout())
    if not report.same_answers:
        raise SystemExit(1)


async def _measure(catalog: Path | None) -> Report:
    """Run the demo; on a terminal one line tells what is happening, elsewhere each step is a line."""
    from toolfold.cli.console import stderr
    from toolfold.demo.run import run_demo

    console = stderr()
    if not console.is_terminal:
        return await run_demo(catalog=catalog, progress=lambda text: console.print(text, markup=False, highlight=False))
    with console.status("") as status:
        return await run_demo(catalog=catalog, progress=status.update)
