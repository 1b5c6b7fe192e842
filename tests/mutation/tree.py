"""The copy of the project that mutants are tried in, and the process that runs tests there."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_ENGINE = threading.Lock()
"""Held by tests of containers, which look at what the engine has, and name containers after process numbers."""
_COPIED = ("src", "tests", "benchmarks", "docs", "scripts", "pyproject.toml", "constraints.txt")
_FOLDERS_OF_RUNTIME = ("sandbox/runtime.py", "sandbox/packages.py")
"""Mutants of these may spoil the interpreter that all tests share; it is made anew after each."""


class Trees:
    """A context manager: as many copies as jobs are done at a time."""

    def __init__(self, project: Path, work: Path, count: int) -> None:
        self._all = [Tree(project, work / f"tree-{number}") for number in range(count)]
        self._free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Trees:
        for tree in self._all:
            self._free.put(self._open.enter_context(tree))
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    @property
    def root(self) -> Path:
        return self._all[0].root

    def each(self, do: Callable[[Tree, _Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
        """What `do` returns for each item, as it comes."""

        def one(item: _Item) -> _Answer:
            tree = self._free.get()
            try:
                return do(tree, item)
            finally:
                self._free.put(tree)

        pool = ThreadPoolExecutor(len(self._all))
        try:
            for future in as_completed([pool.submit(one, item) for item in items]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Tree:
    """A context manager. The working tree itself is never changed."""

    def __init__(self, project: Path, root: Path) -> None:
        self._project = project
        self.root = root
        self.source = self.root / "src" / "toolfold"
        self._folder = Path()
        self._servers: dict[bool, subprocess.Popen[str]] = {}

    def __enter__(self) -> Tree:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        for name in _COPIED:
            if (self._project / name).is_dir():
                shutil.copytree(self._project / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(self._project / name, self.root / name)
        for page in self._project.glob("*.md"):
            shutil.copy2(page, self.root / page.name)
        self._make_environment()
        # Short, because sockets are made below it.
        self._folder = Path(tempfile.mkdtemp(prefix="mutate-"))
        self._folder.chmod(0o755)
        return self

    def _make_environment(self) -> None:
        """The project's environment with the copy in place of the project, also for processes started with `-I`."""
        ours, theirs = self.root / ".venv", self._project / ".venv"
        packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (ours / packages).mkdir(parents=True)
        (ours / packages / "copy.pth").write_text(f"{self.root / 'src'}\n{theirs / packages}\n")
        for path in theirs.iterdir():
            if not path.name.startswith("lib"):
                (ours / path.name).symlink_to(path)
        (ours / "bin").unlink()
        (ours / "bin").mkdir()
        for path in (theirs / "bin").iterdir():
            (ours / "bin" / path.name).symlink_to(path)

    def __exit__(self, *exc: object) -> None:
        for server in self._servers.values():
            server.kill()
            server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self, *, apart: bool) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPATH"] = str(self.root / "src")
        environment.setdefault("TOOLFOLD_SHARED", str(self._project.parent / "shared"))
        return subprocess.Popen(
            [*(_apart() if apart else ()), str(self.root / ".venv" / "bin" / "python"), "-m", "tests.mutation.server"],
            cwd=self.root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, job: dict[str, Any], *, containers: bool) -> dict[str, Any]:
        """A job of `server.py`, and its answer. Tests of containers must see processes that the engine started."""
        with _ENGINE if containers else contextlib.nullcontext():
            server = self._servers.get(containers) or self._started(apart=not containers)
            self._servers[containers] = server
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({**job, "folder": str(self._folder)}) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
        if not answer:
            raise SystemExit("The process that runs the tests has ended.")
        return json.loads(answer)

    @property
    def log(self) -> str:
        """What pytest printed for the last job."""
        return (self._folder / "log.txt").read_text(errors="replace")

    def write(self, file: str, source: bytes) -> None:
        """Change a file of Toolfold in the copy."""
        path = self.source / file
        # Byte code is told from source by size and second; a mutant may have both in common with what it replaces.
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink(missing_ok=True)
        path.write_bytes(source)
        if file in _FOLDERS_OF_RUNTIME:
            shutil.rmtree(self._folder / "toolfold-runtime", ignore_errors=True)


def _apart() -> list[str]:
    """A mutant may signal any process number. Where the system lets us, it sees none but its own."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        works = subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        works = False
    return command if works else []
