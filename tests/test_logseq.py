"""Skills in a Logseq graph: its file format, both directions, and nothing of a person's is ever overwritten."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.errors import SkillError
from toolfold.skills.folder import Skill
from toolfold.skills.logseq import LogseqSkillsIntegration, Prefer, SyncReport
from toolfold.skills.logseq_page import MOVED, PageText, tags_in
from toolfold.skills.manager import SkillsManager
from toolfold.skills.store import SkillStore

SKILL = Skill(
    name="open-issues",
    description="Titles of open issues.",
    source=(
        "from servers.github import list_issues\n\n"
        "async def open_issues(repo: str) -> list[str]:\n"
        '    """Titles."""\n'
        "    return [issue['title'] for issue in await list_issues(repo=repo)]\n"
    ),
    tags=("github", "weekly report"),
    provenance={"created": "2026-11-16T12:00:00+00:00"},
)


class Graph:
    """A graph and a folder of skills, each sync by a new integration as another process would have it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "graph"
        self.store = SkillStore(folder / "skills")
        self.store.save(SKILL)
        self.file = self.folder / "pages/Skills___open_issues.md"

    def sync(self, prefer: Prefer = "") -> SyncReport:
        return LogseqSkillsIntegration(self.folder, self.store.root, prefer=prefer).sync()

    @property
    def text(self) -> str:
        return self.file.read_bytes().decode()

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.file.write_bytes(self.text.replace(old, new, 1).encode())

    @property
    def skill(self) -> Skill:
        return self.store.read("open-issues")

    def change(self, **values: object) -> None:
        self.store.save(dataclasses.replace(self.skill, **values))  # pyright: ignore[reportArgumentType]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_page_is_as_logseq_writes_it(graph: Graph) -> None:
    report = graph.sync()
    assert report == SyncReport(created=["open-issues"])
    assert re.sub(r"(toolfold[a-z-]*::) .*", r"\1 …", graph.text) == (
        "type:: skill\n"
        "skill:: open_issues\n"
        "description:: Titles of open issues.\n"
        "tags:: github, weekly report\n"
        "version:: 1\n"
        "toolfold-synced:: …\n"
        "\n"
        "- ## Managed by Toolfold\n"
        "  toolfold:: …\n"
        "\t- **Usage**\n"
        "\t  ```python\n"
        "\t  from skills import open_issues\n"
        "\t  await open_issues(repo: str) -> list[str]\n"
        "\t  ```\n"
        "\t- **Tools**\n"
        "\t\t- `github.list_issues`\n"
        "\t- **Related skills**\n"
        '\t\t- {{query (and (page-property type "skill") (or (page-tags [[github]]) (page-tags [[weekly report]]))'
        ' (not (page-property skill "open_issues")))}}\n'
        "\t- **Usage history**\n"
        "\t\t- 2026-11-16: created\n"
    )
    assert (graph.folder / "journals/2026_11_16.md").read_text() == "- Created the skill [[Skills/open_issues]]\n"


def test_syncing_again_changes_no_byte_and_writes_no_file(graph: Graph) -> None:
    graph.sync()
    before = snapshot(graph.folder), snapshot(graph.store.root / "open-issues")
    assert graph.sync() == SyncReport(unchanged=["open-issues"])
    assert (snapshot(graph.folder), snapshot(graph.store.root / "open-issues")) == before


def test_uses_appear_in_the_history_and_a_promotion_in_the_journal(graph: Graph) -> None:
    graph.sync()
    graph.store.used({"open-issues"}, ok=True)
    graph.store.used({"open-issues"}, ok=False)
    assert graph.sync().updated == ["open-issues"]
    assert "\t\t- used 2 times, 50% of the runs succeeded, last on 20" in graph.text
    (graph.folder / "journals/2026_11_17.md").write_text("- mine\n-")
    graph.change(provenance={"created": "2026-11-17T12:00:00+00:00", "promoted-from": "8d51"}, body="promoted")
    graph.sync()
    graph.change(provenance={"created": "2026-11-18T12:00:00+00:00"}, body="changed since")
    for _ in range(2):
        graph.sync()
    assert "\t\t- 2026-11-16: created\n\t\t- 2026-11-17: promoted from run 8d51\n" in graph.text
    journal = (graph.folder / "journals/2026_11_17.md").read_text()
    assert journal == "- mine\n-\n- Promoted the skill [[Skills/open_issues]] from run 8d51\n"
    assert len(list((graph.folder / "journals").iterdir())) == 2


