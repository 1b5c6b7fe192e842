"""Running the MCP conformance suite and reading what it found."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from tests.third_party import npm_program, run

REVISIONS = ("2025-11-25", "2026-07-28")
SCENARIOS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "scenarios.toml").read_text())
WIRE = "wire-schema-valid"
"""The check that the suite adds to every scenario. It passes also when nothing else was tested."""


class Check(NamedTuple):
    """One thing that a scenario looked at: SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""

    id: str
    status: str
    said: str

    @property
    def passed(self) -> bool:
        return self.status in ("SUCCESS", "INFO")


async def scenarios(kind: str) -> list[str]:
    """Every scenario that the installed suite has, `kind` being "server" or "client"."""
    code, out, err = await run([*npm_program("conformance"), "list", f"--{kind}"])
    assert code == 0, err
    return re.findall(r"^  - (\S+)", out, re.MULTILINE)


async def server_checks(url: str, folder: Path, *options: str) -> dict[str, list[Check]]:
    """Run scenarios on a server: what was found, by scenario."""
    command = [*npm_program("conformance"), "server", "--url", url, "-o", str(folder), *options]
    _, out, err = await run(command)
    found = {_name(path.name).removeprefix("server-"): _read(path) for path in folder.iterdir()}
    assert found, f"the suite ran nothing: {out}{err}"
    return found


async def client_checks(command: str, revision: str, folder: Path) -> dict[str, list[Check]]:
    """Run every scenario that a revision has for clients: what was found, by scenario."""
    options = ["--command", command, "--requirements", revision, "--timeout", "170000", "-o", str(folder)]
    _, out, err = await run([*npm_program("conformance"), "client", *options], timeout=600)
    found = {_name(str(path.parent.relative_to(folder))): _read(path.parent) for path in folder.rglob("checks.json")}
    assert found, f"the suite ran nothing: {out}{err}"
    return found


def _name(folder: str) -> str:
    """The scenario that a folder of results is about: the folder has the time at its end."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder)


def _read(folder: Path) -> list[Check]:
    found = json.loads((folder / "checks.json").read_text())

    def said(check: dict[str, Any]) -> str:
        details: dict[str, Any] = check.get("details") or {}
        return " ".join(
            str(part) for part in (check.get("errorMessage"), check["description"], details.get("note")) if part
        )

    return [Check(check["id"], check["status"], said(check)) for check in found]
