"""What a program leaves in its folders must not lead the host astray when the host collects outputs or cleans up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hostile.arena import Arena
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.output import OutputRecorder
from toolfold.session.removal import remove_tree


def _collect(sandbox: Sandbox) -> tuple[str, str | None]:
    """What a session does with a run that printed more than the budget."""
    output = OutputRecorder(lambda: sandbox.home.workspace, "run.txt", 1000, None)
    output.add(b"x" * 50_000)
    return output.finish()


@pytest.mark.parametrize(
    "laid",
    [
        pytest.param("os.symlink(TARGET, 'workspace/outputs')", id="a link in place of the folder"),
        pytest.param("os.mkfifo('workspace/outputs')", id="a pipe in place of the folder"),
        pytest.param("open('workspace/outputs', 'w').close()", id="a file in place of the folder"),
        pytest.param("os.mkdir('workspace/outputs'); os.chmod('workspace/outputs', 0)", id="a locked folder"),
        pytest.param(
            "os.mkdir('workspace/outputs'); os.symlink(TARGET + '/run.txt', 'workspace/outputs/run.txt')",
            id="a link in place of the file",
        ),
        pytest.param(
            "os.mkdir('workspace/outputs'); os.mkfifo('workspace/outputs/run.txt')", id="a pipe in place of the file"
        ),
    ],
)
def test_a_long_output_is_never_written_elsewhere(arena: Arena, tmp_path: Path, laid: str) -> None:
    collected: list[tuple[str, str | None]] = []
    program = f"import os\nTARGET = {str(tmp_path)!r}\n{laid}\n"
    outcome = arena.run(program, after=lambda sandbox: collected.append(_collect(sandbox)))
    assert outcome.error == ""
    text, _ = collected[0]
    assert "characters cut" in text
    assert list(tmp_path.iterdir()) == []


def test_that_link_would_have_been_followed(tmp_path: Path) -> None:
    """The proof: writing by path, as one would, does follow it."""
    (tmp_path / "target").mkdir()
    (tmp_path / "outputs").symlink_to(tmp_path / "target")
    (tmp_path / "outputs" / "run.txt").write_text("astray")
    assert (tmp_path / "target" / "run.txt").exists()


def test_a_long_output_can_be_read_and_deleted_by_the_next_program(arena: Arena) -> None:
    collected: list[tuple[str, str | None]] = []
    owners: list[set[int]] = []

    def after(sandbox: Sandbox) -> None:
        collected.append(_collect(sandbox))
        folder = sandbox.home.workspace
        owners.append({path.stat().st_uid for path in (folder, folder / "outputs", folder / "outputs/run.txt")})

    arena.run("1", after=after)
    assert collected[0][1] == "workspace/outputs/run.txt"
    assert len(owners[0]) == 1


def test_homes_are_removed_whatever_a_program_left_in_them(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    program = f"""
import os
os.symlink({str(tmp_path)!r}, "workspace/link")
os.mkfifo("workspace/pipe")
here = os.open("workspace", os.O_RDONLY)
for _ in range(90):
    os.mkdir("d" * 200, dir_fd=here)
    here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
os.mkdir("workspace/locked")
os.mkdir("workspace/locked/inner")
open("workspace/locked/inner/file", "w").close()
os.chmod("workspace/locked/inner", 0)
os.chmod("workspace/locked", 0)
"""
    gone: list[bool] = []
    outcome = arena.run(program, after=lambda sandbox: gone.append(remove_tree(sandbox.home.path)))
    assert outcome.error == ""
    assert gone == [True]
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_folder_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []
