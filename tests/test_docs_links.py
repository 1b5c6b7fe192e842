"""Links in the docs lead somewhere, and every page is in the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^ *(`{3,4})\w*[^\n]*\n.*?^ *\1", re.MULTILINE | re.DOTALL)
BENCHMARKS = re.findall(
    r"^def ([a-z]+)\(", (ROOT / "benchmarks" / "__main__.py").read_text(encoding="utf-8"), re.MULTILINE
)
_LINK = re.compile(r"""(?:\]\(|(?:src|srcset|href)=")([^)\s"]+)[)"]""")


@cache
def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may name, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_heading_that_exist(page: Path) -> None:
    wrong: list[str] = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"https?:|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


def test_no_page_was_left_in_the_middle_of_a_merge() -> None:
    assert [
        page.name for page in PAGES if re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    ] == []


def test_every_page_is_in_the_index() -> None:
    linked = set(_LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked, "add it to docs/README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_script_and_benchmark_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = _FENCE.sub("", text)
    source = ROOT / "src" / "toolfold"
    files = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.py|(?:tests|benchmarks|examples)/[\w./-]+)`", prose)
    missing = [name for name in files if not any((at / name).exists() for at in (ROOT, source, source / "sandbox"))]
    missing += [name for name in re.findall(r"\bscripts/[\w-]+", text) if not (ROOT / name).is_file()]
    benches = re.findall(r"scripts/bench ([a-z]+)", text)
    missing += [f"scripts/bench {name}" for name in benches if name not in BENCHMARKS]
    assert not missing
