"""The page about how it works, and its picture, are held to the code."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "toolfold"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
GUARDS = re.findall(r"^\| \d+ \| ([\w ]+) \|", SECURITY, re.MULTILINE)
"""In the order that tests/test_docs_security.py compares with the code."""


def test_every_package_is_in_the_table() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))


def test_every_file_on_the_way_of_a_call_exists() -> None:
    files = re.findall(r"^ *([\w/]+(?:\.py|/)) {2,}", PAGE, re.MULTILINE)
    assert len(files) >= 17
    missing = [file for file in files if not (SOURCE / file).exists() and not (SOURCE / "sandbox" / file).exists()]
    assert not missing


def test_the_chain_is_the_same_on_every_page_and_in_the_picture() -> None:
    assert len(GUARDS) == 11
    assert " → ".join(GUARDS) in PAGE
    picture = ET.parse(ROOT / "docs" / "pictures" / "how-it-works.svg")
    text = " ".join("".join(node.itertext()) for node in picture.iter("{http://www.w3.org/2000/svg}text"))
    places = [text.index(guard, text.index("guards")) for guard in GUARDS]
    assert places == sorted(places)
