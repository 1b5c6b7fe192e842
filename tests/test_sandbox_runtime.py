"""The sandbox's root folder, and who a sandbox is when the host is root."""

from __future__ import annotations

import asyncio
import gc
import marshal
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings
from toolfold.sandbox import runtime as module
from toolfold.sandbox.anonymous import forget_paths
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.runtime import prepare
from toolfold.sandbox.sandbox import Sandbox


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runtime")


def test_no_path_of_the_host_is_inside(data_dir: Path) -> None:
    runtime = prepare(data_dir)
    assert runtime.python == f"/usr/bin/{Path(sys.executable).resolve().name}"
    places = {path.name for path in runtime.root.iterdir()}
    assert places <= {"agent", "dev", "etc", "lib", "lib64", "nix", "opt", "proc", "tmp", "usr"}


def test_no_file_in_it_names_a_path_of_the_host(data_dir: Path) -> None:
    names = [path.encode() for path in (sys.base_prefix, str(data_dir)) if not path.startswith("/usr")]
    files = [path for path in prepare(data_dir).root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 500
    assert [path for path in files if any(name in path.read_bytes() for name in names)] == []


def test_a_path_is_forgotten_without_changing_a_size_or_an_age(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("HOME = '/home/ann/python'\nOTHER = '/data and /home/anna'\n")
    compiled = Path(py_compile.compile(str(source), dfile="/home/ann/python/module.py", doraise=True) or "")
    before = source.stat()
    forget_paths(tmp_path, ["/home/ann/python", "/home/ann/", "/data", "/usr/lib"])
    assert source.read_text() == "HOME = '/usr////////////'\nOTHER = '/data and /home/anna'\n"
    assert (source.stat().st_size, source.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    code = marshal.loads(compiled.read_bytes()[16:])
    assert os.path.normpath(code.co_filename) == "/usr/module.py"
    found = subprocess.run(
        [sys.executable, "-c", "import module; print(module.HOME)"], cwd=tmp_path, capture_output=True, check=False
    )
    assert found.stdout == b"/usr////////////\n"


def test_it_is_readable_for_everybody_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        root = prepare(tmp_path).root
    finally:
        os.umask(before)
    closed = [path for path in root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o004 == 0]
    assert closed == []


def test_versions_that_nobody_wants_any_more_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "runtime" / "python3.9-old"
    recent = tmp_path / "runtime" / "python3.10-recent"
    for folder in (old, recent):
        (folder / "opt/toolfold").mkdir(parents=True)
        (folder / "opt/toolfold/library_path").write_text("")
    os.utime(old / "opt/toolfold/library_path", (1, 1))
    kept = prepare(tmp_path).root
    assert not old.exists()
    assert recent.exists()
    assert kept.exists()


def test_it_is_built_once(data_dir: Path) -> None:
    first = prepare(data_dir)
    mark = first.root / "built-once"
    mark.touch()
    assert prepare(data_dir) == first
    assert mark.exists()


def test_a_guest_that_cannot_be_compiled_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = tmp_path / "guest"
    guest.mkdir()
    (guest / "boot.py").write_text("def broken(:\n")
    monkeypatch.setattr(module, "_GUEST", guest)

    def copy_nothing(*_: object) -> None: ...

    monkeypatch.setattr(module, "_copy_stdlib", copy_nothing)  # it takes seconds
    with pytest.raises(py_compile.PyCompileError):
        prepare(tmp_path)
    assert [*(tmp_path / "runtime").iterdir()] == [], "nothing of it is left"


@pytest.mark.anyio
async def test_a_backend_that_nobody_uses_any_more_leaves_no_filter(data_dir: Path) -> None:
    def filters() -> set[int]:
        gc.collect()
        open_files = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return {path.stat().st_ino for path in open_files if "memfd:seccomp" in str(path.readlink())}

    await candidate("bubblewrap", data_dir)  # proved once; the next one is only made
    before = filters()
    found = await candidate("bubblewrap", data_dir)
    made = filters() - before
    assert made
    del found
    with anyio.fail_after(60):  # the thread that made it holds its last result until its next work
        while made & filters():
            await asyncio.to_thread(int)


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["zygote", "bubblewrap"])
async def test_programs_are_behind_every_wall(data_dir: Path, tmp_path: Path, backend: str) -> None:
    home = SessionHome(tmp_path / "home")
    home.workspace.mkdir(parents=True)
    home.skills.mkdir()
    (tmp_path / "api" / "servers").mkdir(parents=True)
    found = await candidate(backend, data_dir)
    sandbox = await Sandbox.start(found.backend.start(home, tmp_path / "api"), home, SandboxSettings())
    try:
        done = await sandbox.run("open('/proc/self/status').read()", Listener(slow=False), 20)
    finally:
        await sandbox.close()
    fields = dict(line.split(":\t", 1) for line in str(done.value).splitlines() if ":\t" in line)
    assert {fields[f"Cap{kind}"].strip("0") for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {""}
    assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Uid"].split()[0]) == ("1", "2", "1000")


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["zygote", "bubblewrap"])
async def test_folders_that_only_their_owner_can_enter_can_be_used(
    data_dir: Path, tmp_path: Path, backend: str
) -> None:
    """As root the sandbox is somebody else, who may enter none of these by himself."""
    locked = tmp_path / "locked"
    home = SessionHome(locked / "homes" / "one")
    home.workspace.mkdir(parents=True)
    home.skills.mkdir()
    api = locked / "api"
    (api / "servers").mkdir(parents=True)
    (api / "servers" / "thing.py").write_text("ANSWER = 42\n")
    (api / "servers" / "thing.py").chmod(0o600)
    for folder in (locked, home.path.parent, home.path, api, api / "servers"):
        folder.chmod(0o700)
    found = await candidate(backend, data_dir)
    for _ in range(2):
        sandbox = await Sandbox.start(found.backend.start(home, api), home, SandboxSettings())
        try:
            code = "from servers.thing import ANSWER\nopen('workspace/n', 'a').write('x')\nANSWER"
            done = await sandbox.run(code, Listener(slow=False), 10)
            assert (done.error, done.value) == ("", 42)
        finally:
            await sandbox.close()
    assert (home.workspace / "n").read_text() == "xx"
    assert locked.stat().st_mode & 0o077 == 0


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["zygote", "bubblewrap"])
async def test_root_is_another_user_inside_in_each_home(data_dir: Path, tmp_path: Path, backend: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has ids to give away: run the tests as root")
    found = await candidate(backend, data_dir)
    api = tmp_path / "api"
    (api / "servers").mkdir(parents=True)
    owners: list[int] = []
    for name in ("one", "two", "one"):
        home = SessionHome(tmp_path / name)
        home.workspace.mkdir(parents=True, exist_ok=True)
        home.skills.mkdir(exist_ok=True)
        sandbox = await Sandbox.start(found.backend.start(home, api), home, SandboxSettings())
        try:
            done = await sandbox.run(
                "open('workspace/file', 'w').close()\nimport os; os.getuid()", Listener(slow=False), 10
            )
            assert (done.error, done.value) == ("", 1000)
        finally:
            await sandbox.close()
        owners.append((home.workspace / "file").stat().st_uid)
    assert 0 not in owners
    assert owners[0] == owners[2] != owners[1]
