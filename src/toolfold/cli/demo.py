"""`toolfold demo`: six scenarios, each with direct calls and folded, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    catalog: Annotated[
        Path | None,
        typer.Option(help="Also compare the definitions in this folder of {server, tools} files.", metavar="DIR"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Run six scenarios on embedded MCP servers, directly and folded, and print measured tokens and round trips.

    Example: toolfold demo --catalog ./catalogs
    """
    import sys

    import anyio
    from rich.console import Console

    from toolfold.demo.run import Report, run_demo
    from toolfold.demo.table import as_data, show

    progress = Console(stderr=True)

    async def run() -> Report:
        with progress.status("starting") as status:

            def heard(text: str) -> None:
                status.update(text)
                if not progress.is_terminal:
                    progress.print(text, highlight=False)

            return await run_demo(catalog=catalog, progress=heard)

    report = anyio.run(run)
    if json:
        from json import dumps

        sys.stdout.write(dumps(as_data(report), indent=2, ensure_ascii=False) + "\n")
    else:
        show(report, Console())
    if not report.same_answers:
        raise typer.Exit(1)