def test_edits_of_description_and_tags_come_back(graph: Graph) -> None:
    graph.sync()
    graph.edit("description:: Titles of open issues.", "description:: All titles.")
    graph.edit("tags:: github, weekly report", "tags:: [[github]], #new, #[[two words]]")
    assert graph.sync().pulled == ["open-issues"]
    assert (graph.skill.description, graph.skill.tags) == ("All titles.", ("github", "new", "two words"))
    assert graph.skill.source == SKILL.source
    assert "tags:: [[github]], #new, #[[two words]]\nversion:: 2\n" in graph.text  # as the person wrote it
    before = snapshot(graph.folder)
    assert graph.sync() == SyncReport(unchanged=["open-issues"])
    assert snapshot(graph.folder) == before
    graph.edit("tags:: [[github]], #new, #[[two words]]\n", "")
    assert graph.sync().pulled == ["open-issues"]
    assert graph.skill.tags == ()


def test_changes_of_the_skill_go_to_the_page(graph: Graph) -> None:
    graph.sync()
    graph.change(description="Better.", tags=("x",))
    assert graph.sync().updated == ["open-issues"]
    assert "description:: Better.\ntags:: x\nversion:: 2\n" in graph.text
    graph.change(tags=())
    graph.sync()
    assert "tags::" not in graph.text


def test_a_change_on_both_sides_is_told_and_left_alone(graph: Graph) -> None:
    graph.sync()
    graph.edit("Titles of open issues.", "Mine.")
    graph.change(description="Theirs.", tags=("x",))
    for _ in range(2):
        report = graph.sync()
        assert len(report.conflicts) == 1
        assert "'Mine.' in the page, 'Theirs.' in the skill" in report.conflicts[0]
        assert "description:: Mine.\ntags:: x\n" in graph.text
        assert graph.skill.description == "Theirs."
    graph.sync("page")
    assert graph.skill.description == "Mine."
    graph.edit("description:: Mine.", "description:: One.")
    graph.change(description="Two.")
    graph.sync("skill")
    assert "description:: Two." in graph.text
    assert graph.sync() == SyncReport(unchanged=["open-issues"])


def test_an_edit_that_no_skill_can_have_is_told(graph: Graph) -> None:
    graph.sync()
    graph.edit("Titles of open issues.", "x" * 2000)
    report = graph.sync()
    assert "at most 1,024" in report.problems[0]
    assert graph.skill.description == SKILL.description
    graph.edit("x" * 2000, "")
    graph.sync()
    assert "description:: Titles of open issues." in graph.text


def test_a_page_that_a_person_made_before_is_kept(graph: Graph) -> None:
    graph.folder.mkdir()
    graph.file.parent.mkdir()
    graph.file.write_text("alias:: issues\ndescription:: My own words\n\n- a note\n\t- below it", newline="")
    report = graph.sync()
    assert "'My own words' in the page" in report.conflicts[0]
    assert graph.text.startswith("alias:: issues\ndescription:: My own words\ntype:: skill\n")
    assert "\n\n- a note\n\t- below it\n- ## Managed by Toolfold\n" in graph.text
    assert graph.sync("page").pulled == ["open-issues"]
    assert graph.skill.description == "My own words"


def test_a_page_about_something_else_is_left_alone(graph: Graph) -> None:
    graph.folder.mkdir()
    graph.file.parent.mkdir()
    graph.file.write_text("type:: book\n\n- a note\n")
    report = graph.sync()
    assert "about something else" in report.conflicts[0]
    assert graph.text == "type:: book\n\n- a note\n"
    graph.sync("skill")
    assert graph.text.startswith("type:: book\nskill:: open_issues\n")
    assert graph.sync() == SyncReport(unchanged=["open-issues"])


def test_what_logseq_adds_and_reindents_is_no_change(graph: Graph) -> None:
    graph.sync()
    graph.edit("- ## Managed by Toolfold\n", "- ## Managed by Toolfold\n  id:: 1111\n  collapsed:: true\n")
    graph.edit("\t- **Related skills**\n", "\t- **Related skills**\n\t  id:: 2222\n")
    graph.file.write_text(graph.text.replace("\t", "  "))
    before = snapshot(graph.folder)
    assert graph.sync() == SyncReport(unchanged=["open-issues"])
    assert snapshot(graph.folder) == before
    graph.store.used({"open-issues"}, ok=True)
    assert not graph.sync().problems
    assert "- ## Managed by Toolfold\n  id:: 1111\n  collapsed:: true\n  toolfold:: " in graph.text
    assert "\t- **Related skills**\n\t  id:: 2222\n\t\t- {{query" in graph.text


