"""Programs in the styles that models write, each with what it must print or the hint that must answer it.

`programs/README.md` explains the tables. The programs in `programs/programs` were written by someone who had not read
Toolfold; those in `programs/forms` add the forms that only a reader of its source would think of.
"""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.third_party import data_dir
from toolfold import Toolfold
from toolfold.guards.events import RunResult

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent / "programs"
RESET = """
from servers.shop import restore_shop
from servers.crm_tools import restore_crm
await restore_shop()
await restore_crm()
"""
COUNT = "from servers.shop import count_created\nawait count_created()"


def table(name: str) -> list[Any]:
    entries: list[dict[str, Any]] = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))["program"]
    return [pytest.param(HERE / name, entry, id=f"{name}/{entry['file']}") for entry in entries]


PROGRAMS = [*table("programs"), *table("forms")]


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    servers = {
        "shop": {"command": sys.executable, "args": [str(HERE / "servers" / "shop.py")]},
        "crm-tools": {"command": sys.executable, "args": [str(HERE / "servers" / "crm_tools.py")]},
    }
    # Nobody is asked here, and some of these tools are marked as destructive.
    config: dict[str, Any] = {"servers": servers, "sandbox": {"pool": 2}, "policy": {"profile": "open"}}
    async with Toolfold.open(config, data_dir=data_dir(tmp_path_factory.mktemp("written"), shared_runtime)) as fold:
        yield fold


async def ran(fold: Toolfold, code: str, session: str) -> RunResult:
    async with asyncio.timeout(60):
        return await fold.run(code, session=session, timeout=30)


@pytest.mark.parametrize(("folder", "entry"), PROGRAMS)
async def test_a_program_runs_or_is_answered_with_the_line_to_write(
    fold: Toolfold, folder: Path, entry: dict[str, Any]
) -> None:
    with (folder / entry["file"]).open(encoding="utf-8", newline="") as file:
        code = file.read()
    session = entry["file"].removesuffix(".py")
    reset = await ran(fold, RESET, "reset")
    assert reset.success, reset.error
    if "previous" in entry:
        await ran(fold, entry["previous"], session)
    result = await ran(fold, code, session)
    read = result.text
    if "hint" in entry:
        assert not result.success, read
        for wanted in entry["hint"]:
            members = [wanted] if isinstance(wanted, str) else wanted
            assert any(member.lower() in read.lower() for member in members), f"{members} not in:\n{read}"
    else:
        assert result.success, read
    if "output" in entry:
        assert result.output.strip() == entry["output"].strip()
    for part in entry.get("contains", ()):
        assert part in read
    if "writes" in entry:
        assert (await ran(fold, COUNT, "reset")).value == entry["writes"]


def test_every_program_has_an_entry_and_most_of_them_run() -> None:
    for name in ("programs", "forms"):
        files = {path.name for path in (HERE / name).iterdir()}
        entries: list[dict[str, Any]] = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))["program"]
        assert files == {entry["file"] for entry in entries}
    assert len(PROGRAMS) >= 120
