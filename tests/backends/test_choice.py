"""Which backend is taken, on what evidence, and what is said when none holds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.available import candidate
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox import choose as choosing
from toolfold.sandbox.bubblewrap import launcher, obstacles
from toolfold.sandbox.choose import Candidate, choose
from toolfold.sandbox.container import engine
from toolfold.sandbox.probe import prove
from toolfold.sandbox.protocol import Backend, Cell, Log, SessionHome

pytestmark = pytest.mark.anyio

# A guest without any wall: it runs what it is sent, in the home's folder, as an ordinary process of this machine.
BARE = """
import ast, json, os, socket, struct, sys
options = json.loads(sys.argv[1])
os.chdir(options["home"])
channel = socket.socket(fileno=options["channel"])
def send(frame):
    data = json.dumps(frame).encode()
    channel.sendall(struct.pack(">I", len(data)) + data)
def receive():
    size = struct.unpack(">I", channel.recv(4, socket.MSG_WAITALL))[0]
    return json.loads(channel.recv(size, socket.MSG_WAITALL))
send({"t": "ready"})
tree = ast.parse(receive()["code"])
last = ast.Expression(tree.body.pop().value)
def careful(path, mode="r"):
    # The machine that runs the tests stays clean even where the test is root.
    if mode != "r" and path.startswith("/"):
        raise PermissionError(path)
    return open(path, mode)
