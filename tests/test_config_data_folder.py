"""The data folder is the person's alone; where it cannot be used, search and run go on without it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config_machine import like_any_owner
from tests.lab import LAB
from toolfold import Toolfold
from toolfold.config.load import load_here
from toolfold.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


@pytest.mark.usefixtures("umask")
def test_it_is_the_owner_s_alone_whatever_the_umask(tmp_path: Path) -> None:
    loaded = load_here({"servers": {}}, data_dir=tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700
    assert loaded.settings.data_dir == tmp_path / "data"
    assert loaded.data_problem == ""


@pytest.mark.parametrize("old", [0o755, 0o777, 0o770, 0o500])
def test_one_that_exists_is_corrected(tmp_path: Path, old: int) -> None:
    folder = tmp_path / "data"
    (folder / "logs").mkdir(parents=True)
    folder.chmod(old)
    Toolfold.open({"servers": {}}, data_dir=folder)
    assert mode(folder) == 0o700


def test_a_folder_of_everybody_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "of somebody else").touch()
    folder.chmod(0o1777)
    loaded = load_here({"servers": {}}, data_dir=folder)
    assert mode(folder) == 0o1777
    assert loaded.settings.data_dir != folder
    assert "other programs" in loaded.data_problem


def test_an_empty_volume_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    (folder / "lost+found").mkdir(parents=True)
    folder.chmod(0o1777)
    assert load_here({"servers": {}}, data_dir=folder).settings.data_dir == folder
    assert mode(folder) == 0o700


def test_a_folder_that_cannot_be_made_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir(mode=0o555)
    with like_any_owner():
        loaded = load_here({"servers": {}}, data_dir=parent / "data")
    assert str(parent / "data") in loaded.data_problem
    assert "permission denied" in loaded.data_problem
    assert mode(loaded.settings.data_dir) == 0o700


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert "file exists" in load_here({"servers": {}}, data_dir=tmp_path / "data").data_problem


def test_without_any_place_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(ConfigError) as caught:
        load_here({"servers": {}}, data_dir=tmp_path / "data")
    assert str(tmp_path / "data") in str(caught.value)
    assert "TOOLFOLD_DATA" in str(caught.value)


class Disk:
    """A small disk of its own under the data folder, seen by one command only."""

    def __init__(self, root: Path, options: str) -> None:
        self.data = root / "data"
        self.data.mkdir()
        self.config = root / "mcp.json"
        self.config.write_text(json.dumps({"mcpServers": {"lab": LAB}}))
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        self._prefix = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        self._script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
        done = subprocess.run([*self._prefix, "sh", "-c", self._script, self.data, "true"], check=False)
        if done.returncode != 0:
            pytest.skip("no disk can be mounted here (unshare -m, mount -t tmpfs): run the tests as root")

    def toolfold(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-P",
            "-m",
            "toolfold",
            *words,
            "--config",
            str(self.config),
            "--data",
            str(self.data),
        ]
        return subprocess.run(
            [*self._prefix, "sh", "-c", self._script, str(self.data), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            check=False,
        )


@pytest.mark.parametrize(
    ("options", "reason"), [("size=64k,ro", "read-only file system"), ("size=64k", "no space left on device")]
)
def test_search_and_run_work_without_a_usable_disk_and_say_so_once(tmp_path: Path, options: str, reason: str) -> None:
    disk = Disk(tmp_path, options)
    found = disk.toolfold("search", "add numbers")
    assert found.returncode == 0, found.stderr
    assert "lab" in found.stdout
    ran = disk.toolfold("run", "-c", "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])")
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr
    for done in (found, ran):
        assert done.stderr.count(str(disk.data)) == 1
        assert reason in done.stderr
        assert "Traceback" not in done.stderr
    assert list(disk.temporary.iterdir()) == []
    lines = json.loads(disk.toolfold("doctor", "--json").stdout)
    [line] = [line for line in lines if line["name"] == "data folder"]
    assert line["state"] == "bad"
    assert reason in line["detail"]


def test_a_disk_that_becomes_full_on_the_way_is_one_clear_error(tmp_path: Path) -> None:
    disk = Disk(tmp_path, "size=2m")
    done = disk.toolfold("run", "-c", "print(1)")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "TOOLFOLD_DATA" in done.stderr
    assert "Traceback" not in done.stderr
