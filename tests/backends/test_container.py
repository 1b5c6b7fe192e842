"""Containers: what they are started with, and that none of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.available import ENGINES, candidate
from tests.backends.box import SETTINGS, Box, box_around
from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxUnavailable
from toolfold.sandbox.container.backend import Container, open_container
from toolfold.sandbox.container.cell import ContainerCell
from toolfold.sandbox.container.engine import ContainerEngine, Name, find_engine
from toolfold.sandbox.container.image import import_runtime
from toolfold.sandbox.container.leftovers import Lease
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.runtime import prepare

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=ENGINES)
async def engine(request: pytest.FixtureRequest, engine_data: Path) -> ContainerEngine:
    await candidate(request.param, engine_data, SETTINGS)
    name: Name = request.param
    return await find_engine(name)


@pytest.fixture
async def container(engine: ContainerEngine, engine_data: Path) -> Container:
    return await open_container(SETTINGS, engine, engine_data)


@pytest.fixture
async def box(container: Container, tmp_path: Path) -> AsyncIterator[Box]:
    async with box_around(container, tmp_path / "box") as made:
        yield made


async def names(engine: ContainerEngine, container: Container) -> set[str]:
    """Containers of this data directory: tests that run beside this one have their own."""
    shown = await engine.do("ps", "--all", "--filter", f"label={container.label}", "--format", "{{.Names}}")
    return set(shown.split())


async def gone(engine: ContainerEngine, container: Container, before: set[str]) -> bool:
    """Whether, within ten seconds, there are no more containers than before."""
    for _ in range(100):
        if not await names(engine, container) - before:
            return True
        await asyncio.sleep(0.1)
    return False


def sleeping(container: Container, engine: ContainerEngine) -> list[str]:
    """A container that does nothing for five minutes and hears nothing."""
    options = ["--network", "none", "--log-driver", "none", "--stop-signal", "SIGKILL", "--label", container.label]
    options += ["--ulimit", "nofile=256:256", *engine.ulimits()]
    for key, value in container.image.environment.items():
        options += ["--env", f"{key}={value}"]
    python = container.image.python[0]
    return [*options, "--entrypoint", python, container.image.id, "-I", "-c", "import time; time.sleep(300)"]


class TestWalls:
    async def test_a_container_has_the_walls_that_the_page_promises(
        self, box: Box, engine: ContainerEngine, container: Container
    ) -> None:
        before = await names(engine, container)
        await box.printed("print('up')")
        (name,) = await names(engine, container) - before
        (told,) = json.loads(await engine.do("inspect", name))
        host: dict[str, Any] = told["HostConfig"]
        assert host["NetworkMode"] == "none"
        assert host["ReadonlyRootfs"] is True
        assert host["Privileged"] is False
        if engine.holds_limits:
            assert host["Memory"] == host["MemorySwap"] >= SETTINGS.memory
            assert SETTINGS.processes <= host["PidsLimit"] <= SETTINGS.processes + 8
        assert host["LogConfig"]["Type"] == "none"
        assert host["AutoRemove"] is True
        assert [option for option in host["SecurityOpt"] if option.startswith("no-new-privileges")]
        assert told["Config"]["User"].partition(":")[0] not in {"", "0", "root"} or engine.rootless
        writable = {mount["Destination"] for mount in told["Mounts"] if mount["RW"]}
        assert writable == {"/agent/workspace", "/agent/skills"}

    async def test_processes_inside_are_nobody_without_privileges_and_filtered_twice(self, box: Box) -> None:
        status = await box.printed("print(open('/proc/self/status').read())")
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert {fields[f"Cap{kind}"].strip("\t0") for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {""}
        assert fields["NoNewPrivs"].strip() == "1"
        assert fields["Seccomp"].strip() == "2"
        assert int(fields["Seccomp_filters"]) >= 2
        assert fields["Uid"].split()[0] != "0"

    async def test_the_first_process_cannot_be_reached_from_inside(self, box: Box) -> None:
        for attempt in ("os.kill(1, 9)", "os.listdir('/proc/1/fd')", "open('/proc/1/mem', 'rb')"):
            ran = await box.run(f"import os\n{attempt}")
            assert "Error" in ran.error, attempt
        assert await box.printed("print('still up')") == "still up\n"

    async def test_bytes_on_every_descriptor_do_not_reach_the_host_as_anything_but_the_programs(self, box: Box) -> None:
        code = "import os\nfor fd in range(3, 256):\n    try: os.write(fd, b'c' * 100)\n    except OSError: pass"
        ran = await box.run(code, timeout=5)
        assert ran.failure is not None
        assert await box.printed("print('next')") == "next\n"

    async def test_files_made_inside_can_be_removed_by_the_host(self, box: Box) -> None:
        await box.printed("import os\nos.makedirs('workspace/a/b')\nopen('workspace/a/b/c', 'w').write('x')")
        (box.home.workspace / "a/b/c").unlink()
        assert (box.home.workspace / "a/b").stat().st_uid == (box.home.workspace).stat().st_uid


class TestEnds:
    async def test_a_timeout_ends_the_container_and_not_only_its_client(
        self, box: Box, engine: ContainerEngine, container: Container
    ) -> None:
        before = await names(engine, container)
        code = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\nwhile True: pass"
        ran = await box.run(code, timeout=1)
        assert isinstance(ran.failure, LimitExceeded)
        assert await gone(engine, container, before)

    async def test_a_cell_killed_while_it_starts_leaves_nothing(
        self, container: Container, engine: ContainerEngine, box: Box
    ) -> None:
        before = await names(engine, container)
        cell = await container.start(box.home, box.api)
        cell.kill()
        await cell.wait()
        assert await gone(engine, container, before)

    async def test_a_container_that_does_not_listen_is_removed_by_force(
        self, engine: ContainerEngine, container: Container, box: Box
    ) -> None:
        """One whose input does not end: what a client that hangs would look like."""
        before = await names(engine, container)
        name = f"toolfold-test-{os.getpid()}"
        process = subprocess.Popen(
            [engine.command, "run", "--rm", "--name", name, *sleeping(container, engine)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=box.home.path,
        )
        ours, theirs = socket.socketpair()
        cell = ContainerCell(engine, name, SETTINGS, process, ours, theirs)
        while name not in await names(engine, container):
            await asyncio.sleep(0.1)
        cell.kill()
        await cell.wait()
        assert await gone(engine, container, before)

    @pytest.mark.parametrize("asleep", [False, True], ids=["running", "asleep"])
    async def test_a_killed_host_leaves_no_container(
        self, engine: ContainerEngine, engine_data: Path, container: Container, tmp_path: Path, *, asleep: bool
    ) -> None:
        before = await names(engine, container)
        program = f"""
