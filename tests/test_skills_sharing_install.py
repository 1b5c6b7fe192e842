"""Installing skills: ours and those that were written for other agents, with what they need."""

from __future__ import annotations

import io
import os
import types
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.errors import PackageRefused, SkillError
from toolfold.skills.adopt import adopted, outgoing
from toolfold.skills.folder import Skill, read_skill, write_skill
from toolfold.skills.index import record_of
from toolfold.skills.install import install, missing_tools, offer_at, offers_in, unmet
from toolfold.skills.keys import Pins, SigningKey
from toolfold.skills.library import FolderLibrary, publish
from toolfold.skills.package import pack
from toolfold.skills.store import SkillStore

BY_HAND = """---
name: pdf-forms
description: Fill PDF forms. Use this when: a form has to be filled.
license: Apache-2.0
allowed-tools: Read Bash(qpdf:*)
metadata:
  author: example-org
  version: "1.0"
---

# PDF forms

See [the reference](references/FORMS.md).
"""


def folder(place: Path, files: dict[str, str | bytes]) -> Path:
    for path, content in files.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def imported(skill: Skill) -> Any:
    module = types.ModuleType(skill.module)
    exec(skill.source, vars(module))
    return module


@pytest.fixture
def store(tmp_path: Path) -> SkillStore:
    return SkillStore(tmp_path / "skills")


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return Pins(tmp_path / "sharing")


# Skills of other agents


def test_instructions_alone_can_be_read_by_a_program(tmp_path: Path, store: SkillStore, pins: Pins) -> None:
    files: dict[str, str | bytes] = {
        "SKILL.md": BY_HAND,
        "references/FORMS.md": 'Fields: """x"""\n',
        "a.png": b"\x89\xff",
    }
    place = folder(tmp_path / "pdf-forms", files)
    saved = install(offer_at(place), store, pins)
    module = imported(saved.skill)
    assert module.pdf_forms() == "# PDF forms\n\nSee [the reference](references/FORMS.md)."
    assert module.pdf_forms("references/FORMS.md") == 'Fields: """x"""\n'
    with pytest.raises(ValueError, match="is not a text"):
        module.pdf_forms("a.png")
    with pytest.raises(ValueError, match=r"Choose from SKILL\.md, references/FORMS\.md"):
        module.pdf_forms("../etc/passwd")
    record = store.find("pdf-forms")
    assert record is not None
    assert record.function is not None
    assert record.function.signature == "pdf_forms(path: str='SKILL.md') -> str"
    assert "Use this when" in record.description
    assert saved.skill.files["a.png"] == b"\x89\xff"


def test_a_linked_clone_of_a_repository_is_read_without_its_git_folder(tmp_path: Path) -> None:
    place = folder(tmp_path / "there/pdf-forms", {"SKILL.md": BY_HAND, ".git/config": "x", "__pycache__/a.pyc": b"x"})
    (tmp_path / "here").symlink_to(place)
    assert not offer_at(tmp_path / "here").skill.files


def test_functions_of_scripts_can_be_imported(tmp_path: Path) -> None:
    place = folder(
        tmp_path / "pdf-forms",
        {
            "SKILL.md": BY_HAND,
            "scripts/fields.py": (
                "from __future__ import annotations\nimport re\n\n"
                "def fields(text: str) -> list[str]:\n    return re.findall(r'\\w+', text)\n\n"
                "if __name__ == '__main__':\n    print(fields('x'))\n"
            ),
            "scripts/count.py": "LIMIT = 3\ndef count(n: int) -> int:\n    return min(n, LIMIT)\n",
            "scripts/runs.py": "import sys\nprint('side effect')\ndef late(): ...\n",
            "scripts/clash.py": "def count(): return 'another'\n",
            "scripts/uses_sibling.py": "from fields import fields\ndef both(): ...\n",
            "scripts/broken.py": "def (",
            "scripts/run.sh": "echo hi",
        },
    )
    skill = offer_at(place).skill
    module = imported(skill)
    assert module.fields("a b") == ["a", "b"]
    assert not hasattr(module, "late")
    assert not hasattr(module, "both")
    assert module.count() == "another"  # of two that share a name the first, in the order of their paths
    assert "Functions beside this one: count, fields" in module.pdf_forms.__doc__
    assert module.pdf_forms("scripts/run.sh") == "echo hi"


