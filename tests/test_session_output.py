"""What is kept and shown of a program's output, to the character, and that removing a home removes all of it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolfold.sandbox.protocol import SessionHome
from toolfold.session import transcript
from toolfold.session.output import OutputRecorder, within
from toolfold.session.removal import empty_tree, remove_tree
from toolfold.session.transcript import Entry, append, entries


def recorder(folder: Path, budget: int = 10, seen: list[str] | None = None) -> OutputRecorder:
    return OutputRecorder(lambda: folder, "1.txt", budget, seen.append if seen is not None else None)


def descriptors() -> int:
    """Open descriptors of this process."""
    return len([*Path("/proc/self/fd").iterdir()])


class TestOutput:
    def test_within_the_budget_it_is_shown_as_it_is(self, tmp_path: Path) -> None:
        output = recorder(tmp_path)
        output.add(b"01234")
        output.add(b"56789")
        assert output.finish() == ("0123456789", None)
        assert list(tmp_path.iterdir()) == []

    def test_over_it_head_and_tail_are_shown_and_all_is_in_a_file(self, tmp_path: Path) -> None:
        output = recorder(tmp_path)
        for piece in (b"0123456789", b"abc", b"def", b"ghijklmnop"):
            output.add(piece)
        text, file = output.finish()
        assert file == "workspace/outputs/1.txt"
        assert text == f"01234\n[… 16 characters cut; all of it: {file} …]\nlmnop"
        assert (tmp_path / "outputs" / "1.txt").read_text() == "0123456789abcdefghijklmnop"

    def test_the_last_value_stands_on_a_line_of_its_own(self, tmp_path: Path) -> None:
        for printed, shown in ((b"", "7"), (b"a", "a\n7"), (b"a\n", "a\n7")):
            output = recorder(tmp_path)
            if printed:
                output.add(printed)
            assert output.finish("7") == (shown, None)

    def test_the_value_counts_as_well(self, tmp_path: Path) -> None:
        output = recorder(tmp_path)
        output.add(b"12345")
        text, file = output.finish("abcdef")
        assert file is not None
        assert text.startswith("12345\n[… 2 characters cut")
        assert text.endswith("…]\nbcdef")

    def test_characters_cut_in_two_are_put_together_and_half_of_one_is_marked(self, tmp_path: Path) -> None:
        seen: list[str] = []
        output = recorder(tmp_path, seen=seen)
        for byte in "aß€".encode():
            output.add(bytes([byte]))
        output.add("€".encode()[:2])
        assert output.finish() == ("aß€\ufffd", None)
        assert seen == ["a", "ß", "€", "\ufffd"]

    def test_where_no_file_can_be_made_the_rest_is_lost_and_said(self, tmp_path: Path) -> None:
        (tmp_path / "outputs").write_text("a file in its place")
        output = recorder(tmp_path)
        output.add(b"x" * 20)
        output.add(b"y" * 20)
        text, file = output.finish()
        assert file is None
        assert "the rest could not be kept: Not a directory" in text
        assert text.endswith("\nyyyyy")

    def test_its_file_is_closed_when_it_is_finished(self, tmp_path: Path) -> None:
        before = descriptors()
        output = recorder(tmp_path)
        output.add(b"x" * 20)
        assert descriptors() == before + 1
        output.finish()
        assert descriptors() == before

    def test_a_text_that_nobody_keeps_is_cut_in_its_middle(self) -> None:
        assert within("0123456789", 10) == "0123456789"
        assert within("0123456789a", 10) == "01234\n[… 1 characters cut …]\n6789a"
        assert within("x" * 2010, 10) == "xxxxx\n[… 2,000 characters cut …]\nxxxxx"


class TestTranscript:
    def test_a_file_that_is_full_makes_way_for_a_new_one_and_the_oldest_runs_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = SessionHome(tmp_path)
        entry = Entry(time=1.0, run="r1", caller="ada", code="1")

        def kept() -> list[str]:
            return [each.run for each in entries(home)]

        append(home, entry)
        current, before = tmp_path / "transcript.jsonl", tmp_path / "transcript.1.jsonl"
        monkeypatch.setattr(transcript, "_MOST_BYTES", 2 * current.stat().st_size)
        for number in (2, 3):
            append(home, Entry(time=1.0, run=f"r{number}", caller="ada", code="1"))
            assert not before.exists(), "a file that is just full is not over its limit"
        append(home, Entry(time=1.0, run="r4", caller="ada", code="1"))
        assert before.exists()
        assert kept() == ["r1", "r2", "r3", "r4"]
        for number in (5, 6, 7):
            append(home, Entry(time=1.0, run=f"r{number}", caller="ada", code="1"))
        assert kept() == ["r4", "r5", "r6", "r7"]
        assert current.stat().st_mode & 0o777 == 0o600
        current.write_bytes(current.read_bytes() + b'{"time": 1.0, "ru')
        assert kept() == ["r4", "r5", "r6", "r7"], "half a line is passed over"

    def test_a_link_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.touch()
        (tmp_path / "transcript.jsonl").symlink_to(elsewhere)
        append(SessionHome(tmp_path), Entry(time=1.0, run="r", caller="ada", code="1"))
        assert elsewhere.read_bytes() == b""


@contextmanager
def somebody_else(folder: Path) -> Generator[None]:
    """Without root's right to pass over permissions, in a folder that belongs to nobody else."""
    here = Path.cwd()
    os.chdir(folder)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        os.chdir(here)


