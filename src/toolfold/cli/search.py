"""`toolfold search`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from toolfold.cli.console import printable, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, open_fold, run_async
from toolfold.cli.trust import offer_trust

if TYPE_CHECKING:
    from toolfold.catalog.catalog import Answer, Detail


def register(app: typer.Typer) -> None:
    app.command("search")(search)


def search(
    query: Annotated[str, typer.Argument(help="What the tool should do; empty lists the servers.")] = "",
    detail: Annotated[str, typer.Option(help="name_only, with_description or full.")] = "with_description",
    limit: Annotated[int | None, typer.Option(help="How many hits; default: what fits about 500 tokens.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each hit ranked.")] = False,
    config: Config = None,
    catalog: CatalogDirs = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Find tools, resources and prompts.

    Example: toolfold search "create an issue" --detail full --limit 3
    """

    async def work() -> Answer:
        async with open_fold(config, catalog, data) as fold:
            return await fold.search(query, detail=cast("Detail", detail), limit=limit, explain=explain)

    offer_trust(config)
    answer = run_async(work)
    if json:
        write_json({"total": answer.total, "hits": answer.rows()})
    else:
        sys.stdout.write(printable(answer.text).rstrip("\n") + "\n")
