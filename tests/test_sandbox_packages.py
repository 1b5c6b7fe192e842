"""Packages for agent code: installed by the host once, mounted read-only, used inside."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.backends.available import candidate
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings, Settings
from toolfold.errors import ConfigError
from toolfold.guards.context import run_deadline
from toolfold.sandbox import packages
from toolfold.sandbox.packages import install
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.sandbox import Sandbox


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for the whole world: no network is needed."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    _wheel(folder, "smallthing", "1.0", "def answer():\n    return 42\n", requires="otherthing>=1")
    _wheel(folder, "otherthing", "1.5", "VALUE = 1\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    if packages._pip() is None:  # pyright: ignore[reportPrivateUsage]
        pytest.skip("no pip in this environment or its base: run python -m ensurepip")
    return folder


def _wheel(folder: Path, name: str, version: str, code: str, requires: str = "") -> Path:
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


@pytest.mark.usefixtures("index")
def test_installing_takes_no_code_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = tmp_path / "project"
    hostile.mkdir()
    (hostile / "pip.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(hostile)
    install(["smallthing"], tmp_path / "data")
    assert not (tmp_path / "ran").exists()


def test_packages_are_installed_once_with_their_hashes(index: Path, tmp_path: Path) -> None:
    told: list[str] = []
    (folder,) = install(["smallthing"], tmp_path / "data", told.append)
    assert (folder / "smallthing.py").exists()
    assert (folder / "otherthing.py").exists()
    lock = (folder / "toolfold-packages.txt").read_text()
    digest = sha256((index / "smallthing-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert f"smallthing==1.0 --hash=sha256:{digest}" in lock
    assert "otherthing==1.5" in lock
    assert told[0].startswith("Installing smallthing")
    told.clear()
    assert install(["smallthing"], tmp_path / "data", told.append) == (folder,)
    assert told == []


def test_an_installation_that_never_ends_is_not_waited_for_for_ever(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = install(["smallthing"], tmp_path / "data")
    monkeypatch.setattr(packages, "_LOCK_SECONDS", 0.2)
    with (folder.parent / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert install(["smallthing"], tmp_path / "data") == (folder,)
        shutil.rmtree(folder)
        with pytest.raises(ConfigError, match="another process has been installing"):
            install(["smallthing"], tmp_path / "data")


def test_no_installed_file_names_where_it_was_installed(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (folder,) = install(["smallthing"], tmp_path / "data")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".pyc" for path in files)
    assert [path for path in files if str(tmp_path).encode() in path.read_bytes()] == []


def test_what_was_installed_once_is_what_is_installed_again(index: Path, tmp_path: Path) -> None:
    (folder,) = install(["smallthing"], tmp_path / "data")
    shutil.rmtree(folder)
    _wheel(index, "smallthing", "2.0", "raise SystemError\n")
    (again,) = install(["smallthing"], tmp_path / "data")
    assert "smallthing==1.0" in (again / "toolfold-packages.txt").read_text()


def test_an_archive_that_changed_under_its_name_is_refused(index: Path, tmp_path: Path) -> None:
    (folder,) = install(["smallthing"], tmp_path / "data")
    shutil.rmtree(folder)
    _wheel(index, "smallthing", "1.0", "raise SystemError  # another content\n")
    with pytest.raises(ConfigError, match="could not be installed"):
        install(["smallthing"], tmp_path / "data")


def test_a_package_that_is_not_there_says_what_to_check(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        install(["nosuchthing"], tmp_path / "data")
    assert "nosuchthing" in str(caught.value)
    assert "Is the name right" in str(caught.value)
    assert not [path for path in (tmp_path / "data" / "packages").iterdir() if path.is_dir()]


def test_nothing_is_built_from_source(index: Path, tmp_path: Path) -> None:
    source = tmp_path / "evilthing-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup; setup()\n")
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(index / "evilthing-1.0.tar.gz"), source.name], check=True)
    with pytest.raises(ConfigError):
        install(["evilthing"], tmp_path / "data")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "package",
    ["--index-url=http://x", "-r/etc/passwd", "./here", "git+https://x/y", "a b", "x @ file:///etc", "", "a\n-e ."],
)
def test_only_names_are_packages(package: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a package"):
        install([package], tmp_path)


def test_a_pip_that_tells_no_hash_of_a_local_file_is_helped_out(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "smallthing", "1.0", "")
    item: dict[str, Any] = {
        "metadata": {"name": "smallthing", "version": "1.0"},
        "download_info": {"url": wheel.as_uri(), "archive_info": {}},
    }
    (line,) = packages._locked_lines({"install": [item]})  # pyright: ignore[reportPrivateUsage]
    assert line == f"smallthing==1.0 --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}"


@pytest.mark.anyio
async def test_installing_them_does_not_count_as_time_of_the_program() -> None:
    settings = Settings(sandbox=SandboxSettings(packages=("smallthing",)))
    assert run_deadline(settings, None).patience > settings.sandbox.timeout + 600
    assert run_deadline(settings, 5).patience <= 5


def test_the_command_line_tells_what_it_installs(index: Path, tmp_path: Path) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text('[sandbox]\npackages = ["smallthing"]\n')
    code = "import smallthing; print(smallthing.answer())"
    command = [warm.python(), "-m", "toolfold", "run", "-c", code, "--config", str(config), "--data", str(tmp_path)]
    first, again = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    assert (first.stdout, again.stdout) == ("42\n", "42\n"), first.stderr + again.stderr
    assert "Installing smallthing" in first.stderr
    assert again.stderr == ""


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["zygote", "bubblewrap"])
async def test_programs_import_them_and_cannot_change_them(index: Path, tmp_path: Path, backend: str) -> None:
    settings = SandboxSettings(packages=("smallthing",))
    found = await candidate(backend, tmp_path / "data", settings)
    (tmp_path / "home" / "workspace").mkdir(parents=True)
    (tmp_path / "home" / "skills").mkdir()
    (tmp_path / "api" / "servers").mkdir(parents=True)
    home = SessionHome(tmp_path / "home")
    sandbox = await Sandbox.start(found.backend.start(home, tmp_path / "api"), home, settings)
    try:
        done = await sandbox.run("import smallthing; smallthing.answer()", Listener(slow=False), 10)
        assert (done.error, done.value) == ("", 42)
        done = await sandbox.run("open(smallthing.__file__, 'a')", Listener(slow=False), 10)
        assert "PermissionError" in done.error or "Read-only" in done.error
    finally:
        await sandbox.close()