def test_lines_inside_the_managed_block_are_moved_out_of_it(graph: Graph) -> None:
    graph.sync()
    graph.edit("\t- **Related skills**\n", "\t- **Related skills**\n\t\t- my thought\n\t\t  id:: 3333\n")
    graph.edit("\t\t- 2026-11-16: created\n", "")
    report = graph.sync()
    assert "moved below" in report.problems[0]
    assert graph.text.endswith(f"\t\t- 2026-11-16: created\n{MOVED}\n\t\t- my thought\n\t\t  id:: 3333\n")
    assert graph.sync() == SyncReport(unchanged=["open-issues"])


def test_windows_line_ends_and_a_byte_order_mark_stay(graph: Graph) -> None:
    graph.sync()
    graph.file.write_bytes(b"\xef\xbb\xbf" + graph.file.read_bytes().replace(b"\n", b"\r\n"))
    graph.change(description="Better.")
    graph.sync()
    whole = graph.file.read_bytes()
    assert whole.startswith(b"\xef\xbb\xbftype:: skill\r\n")
    assert whole.count(b"\n") == whole.count(b"\r\n")
    assert b"description:: Better.\r\n" in whole


def test_properties_in_a_first_bullet_are_properties(graph: Graph) -> None:
    graph.sync()
    top, rest = graph.text.split("\n\n", 1)
    graph.file.write_text("- " + top.replace("\n", "\n  ") + "\n" + rest)
    graph.edit("Titles of open issues.", "Other.")
    graph.sync()
    assert graph.skill.description == "Other."
    assert graph.text.startswith("- type:: skill\n  skill:: open_issues\n  description:: Other.\n")


LINES = st.one_of(
    st.sampled_from(["", "   ", "- note", "\t- child", "  continued", "```", "## Heading", "tags:: x", "key:: value"]),
    st.sampled_from(["- TODO x\r", "\t\t- {{query x}}", "-", "toolfold-synced:: 1 2", "\t- **Usage**", "<!-- x -->"]),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"), max_size=20),
)


@given(before=st.lists(LINES, max_size=6), after=st.lists(LINES, max_size=6), words=st.text("ab :\t", max_size=6))
@settings(max_examples=12, deadline=None)
def test_no_line_of_a_person_is_lost(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], words: str
) -> None:
    graph = Graph(tmp_path_factory.mktemp("graph"))
    graph.sync()
    top, block = graph.text.split("\n\n", 1)
    above, below = "\n".join(before), "\n".join(after)
    graph.file.write_bytes(f"{top}\n\n{above}\n{block}{below}".encode())
    graph.store.used({"open-issues"}, ok=True)
    graph.change(body=words + "x")
    graph.sync()
    synced = graph.text
    assert synced.startswith("type:: skill\nskill:: open_issues\n")
    assert f"\n\n{above}\n" in synced
    if not re.match(r"\s*\n?[ \t]", below):
        assert synced.endswith((below, below + "\n"))
    there = Counter(line.strip() for line in synced.split("\n"))
    assert not Counter(line.strip() for line in before + after if line.strip()) - there
    files = snapshot(graph.folder)
    assert not graph.sync().updated
    assert snapshot(graph.folder) == files


@given(before=st.lists(LINES, max_size=6), after=st.lists(LINES, max_size=6), inside=st.lists(LINES, max_size=3))
@settings(max_examples=200, deadline=None)
def test_no_line_of_a_person_is_lost_from_any_page(before: list[str], after: list[str], inside: list[str]) -> None:
    page, _ = PageText.of("\n".join(before)).with_properties({"type": "skill"}).with_managed(["\t- x", "\t- y"])
    within = [f"\t\t- {line.strip()}" for line in inside if line.strip()]
    lines = str(page).split("\n")
    end = next(number for number, line in enumerate(lines) if line.startswith("\t- y")) + 1
    written = "\n".join([*lines[:end], *within, *after])
    once, moved = PageText.of(written).with_properties({"type": "skill"}).with_managed(["\t- x", "\t- z"])
    assert moved or not within
    theirs = Counter(line.strip() for line in [*before, *within, *after] if line.strip())
    there = Counter(line.strip() for line in str(once).split("\n"))
    assert not theirs - there
    again, moved = PageText.of(str(once)).with_properties({"type": "skill"}).with_managed(["\t- x", "\t- z"])
    assert str(again) == str(once)
    assert not moved