def test_a_script_with_the_function_of_the_skill_is_the_skill(tmp_path: Path) -> None:
    script = "def pdf_forms(name: str) -> str:\n    '''Fill it.'''\n    return f'filled {name}'\n"
    place = folder(tmp_path / "pdf-forms", {"SKILL.md": BY_HAND, "scripts/fill.py": script})
    assert imported(offer_at(place).skill).pdf_forms("x") == "filled x"


def test_what_was_made_here_does_not_go_back_out(tmp_path: Path) -> None:
    place = folder(tmp_path / "in/pdf-forms", {"SKILL.md": BY_HAND, "references/FORMS.md": "f"})
    skill = replace(read_skill(place), provenance={"created": "2026-01-01", "session": "secret plans"})
    out = tmp_path / "out/pdf-forms"
    write_skill(outgoing(adopted(skill)), out)
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["FORMS.md", "SKILL.md"]
    assert read_skill(out) == replace(skill, provenance={"created": "2026-01-01"})
    assert "license: Apache-2.0" in (out / "SKILL.md").read_text()


def test_texts_without_room_are_named(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {f"references/{n}.md": "x" * 30_000 for n in range(9)}
    skill = offer_at(folder(tmp_path / "pdf-forms", {"SKILL.md": BY_HAND, **texts})).skill
    assert len(skill.source) < 100_000
    with pytest.raises(ValueError, match="too long"):
        imported(skill).pdf_forms("references/8.md")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"SKILL.md": "# no front matter"}, "front matter"),
        ({"SKILL.md": BY_HAND.replace("pdf-forms", "other")}, "must be that of the folder"),
        ({"SKILL.md": BY_HAND.replace("pdf-forms", "../up")}, "must be that of the folder"),
        ({"SKILL.md": BY_HAND, "skill.py": "def pdf_forms("}, "SyntaxError"),
        ({"SKILL.md": BY_HAND, "skill.py": "def another(): ..."}, "must define the function 'pdf_forms'"),
        ({"SKILL.md": BY_HAND, "big.bin": bytes(5_000_000)}, "larger"),
        ({"README.md": "x"}, "no SKILL.md"),
    ],
)
def test_folders_that_are_no_skills_are_refused(tmp_path: Path, files: dict[str, str | bytes], words: str) -> None:
    with pytest.raises(SkillError, match=words):
        offer_at(folder(tmp_path / "pdf-forms", files))


def test_links_and_devices_in_a_folder_are_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "pdf-forms", {"SKILL.md": BY_HAND})
    (place / "link").symlink_to("/etc/passwd")
    with pytest.raises(SkillError, match="links are not followed"):
        offer_at(place)
    (place / "link").unlink()
    os.mkfifo(place / "pipe")
    with pytest.raises(SkillError, match="not a regular file"):
        offer_at(place)


@pytest.mark.parametrize("name", ["json", "servers", "print", "3d-plot", "class"])
def test_names_that_would_hide_something_are_refused(tmp_path: Path, name: str) -> None:
    text = BY_HAND.replace("pdf-forms", name)
    with pytest.raises(SkillError):
        offer_at(folder(tmp_path / name, {"SKILL.md": text}))


def test_an_archive_of_another_agents_skill_is_read(tmp_path: Path) -> None:
    for prefix in ("", "pdf-forms/", "repo-main/skills/pdf-forms/"):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(f"{prefix}SKILL.md", BY_HAND)
            file.writestr(f"{prefix}references/FORMS.md", "f")
        (tmp_path / "a.skill").write_bytes(written.getvalue())
        offer = offer_at(tmp_path / "a.skill")
        assert offer.package is None
        assert offer.skill.files == {"references/FORMS.md": b"f"}
    with pytest.raises(SkillError, match="no file"):
        offer_at(tmp_path / "nothing.zip")


