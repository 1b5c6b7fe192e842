"""What a server was configured with is in no error, reason or note, even if the server says it aloud."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.lab import lab_fold
from tests.upstream_lab import SERVERS, text_of
from toolfold.config.secrets import MASK
from toolfold.config.settings import ServerConfig
from toolfold.errors import UpstreamError
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio

SECRET = "sv-7f3hunter2hunter2"
LEAKY = str(SERVERS / "leaky.py")


def leaky(*flags: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [LEAKY, *flags], "env": {"SERVICE_KEY": SECRET}}


def config(*flags: str) -> ServerConfig:
    return ServerConfig(**leaky(*flags))


def notes(folder: Path) -> str:
    """What we wrote into the logs ourselves."""
    lines = [line for log in folder.glob("*.log") for line in log.read_text().splitlines()]
    return "\n".join(line for line in lines if line.startswith("[toolfold "))


async def test_the_last_words_of_a_server_that_cannot_start_are_masked(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, servers={"leaky": leaky("at-start")}) as fold:
        answer = await fold.search("nothing that exists anywhere")
        assert "cannot log in" in str(fold.unlisted["leaky"])
        assert SECRET not in str(fold.unlisted["leaky"])
        assert SECRET not in repr(fold.unlisted["leaky"])
        assert SECRET not in answer.text
        result = await fold.run("from servers.leaky import anything")
        assert SECRET not in str(result.error)
        [health] = [health for health in fold.fleet.health() if health.server == "leaky"]
        assert "cannot log in" in health.last_error
        assert SECRET not in health.last_error


async def test_a_secret_that_is_cut_is_masked_as_well(tmp_path: Path) -> None:
    long = config("cut").model_copy(update={"env": {"SERVICE_KEY": SECRET * 6}})
    async with Fleet({"a": long}, log_dir=tmp_path) as fleet:
        with pytest.raises(UpstreamError) as caught:
            await fleet.listing("a")
    assert "the end" in str(caught.value)
    assert SECRET[-6:] not in str(caught.value)


async def test_every_way_to_fail_in_a_call_is_masked(tmp_path: Path) -> None:
    async with Fleet({"a": config()}, log_dir=tmp_path) as fleet:
        assert text_of(await fleet.call("a", "mumble", {})) == "done"
        refused = await fleet.call("a", "refuse", {})
        assert refused.is_error
        assert text_of(refused) == f"bad key {MASK}"
        for tool in ("fail", "die"):
            with pytest.raises(UpstreamError) as caught:
                await fleet.call("a", tool, {})
            assert f"bad key {MASK}" in str(caught.value)
            assert SECRET not in repr(caught.value)
        assert SECRET not in str(fleet.health())
    assert "now I use" in notes(tmp_path)
    assert SECRET not in notes(tmp_path)


@contextmanager
def refusing(status: int) -> Generator[str]:
    """The address of an HTTP server that answers everything with `status` and what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = f"{self.path} {self.headers.get('Authorization')}".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("status", [None, 401, 404, 500, 307])
async def test_no_part_of_an_address_that_is_secret_is_shown(
    tmp_path: Path, transport: str, status: int | None
) -> None:
    with refusing(status or 200) as host:
        where = "127.0.0.1:9" if status is None else host
        server = ServerConfig(
            transport="sse" if transport == "sse" else "http",
            url=f"http://me:{SECRET}@{where}/u/{SECRET}/mcp?key={SECRET}",
            headers={"Authorization": f"Bearer {SECRET}", "X-Key": "abcd1"},
        )
        async with Fleet({"a": server}, log_dir=tmp_path) as fleet:
            with pytest.raises(UpstreamError) as caught:
                await fleet.listing("a")
            assert SECRET not in str(caught.value)
            assert SECRET not in repr(caught.value)
            assert SECRET not in str(fleet.health())
            assert "127.0.0.1" in str(caught.value) or "HTTP" in str(caught.value)
    assert SECRET not in notes(tmp_path)


def test_doctor_shows_no_secret(runtime_dir: Path) -> None:
    path = runtime_dir / "mcp.json"
    url = f"http://127.0.0.1:9/{SECRET}/mcp"
    path.write_text(json.dumps({"mcpServers": {"dies": leaky("at-start"), "gone": {"url": url}}}))
    command = [warm.python(), "-P", "-m", "toolfold", "doctor", "--config", str(path), "--data", str(runtime_dir)]
    for more in ([], ["--json"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=100, check=False)
        assert "cannot log in" in done.stdout
        assert SECRET not in done.stdout + done.stderr