scope = {"open": careful}
exec(compile(tree, "probe", "exec"), scope)
value = eval(compile(last, "probe", "eval"), scope)
value.update(options["pretend"])
send({"t": "done", "error": "", "names": [], "value": value})
channel.recv(1)
"""
HELD: dict[str, Any] = {
    "secret": False,
    "network": False,
    "socket": False,
    "outside": [],
    "workspace": True,
    "environment": [],
    "processes": 1,
    "host_process": False,
    "capabilities": ["0", "0", "0"],
    "no_new_privileges": "1",
}


class BareCell:
    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, output: int) -> None:
        self.channel = channel
        self.output = output
        self._process = process

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> str:
        self._process.wait(10)
        self.channel.close()
        return "ended"


class Bare:
    """A backend that holds nothing, and may be told to lie about it."""

    name = "bubblewrap"

    def __init__(self, pretend: dict[str, Any] | None = None) -> None:
        self.pretend = pretend or {}
        self.started = 0

    async def start(self, home: SessionHome, api: Path) -> Cell:
        self.started += 1
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        options = json.dumps({"channel": theirs.fileno(), "home": str(home.path), "pretend": self.pretend})
        command = [sys.executable, "-I", "-c", BARE, options]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=write, stderr=write)
        theirs.close()
        os.close(write)
        return BareCell(process, ours, read)


def offer(backend: Backend, identity: str = "1") -> choosing.Opener:
    async def opener(settings: SandboxSettings, data_dir: Path, log: Log) -> Candidate:
        async def title() -> str:
            return "a test's backend"

        return Candidate(backend, title, identity)

    return opener


def refuse(message: str, hint: str = "") -> choosing.Opener:
    async def opener(settings: SandboxSettings, data_dir: Path, log: Log) -> Candidate:
        raise SandboxUnavailable(message, hint=hint)

    return opener


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def replace(**ways: list[choosing.Opener]) -> None:
        monkeypatch.setattr(choosing, "backends", lambda: ways)

    return replace


class TestProof:
    @pytest.mark.parametrize(
        ("reached", "told"),
        [
            ("secret", "read a file of the host"),
            ("network", "opened a connection to the host"),
            ("environment", "saw the host's variables"),
            ("processes", "processes"),
        ],
    )
    async def test_a_backend_without_walls_does_not_pass(self, tmp_path: Path, reached: str, told: str) -> None:
        pretend = {name: value for name, value in HELD.items() if name != reached}
        with pytest.raises(SandboxUnavailable, match=told):
            await prove(Bare(pretend), tmp_path, title="bare")

    @pytest.mark.parametrize("processes", [8, 9])
    async def test_a_program_may_see_a_few_processes_of_its_own_sandbox(self, tmp_path: Path, processes: int) -> None:
        with pytest.raises(SandboxUnavailable) as broken:
            await prove(Bare({**HELD, "processes": processes, "secret": True}), tmp_path, title="bare")
        assert ("saw 9 processes" in str(broken.value)) == (processes == 9)

    async def test_a_connection_is_noticed_by_the_host_whatever_the_guest_says(self, tmp_path: Path) -> None:
        with pytest.raises(SandboxUnavailable, match="reached a socket of the host"):
            await prove(Bare(HELD), tmp_path, title="bare")

    @pytest.mark.parametrize("missing", sorted(HELD))
    async def test_an_answer_that_is_missing_counts_as_broken(self, tmp_path: Path, missing: str) -> None:
        with pytest.raises(SandboxUnavailable, match="does not hold"):
            await prove(Bare({**HELD, missing: "?"}), tmp_path, title="bare")

    async def test_a_cell_that_ends_at_once_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules[__name__], "BARE", "raise SystemExit(9)")
        with pytest.raises(SandboxUnavailable, match="did not run a program"):
            await prove(Bare(), tmp_path, title="bare")

    async def test_nothing_of_the_probe_stays_behind(self, runtime_dir: Path) -> None:
        found = await candidate("bubblewrap", runtime_dir)
        before = sorted(runtime_dir.iterdir())
        proof = await prove(found.backend, runtime_dir, title="bubblewrap")
        assert sorted(runtime_dir.iterdir()) == before
        assert proof.evidence.startswith("bubblewrap: a hostile probe saw no network, no host files")


class TestChoice:
    async def test_auto_takes_the_first_that_proves_itself(
        self, tmp_path: Path, runtime_dir: Path, ways: Callable[..., None]
    ) -> None:
        real = await candidate("bubblewrap", runtime_dir)
        ways(bubblewrap=[offer(Bare())], container=[refuse("no engine")], monty=[offer(real.backend)])
        choice = await choose(SandboxSettings(), tmp_path)
        assert choice.backend is real.backend
        first, second = choice.passed_over
        assert "does not hold" in first.message
        assert second.message == "no engine"

    async def test_a_named_backend_is_never_replaced(
        self, tmp_path: Path, runtime_dir: Path, ways: Callable[..., None]
    ) -> None:
        real = await candidate("bubblewrap", runtime_dir)
        ways(bubblewrap=[offer(real.backend)], container=[refuse("no engine", "Run: install one")], monty=[])
        with pytest.raises(SandboxUnavailable, match="no engine") as refused:
            await choose(SandboxSettings(backend="container"), tmp_path)
        assert refused.value.hint == "Run: install one"

    async def test_when_none_holds_every_reason_and_the_first_fix_are_told(
        self, tmp_path: Path, ways: Callable[..., None]
    ) -> None:
        ways(bubblewrap=[refuse("first", "Run: fix")], container=[refuse("second", "Run: other")], monty=[])
        with pytest.raises(SandboxUnavailable) as refused:
            await choose(SandboxSettings(), tmp_path)
        assert str(refused.value).startswith(
            "No working sandbox was found, so no program will be run. (1) first (2) second"
        )
        assert refused.value.hint == "Run: fix"

    async def test_strict_isolation_never_takes_a_zygote(self, runtime_dir: Path) -> None:
        await candidate("bubblewrap", runtime_dir)
        choice = await choose(SandboxSettings(isolation="strict"), runtime_dir)
        assert (choice.backend.name, choice.passed_over) == ("bubblewrap", ())
        assert choice.walls["isolation"] == "one bwrap for each sandbox"

    async def test_a_zygote_is_taken_where_it_holds(self, runtime_dir: Path) -> None:
        await candidate("zygote", runtime_dir)
        choice = await choose(SandboxSettings(), runtime_dir)
        assert (choice.backend.name, choice.passed_over) == ("zygote", ())
        assert "cloned from a zygote: a hostile probe saw no network" in choice.evidence

    async def test_one_bwrap_each_where_a_zygote_does_not_hold(
        self, runtime_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some distributions let bwrap make namespaces, and nothing that runs in it."""
        await candidate("zygote", runtime_dir)
        restricted = tmp_path / "usr" / "restricted" / "bin" / "bwrap"
        restricted.parent.mkdir(parents=True)
        restricted.write_text(f'#!/bin/sh\nexec {launcher.find_bwrap()} --unshare-user --disable-userns "$@"\n')
        restricted.chmod(0o755)
        monkeypatch.setattr(launcher, "find_bwrap", lambda: restricted)
        choice = await choose(SandboxSettings(), runtime_dir)
        assert choice.backend.name == "bubblewrap", choice.passed_over
        (reason,) = choice.passed_over
        assert "the zygote could not" in reason.message

    async def test_what_both_ways_to_bubblewrap_lack_is_told_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing() -> Path:
            raise SandboxUnavailable("No usable bubblewrap (bwrap) was found.", hint="Run: install it")

        monkeypatch.setattr(launcher, "find_bwrap", missing)
        with pytest.raises(SandboxUnavailable) as refused:
            await choose(SandboxSettings(backend="bubblewrap"), tmp_path)
        assert str(refused.value) == "No usable bubblewrap (bwrap) was found. Run: install it"

    async def test_a_proof_is_remembered_until_something_changes(
        self, runtime_dir: Path, tmp_path: Path, ways: Callable[..., None]
    ) -> None:
        real = await candidate("bubblewrap", runtime_dir)
        starts = _Counting(real.backend)
        for identity, live, expected in (("1", False, 1), ("1", False, 1), ("1", True, 2), ("2", False, 3)):
            ways(bubblewrap=[offer(starts, identity)])
            choice = await choose(SandboxSettings(), tmp_path, live=live)
            assert starts.started == expected
        assert "proved earlier" not in choice.evidence
        assert "proved earlier" in (await choose(SandboxSettings(), tmp_path)).evidence
        # That of the first identity no longer applied.
        assert len(json.loads((tmp_path / "runtime/proofs.json").read_bytes())) == 1

    async def test_a_proof_holds_for_every_data_folder_with_the_same_runtime(
        self, tmp_path: Path, shared_runtime: Path
    ) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "runtime").symlink_to(shared_runtime)
            choice = await choose(SandboxSettings(backend="bubblewrap"), tmp_path / name)
        assert "proved earlier" in choice.evidence

    async def test_a_spoilt_memory_of_proofs_only_costs_a_probe(
        self, runtime_dir: Path, tmp_path: Path, ways: Callable[..., None]
    ) -> None:
        starts = _Counting((await candidate("bubblewrap", runtime_dir)).backend)
        ways(bubblewrap=[offer(starts)])
        (tmp_path / "runtime").mkdir()
        (tmp_path / "runtime/proofs.json").write_bytes(b"\xff not json")
        await choose(SandboxSettings(), tmp_path)
        assert starts.started == 1

    def test_every_backend_in_the_settings_has_a_way(self) -> None:
        named = SandboxSettings.model_json_schema()["properties"]["backend"]["enum"]
        assert set(named) - {"auto"} == set(choosing.backends())


