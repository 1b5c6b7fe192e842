"""Thirty slow, flaky and broken servers in one config, with the limits as they are."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.upstream_lab import AWKWARD, POLITE
from toolfold import RunResult, Toolfold

pytestmark = pytest.mark.anyio


def awkward(*flags: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [AWKWARD, *flags]}


def program(server: str) -> str:
    tool, arguments = ("add", {"a": 1, "b": 2}) if server == "sdk" else ("echo", {})
    return f"from servers.{server} import {tool}\nprint(await {tool}(**{arguments!r}))"


async def test_every_program_that_names_a_working_server_runs_the_first_time(runtime_dir: Path) -> None:
    working: dict[str, Any] = {}
    for number in range(6):
        working[f"plain{number}"] = awkward()
        working[f"busy{number}"] = awkward("burns=0.5")
        working[f"slow{number}"] = awkward("sleeps=1.5")
        working[f"flaky{number}"] = awkward(f"starts={runtime_dir / f'flaky{number}'}", f"fails={1 + number % 2}")
    working["sdk"] = {"command": warm.python(), "args": [POLITE, "stdio"]}
    working["banner"] = awkward("banner", "dies-on-probe")
    broken: dict[str, Any] = {
        "hangs0": awkward("never-answers"),
        "hangs1": {"command": "sleep", "args": ["600"]},
        "ends": {"command": "sh", "args": ["-c", "echo oops >&2; exit 3"]},
        "missing": {"command": "no-such-command-here"},
        "junk": {"command": "yes"},
    }
    # The broken ones come first, so that they are in the way if they can be.
    config = {"servers": {**broken, **working}, "sandbox": {"pool": 2}}
    names = [*working]
    random.Random(1).shuffle(names)
    async with asyncio.timeout(280), Toolfold.open(config, data_dir=runtime_dir) as fold:
        await fold.warm_up()
        assert len(fold.settings.servers) == 31

        # What names no server, or a server that is there, waits for none of those that start.
        assert (await fold.run("print('unrelated')")).output == "unrelated\n"
        assert len(fold.catalog.missing) > len(broken) + 10

        async def run(server: str) -> RunResult:
            return await fold.run(program(server))

        for pair in zip(names[::2], names[1::2], strict=True):
            for name, result in zip(pair, await asyncio.gather(*map(run, pair)), strict=True):
                assert result.output == ("3\n" if name == "sdk" else "{}\n"), f"{name}: {result.text}"
        assert {*fold.catalog.missing} == {*broken}

        # The broken ones are named with their own reasons, each by its module's name.
        text = (await run("missing")).text
        assert "servers.missing is not available now: failed: the command `no-such-command-here`" in text
        assert "ends" not in text
