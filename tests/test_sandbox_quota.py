"""What a home holds is counted right: files, folders, links, what was deleted and is open, what was there before."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from toolfold.sandbox import quota as module
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.quota import Quota

LIMIT = 20_000_000
"""Bytes, and so 2,000 files."""


@pytest.fixture
def home(tmp_path: Path) -> SessionHome:
    home = SessionHome(tmp_path)
    home.workspace.mkdir()
    home.skills.mkdir()
    return home


def nobody() -> list[int]:
    return []


def us() -> list[int]:
    return [os.getpid()]


def write(path: Path, size: int) -> Path:
    path.write_bytes(b"x" * size)
    return path


def told(quota: Quota) -> str:
    broken = quota.measure(nobody)
    return "" if broken is None else broken.message


def sized(home: SessionHome, limit: int, *, empty: bool = True) -> Quota:
    return Quota(home, limit, empty=empty)


class TestBytes:
    def test_as_much_as_allowed_is_allowed_and_a_block_more_is_not(self, home: SessionHome) -> None:
        write(home.workspace / "a", 1_000_000)
        write(home.skills / "b", 1_000_000)
        held = sum(path.stat().st_blocks * 512 for path in (home.workspace / "a", home.skills / "b"))
        assert told(sized(home, held)) == ""
        assert told(sized(home, held - 1)) == (
            f"The files in workspace/ and skills/ take more than the {held - 1:,} bytes that are allowed."
        )

    def test_two_names_of_one_file_count_once_and_two_files_twice(self, home: SessionHome) -> None:
        write(home.workspace / "a", 1_000_000)
        (home.workspace / "b").hardlink_to(home.workspace / "a")
        assert told(sized(home, 1_500_000)) == ""
        write(home.workspace / "c", 1_000_000)
        assert "take more than" in told(sized(home, 1_500_000))

    def test_links_are_not_followed(self, home: SessionHome, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        write(outside / "large", 3_000_000)
        (home.workspace / "link").symlink_to(outside)
        (home.workspace / "file").symlink_to(outside / "large")
        assert told(sized(home, 1_000_000)) == ""

    def test_a_locked_folder_is_opened_by_its_owner(self, home: SessionHome) -> None:
        inner = home.workspace / "locked"
        inner.mkdir()
        write(inner / "large", 3_000_000)
        inner.chmod(0)
        assert "take more than" in told(sized(home, 1_000_000))

    def test_deleted_files_count_while_they_are_open_or_mapped(self, home: SessionHome, tmp_path: Path) -> None:
        path = write(home.workspace / "gone", 3_000_000)
        with path.open("rb") as file:
            path.unlink()
            assert sized(home, 1_000_000).measure(nobody) is None
            assert sized(home, 1_000_000).measure(us) is not None
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert sized(home, 1_000_000).measure(us) is not None
        mapped.close()
        assert sized(home, 1_000_000).measure(us) is None
        named = write(tmp_path / "elsewhere", 3_000_000)
        with named.open("rb"):
            assert sized(home, 1_000_000).measure(us) is None, "it has a name, and is counted where it is"

    def test_of_a_deleted_file_that_is_only_mapped_the_mapping_counts(self, home: SessionHome) -> None:
        path = write(home.workspace / "gone", 1 << 20)
        libc = ctypes.CDLL(None)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, *[ctypes.c_long] * 5)
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_long)
        with path.open("rb") as file:  # `mmap.mmap` would keep it open
            address = libc.mmap(None, 1 << 19, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        path.unlink()
        try:
            assert sized(home, 1 << 19).measure(us) is None
            assert sized(home, (1 << 19) - 1).measure(us) is not None
        finally:
            libc.munmap(address, 1 << 19)


class TestFiles:
    def test_as_many_files_as_allowed(self, home: SessionHome) -> None:
        for number in range(999):
            (home.workspace / str(number)).touch()
        (home.skills / "last").touch()
        assert told(sized(home, 1_000_000)) == "", "a thousand are always allowed"
        (home.workspace / "one more").touch()
        assert told(sized(home, 1_000_000)) == "There are more than 1,000 files in workspace/ and skills/."
        assert told(sized(home, LIMIT)) == "", "more bytes, more files"

    @pytest.mark.parametrize(("depth", "fine"), [(99, True), (100, False)])
    def test_folders_may_be_nested_so_deep(self, home: SessionHome, depth: int, fine: bool) -> None:
        folder = home.workspace
        for _ in range(depth):
            folder /= "d"
        folder.mkdir(parents=True)
        assert (told(sized(home, LIMIT)) == "") is fine


class TestWhatWasThereBefore:
    def test_a_home_from_before_must_be_measured_first(self, home: SessionHome) -> None:
        assert sized(home, LIMIT, empty=False).unknown
        assert not sized(home, LIMIT).unknown
        quota = sized(home, LIMIT, empty=False)
        assert quota.measure(nobody) is None
        assert not quota.unknown

    def test_it_may_be_twice_as_full_and_then_only_shrink(self, home: SessionHome) -> None:
        write(home.workspace / "a", 3_000_000)
        quota = sized(home, 2_000_000, empty=False)
        assert quota.measure(nobody) is None, "or it could never be emptied"
        quota.begin()
        write(home.workspace / "b", 500_000)
        assert quota.measure(nobody) is not None, "it may not grow"
        (home.workspace / "b").unlink()
        (home.workspace / "a").unlink()
        write(home.workspace / "c", 2_500_000)
        assert quota.measure(nobody) is None
        quota.begin()
        write(home.workspace / "d", 400_000)
        assert quota.measure(nobody) is not None, "what it shrank by is not given back"
        assert sized(home, 1_000_000, empty=False).measure(nobody) is not None, "over twice the limit nothing runs"

    def test_the_same_is_true_of_the_number_of_files(self, home: SessionHome) -> None:
        for number in range(1500):
            (home.workspace / str(number)).touch()
        quota = sized(home, 1_000_000, empty=False)
        assert quota.measure(nobody) is None, "twice a thousand"
        quota.begin()
        (home.workspace / "one more").touch()
        assert told(quota) == "There are more than 1,500 files in workspace/ and skills/."
        for number in range(1000):
            (home.workspace / str(number)).unlink()
        assert told(quota) == ""
        quota.begin()
        for number in range(499):
            (home.workspace / str(number)).touch()
        assert told(quota) == "", "what every home may hold is never taken away"
        (home.workspace / "1001").touch()
        (home.workspace / "another").touch()
        assert told(quota) == "There are more than 1,000 files in workspace/ and skills/."


class TestReasonsToMeasure:
    def test_half_of_what_is_left(self, home: SessionHome, monkeypatch: pytest.MonkeyPatch) -> None:
        quota = sized(home, LIMIT)
        free = [(10**12, 10**6)]
        monkeypatch.setattr(quota, "_ask", lambda: free[0])
        assert quota.measure(nobody) is None
        quota.begin()
        for used, files, reason in (
            (0, 0, False),
            (LIMIT // 2, 0, False),
            (LIMIT // 2 + 1, 0, True),
            (0, 1000, False),
            (0, 1001, True),
        ):
            free[0] = (10**12 - used, 10**6 - files)
            assert quota.suspicious(nobody) is reason

    def test_a_while_without_a_look(self, home: SessionHome, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [time.monotonic()]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        quota = sized(home, LIMIT)
        quota.begin()
        now[0] += 0.9
        assert not quota.suspicious(nobody)
        now[0] += 0.2
        assert quota.suspicious(nobody)
        assert quota.measure(nobody) is None
        assert not quota.suspicious(nobody)
        assert sized(home, LIMIT, empty=False).suspicious(nobody), "what is unknown is measured"

    def test_growth_counts_from_the_last_time(self, home: SessionHome, monkeypatch: pytest.MonkeyPatch) -> None:
        quota = sized(home, LIMIT)
        free = [(10**12, 10**6)]
        monkeypatch.setattr(quota, "_ask", lambda: free[0])
        quota.begin()
        free[0] = (10**12 - LIMIT, 10**6 - 2000)
        assert quota.measure(nobody) is None
        assert not quota.suspicious(nobody)

    def test_a_home_that_takes_long_to_measure_is_measured_less_often(
        self, home: SessionHome, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [time.monotonic()]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        quota = sized(home, LIMIT)
        quota.begin()

        def slow() -> list[int]:
            now[0] += 0.25
            return []

        assert quota.measure(slow) is None  # it asks twice which processes there are
        now[0] += 9.9
        assert not quota.suspicious(nobody)
        now[0] += 0.2
        assert quota.suspicious(nobody)
        assert quota.measure(nobody) is None
        now[0] += 1.1
        assert quota.suspicious(nobody)

    def test_a_short_run_is_not_even_asked_about(self, home: SessionHome, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [time.monotonic()]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        quota = sized(home, LIMIT)
        quota.begin()
        now[0] += 0.0005
        assert not quota.unsure(nobody)
        now[0] += 0.3
        assert quota.unsure(nobody), "it had the time to fill the home"
        assert quota.measure(nobody) is None
        quota.sleep()
        now[0] += 60
        quota.begin()
        assert not quota.unsure(nobody), "nothing was written while it slept"
        now[0] += 0.0004
        quota.begin()
        now[0] += 0.0004
        assert not quota.unsure(nobody)
        for _ in range(20):
            now[0] += 0.0004
            quota.begin()
        assert quota._unseen > 0.005, "many short runs add up"  # pyright: ignore[reportPrivateUsage]