@given(st.lists(LINES, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_text_gets_properties_and_a_block_and_keeps_itself(lines: list[str]) -> None:
    text = "\n".join(lines)
    page, _ = PageText.of(text).with_properties({"type": "skill"}).with_managed(["\t- x"])
    assert page.properties["type"] == "skill"
    assert page.managed_lines == ("- ## Managed by Toolfold", "- x")
    again, moved = PageText.of(str(page)).with_properties({"type": "skill"}).with_managed(["\t- x"])
    assert str(again) == str(page)
    assert not moved
    rest = Counter(str(page).split("\n"))
    assert not Counter(line for line in lines if line.strip()) - rest


def test_tags_are_read_as_people_write_them() -> None:
    assert tags_in(" a, #b,, [[c d]], #[[e, f]] ,a") == ("a", "b", "c d", "e, f")
    assert tags_in("") == ()


# Bad input


def test_links_lead_nowhere(graph: Graph, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    graph.folder.mkdir()
    (graph.folder / "pages").symlink_to(outside)
    assert "links are not followed" in graph.sync().problems[0]
    (graph.folder / "pages").unlink()
    (graph.folder / "pages").mkdir()
    (outside / "secret.md").write_text("secret")
    graph.file.symlink_to(outside / "secret.md")
    assert "links are not followed" in graph.sync().problems[0]
    assert [path.name for path in outside.iterdir()] == ["secret.md"]
    assert (outside / "secret.md").read_text() == "secret"
    graph.file.unlink()
    (graph.folder / "journals").rename(tmp_path / "journals") if (graph.folder / "journals").exists() else None
    (graph.folder / "journals").symlink_to(outside)
    assert graph.sync().problems
    assert len(list(outside.iterdir())) == 1


def test_files_that_are_no_pages_are_left_alone(graph: Graph) -> None:
    graph.folder.mkdir()
    graph.file.parent.mkdir()
    graph.file.write_bytes(b"- \xff\xfe")
    assert "not UTF-8" in graph.sync().problems[0]
    graph.file.write_bytes(b"x" * 6_000_000)
    assert "larger" in graph.sync().problems[0]
    graph.file.unlink()
    os.mkfifo(graph.file)
    assert "not a regular file" in graph.sync().problems[0]
    with pytest.raises(SkillError, match="no Logseq graph"):
        LogseqSkillsIntegration(graph.folder / "a/b", graph.store)


def test_the_graph_says_where_its_files_are(graph: Graph) -> None:
    (graph.folder / "logseq").mkdir(parents=True)
    (graph.folder / "logseq/config.edn").write_text(
        '{:meta/version 1\n ;; :pages-directory "commented"\n :pages-directory "notes"\n'
        ' :journals-directory "diary"\n :journal/file-name-format "yyyy-MM-dd"}\n'
    )
    graph.sync()
    assert (graph.folder / "notes/Skills___open_issues.md").is_file()
    assert (graph.folder / "diary/2026-11-16.md").is_file()
    (graph.folder / "logseq/config.edn").write_text('{:pages-directory "../../x" :file/name-format :legacy}')
    graph.sync()
    assert (graph.folder / "pages/Skills%2Fopen_issues.md").is_file()


def test_the_name_in_python_takes_a_manager_of_skills(tmp_path: Path) -> None:
    import toolfold

    manager = SkillsManager(tmp_path / "skills")
    manager.save_skill("double", "def double(x: int) -> int:\n    return 2 * x\n", "Twice.", ["maths"])
    integration = toolfold.LogseqSkillsIntegration(str(tmp_path / "graph"), manager)
    assert integration.sync_skill("double").created == ["double"]
    assert "tags:: maths\n" in integration.page_of("double").read_text()
    with pytest.raises(SkillError, match="no such folder"):
        integration.sync_skill("nothing")
    with pytest.raises(SkillError, match="invalid skill name"):
        integration.sync_skill("../up")


def test_one_broken_skill_does_not_hold_up_the_others(graph: Graph) -> None:
    (graph.store.root / "broken").mkdir()
    (graph.store.root / "broken/SKILL.md").write_text("no front matter")
    report = graph.sync()
    assert report.created == ["open-issues"]
    assert report.problems[0].startswith("broken: ")