class TestRemoval:
    def test_everything_below_goes_and_nothing_beside(self, tmp_path: Path) -> None:
        beside = tmp_path / "beside"
        beside.mkdir()
        (beside / "kept").touch()
        top = tmp_path / "top"
        deep = top
        for _ in range(300):
            deep /= "d"
            deep.mkdir(parents=True)
        (deep / "file").touch()
        (top / "link").symlink_to(beside)
        (top / "d" / "locked").mkdir()
        (top / "d" / "locked" / "file").touch()
        (top / "d" / "locked").chmod(0)
        before = descriptors()
        assert remove_tree(top)
        assert not top.exists()
        assert (beside / "kept").exists()
        assert descriptors() == before
        assert remove_tree(top), "there is nothing to remove"

    @pytest.mark.parametrize("mode", [0o000, 0o400, 0o500, 0o600])
    def test_permissions_do_not_keep_anything(self, tmp_path: Path, mode: int) -> None:
        if os.geteuid() == 0:
            os.chown(tmp_path, 65534, 65534)
        with somebody_else(tmp_path):
            for name in ("top", "emptied"):
                inner = Path(name, "locked", "inner")
                inner.mkdir(parents=True)
                (inner / "file").touch()
                for folder in (inner, inner.parent, inner.parent.parent):
                    folder.chmod(mode)
            assert remove_tree(Path("top"))
            assert not Path("top").exists()
            empty_tree(Path("emptied"))
            assert [*Path("emptied").iterdir()] == []
            Path("emptied").chmod(0o755)
            empty_tree(Path("emptied"))
            assert Path("emptied").stat().st_mode & 0o777 == 0o755, "what can be changed is left as it is"
            empty_tree(Path("gone"))

    def test_a_folder_of_somebody_else_that_can_be_changed_is_not_in_the_way(self, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can make folders of others: run the tests as root")
        theirs = tmp_path / "top" / "theirs"
        theirs.mkdir(parents=True)
        (theirs / "file").touch()
        theirs.chmod(0o777)
        for folder in (tmp_path, tmp_path / "top"):
            os.chown(folder, 65534, 65534)
        with somebody_else(tmp_path):
            assert remove_tree(Path("top"))

    @pytest.mark.parametrize("kind", ["file", "link"])
    def test_what_is_no_folder_is_left_alone(self, tmp_path: Path, kind: str) -> None:
        inside = tmp_path / "folder"
        inside.mkdir()
        (inside / "kept").touch()
        path = tmp_path / "path"
        if kind == "file":
            path.touch()
        else:
            path.symlink_to(inside)
        assert not remove_tree(path)
        assert path.exists()
        assert (inside / "kept").exists()