# What a skill needs


def test_missing_servers_and_tools_are_named() -> None:
    names = ApiNames.of([ToolDefinition(server="git-hub", name="list_issues", input_schema={})])
    tools = ("git_hub.list_issues", "git_hub.gone", "slack.post", "new.x", "jira.*")
    assert missing_tools(tools, names, {"git-hub": 1, "new": 1}) == [
        "the tool git_hub.gone",
        "the server slack",
        "the server jira",
    ]


def test_a_skill_brings_the_skills_that_it_needs(tmp_path: Path, store: SkillStore, pins: Pins) -> None:
    place = tmp_path / "library"
    place.mkdir()
    library, key = FolderLibrary(place), SigningKey.of(tmp_path / "alice")

    def put(name: str, imports: str = "", requires: str = "", version: int = 1) -> None:
        source = f"{f'from skills import {imports}' if imports else ''}\ndef {name}(): return {version}\n"
        fields = {"metadata": {"requires": requires}} if requires else {}
        skill = Skill(name=name, description="d", source=source, fields=fields, version=version)
        publish(library, pack(skill, key, "0.1.0"), key)

    put("leaf")
    put("leaf", version=2)
    put("leaf", version=3)
    put("middle", imports="leaf", requires="leaf>=2 <3")
    put("top", imports="middle", requires="toolfold>=99")
    put("lonely", imports="elsewhere")
    offers = offers_in(library, "top", "", store, pins)
    assert [(offer.skill.name, offer.skill.version) for offer in offers] == [("leaf", 2), ("middle", 1), ("top", 1)]
    assert unmet(offers[2], "0.1.0", store, pins, {"middle": "1"}) == ["toolfold >=99 (here is 0.1.0)"]
    [lonely] = offers_in(library, "lonely", "", store, pins)
    assert unmet(lonely, "0.1.0", store, pins, {}) == ["the skill elsewhere"]
    for offer in offers:
        install(offer, store, pins)
    assert [offer.skill.name for offer in offers_in(library, "top", "", store, pins)] == ["top"]
    assert store.read("leaf").provenance["publisher"] == key.public


def test_a_library_that_was_set_back_is_noticed(tmp_path: Path, store: SkillStore, pins: Pins) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    key = SigningKey.of(tmp_path / "alice")
    for place, versions in ((new, (1, 2)), (old, (1,))):
        place.mkdir()
        for version in versions:
            skill = Skill(name="leaf", description="d", source=f"def leaf(): return {version}\n", version=version)
            publish(FolderLibrary(place), pack(skill, key, "0.1.0"), key)
    [offer] = offers_in(FolderLibrary(new), "leaf", "", store, pins)
    install(offer, store, pins)
    with pytest.raises(SkillError, match="set back"):
        offers_in(FolderLibrary(old), "leaf", "", store, pins)
    [older] = offers_in(FolderLibrary(old), "leaf", "1", store, pins)
    assert "-def leaf(): return 2\n+def leaf(): return 1" in older.difference(store.read("leaf"))


def test_another_publisher_cannot_take_a_name_over(tmp_path: Path, store: SkillStore, pins: Pins) -> None:
    skill = Skill(name="leaf", description="d", source="def leaf(): return 1\n")
    for who in ("alice", "mallory"):
        (tmp_path / f"{who}.zip").write_bytes(pack(skill, SigningKey.of(tmp_path / who), "0.1.0").data)
    install(offer_at(tmp_path / "alice.zip"), store, pins)
    with pytest.raises(PackageRefused, match="first installed from the publisher"):
        install(offer_at(tmp_path / "mallory.zip"), store, pins)
    assert record_of(store.read("leaf")).version == 1
