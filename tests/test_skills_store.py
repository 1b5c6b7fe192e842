"""A folder of skills: versions, history, approval, several writers, a full disk, and writers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolfold.errors import SkillError
from toolfold.skills.folder import Skill, read_skill
from toolfold.skills.manager import SkillsManager
from toolfold.skills.store import SkillStore

ROUNDS = int(os.environ.get("TOOLFOLD_KILL_ROUNDS", "5"))


def skill(number: int, name: str = "counter") -> Skill:
    source = f"def {name}() -> int:\n    return {number}\n"
    return Skill(name=name, description=f"Number {number}.", source=source, files={"references/a.md": b"%d" % number})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_store_keeps_versions_once_and_in_order(tmp_path: Path) -> None:
    store = SkillStore(tmp_path / "skills")
    assert store.records() == {}
    first = store.save(skill(1))
    assert (first.skill.version, first.is_new) == (1, True)
    again = store.save(skill(1))
    assert (again.skill.version, again.is_new) == (1, False)
    assert store.save(skill(2)).skill.version == 2
    assert store.save(skill(1)).skill.version == 3
    assert [one.description for one in store.history("counter")] == ["Number 2.", "Number 1."]
    assert store.read("counter") == store.save(skill(1)).skill
    store.remove("counter")
    assert store.records() == {}
    assert store.save(skill(9)).skill.version == 4
    with pytest.raises(SkillError, match="there is no skill 'nothing'"):
        store.remove("nothing")


def test_old_versions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolfold.skills.store.MAX_VERSIONS", 3)
    store = SkillStore(tmp_path)
    for number in range(6):
        store.save(skill(number))
    assert [one.version for one in store.history("counter")] == [5, 4, 3]
    assert store.read("counter").version == 6


def test_what_a_person_writes_or_edits_is_seen(tmp_path: Path) -> None:
    store = SkillStore(tmp_path)
    store.save(skill(1))
    folder = tmp_path / "by-hand"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: by-hand\ndescription: Written by hand.\n---\nRead me.\n")
    assert store.records()["by-hand"].function is None
    (folder / "skill.py").write_text("def wrong(): pass\n")
    assert (
        SkillStore(tmp_path).records()["by-hand"].problem == "skill.py must define the function 'by_hand'; it has wrong"
    )
    (tmp_path / "counter" / "skill.py").write_text("def counter() -> int:\n    return 7\n")
    assert "return 7" in store.source("counter")
    assert store.save(skill(2)).skill.version == 2
    assert "return 7" in store.history("counter")[0].source


def test_another_process_reads_what_is_known_from_the_index_and_without_it(tmp_path: Path) -> None:
    store = SkillStore(tmp_path)
    store.save(skill(1))
    store.used({"counter"}, ok=True)
    store.used({"counter"}, ok=False)
    other = SkillStore(tmp_path)
    assert (other.uses()["counter"].count, other.uses()["counter"].ok) == (2, 1)
    other.close()
    store.close()
    for path in tmp_path.glob(".index.db*"):
        path.write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    damaged = SkillStore(tmp_path)
    assert damaged.records()["counter"].description == "Number 1."
    assert damaged.save(skill(2)).skill.version == 2


def test_what_waits_is_used_after_a_yes(tmp_path: Path) -> None:
    store = SkillStore(tmp_path)
    store.save(skill(1))
    assert store.save(skill(2), pending=True).is_pending
    assert store.read("counter").description == "Number 1."
    assert [one.description for one in store.pending()] == ["Number 2."]
    assert store.approve("counter").skill.version == 2
    assert store.read("counter").description == "Number 2."
    assert store.pending() == []
    with pytest.raises(SkillError, match="no skill 'counter' waits"):
        store.approve("counter")


WRITER = """
import sys
from pathlib import Path
from tests.test_skills_store import skill
from toolfold.skills.store import SkillStore
store = SkillStore(Path(sys.argv[1]))
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    saved = store.save(skill(number))
    print(saved.skill.version, saved.skill.description, flush=True)
"""


def writer(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    both = [writer(tmp_path, 0, 15), writer(tmp_path, 100, 115)]
    lines = [line for one in both for line in one.communicate(timeout=60)[0].splitlines()]
    versions = sorted(int(line.split()[0]) for line in lines)
    assert versions == list(range(1, 31))
    store = SkillStore(tmp_path)
    kept = {one.version: one.description for one in [store.read("counter"), *store.history("counter")]}
    assert kept == {int(line.split()[0]): line.split(" ", 1)[1] for line in lines}


def test_a_writer_that_is_killed_leaves_nothing_half_and_loses_nothing(tmp_path: Path) -> None:
    last = 0
    for number in range(ROUNDS):
        process = writer(tmp_path, 1000 * number, 1000 * number + 1000)
        assert process.stdout is not None
        told = [process.stdout.readline()]
        time.sleep(0.003 * (number % 7))  # the moment of the kill; nothing is waited for
        os.kill(process.pid, signal.SIGKILL)
        told += process.stdout.readlines()
        process.wait()
        version, _, description = [line for line in told if line.endswith("\n")][-1].strip().partition(" ")
        now = read_skill(tmp_path / "counter")
        assert now.version >= int(version) > last
        if now.version == int(version):
            assert now.description == description
        store = SkillStore(tmp_path)
        assert store.records()["counter"].problem == ""
        assert [name for name in names(tmp_path) if not name.startswith(".")] == ["counter"]
        assert not [name for name in names(tmp_path) if name.startswith(".tmp-")]
        last = now.version
    assert all(one.description for one in SkillStore(tmp_path).history("counter"))


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.test_skills_store import skill
from toolfold.errors import SkillError
from toolfold.skills.store import SkillStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SkillStore(Path(sys.argv[1]))
store.save(skill(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
try:
    store.save(skill(2))
except SkillError as error:
    print(error)
"""


def test_a_full_disk_changes_nothing_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "cannot write the skill 'counter': File too large\n"
    store = SkillStore(tmp_path)
    assert store.read("counter").description == "Number 1."
    assert not [name for name in names(tmp_path) if name.startswith(".tmp-")]


def test_the_manager_saves_and_searches(tmp_path: Path) -> None:
    manager = SkillsManager(tmp_path)
    code = 'def monthly_sales(month: str) -> float:\n    """Sum the sales of one month."""\n    return 1.0\n'
    saved = manager.save_skill("monthly_sales", code, "Sum the sales of one month.", ["sales"])
    assert (saved.name, saved.tags) == ("monthly-sales", ("sales",))
    manager.save_skill("send-greeting", "def send_greeting(): pass\n", "Send a greeting card.")
    assert manager.search_skills("total sales per month")[0].name == "monthly_sales"
    assert manager.search_skills("total sales per month")[0].signature == "monthly_sales(month: str) -> float"
    assert [one.name for one in manager.search_skills("")] == ["monthly_sales", "send_greeting"]
    assert [one.name for one in manager.list_skills()] == ["monthly-sales", "send-greeting"]
    assert "Sum the sales" in manager.get_skill("monthly_sales").source
    with pytest.raises(SkillError, match="SyntaxError on line 1"):
        manager.save_skill("broken", "def broken(:")
    with pytest.raises(SkillError, match="invalid skill name"):
        manager.save_skill("../x", "def x(): pass")
    manager.delete_skill("send_greeting")
    assert [one.name for one in manager.search_skills("greeting")] == []
