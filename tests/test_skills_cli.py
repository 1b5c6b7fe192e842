"""`toolfold skills`, and the setting that makes skills wait for a person's yes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
import typer
from typer.testing import CliRunner

from tests import warm
from tests.office import office
from toolfold.cli import skills as command
from toolfold.errors import ToolfoldError
from toolfold.skills.store import SkillStore

pytestmark = pytest.mark.anyio

APP = typer.Typer()
command.register(APP)


def skills(data: Path, *words: str, code: int = 0) -> str:
    """What the command prints; with another exit code, why it stopped."""
    config = data / "config.json"
    if not config.exists():
        config.write_text("{}")
    done = CliRunner().invoke(APP, ["skills", *words, "--data", str(data), "--config", str(config)])
    if isinstance(done.exception, ToolfoldError):
        assert code == 1, done.exception
        return str(done.exception)
    assert done.exit_code == code, done.output
    return done.stdout


def saving(source: str) -> str:
    return f"from toolfold import save_skill\nprint(save_skill({source!r}))"


V1 = "def weekly(day: str) -> int:\n    '''Count a week.'''\n    return 1\n"
V2 = V1.replace("return 1", "return 2")


async def test_a_skill_that_waits_is_only_used_where_it_was_saved_until_a_person_says_yes(runtime_dir: Path) -> None:
    def used(result: Any) -> str:
        return result.output if result.success else str(result.error)

    use = "from skills import weekly\nprint(weekly('x'))"
    async with office(runtime_dir, skills={"approval": True}, audit=True) as lab:
        saved = await lab.fold.run(saving(V1), session="own")
        assert "waits for a person's approval" in saved.output
        assert used(await lab.fold.run(use, session="own")) == "1\n"
        assert "cannot import name 'weekly'" in used(await lab.fold.run(use, session="other"))
        assert "cannot import name 'weekly'" in used(await lab.fold.run(use, session="own", caller="ann"))
        assert "weekly" not in (await lab.fold.search("count a week")).text
        assert "[waits for approval]" in skills(runtime_dir, "list")
        assert "Add --yes" in skills(runtime_dir, "approve", "weekly", code=1)
        skills(runtime_dir, "approve", "weekly", "--yes")
        assert used(await lab.fold.run(use, session="other")) == "1\n"
        assert "skills.weekly" in (await lab.fold.search("count a week")).text
        await lab.fold.run(saving(V2), session="own")
        assert used(await lab.fold.run(use, session="other")) == "1\n"
        skills(runtime_dir, "approve", "weekly", "--yes")
        assert used(await lab.fold.run(use, session="third")) == "2\n"
        task = (
            "from servers.office import read_note\n\nLIMIT = 3\n\n"
            "async def first_note(path: str) -> str:\n    '''The first note.'''\n"
            "    return (await read_note(path=path))[:LIMIT]\n\nprint(await first_note('a'))"
        )
        assert used(await lab.fold.run(task)) == "did\n"

    # A past run becomes a skill.
    from toolfold.telemetry.audit_reader import AuditReader, Filter, Run

    with AuditReader.open(runtime_dir) as reader:
        run = next(one.run for one in reader.history(Filter()) if isinstance(one, Run) and "first_note" in one.code)
    config = {"mcpServers": {}, "sandbox": {"pool": 0}}
    (runtime_dir / "config.json").write_text(json.dumps(config))
    refused = skills(runtime_dir, "promote", run, "--name", "../x", code=1)
    assert "invalid skill name" in refused
    assert "no program of a run 'nothing'" in skills(runtime_dir, "promote", "nothing", code=1)


async def test_list_show_and_rm(tmp_path: Path) -> None:
    from toolfold.skills.manager import SkillsManager

    assert skills(tmp_path, "list") == ""
    manager = SkillsManager(tmp_path / "skills" / "callers" / "local")
    manager.save_skill("weekly", V1, "Count a week.", ["time"])
    manager.save_skill("weekly", V2, "Count a week.", ["time"])
    manager.store.used({"weekly"}, ok=True)
    assert skills(tmp_path, "list") == "weekly  user  Count a week.  (1 of 1 runs succeeded)\n"
    (row,) = json.loads(skills(tmp_path, "list", "--json"))
    assert (row["name"], row["version"], row["signature"], row["uses"]) == ("weekly", 2, "weekly(day: str) -> int", 1)
    shown = skills(tmp_path, "show", "weekly")
    for part in ("version 2, user", "tags: time", "## Inputs", "return 2", "earlier: version 1", "used in 1 runs"):
        assert part in shown
    assert "return 1" in skills(tmp_path, "show", "weekly", "--version", "1")
    assert json.loads(skills(tmp_path, "show", "weekly", "--json"))["history"][0]["version"] == 1
    assert "has no version 7" in skills(tmp_path, "show", "weekly", "--version", "7", code=1)
    assert "Add --yes" in skills(tmp_path, "rm", "weekly", code=1)
    skills(tmp_path, "rm", "weekly", "--yes")
    assert "there is no skill 'weekly'" in skills(tmp_path, "rm", "weekly", "--yes", code=1)
    assert skills(tmp_path, "list", "--json") == "[]\n"
    assert "unknown scope 'all'" in skills(tmp_path, "list", "--scope", "all", code=1)
    assert "Set `skills.project`" in skills(tmp_path, "list", "--scope", "project", code=1)
    assert SkillStore(tmp_path / "skills" / "callers" / "local").history("weekly")[0].version == 2


async def test_a_past_run_becomes_a_skill(runtime_dir: Path) -> None:
    async with office(runtime_dir) as lab:
        ran = await lab.fold.run("def twice(x: int) -> int:\n    return 2 * x\nprint(twice(4))", session="work")
        assert ran.output == "8\n"
        [entry] = await lab.fold.sessions.transcript("work")
        config = runtime_dir / "empty.json"
        config.write_text("{}")
    command = [warm.python(), "-m", "toolfold", "skills", "promote", entry.run, "--config", str(config)]
    done = await anyio.run_process([*command, "--data", str(runtime_dir)], check=False)
    assert done.returncode == 0, done.stderr
    async with office(runtime_dir) as lab:
        used = await lab.fold.run("from skills import twice\nprint(twice(5))")
        assert used.output == "10\n", used.error
