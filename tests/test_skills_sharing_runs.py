"""Installed skills in real sandboxes: from a library of another person, and written by hand for other agents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold.skills.folder import Skill
from toolfold.skills.git_library import open_library
from toolfold.skills.install import install, offer_at, offers_in
from toolfold.skills.keys import Pins, SigningKey
from toolfold.skills.library import publish
from toolfold.skills.package import pack

pytestmark = pytest.mark.anyio

TOTAL = '''
from servers.lab import add

async def add_all(numbers: list[int]) -> int:
    """The sum of numbers, by a server."""
    total = 0
    for number in numbers:
        total = (await add(a=total, b=number))["sum"]
    return total
'''
BY_HAND = """---
name: house-style
description: How our reports are written, and a function that shortens titles.
---

# House style

Short titles.
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "library.git")], check=True)
    return tmp_path / "library.git"


async def test_skills_from_elsewhere_are_found_imported_and_read(place: Path, tmp_path: Path) -> None:
    key = SigningKey.of(tmp_path / "alice")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    skill = Skill(name="add-all", description="Add up numbers by a server.", source=TOTAL)
    publish(open_library(str(place), tmp_path, tmp_path / "cache-a", env), pack(skill, key, "0.1.0"), key)
    folder = tmp_path / "house-style"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(BY_HAND)
    (folder / "scripts/titles.py").write_text("def shorten(title: str) -> str:\n    return title[:5]\n")
    async with lab_fold(tmp_path / "data", logseq={"graph": tmp_path / "notes"}) as fold:
        store, pins = fold.skills.store("user"), Pins(tmp_path / "pins")
        library = open_library(str(place), tmp_path, tmp_path / "cache-b", env)
        for offer in [*offers_in(library, "add-all", "", store, pins), offer_at(folder)]:
            install(offer, store, pins)
        found = (await fold.search("shorten titles of reports in house style", detail="name_only", limit=3)).text
        assert "house_style" in found
        result = await fold.run(
            "from skills import add_all, house_style\n"
            "from skills.house_style import shorten\n"
            "print(await add_all([1, 2, 3]))\n"
            "print(house_style().splitlines()[-1], shorten('abcdefgh'))\n"
        )
        assert result.success, result.error
        assert result.output.splitlines() == ["6", "Short titles. abcde"]
        saved = await fold.run(
            "from toolfold import save_skill\n"
            "save_skill('def double(x: int) -> int:\\n    return 2 * x', 'double', 'Twice a number.', ['maths'])\n"
        )
        assert saved.success, saved.error
        page = (tmp_path / "notes/pages/Skills___double.md").read_text()
        assert "description:: Twice a number.\ntags:: maths\n" in page
