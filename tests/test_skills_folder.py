"""A skill's folder: the Agent Skills layout, read strictly, written all or nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from toolfold.errors import SkillError
from toolfold.skills.folder import MAX_TEXT, Skill, read_skill, write_skill
from toolfold.skills.names import check_module_name, folder_name

SKILL = Skill(
    name="sales-report",
    description="Sum the sales of a month: totals by region.",
    source="def sales_report(month: str) -> dict:\n    return {}\n",
    body="# Sales report\n\nCall it.",
    tags=("sales", "reports"),
    version=3,
    provenance={"author": "local", "created": "2026-01-02"},
    fields={"license": "MIT", "compatibility": "Needs coffee", "metadata": {"owner": "ops"}},
    files={"references/regions.md": b"north, south\n", "assets/logo.png": b"\x89PNG\x00"},
)


def folder(tmp_path: Path, front: str, name: str = "pdf-forms", source: str | None = None) -> Path:
    path = tmp_path / name
    path.mkdir()
    (path / "SKILL.md").write_text(front, encoding="utf-8")
    if source is not None:
        (path / "skill.py").write_text(source, encoding="utf-8")
    return path


def test_a_skill_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_skill(SKILL, tmp_path / "sales-report")
    assert read_skill(tmp_path / "sales-report") == SKILL
    assert [path.name for path in tmp_path.iterdir()] == ["sales-report"]


def test_writing_again_replaces_the_whole_folder(tmp_path: Path) -> None:
    write_skill(SKILL, tmp_path / "sales-report")
    shorter = Skill(name="sales-report", description="Shorter.", source="def sales_report(): ...\n")
    write_skill(shorter, tmp_path / "sales-report")
    assert read_skill(tmp_path / "sales-report").files == {}
    assert [path.name for path in tmp_path.iterdir()] == ["sales-report"]


def test_the_digest_is_that_of_the_content_alone(tmp_path: Path) -> None:
    later = replace(SKILL, version=9, provenance={"author": "b"})
    assert later.digest == SKILL.digest
    assert replace(SKILL, tags=("sales",)).digest != SKILL.digest
    write_skill(SKILL, tmp_path / "sales-report")
    assert read_skill(tmp_path / "sales-report").digest == SKILL.digest


def test_skills_of_other_tools_are_read_and_their_fields_kept(tmp_path: Path) -> None:
    front = (
        "\ufeff---\r\nname: pdf-forms\r\ndescription: Fill PDF forms. Use when: a form is a PDF.\r\n"
        "license: Proprietary. LICENSE.txt has complete terms\r\nallowed-tools:\r\n  - Read\r\n  - Bash(git:*)\r\n"
        'metadata:\r\n  version: "1.10"\r\n  author: someone\r\ndisable-model-invocation: true\r\n---\r\n# Hello\r\n'
    )
    path = folder(tmp_path, front)
    (path / "scripts").mkdir()
    (path / "scripts" / "fill.py").write_text("print(1)\n")
    skill = read_skill(path)
    assert skill.description == "Fill PDF forms. Use when: a form is a PDF."
    assert (skill.source, skill.version, skill.body) == ("", 1, "# Hello")
    assert skill.fields["metadata"] == {"version": "1.10", "author": "someone"}
    assert skill.fields["allowed-tools"] == ["Read", "Bash(git:*)"]
    assert skill.fields["disable-model-invocation"] is True
    write_skill(skill, tmp_path / "copy" / "pdf-forms")
    assert read_skill(tmp_path / "copy" / "pdf-forms") == skill


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("# no front matter", "no front matter"),
        ("---\nname: pdf-forms\n", "no front matter"),
        ("---\nname: other\ndescription: x\n---\n", "must be that of the folder"),
        ("---\nname: pdf-forms\n---\n", "no description"),
        ("---\nname: pdf-forms\ndescription: " + "x" * 1025 + "\n---\n", "1,025 characters"),
        ("---\n- a\n- b\n---\n", "`key: value`"),
        ("---\nname: [\n---\n", "invalid YAML"),
        ("---\nname: &a x\nother: *a\n---\n", "aliases are not allowed"),
        ("---\nname: a\nname: b\n---\n", "twice"),
        ("---\nname: !!python/object/apply:os.system [x]\n---\n", "invalid YAML"),
        ("---\nx: " + "[" * 5000 + "\n---\n", "nested too deeply"),
        ("---\nx: " + "y" * 70_000 + "\n---\n", "longer than"),
    ],
)
def test_bad_front_matter_is_refused_with_the_reason(tmp_path: Path, front: str, message: str) -> None:
    with pytest.raises(SkillError, match=message):
        read_skill(folder(tmp_path, front))


def test_links_devices_and_wrong_encodings_are_refused(tmp_path: Path) -> None:
    good = "---\nname: pdf-forms\ndescription: x\n---\n"
    path = folder(tmp_path, good)
    (path / "link").symlink_to("/etc/passwd")
    with pytest.raises(SkillError, match="'link' is not a regular file"):
        read_skill(path)
    (path / "link").unlink()
    os.mkfifo(path / "pipe")
    with pytest.raises(SkillError, match="'pipe' is not a regular file"):
        read_skill(path)
    (path / "pipe").unlink()
    (path / "skill.py").write_bytes("é".encode("latin-1"))
    with pytest.raises(SkillError, match=r"skill.py is not UTF-8 \(at byte 0\)"):
        read_skill(path)
    (path / "skill.py").write_bytes(b"#" * (MAX_TEXT + 1))
    with pytest.raises(SkillError, match=r"'skill.py' is larger"):
        read_skill(path)
    (tmp_path / "linked-skill").symlink_to(path)
    with pytest.raises(SkillError, match="cannot read the skill 'linked-skill'"):
        read_skill(tmp_path / "linked-skill")
    with pytest.raises(SkillError, match="no such folder"):
        read_skill(tmp_path / "none")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a//b", "a/./b", "", "a\\b", "a\x00b", "x" * 600, "/".join("abcdefghijk")]
)
def test_paths_that_lead_out_are_refused(path: str) -> None:
    with pytest.raises(SkillError, match="invalid path"):
        Skill(name="x", description="x", files={path: b""})


@pytest.mark.parametrize(
    ("given", "name"),
    [("sales_report", "sales-report"), ("sales-report", "sales-report"), ("SalesReport", "sales-report"), ("a1", "a1")],
)
def test_both_spellings_of_a_name_are_one(given: str, name: str) -> None:
    assert folder_name(given) == name


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "x" * 65, "x" * 500, "x" * 5000, "", "_x", "a__b", "a-", "é", "a b", "a.b", "a\n"]
)
def test_names_with_tricks_are_refused(name: str) -> None:
    with pytest.raises(SkillError, match="name"):
        folder_name(name)


@pytest.mark.parametrize("module", ["json", "asyncio", "print", "class", "3d", "skills", "servers", "toolfold"])
def test_names_that_hide_modules_are_refused(module: str) -> None:
    with pytest.raises(SkillError, match="cannot be called"):
        check_module_name(module)