import asyncio, sys
from pathlib import Path
from tests.backends.box import SETTINGS, box_around
from toolfold.sandbox.container.backend import open_container
from toolfold.sandbox.container.engine import find_engine
async def main():
    container = await open_container(SETTINGS, await find_engine({engine.name!r}), Path({str(engine_data)!r}))
    async with box_around(container, Path({str(tmp_path / "box")!r})) as box:
        await box.printed("print(1)")
        while {asleep} and not box.sandbox.cell.still():
            await asyncio.sleep(0.01)
        print("running", flush=True)
        while {asleep}:
            await asyncio.sleep(1)
        await box.run("import os; os.fork()\\nwhile True: pass", timeout=60)
asyncio.run(main())
"""
        host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert host.stdout is not None
        assert await asyncio.to_thread(host.stdout.readline) == b"running\n"
        assert await names(engine, container) - before
        host.send_signal(signal.SIGKILL)
        host.wait(10)
        host.stdout.close()
        assert await gone(engine, container, before)

    async def test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not(
        self, engine: ContainerEngine, engine_data: Path, container: Container, box: Box
    ) -> None:
        await box.printed("print('mine')")
        dead = Lease(engine_data / "containers")
        left = dead.name()
        await engine.do("run", "--detach", "--name", left, *sleeping(container, engine))
        other = await open_container(SETTINGS, engine, engine_data)
        assert left in await names(engine, container)
        del dead  # what the end of its process does
        assert await other.sweep() == 1
        assert left not in await names(engine, container)
        assert await box.printed("print('still mine')") == "still mine\n"


class TestImages:
    async def test_the_image_is_made_once(self, engine: ContainerEngine, engine_data: Path) -> None:
        runtime = prepare(engine_data)
        first = await import_runtime(engine, runtime)
        assert await import_runtime(engine, runtime) == first

    async def test_a_missing_image_says_how_to_get_it(self, engine: ContainerEngine, engine_data: Path) -> None:
        settings = SandboxSettings(image="no-such-image:1")
        with pytest.raises(SandboxUnavailable) as refused:
            await open_container(settings, engine, engine_data)
        assert refused.value.hint == f"Run: {engine.name} pull no-such-image:1"

    async def test_another_image_with_a_python_works_alike(
        self, engine: ContainerEngine, engine_data: Path, tmp_path: Path
    ) -> None:
        """Made from the same files, but without our guest and home folder, and with `python3` where it usually is."""
        runtime = prepare(engine_data)
        archive = tmp_path / "image.tar"
        foreign_name = f"toolfold-test-foreign:{os.getpid()}"

        def foreign(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            member.mode |= 0o555 if member.isdir() else 0o444
            return None if member.name.startswith(("./agent", "./opt")) else member

        with tarfile.open(archive, "w") as packed:
            packed.add(runtime.root, arcname=".", filter=foreign)
            link = tarfile.TarInfo("./usr/local/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, runtime.python
            packed.addfile(link)
        variables = (f"LD_LIBRARY_PATH={runtime.library_path}", "IMAGE_SECRET=1", "PATH=/usr/local/bin:/usr/bin:/bin")
        changes = [word for variable in variables for word in ("--change", f"ENV {variable}")]
        with archive.open("rb") as file:
            await engine.do("import", *changes, "-", foreign_name, source=file.fileno(), seconds=120)
        try:
            settings = SandboxSettings(image=foreign_name, memory=SETTINGS.memory)
            container = await open_container(settings, engine, engine_data)
            async with box_around(container, tmp_path / "box") as box:
                assert await box.printed("from servers.lab import echo\nprint(await echo(text='e'))") == "e\n"
                code = "import os\nprint(sorted(os.listdir('.')), os.environ.get('IMAGE_SECRET'))"
                assert await box.printed(code) == "['servers', 'skills', 'workspace'] None\n"
        finally:
            await engine.do("rmi", "--force", foreign_name)


async def test_a_folder_that_no_engine_can_mount_is_refused(container: Container, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="colon"):
        await container.start(SessionHome(tmp_path / "a:b"), tmp_path)
