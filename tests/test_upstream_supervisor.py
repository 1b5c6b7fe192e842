"""The supervisor process itself, spoken to over its socket, and the log that it keeps for each server."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolfold.upstream.processes import supervisor_process as module
from toolfold.upstream.processes.supervisor_process import Child, Log, descendants, processes

PYTHON = sys.executable


class Gateway:
    """Our end of the supervisor's socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([PYTHON, "-I", "-S", module.__file__], stdin=theirs.fileno())
        theirs.close()
        self._socket = ours
        self._socket.settimeout(30)
        self._lines = ours.makefile("rb")
        self._number = 0

    def start(self, code: str, *, argv: list[str] | None = None, cwd: str = "") -> int:
        self._number += 1
        message = {
            "do": "start",
            "id": self._number,
            "argv": argv or [PYTHON, "-c", code],
            "env": {"PATH": os.environ["PATH"]},
            "cwd": cwd,
            "log": str(self.log(self._number)),
            "mark": f"mark{self._number}",
        }
        with Path(os.devnull).open("rb") as stdin, Path(os.devnull).open("wb") as stdout:
            data = json.dumps(message).encode() + b"\n"
            socket.send_fds(self._socket, [data], [stdin.fileno(), stdout.fileno()])
        return self._number

    def stop(self, number: int, grace: float) -> None:
        self._socket.sendall(json.dumps({"do": "stop", "id": number, "grace": grace}).encode() + b"\n")

    def log(self, number: int) -> Path:
        return self._folder / f"{number}.log"

    def hear(self) -> dict[str, Any]:
        return json.loads(self._lines.readline())

    def descriptors(self) -> int:
        return len([*Path(f"/proc/{self.process.pid}/fd").iterdir()])

    def close(self) -> int:
        self._lines.close()
        self._socket.close()
        return self.process.wait(timeout=30)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path)
    yield gateway
    gateway.close()


def is_there(pid: int) -> bool:
    return pid in processes()


