"""Files of a session from outside: never through a link, whatever a program laid there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from toolfold.errors import InvalidRequest
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.files import SessionFiles


@pytest.fixture
def home(tmp_path: Path) -> SessionHome:
    home = SessionHome(tmp_path / "home")
    home.workspace.mkdir(parents=True)
    home.skills.mkdir()
    (tmp_path / "secret").write_text("secret")
    return home


@pytest.fixture
def files(home: SessionHome) -> SessionFiles:
    return SessionFiles(home, 1_000_000)


def test_a_file_goes_in_and_comes_out(files: SessionFiles, tmp_path: Path) -> None:
    assert files.put(b"hello", "workspace/a/b.txt") == 5
    assert files.read("a/b.txt") == b"hello"
    assert files.get("/a/b.txt", tmp_path / "copy") == 5
    assert files.put(tmp_path / "copy", "again.txt") == 5
    assert [(file.name, file.kind, file.size) for file in files.ls().files][1] == ("again.txt", "file", 5)
    files.rm("again.txt")
    with pytest.raises(InvalidRequest, match="is a folder"):
        files.rm("a")
    files.rm("a", recursive=True)
    assert files.ls().files == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "home", "secret"]
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["skills", "workspace"]


def test_a_file_is_read_whole_or_not_at_all(files: SessionFiles, home: SessionHome) -> None:
    with (home.workspace / "big").open("wb") as file:
        file.truncate(10_000_000)
    assert len(files.read("big")) == 10_000_000
    os.truncate(home.workspace / "big", 10_000_001)
    with pytest.raises(InvalidRequest, match=r"'big' has 10,000,001 bytes, more than 10,000,000\."):
        files.read("big")
    assert len(files.read("big", most=10_000_001)) == 10_000_001


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../../secret", "..", "x" * 5000, "a\0b", "", "link", "folder/secret"]
)
def test_no_path_leads_out(files: SessionFiles, home: SessionHome, tmp_path: Path, path: str) -> None:
    (home.workspace / "link").symlink_to(tmp_path / "secret")
    (home.workspace / "folder").symlink_to(tmp_path)
    with pytest.raises(InvalidRequest):
        files.read(path)
    with pytest.raises(InvalidRequest):
        files.get(path, tmp_path / "out")
    if path == "link":
        with pytest.raises(InvalidRequest, match=r"'link' is a .*link, not a plain file"):
            files.read(path)
    if path:
        with pytest.raises(InvalidRequest):
            files.ls(path)
    if path not in ("link", "/etc/passwd"):
        with pytest.raises(InvalidRequest):
            files.put(b"planted", path)
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "out").exists()


def test_writing_and_removing_a_link_leaves_what_it_leads_to(
    files: SessionFiles, home: SessionHome, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (home.workspace / name).symlink_to(tmp_path / "secret")
    files.put(b"mine", "one")
    files.rm("two")
    (home.workspace / "folder").symlink_to(tmp_path)
    files.put(b"mine", "folder")
    assert files.read("folder") == b"mine", "the link was replaced, not what it led to"
    (home.workspace / "all").mkdir()
    (home.workspace / "all" / "up").symlink_to(tmp_path)
    files.rm("all", recursive=True)
    assert (tmp_path / "secret").read_text() == "secret"
    assert files.read("one") == b"mine"


def test_pipes_and_devices_are_named_and_never_opened(files: SessionFiles, home: SessionHome) -> None:
    os.mkfifo(home.workspace / "pipe")
    if os.geteuid() == 0:
        os.mknod(home.workspace / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        with pytest.raises(InvalidRequest, match="device"):
            files.read("device")
    with pytest.raises(InvalidRequest, match="not a plain file"):
        files.read("pipe")
    assert files.ls().files[-1].kind == "other"
    files.rm("pipe")


def test_a_sparse_file_is_copied_with_its_holes(files: SessionFiles, home: SessionHome, tmp_path: Path) -> None:
    with (home.workspace / "sparse").open("wb") as file:
        file.truncate(10_000_000_000)
        file.seek(5_000_000_000)
        file.write(b"middle")
    with pytest.raises(InvalidRequest, match="10,000,000,000 bytes"):
        files.read("sparse")
    assert files.get("sparse", tmp_path / "copy") == 10_000_000_000
    assert (tmp_path / "copy").stat().st_blocks * 512 < 10_000_000
    with (tmp_path / "copy").open("rb") as file:
        file.seek(5_000_000_000)
        assert file.read(6) == b"middle"


def test_of_very_many_files_some_are_listed(files: SessionFiles, home: SessionHome) -> None:
    for number in range(1200):
        (home.workspace / f"{number}").touch()
    found = files.ls(limit=100)
    assert (len(found.files), found.more) == (100, 1100)


def test_the_quota_holds_and_nothing_is_half_written(files: SessionFiles, home: SessionHome, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 2_000_000)
    for source in (tmp_path / "large", b"x" * 2_000_000):
        with pytest.raises(InvalidRequest, match=r"sandbox\.disk"):
            files.put(source, "large")
    assert list(home.workspace.iterdir()) == []
    files.put(b"1", "kept")
    with pytest.raises(OSError, match="Is a directory"):
        files.get("kept", home.workspace)
    assert [path.name for path in home.path.iterdir()] in (["skills", "workspace"], ["workspace", "skills"])
