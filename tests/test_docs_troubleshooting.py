"""The page about troubleshooting: its headings are our error messages, and what goes wrong is found on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import warm
from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import ConfigError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
_QUOTED = [re.fullmatch(r"(`+) ?(.+?) ?\1", heading) for heading in HEADINGS]
MESSAGES = [found[2] for found in _QUOTED if found is not None]


@cache
def sources() -> list[str]:
    """The code, with what a formatted string fills in made the same everywhere."""
    files = sorted((ROOT / "src" / "toolfold").rglob("*.py"))
    return [re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in files]


def pattern(message: str) -> re.Pattern[str]:
    return re.compile(".*?".join(re.escape(piece) for piece in message.split("…")), re.DOTALL)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_heading_is_a_message_that_we_really_give(message: str) -> None:
    pieces = [piece for piece in message.split("…") if piece.strip(" .:()`")]
    assert pieces
    assert any(all(piece in source for piece in pieces) for source in sources())


def test_every_other_heading_is_about_something_seen_elsewhere() -> None:
    assert len(HEADINGS) - len(MESSAGES) <= 3
    assert len(MESSAGES) > 35


def explained(text: str) -> list[str]:
    """The headings that a person who searches the page for the words of this error would find."""
    return [message for message in MESSAGES if pattern(message).search(text)]


def test_what_is_wrong_with_a_command_is_on_the_page(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "TOOLFOLD_DATA": str(tmp_path)}
    for words in ("fold nothing", "fold", "approve", "auth login nothing"):
        command = [warm.python(), "-m", "toolfold", *words.split()]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, input="", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert explained(" ".join(done.stderr.split())), done.stderr


@pytest.mark.anyio
class TestFound:
    @pytest.mark.parametrize(
        "code",
        [
            "from servers.nowhere import anything",
            "from servers.lab import add\nadd(a=1, b=2)",
            "from servers.lab import add\nawait add(a=1, c=2)",
            "from servers.lab import add\nawait add(a=1)",
            "from toolfold import call_mcp_tool\nawait call_mcp_tool('lab.nothing_like_it', {})",
            "while True: pass",
            "x = bytearray(2_000_000_000)",
            "open('/etc/new', 'w')",
            "import requests",
            "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)",
            "import os\nos._exit(3)",
            "from servers.lab import die\nawait die()",
            "from toolfold import read_resource\nawait read_resource('nowhere', 'x://y')",
        ],
    )
    async def test_what_a_program_does_wrong_is_on_the_page(self, lab: Toolfold, code: str) -> None:
        await lab.warm_up()
        result = await lab.run(code, timeout=1.5)
        assert result.error is not None
        assert explained(str(result.error)), result.error

    async def test_what_policy_does_not_allow_is_on_the_page(self, runtime_dir: Path) -> None:
        rules = [{"match": "lab.add", "args": {"a": 1}, "do": "deny"}, {"match": "lab.add", "do": "ask"}]
        async with lab_fold(runtime_dir, policy={"rules": rules}) as fold:
            for value in (1, 2):
                result = await fold.run(f"from servers.lab import add\nawait add(a={value}, b=2)")
                assert result.error is not None
                found = explained(str(result.error))
                assert any("Policy denies" in each or "needs a person's approval" in each for each in found), (
                    result.error
                )

    async def test_what_is_wrong_with_a_server_is_on_the_page(self, runtime_dir: Path) -> None:
        servers = {
            "missing": {"command": "no-such-program-anywhere"},
            "ends": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no key')"]},
            "silent": {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"], "start_timeout": 2},
            "closed": {"url": "http://127.0.0.1:9/mcp"},
        }
        async with lab_fold(runtime_dir, servers=servers) as fold:
            # Returns when every one of them has answered or failed, however long that takes.
            states = await fold.roster.refresh(servers)
            assert set(states) == set(servers)
            for name, state in states.items():
                assert state.error is not None
                assert explained(str(state.error)), f"{name}: {state.error}"

    async def test_what_is_wrong_with_a_config_is_on_the_page(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as missing:
            Toolfold.open(tmp_path / "none.json")
        assert explained(str(missing.value))
        config = tmp_path / "mcp.json"
        config.write_text('{"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET_ANYWHERE}"}}, "b": {}}}')
        problems = Toolfold.open(config, data_dir=tmp_path).loaded.problems
        assert len(problems) == 2
        for problem in problems:
            assert explained(str(problem)), problem
