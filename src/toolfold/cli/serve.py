"""`toolfold serve`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.options import CatalogDirs, Config, DataDir, open_fold, run_async

if TYPE_CHECKING:
    from toolfold.fold import Toolfold

_WARM_UP_DELAY = 0.3


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    config: Config = None,
    catalog: CatalogDirs = None,
    http: Annotated[str | None, typer.Option("--http", help="HOST:PORT for streamable HTTP at /mcp.")] = None,
    token: Annotated[str | None, typer.Option("--token", help="Bearer token (or TOOLFOLD_TOKEN).")] = None,
    data: DataDir = None,
) -> None:
    """Be an MCP server: two tools over all your servers.

    Examples: toolfold serve
              toolfold serve --config .mcp.json
              toolfold serve --http 127.0.0.1:8484
    """

    async def work() -> None:
        async with open_fold(config, catalog, data) as fold:
            warming = asyncio.create_task(_warm_up(fold))
            try:
                await _serve(fold, http, token)
            finally:
                warming.cancel()

    run_async(work)


async def _serve(fold: Toolfold, http: str | None, token: str | None) -> None:
    if http is None:
        from toolfold.gateway.stdio import serve_stdio

        await serve_stdio(fold)
        return
    from toolfold.cli.console import note
    from toolfold.gateway.http import parse_address, serve_http

    def started(address: str) -> None:
        note(f"toolfold listens at {address}")

    host, port = parse_address(http)
    await serve_http(fold, host, port, token=token or os.environ.get("TOOLFOLD_TOKEN"), started=started)


async def _warm_up(fold: Toolfold) -> None:
    """Prepare in the background; the client's first questions come first. What fails here fails again, with words."""
    await asyncio.sleep(_WARM_UP_DELAY)
    await fold.listed()
    await fold.warm_up()
    from toolfold.cli.console import note

    choice = await fold.choice()
    note(f"sandbox: {choice.backend.name} ({choice.evidence})")