class _Counting:
    name = "bubblewrap"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.started = 0

    async def start(self, home: SessionHome, api: Path) -> Cell:
        self.started += 1
        return await self._backend.start(home, api)


class TestFixes:
    def test_a_closed_switch_of_the_kernel_names_its_command(self, tmp_path: Path) -> None:
        switch = obstacles.Switch(str(tmp_path / "switch"), "1", "AppArmor says no", "sudo sysctl -w it=0")
        assert obstacles.obstacle((switch,)) == ("", "") or Path("/.dockerenv").exists()
        (tmp_path / "switch").write_text("1\n")
        assert obstacles.obstacle((switch,)) == ("; AppArmor says no", "Run: sudo sysctl -w it=0")

    def test_a_bwrap_that_cannot_make_namespaces_is_told_in_its_own_words(self, tmp_path: Path) -> None:
        bwrap = tmp_path / "bwrap"
        bwrap.write_text(
            '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "bwrap: setting up uid map: denied" >&2\nexit 1\n'
        )
        bwrap.chmod(0o755)
        with pytest.raises(SandboxUnavailable, match="bwrap: setting up uid map: denied"):
            obstacles.bubblewrap_version(bwrap)

    async def test_an_engine_that_is_missing_names_the_command_that_installs_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apt = tmp_path / "apt-get"
        apt.touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SandboxUnavailable) as refused:
            await engine.find_engine("docker")
        assert str(refused.value) == "docker is not installed. Run: sudo apt-get install -y docker.io"

    async def test_an_engine_that_does_not_answer_says_how_to_start_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        docker = tmp_path / "docker"
        docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
        docker.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        with pytest.raises(SandboxUnavailable, match="Cannot connect to the Docker daemon") as refused:
            await engine.find_engine("docker")
        assert "docker" in refused.value.hint
        docker.write_text("#!/bin/sh\necho 'not json'\n")
        with pytest.raises(SandboxUnavailable, match="did not describe itself"):
            await engine.find_engine("docker")


def test_the_page_about_backends_has_a_part_for_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
    for name in choosing.backends():
        part = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert "**Adds:**" in part, name
        assert "**Lacks:**" in part, name


@pytest.mark.parametrize(("said", "version"), [("bubblewrap 0.8.0", "0.8.0"), ("hello", "of unknown version")])
def test_the_version_of_bubblewrap_is_told(tmp_path: Path, said: str, version: str) -> None:
    try:
        real = launcher.find_bwrap()
        obstacles.bubblewrap_version(real)
    except SandboxUnavailable as error:
        pytest.skip(f"bubblewrap does not run here: {error}")
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec echo {said}\nexec {real} "$@"\n')
    bwrap.chmod(0o755)
    assert obstacles.bubblewrap_version(bwrap) == version
