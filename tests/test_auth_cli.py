"""`toolfold auth`, run as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests import warm
from tests.oauth_site import Site, browse, running_site
from tests.test_cli import toolfold


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as site:
        yield site


@pytest.fixture
def config(site: Site, tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    servers = {
        "site": {"url": f"{site.origin}/mcp"},
        "local": {"command": "true"},
        "keyed": {"url": f"{site.origin}/mcp", "headers": {"Authorization": "Bearer x"}},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@contextmanager
def login(config: Path, *words: str) -> Generator[subprocess.Popen[str]]:
    command = [warm.python(), "-m", "toolfold", "auth", "login", "site", "--no-browser", "--timeout", "60", *words]
    command += ["--config", str(config), "--data", str(config.parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def state(config: Path) -> str:
    told = toolfold("auth", "status", "site", "--json", config=config)
    (row,) = json.loads(told.stdout)
    assert told.returncode == (0 if row["state"] in ("signed_in", "none") else 1)
    return row["state"]


def test_a_sign_in_from_its_address_to_its_end(site: Site, config: Path) -> None:
    assert state(config) == "none"
    with login(config) as process:
        browse(address(process))
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "Signed in to site: 2 tools." in said
    assert state(config) == "signed_in"
    (kept,) = (config.parent / "auth").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    tokens = json.loads(kept.read_text())["tokens"]
    shown = toolfold("auth", "status", config=config)
    assert shown.stdout == "site  signed in, refreshed as needed\n"
    for secret in (tokens["access_token"], tokens["refresh_token"]):
        assert secret not in said + shown.stdout + shown.stderr
        assert secret not in "".join(path.read_text() for path in (config.parent / "logs").iterdir())
    out = toolfold("auth", "logout", "site", config=config)
    assert "its tokens are revoked" in out.stderr
    assert tokens["access_token"] not in site.issuer.access
    assert tokens["refresh_token"] not in site.issuer.refresh
    assert state(config) == "none"
    assert not kept.exists()


def test_the_last_address_can_be_pasted(site: Site, config: Path) -> None:
    with login(config) as process:
        with httpx2.Client() as elsewhere:
            last = elsewhere.get(address(process)).headers["location"]
        wrong = last.replace("state=", "state=x")
        assert process.stdin is not None
        process.stdin.write(f"\n{wrong}\n{last}\n")
        process.stdin.flush()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "That is not the address that this sign-in ends at." in said


@pytest.mark.parametrize(("end", "code"), [("stop", 130), ("late", 1)])
def test_a_sign_in_that_is_not_finished_leaves_nothing(config: Path, end: str, code: int) -> None:
    with login(config, *(["--timeout", "1"] if end == "late" else [])) as process:
        address(process)
        if end == "stop":
            os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert ("was not finished within 1 s" in said) == (end == "late")
    assert not list((config.parent / "auth").glob("*.json"))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("nosuch", "No server 'nosuch' is configured here."),
        ("local", "local is a program on this machine"),
        ("keyed", "keyed has an `Authorization` header"),
    ],
)
def test_what_cannot_be_signed_in_to_is_said(config: Path, server: str, words: str) -> None:
    done = toolfold("auth", "login", server, config=config)
    assert done.returncode == 1
    assert words in done.stderr
