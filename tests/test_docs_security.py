"""The page about rules and limits is held to the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from tests import warm
from toolfold.guards import chain

PAGE = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_chain_is_in_the_order_that_the_page_gives() -> None:
    words = [
        "record,",
        "Count(",
        "self._audit]",
        "self._pinned,",
        "*self._own",
        "self._privacy]",
        "self._inject,",
        "CheckArguments(",
    ]
    words += ["Permission(", "Limits(", "Slots("]
    source = Path(chain.__file__).read_text(encoding="utf-8").partition("guards: list[Guard] = [")[2]
    places = [source.index(word) for word in words]
    assert places == sorted(places)
    assert len(words) == source.partition("\n        ]\n")[0].count("\n")
    assert len(re.findall(r"^\| \d+ \|", PAGE, flags=re.MULTILINE)) == len(words)


def test_the_commands_say_what_the_page_shows(tmp_path: Path) -> None:
    [session] = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    tools = [{"name": "create_refund", "inputSchema": {"type": "object"}}]
    (catalog / "stripe.json").write_text(json.dumps({"server": "stripe", "tools": tools}))
    folder = tmp_path / "config" / "toolfold"
    folder.mkdir(parents=True)
    (folder / "toolfold.toml").write_text(f"catalog_dirs = [{json.dumps(str(catalog))}]\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    env |= {"TOOLFOLD_DATA": str(tmp_path / "data")}
    shown = re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    for step in shown:
        command, _, output = step.partition("\n")
        done = subprocess.run(
            [warm.python(), "-m", *shlex.split(command)],
            capture_output=True,
            text=True,
            env=env,
            cwd=tmp_path,
            timeout=60,
            check=True,
        )
        assert done.stdout == output
