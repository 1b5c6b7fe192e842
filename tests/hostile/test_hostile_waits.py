"""What a program holds while its session sleeps must not keep the host waiting."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.hostile.arena import TOOLS, Arena
from toolfold.codegen import tree
from toolfold.codegen.tree import write_tree
from toolfold.session.output import OutputRecorder
from toolfold.session.removal import remove_tree

# Opens everything that is mounted and the host may ever write, and takes every kind of lock and lease on it.
HOLD_ALL = """
import fcntl, os
held = []
def hold(path):
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    held.append(number)
    for take in (
        lambda: fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB),
        lambda: fcntl.lockf(number, fcntl.LOCK_SH | fcntl.LOCK_NB),
        lambda: fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_RDLCK),
        lambda: fcntl.fcntl(number, fcntl.F_NOTIFY, fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_MULTISHOT),
    ):
        try:
            take()
        except OSError:
            pass
for top in TOPS:
    hold(top)
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            hold(os.path.join(folder, name))
len(held)
"""


def _within(seconds: float, work: Callable[[], Any]) -> bool:
    """Whether it ends in time. A thread that does not is left behind; it ends with what it waits for."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def test_the_api_tree_is_replaced_whatever_a_sleeping_session_holds(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limit of the wait is not what saves it.
    monkeypatch.setattr(tree, "_LOCK_SECONDS", float("inf"))
    with arena.session() as session:
        assert session.run(HOLD_ALL.replace("TOPS", "['/opt/api']")).value > len(TOOLS)
        session.fall_asleep()
        assert _within(60, lambda: write_tree(TOOLS[:1], arena.api))
        assert session.run(
            "import os; [name for name in ('one', 'two') if os.path.exists(f'servers/lab/{name}.py')]"
        ).value == ["one"]
    assert _within(60, lambda: write_tree(TOOLS, arena.api))


def test_only_what_programs_import_is_mounted(arena: Arena) -> None:
    code = """
import os
[os.path.join(folder, name)[9:] for folder, _, names in os.walk("/opt/api") for name in names]
"""
    with arena.session() as session:
        files: list[str] = session.run(code).value
    assert len(files) > len(TOOLS)
    assert [path for path in files if not re.fullmatch(r"\.trees/\w+/servers/.+\.(py|pyi|pyc)", path)] == []


@pytest.mark.parametrize(
    "laid",
    [
        pytest.param("os.mkfifo('workspace/outputs')", id="a pipe in place of the folder"),
        pytest.param("os.mkdir('workspace/outputs'); os.mkfifo('workspace/outputs/run.txt')", id="a pipe"),
        pytest.param("os.mkdir('workspace/outputs')", id="a folder that it holds"),
    ],
)
def test_a_long_output_is_kept_or_given_up_at_once_while_the_program_sleeps(arena: Arena, laid: str) -> None:
    def collect() -> None:
        output = OutputRecorder(lambda: session.sandbox.home.workspace, "run.txt", 1000, None)
        output.add(b"x" * 50_000)
        output.finish()

    with arena.session() as session:
        assert session.run(f"import os\n{laid}\n").error == ""
        assert session.run(HOLD_ALL.replace("TOPS", "['workspace', 'skills']")).value > 0
        session.fall_asleep()
        assert _within(60, collect)


def test_a_home_is_removed_whatever_a_sleeping_session_holds_in_it(arena: Arena) -> None:
    code = "import os\nos.makedirs('workspace/a/b')\nopen('workspace/a/b/c', 'w').close()\nos.mkfifo('workspace/pipe')"
    with arena.session() as session:
        assert session.run(code).error == ""
        assert session.run(HOLD_ALL.replace("TOPS", "['workspace', 'skills']")).value > 4
        session.fall_asleep()
        assert _within(60, lambda: remove_tree(session.sandbox.home.path))
        assert not session.sandbox.home.path.exists()
