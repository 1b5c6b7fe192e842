"""`toolfold skills export|import|publish|install|update|key|unpin|sync`, as two people use them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from toolfold.cli import skills_share
from toolfold.errors import ConfigError, PackageRefused, SkillError
from toolfold.skills.folder import Skill, read_skill
from toolfold.skills.store import SkillStore

SOURCE = '''
from servers.github import delete_repo

async def drop_repos(names: list[str]) -> int:
    """Delete repositories."""
    for name in names:
        await delete_repo(repo=name)
    return len(names)
'''
app = typer.Typer()
skills_share.add_to(app)


class Person:
    """A data folder, and the command as that person calls it."""

    def __init__(self, data: Path, config: Path) -> None:
        self.data, self.config = data, config
        self.store = SkillStore(data / "skills/callers/local")

    def __call__(self, *words: str, typed: str = "") -> Any:
        done = CliRunner().invoke(app, [*words, "--data", str(self.data), "--config", str(self.config)], input=typed)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "toolfold.toml"
    file.write_text(f'[logseq]\ngraph = "{tmp_path}/notes"\n')
    return file


@pytest.fixture
def alice(tmp_path: Path, config: Path) -> Person:
    person = Person(tmp_path / "alice", config)
    person.store.save(Skill(name="drop-repos", description="Delete repositories.", source=SOURCE))
    return person


@pytest.fixture
def bob(tmp_path: Path, config: Path) -> Person:
    return Person(tmp_path / "bob", config)


@pytest.fixture(params=["folder", "bare"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "library"
    if request.param == "bare":
        subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    else:
        path.mkdir()
    return str(path)


def test_one_person_publishes_and_another_installs(alice: Person, bob: Person, library: str) -> None:
    published = json.loads(alice("publish", "drop_repos", "--library", library, "--json").stdout)
    assert published["new"]
    assert published["version"] == "1"
    assert "already" in alice("publish", "drop-repos", "--library", library).stderr
    assert bob("install", "--library", library).stdout == "drop-repos  1  Delete repositories.\n"
    shown = bob("install", "drop-repos", "--library", library, "--yes").stderr
    key = alice("key").stdout.strip()
    for words in (
        "await delete_repo(repo=name)",
        f"Signed by {key} (new here",
        published["sha256"],
        "Tools: github.delete_repo",
        "Risk: ",
        "Missing here: the server github",
        "from skills import drop_repos",
    ):
        assert words in shown
    assert bob.store.read("drop-repos").source == alice.store.read("drop-repos").source
    listed = json.loads(bob("install", "--library", library, "--json").stdout)
    assert listed[0]["publisher"] == key
    assert "is the newest" in bob("update").stderr
    alice.store.save(Skill(name="drop-repos", description="Delete repositories.", source=SOURCE + "\n# careful\n"))
    alice("publish", "drop-repos", "--library", library)
    shown = bob("update", "--yes").stderr
    assert "+# careful" in shown
    assert "known from drop-repos" in shown
    assert "# careful" in bob.store.read("drop-repos").source


def test_nothing_is_installed_without_a_yes(alice: Person, bob: Person, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    alice("publish", "drop-repos", "--library", str(library))
    with pytest.raises(ConfigError, match="no terminal to ask at"):
        bob("install", "drop-repos", "--library", str(library))
    assert bob.store.find("drop-repos") is None


def test_tampering_and_a_changed_key_are_refused(alice: Person, bob: Person, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    alice("publish", "drop-repos", "--library", str(library))
    file = library / "packages/drop-repos-1.skill.zip"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"Delete", b"Update"))
    with pytest.raises(PackageRefused, match="was changed after it was published"):
        bob("install", "drop-repos", "--library", str(library), "--yes")
    file.write_bytes(whole)
    bob("install", "drop-repos", "--library", str(library), "--yes")
    (alice.data / "skills/sharing/publisher.key").unlink()
    alice("export", "drop-repos", "--package", str(tmp_path / "p.zip"))
    with pytest.raises(PackageRefused, match="first installed from the publisher"):
        bob("import", str(tmp_path / "p.zip"), "--yes")
    assert "is gone" in bob("unpin", "drop-repos").stderr
    assert bob("import", str(tmp_path / "p.zip"), "--yes").exit_code == 0
    with pytest.raises(SkillError, match="is not pinned"):
        bob("unpin", "something")


def test_a_skill_goes_out_and_comes_back_in_the_agent_skills_layout(alice: Person, bob: Person, tmp_path: Path) -> None:
    target = tmp_path / ".claude/skills"
    assert alice("export", "drop-repos", "--to", str(target)).stdout == f"{target}/drop-repos\n"
    assert (target / "drop-repos/SKILL.md").read_text().startswith("---\nname: drop-repos\ndescription: Delete")
    with pytest.raises(ConfigError, match="there already"):
        alice("export", "drop-repos", "--to", str(target))
    assert alice("export", "drop-repos", "--to", str(target), "--force").exit_code == 0
    shown = bob("install", str(target / "drop-repos"), "--yes").stderr
    assert "Not signed" in shown
    assert bob.store.read("drop-repos").source == read_skill(target / "drop-repos").source
    with pytest.raises(SkillError, match="no file"):
        bob("import", "nowhere", "--yes")


def test_the_code_of_another_agents_scripts_is_shown(bob: Person, tmp_path: Path) -> None:
    place = tmp_path / "house-style"
    (place / "scripts").mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: house-style\ndescription: d\n---\n\nShort \x1b[31mtitles.\n")
    (place / "scripts/run.py").write_text("import pickle\n\ndef shorten(t):\n    return pickle.loads(t)\n")
    shown = bob("import", str(place), "--yes").stderr
    for words in ("Short \\x1b[31mtitles.", "return pickle.loads(t)", "Risk: medium: ", "`pickle` loads objects"):
        assert words in shown


def test_a_graph_is_synced(alice: Person, tmp_path: Path) -> None:
    assert alice("sync").stdout == "created: drop-repos\n"
    page = tmp_path / "notes/pages/Skills___drop_repos.md"
    page.write_text(page.read_text().replace("description:: Delete repositories.", "description:: Drop them."))
    assert json.loads(alice("sync", "--json").stdout)["pulled"] == ["drop-repos"]
    assert alice.store.read("drop-repos").description == "Drop them."
    with pytest.raises(ConfigError, match="--prefer cannot be"):
        alice("sync", "--prefer", "mine")
    other = tmp_path / "other"
    assert alice("sync", "--graph", str(other)).exit_code == 0
    assert (other / "pages/Skills___drop_repos.md").is_file()


def test_the_commands_of_the_page_work(alice: Person, bob: Person, tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/sharing-skills.md").read_text(encoding="utf-8")
    alice.store.save(Skill(name="open-issues", description="d", source="def open_issues(): ...\n"))
    theirs = tmp_path / ".claude/skills/pdf-forms"
    theirs.mkdir(parents=True)
    (theirs / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: Fill forms.\n---\n\nRead them.\n")
    for block in re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            program, *words = shlex.split(line.replace("~", str(tmp_path)))
            if program == "git":
                subprocess.run([program, *words], check=True, capture_output=True)
                continue
            assert (program, words.pop(0)) == ("toolfold", "skills")
            person = alice if words[0] in {"publish", "export", "key"} else bob
            answer = ("--yes",) if words[0] == "install" and len(words) > 3 else ()
            assert person(*words, *answer).exit_code == 0, line
    assert {"open-issues", "pdf-forms"} <= bob.store.records().keys()
    assert (tmp_path / ".claude/skills/open-issues/skill.py").is_file()