def wait_for(check: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not check():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


class TestServers:
    def test_a_server_is_started_and_its_end_is_told_with_its_last_words(self, gateway: Gateway) -> None:
        code = "import sys; sys.stderr.write('a' + 'b' * 99_999); sys.exit(3)"
        number = gateway.start(code)
        started, exited, stopped = gateway.hear(), gateway.hear(), gateway.hear()
        assert (started["event"], started["id"]) == ("started", number)
        assert exited == {"event": "exited", "id": number, "status": 3, "tail": "b" * 4000}
        assert stopped == {"event": "stopped", "id": number}
        assert gateway.log(number).read_text() == "a" + "b" * 99_999
        assert gateway.log(number).stat().st_mode & 0o777 == 0o600

    def test_a_killed_server_has_a_negative_status(self, gateway: Gateway) -> None:
        gateway.start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert [gateway.hear()["event"], gateway.hear()["status"]] == ["started", -9]

    @pytest.mark.parametrize(
        ("argv", "cwd", "errno", "step"),
        [(["/no/such/command"], "", 2, "command"), ([PYTHON], "/no/such/folder", 2, "cwd"), (["/"], "", 13, "command")],
    )
    def test_what_cannot_be_started_is_refused_with_the_step(
        self, gateway: Gateway, argv: list[str], cwd: str, errno: int, step: str
    ) -> None:
        number = gateway.start("", argv=argv, cwd=cwd)
        assert gateway.hear() == {"event": "refused", "id": number, "errno": errno, "step": step}

    def test_descriptors_and_zombies_do_not_pile_up(self, gateway: Gateway) -> None:
        gateway.start("pass")
        for _ in range(3):
            gateway.hear()
        before = gateway.descriptors()
        for _ in range(5):
            gateway.start("", argv=["/no/such/command"])
            assert gateway.hear()["event"] == "refused"
            gateway.start("pass")
            assert [gateway.hear()["event"] for _ in range(3)] == ["started", "exited", "stopped"]
        assert gateway.descriptors() == before
        assert not Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text()

    @pytest.mark.skipif(not module.LINUX, reason="needs prlimit")
    @pytest.mark.parametrize("spare", [0, 1, 3, 5])
    def test_a_start_for_which_descriptors_are_lacking_costs_no_other_server(
        self, gateway: Gateway, spare: int
    ) -> None:
        neighbour = gateway.start("import sys; sys.stdin.read(); import time; time.sleep(60)")
        pid = gateway.hear()["pid"]
        taken = {int(path.name) for path in Path(f"/proc/{gateway.process.pid}/fd").iterdir()}
        limit = [number for number in range(100) if number not in taken][spare]
        _, most = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (limit, most))
        gateway.start("import time; time.sleep(60)")
        event = gateway.hear()
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (most, most))
        assert event == {"event": "refused", "id": 2, "errno": errno.EMFILE, "step": "start"}
        assert gateway.descriptors() == len(taken)
        assert is_there(pid)
        gateway.start("print('well', file=__import__('sys').stderr)")
        assert [gateway.hear()["event"] for _ in range(3)] == ["started", "exited", "stopped"]
        gateway.stop(neighbour, 0.0)

    def test_a_server_has_a_session_of_its_own_and_the_usual_signals(self, gateway: Gateway) -> None:
        code = (
            "import os, signal, sys\n"
            "kinds = {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}\n"
            "print(os.getsid(0) == os.getpid(), kinds == {signal.SIG_DFL}, os.environ['TOOLFOLD_UPSTREAM'],"
            " len(os.listdir('/proc/self/fd')) <= 4, file=sys.stderr)"
        )
        number = gateway.start(code)
        gateway.hear()
        assert gateway.hear()["tail"] == f"True True mark{number} True\n"

    def test_one_that_does_not_end_is_killed_with_what_it_started(self, gateway: Gateway, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        code = (
            "import os, pathlib, signal, subprocess, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
            f"pathlib.Path({str(ready)!r} + '.new').write_text(str(child.pid))\n"
            f"os.rename({str(ready)!r} + '.new', {str(ready)!r})\n"
            "time.sleep(600)"
        )
        number = gateway.start(code)
        pid = gateway.hear()["pid"]
        wait_for(ready.exists)
        child = int(ready.read_text())
        assert is_there(pid)
        gateway.stop(number, 0.1)
        assert gateway.hear() == {"event": "exited", "id": number, "status": -9, "tail": ""}
        assert gateway.hear() == {"event": "stopped", "id": number}
        assert not is_there(pid)
        assert not is_there(child)

    def test_a_polite_one_ends_by_itself_when_it_is_asked(self, gateway: Gateway) -> None:
        number = gateway.start("import time; time.sleep(600)")
        gateway.hear()
        gateway.stop(number + 1, 0.0)
        gateway.stop(number, 600.0)
        assert gateway.hear()["status"] == -signal.SIGTERM
        assert gateway.hear()["event"] == "stopped"

    def test_everything_ends_when_the_gateway_is_gone(self, gateway: Gateway) -> None:
        pids: list[int] = []
        for _ in range(2):
            gateway.start("import time; time.sleep(600)")
            pids.append(gateway.hear()["pid"])
        assert gateway.close() == 0
        assert not any(map(is_there, pids))

    def test_a_request_to_end_ends_everything(self, gateway: Gateway) -> None:
        gateway.start("import time; time.sleep(600)")
        pid = gateway.hear()["pid"]
        gateway.process.send_signal(signal.SIGINT)
        gateway.process.send_signal(signal.SIGHUP)
        gateway.start("pass")
        assert gateway.hear()["event"] == "started", "these are the gateway's to handle"
        gateway.process.terminate()
        assert gateway.process.wait(timeout=30) == 0
        assert not is_there(pid)

    def test_while_everything_ends_each_server_is_asked_once_and_none_is_started(
        self, gateway: Gateway, tmp_path: Path
    ) -> None:
        asked = tmp_path / "asked"
        code = (
            "import pathlib, signal, sys, time\n"
            f"file = pathlib.Path({str(asked)!r}).open('a')\n"
            "signal.signal(signal.SIGTERM, lambda *_: (file.write('t'), file.flush()))\n"
            "print('ready', file=sys.stderr, flush=True)\n"
            "while True: time.sleep(600)"
        )
        number = gateway.start(code)
        pid = gateway.hear()["pid"]
        wait_for(lambda: gateway.log(number).read_text() == "ready\n")
        gateway.process.terminate()
        wait_for(lambda: asked.read_text() == "t")
        gateway.start("pass")
        assert gateway.hear() == {"event": "exited", "id": number, "status": -9, "tail": "ready\n"}
        assert gateway.process.wait(timeout=30) == 0
        assert asked.read_text() == "t"
        assert not is_there(pid)

    def test_a_server_that_has_just_ended_is_told_of_when_everything_ends(self, tmp_path: Path) -> None:
        code = f"""
import json, os, socket, sys
from toolfold.upstream.processes.supervisor_process import SupervisorProcess
ours, theirs = socket.socketpair()
supervisor = SupervisorProcess(theirs)
message = {{"do": "start", "id": 1, "argv": [sys.executable, "-S", "-c", "exit(7)"], "env": {{}}, "cwd": "",
    "log": {str(tmp_path / "log")!r}, "mark": "m"}}
socket.send_fds(ours, [json.dumps(message).encode() + b"\\n"], [0, 0])
supervisor.receive()
# It has ended, and nobody has collected it: so the list of processes does not have it.
os.waitid(os.P_PID, supervisor.children[1].pid, os.WEXITED | os.WNOWAIT)
supervisor.end_everything()
theirs.close()
print([json.loads(line)["event"] for line in ours.makefile()])
"""
        told = subprocess.run(
            [PYTHON, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert (told.stdout, told.stderr) == ("['started', 'exited']\n", "")


class TestLog:
    def test_it_starts_again_at_its_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LOG_BYTES", 10)
        path = tmp_path / "s.log"
        log = Log(str(path))
        log.write(b"0123456789")
        assert not (tmp_path / "s.log.1").exists()
        log.write(b"a")
        assert (tmp_path / "s.log.1").read_bytes() == b"0123456789a"
        assert path.read_bytes() == b""
        log.write(b"new")
        log.close()
        log.close()
        log.write(b"late")
        assert path.read_bytes() == b"new"
        assert log.tail == b"0123456789anewlate"

    def test_it_goes_on_where_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "s.log"
        path.write_bytes(b"before ")
        log = Log(str(path))
        log.write(b"after")
        log.close()
        assert path.read_bytes() == b"before after"

    def test_where_nothing_can_be_written_the_end_is_still_known(self, tmp_path: Path) -> None:
        log = Log(str(tmp_path / "gone" / "s.log"))
        log.write(b"x" * 5000)
        assert len(log.tail) == 4000
        log.close()


def test_descendants_are_found_at_any_depth() -> None:
    table = {2: (1, 2, 2), 3: (2, 2, 2), 4: (3, 4, 4), 5: (1, 5, 5), 6: (6, 6, 6)}
    assert descendants(table, 2) == {3, 4}
    assert descendants(table, 1) == {2, 3, 4, 5}
    assert descendants(table, 6) == {6}
    assert descendants(table, 99) == set()


def test_a_process_that_got_the_number_of_a_server_that_ended_is_not_taken_for_it(tmp_path: Path) -> None:
    child = Child(1, 500, b"", Log(str(tmp_path / "log")), -1)
    before = {500: (2, 500, 500), 501: (500, 500, 500), 502: (2, 500, 500)}
    assert child.find_members(before, {500, 501, 502}) == {500, 501, 502}
    child.log.close()
    after = {500: (1, 500, 500), 501: (500, 500, 500), 502: (2, 502, 502)}
    assert child.find_members(after, {502}) == {502}
