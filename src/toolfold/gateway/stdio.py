"""`toolfold serve`: one client on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.stdio import stdio_server

from toolfold.gateway.server import make_server
from toolfold.session.sessions import CONNECTION

if TYPE_CHECKING:
    from toolfold.fold import Toolfold


async def serve_stdio(fold: Toolfold) -> None:
    """Serve until the client closes its end. The connection is a session: variables stay from run to run."""
    server = make_server(fold, default_session=CONNECTION)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())
