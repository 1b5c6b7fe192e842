"""Locks between processes: one that was stopped while it had a lock (Ctrl-Z, a debugger) holds up no other for ever."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from toolfold import locks
from toolfold.errors import ToolfoldError
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.kept import KeptValues
from toolfold.skills.folder import Skill
from toolfold.skills.keys import Pin, Pins
from toolfold.skills.library import FolderLibrary
from toolfold.skills.logseq import LogseqSkillsIntegration
from toolfold.skills.store import SkillStore
from toolfold.telemetry.ledger_files import Catalogued, LedgerFiles
from toolfold.telemetry.uses import Uses

SAID = "another process has held the lock for 0.05 s; end it, or let it go on"


def a_skill(name: str) -> Skill:
    return Skill(name=name, description="Count.", source=f"def {name}() -> int:\n    return 1\n")


def kept(folder: Path) -> None:
    KeptValues(SessionHome(folder), 1000).put("cursor", 1)


def saved(folder: Path) -> None:
    store = SkillStore(folder)
    store.save(a_skill(f"skill{len(store.records())}"))


def pinned(folder: Path) -> None:
    Pins(folder).put("a", Pin("p", "1", "s", "d"))


def published(folder: Path) -> None:
    FolderLibrary(folder).change(lambda _: {"index.json": b"{}"}, "")


def synced(folder: Path) -> None:
    LogseqSkillsIntegration(folder, folder.parent / "skills").sync()


def counted(folder: Path) -> None:
    LedgerFiles(folder).add_catalog(Catalogued("v", 30, 5000, exact=True))


def used(folder: Path) -> None:
    async def use() -> None:
        uses = Uses(folder)
        before = uses.counts()
        uses.add("a", "b")
        await uses.close()
        if uses.counts() == before:
            raise OSError(SAID)  # what cannot be counted is nothing that anybody is told

    asyncio.run(use())


@pytest.mark.parametrize("write", [kept, saved, pinned, published, synced, counted, used])
def test_a_writer_does_not_wait_for_ever_for_one_that_is_stuck(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    write(folder)
    monkeypatch.setattr(locks, "SECONDS", 0.05)
    failures: list[str] = []

    def try_to() -> None:
        try:
            write(folder)
        except (ToolfoldError, OSError) as error:
            failures.append(str(error))

    with ExitStack() as stack:
        for path in (folder, *folder.rglob("*")):
            stack.enter_context(held(path))
        writing = threading.Thread(target=try_to, daemon=True)
        writing.start()
        writing.join(60)
        assert not writing.is_alive()
    assert SAID in "".join(failures)
    # A program is told of these two, and no program is told where the person keeps anything.
    assert write not in (kept, saved) or str(tmp_path) not in "".join(failures)
    write(folder)


def test_who_reads_skills_does_not_wait_for_a_writer_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SECONDS", 600.0)
    asked = threading.Event()

    def ask(file: int, *, shared: bool = False) -> bool:
        asked.set()
        return lock_now(file, shared=shared)

    store, lock_now = SkillStore(tmp_path), locks.lock_now
    store.save(a_skill("first"))
    monkeypatch.setattr(locks, "lock_now", ask)
    with held(tmp_path / ".lock"):
        writing = threading.Thread(target=store.save, args=[a_skill("second")], daemon=True)
        writing.start()
        assert asked.wait(60)
        reading = threading.Thread(target=store.used, args=[{"first"}], kwargs={"ok": True}, daemon=True)
        reading.start()
        reading.join(60)
        assert not reading.is_alive()
        assert list(store.records()) == ["first"]
    writing.join(60)
    assert sorted(store.records()) == ["first", "second"]


def test_many_threads_have_a_lock_one_after_the_other_and_readers_share_it(tmp_path: Path) -> None:
    inside, most = [0], [0]
    path = tmp_path / "lock"

    def enter() -> None:
        for _ in range(20):
            with locks.locked(path, seconds=60):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                os.sched_yield()
                inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (inside[0], most[0]) == (0, 1)
    with locks.locked(path, shared=True, seconds=0), locks.locked(path, shared=True, seconds=0) as file:
        with pytest.raises(TimeoutError), locks.locked(path, seconds=0):
            pass
        assert os.fstat(file).st_mode & 0o777 == 0o600


def held(path: Path) -> ExitStack:
    """A lock of another, which it does not give back until the stack is closed."""
    stack, file = ExitStack(), os.open(path, os.O_RDONLY)
    stack.callback(os.close, file)
    fcntl.flock(file, fcntl.LOCK_EX)
    return stack
