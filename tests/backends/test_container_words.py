"""What an engine says about itself, and what it is told about a container; no engine has to run for this."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.locks import lock_now
from toolfold.sandbox.container import leftovers
from toolfold.sandbox.container.backend import Container
from toolfold.sandbox.container.engine import ContainerEngine, Name, find_engine
from toolfold.sandbox.container.image import Image
from toolfold.sandbox.container.leftovers import Lease, mark
from toolfold.sandbox.protocol import GUEST_HOME, SessionHome

pytestmark = pytest.mark.anyio


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a command of that name first on PATH, which answers `info` with this."""

    def install(name: Name, told: object, *, script: str = "") -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        text = told if isinstance(told, str) else json.dumps(told)
        path.write_text(f"#!/bin/sh\n{script or f'cat <<EOF{chr(10)}{text}{chr(10)}EOF'}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return install


def engine(name: Name = "docker", *, rootless: bool = False, **more: Any) -> ContainerEngine:
    facts = {"holds_limits": True, "remapped": False, **more}
    return ContainerEngine(name, f"/usr/bin/{name}", "1.2", rootless=rootless, **facts)


class TestEngine:
    @pytest.mark.parametrize(
        ("told", "title", "facts"),
        [
            ({"ServerVersion": "20.10"}, "docker 20.10", (False, True, False)),
            ({"ServerVersion": "27", "MemoryLimit": False}, "docker 27", (False, False, False)),
            ({"ServerVersion": "27", "SecurityOptions": ["name=userns"]}, "docker 27", (False, True, True)),
            (
                {"ServerVersion": "27", "SecurityOptions": ["name=seccomp", "name=rootless", "name=userns"]},
                "docker 27 (rootless)",
                (True, True, False),
            ),
        ],
    )
    async def test_docker_describes_itself(
        self, says: Any, told: object, title: str, facts: tuple[bool, bool, bool]
    ) -> None:
        says("docker", told)
        found = await find_engine("docker")
        assert found.title == title
        assert (found.rootless, found.holds_limits, found.remapped) == facts

    @pytest.mark.parametrize(
        ("rootless", "cgroups", "held"), [(True, "v1", False), (True, "v2", True), (False, "v1", True)]
    )
    async def test_podman_describes_itself(self, says: Any, rootless: bool, cgroups: str, held: bool) -> None:
        host = {"security": {"rootless": rootless}, "cgroupVersion": cgroups}
        says("podman", {"host": host, "version": {"Version": "4.3"}})
        found = await find_engine("podman")
        assert found.title == f"podman 4.3{' (rootless)' if rootless else ''}"
        assert (found.name, found.rootless, found.holds_limits, found.remapped) == ("podman", rootless, held, False)

    @pytest.mark.parametrize(
        ("told", "script", "message"),
        [
            ({"ServerVersion": "", "ServerErrors": ["no daemon", "no socket"]}, "", "but no daemon; no socket."),
            ({}, "", "its daemon does not answer"),
            ("no json", "", "docker did not describe itself"),
            ("", "echo refused >&2; exit 3", "`docker info` failed: refused"),
            ("", "exit 3", "`docker info` failed: exit code 3"),
        ],
    )
    async def test_one_that_does_not_work_says_why(self, says: Any, told: object, script: str, message: str) -> None:
        says("docker", told, script=script)
        with pytest.raises(SandboxUnavailable) as problem:
            await find_engine("docker")
        assert message in problem.value.message
        if "describe" not in message:
            assert problem.value.hint

    async def test_a_command_that_hangs_is_ended(self, says: Any, tmp_path: Path) -> None:
        says("docker", "", script=f"echo $$ > {tmp_path}/pid; exec sleep 600")
        stuck = ContainerEngine("docker", str(tmp_path / "bin" / "docker"), "1", False, True, False)
        with pytest.raises(SandboxUnavailable, match=r"`docker ps` did not answer within 0\.5 s"):
            await stuck.do("ps", seconds=0.5)
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()

    async def test_a_command_reads_what_it_is_given(self, says: Any, tmp_path: Path) -> None:
        says("docker", "", script="cat")
        reading, writing = os.pipe()
        os.write(writing, b"through")
        os.close(writing)
        plain = ContainerEngine("docker", str(tmp_path / "bin" / "docker"), "1", False, True, False)
        assert await plain.do("import", source=reading) == "through"
        os.close(reading)
        assert await plain.do("import") == ""

    def test_who_the_processes_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = f"{os.geteuid()}:{os.getegid()}"
        assert engine("podman", rootless=True).user(7) == ["--userns=keep-id", "--user", own]
        assert engine(rootless=True).user(7) == ["--user", "0:0"]
        assert engine().user(7) == ["--user", "7:7"]
        assert engine().user(None) == ["--user", own]
        assert engine(remapped=True).user(7) == ["--userns=host", "--user", "7:7"]
        for uid, rootless, needed in ((0, False, True), (0, True, False), (1000, False, False)):
            monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
            assert engine(rootless=rootless).needs_spare_user is needed

    def test_limits_on_cores_and_processes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hard = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NPROC: 100}

        def getrlimit(which: int) -> tuple[int, int]:
            return 0, hard[which]

        monkeypatch.setattr(resource, "getrlimit", getrlimit)
        assert (engine().core, engine(rootless=True).core) == (1, 0)
        assert engine().ulimits() == []
        assert engine("podman").ulimits() == ["--ulimit", "nproc=100:100"]
        hard.update({resource.RLIMIT_CORE: 5, resource.RLIMIT_NPROC: 10**6})
        assert engine(rootless=True).core == 1
        assert engine("podman").ulimits() == ["--ulimit", "nproc=32768:32768"]
        hard[resource.RLIMIT_NPROC] = resource.RLIM_INFINITY
        assert engine("podman").ulimits() == ["--ulimit", "nproc=32768:32768"]


