"""`toolfold generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolfold.cli.console import write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, open_fold, run_async
from toolfold.cli.trust import offer_trust
from toolfold.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command("generate")(generate)


def generate(
    folder: Annotated[Path, typer.Argument(help="Where the tree is written, as FOLDER/servers.")],
    config: Config = None,
    catalog: CatalogDirs = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Write the typed API of all tools into a folder: what agent code imports, for people and editors to read.

    Example: toolfold generate ./api && ls ./api/servers
    """
    from toolfold.codegen.tree import TreeReport, write_tree

    async def work() -> tuple[int, TreeReport]:
        async with open_fold(config, catalog, data) as fold:
            await fold.listed()
            tools = fold.catalog.tools
            try:
                return len(tools), write_tree(tools, folder, state=folder / ".trees" / ".state")
            except OSError as error:
                raise ConfigError(
                    f"Cannot write the API to {folder}: {error.strerror}.", hint="Name another folder."
                ) from None

    offer_trust(config)
    count, report = run_async(work)
    if json:
        write_json({"tools": count, "report": report})
    else:
        sys.stdout.write(f"{count} tools in {folder / 'servers'}\n")
