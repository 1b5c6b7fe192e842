"""The rooms' order: imports point down only, and the guest knows nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "toolfold"
# The order of DESIGN's rooms, the lowest first: a room imports only from rooms before it in this list.
LAYERS = [
    {"definitions", "errors", "locks"},
    {"config"},
    {"schema"},
    {"codegen", "privacy", "telemetry", "upstream"},
    {"catalog"},
    {"review"},
    {"guards", "sandbox"},
    {"skills"},
    {"session"},
    {"fold"},
    {"gateway", "demo", "integrations"},
    {"cli"},
]
GUEST = "toolfold.sandbox.guest."
"""Knows only the standard library, so every room may use what it shares with the host."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FILES = [path for path in ROOT.rglob("*.py") if "guest" not in path.parts and path.parent != ROOT] + [
    ROOT / f"{name}.py" for name in ("definitions", "errors", "fold", "locks")
]


def imported(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "toolfold" or len(parts) == 1 or parts[1] == room or name.startswith(GUEST):
            continue
        assert LEVEL[parts[1]] <= LEVEL[room], f"{path.name} in {room} imports {name}"


def test_every_room_has_a_layer() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(LEVEL)


def test_the_guest_imports_only_the_standard_library() -> None:
    guest = ROOT / "sandbox" / "guest"
    for path in guest.rglob("*.py"):
        for name in imported(path):
            assert name.split(".")[0] in sys.stdlib_module_names | {"toolfold_guest", "__future__"}, path


def test_the_architecture_page_draws_these_packages_in_this_order() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = page.partition("```\ncli →")[2].partition("```")[0].replace("\n", " ")
    order = [{name.strip().removesuffix(".py") for name in step.split(",")} for step in f"cli →{drawn}".split("→")]
    assert order == [set(step) for step in reversed(LAYERS)]
    rows = {line.split("`")[1].strip("/").removesuffix(".py") for line in page.splitlines() if line.startswith("| `")}
    assert rows == set().union(*LAYERS) - LAYERS[0]


def test_no_file_is_too_long_and_no_private_name_crosses_packages() -> None:
    for path in [*ROOT.rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 450, path
        room = path.relative_to(ROOT).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and module[:1] == ["toolfold"] and module[1:2] != [room]:
                assert not [
                    alias.name for alias in node.names if alias.name.startswith("_") and alias.name != "__version__"
                ], path