class TestLeases:
    def test_what_belongs_to_no_live_process_is_abandoned(self, tmp_path: Path) -> None:
        ours, other = Lease(tmp_path), Lease(tmp_path)
        names = [ours.name(), ours.name(), other.name(), "toolfold-dead-1", "somebody-elses"]
        assert len({*names}) == 5
        assert ours.label == other.label
        assert ours.label != Lease(tmp_path / "other").label
        assert ours.abandoned(names) == ["toolfold-dead-1", "somebody-elses"]
        (tmp_path / "dead.lock").touch()
        assert ours.abandoned(names) == ["toolfold-dead-1", "somebody-elses"]
        assert not (tmp_path / "dead.lock").exists(), "a lock that nobody holds is removed"
        del other
        gc.collect()
        assert len(ours.abandoned(names)) == 3
        assert len([*tmp_path.glob("*.lock")]) == 1

    def test_a_lock_that_another_removes_before_it_is_taken_is_no_lease(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other, waits = Lease(tmp_path), [True]

        def lock_late(file: int) -> bool:
            if waits and waits.pop():
                other.abandoned([])
            return lock_now(file)

        monkeypatch.setattr(leftovers, "lock_now", lock_late)
        ours = Lease(tmp_path)
        assert other.abandoned([ours.name()]) == []

    def test_a_mark_tells_nothing_of_the_name(self) -> None:
        assert mark("toolfold-1") != mark("toolfold-2")
        assert "toolfold" not in mark("toolfold-1")
        assert len(mark("toolfold-1")) == 24


class TestCommand:
    def container(self, tmp_path: Path, kind: ContainerEngine, **settings: Any) -> Container:
        image = Image("sha256:1", ("/usr/bin/python3", "-S", "-I"), {"LD_LIBRARY_PATH": "/lib"})
        packages = [tmp_path / "packages"]
        return Container(SandboxSettings(**settings), kind, image, tmp_path, Lease(tmp_path / "containers"), packages)

    def command(self, tmp_path: Path, kind: ContainerEngine, **settings: Any) -> list[str]:
        made = self.container(tmp_path, kind, **settings)
        return made.command("toolfold-1", SessionHome(tmp_path / "home"), tmp_path / "api", None)

    def test_every_wall_is_there(self, tmp_path: Path) -> None:
        command = self.command(tmp_path, engine(rootless=True), memory=100_000_000, processes=10, cpu=0.5)
        text = " ".join(command)
        for wall in (
            "--network none",
            "--read-only",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            "--pull never",
            "--ipc private",
            f"--memory {100_000_000 + 32 * 1024**2}",
            f"--memory-swap {100_000_000 + 32 * 1024**2}",
            "--cpus 0.5",
            "--pids-limit 14",
            "--ulimit nofile=256:256",
            f"--shm-size {64 * 1024**2}",
            f"--tmpfs /tmp:rw,nosuid,nodev,mode=1777,size={64 * 1024**2},nr_inodes=10000",
            f"--volume {tmp_path}/api:/opt/api:ro",
            f"--volume {tmp_path}/home/skills:{GUEST_HOME}/skills:rw",
            f"--volume {tmp_path}/home/workspace:{GUEST_HOME}/workspace:rw",
            f"--volume {tmp_path}/packages:/opt/packages/0:ro",
            "--env LD_LIBRARY_PATH=/lib",
            "--entrypoint /usr/bin/python3 sha256:1 -S -I -c",
        ):
            assert wall in text
        options = json.loads(command[-1])
        assert options["mark"] == mark("toolfold-1")
        assert options["environment"]["LD_LIBRARY_PATH"] == "/lib"
        assert options["paths"] == ["/opt/packages/0"]
        assert {*options["filters"]} == {"x86_64", "aarch64"}
        assert options["limits"] == {
            "RLIMIT_DATA": 100_000_000,
            "RLIMIT_AS": 100_000_000 + 1024**3,
            "RLIMIT_FSIZE": 1000**3,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_SIGPENDING": 256,
        }

    def test_where_an_engine_holds_no_limits_processes_are_counted_inside(self, tmp_path: Path) -> None:
        command = self.command(tmp_path, engine(rootless=True, holds_limits=False), processes=10)
        assert json.loads(command[-1])["limits"]["RLIMIT_NPROC"] == 14

    def test_podman_is_not_given_what_it_refuses(self, tmp_path: Path) -> None:
        command = self.command(tmp_path, engine("podman", rootless=True))
        assert not any("nr_inodes" in word for word in command)

    def test_an_image_of_somebody_else_gets_the_guest_and_a_home(self, tmp_path: Path) -> None:
        image = Image("sha256:2", ("python3",), has_guest=False)
        for _ in range(2):
            (guest, at), (folder, home) = image.mounts(tmp_path)
            assert (guest / "toolfold_guest").is_dir()
            assert (at, home) == ("/opt/toolfold", GUEST_HOME)
            assert sorted(path.name for path in folder.iterdir()) == ["servers", "skills", "workspace"]
        assert Image("sha256:1", ("python3",)).mounts(tmp_path) == []

    async def test_a_path_that_cannot_be_mounted_is_refused(self, tmp_path: Path) -> None:
        made = self.container(tmp_path, engine(rootless=True))
        with pytest.raises(SandboxUnavailable, match="has a colon"):
            await made.start(SessionHome(tmp_path / "a:b"), tmp_path / "api")

    async def test_a_client_that_cannot_be_started_leaks_nothing(self, tmp_path: Path) -> None:
        kind = ContainerEngine("docker", str(tmp_path / "gone"), "1", True, True, False)
        made = self.container(tmp_path, kind)
        home = SessionHome(tmp_path / "home")
        home.workspace.mkdir(parents=True)
        home.skills.mkdir()
        before = len([*Path("/proc/self/fd").iterdir()])
        with pytest.raises(SandboxUnavailable, match="docker could not be started"):
            await made.start(home, tmp_path / "api")
        await asyncio.sleep(0)
        assert len([*Path("/proc/self/fd").iterdir()]) == before
