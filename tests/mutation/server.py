"""Runs tests in the copy of the tree, each time in a child forked from a process that has imported everything else.

Started by `tree.py` with the copy as its working directory. One job a line on standard input, one answer a line on
standard output. It never imports Toolfold itself, so a child meets the files as they are at that moment.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

_PRELOADED = ("mcp.client.session", "mcp.server.lowlevel", "pydantic", "msgspec", "numpy", "hypothesis", "coverage")
_DIE_WITH_PARENT = 1
_BECOME_REAPER = 36
_REAPED_WITHIN = 10.0
SOURCE = Path("src/toolfold")


class Results:
    """A pytest plugin: runs the chosen tests in the given order, each with its time limit, and keeps the outcome."""

    def __init__(self, limits: dict[str, float] | None, coverage: Any = None) -> None:
        self._limits = limits
        self._order = {name: number for number, name in enumerate(limits or {})}
        self._coverage = coverage
        self.failed = ""
        self.why = ""
        self.seconds: dict[str, float] = {}
        self.setup: dict[str, float] = {}
        self.bad: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._limits is None:
            return
        items[:] = sorted((item for item in items if item.nodeid in self._order), key=lambda it: self._order[it.nodeid])
        for item in items:
            item.add_marker(pytest.mark.timeout(self._limits[item.nodeid]), append=False)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._coverage is not None:
            self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        times = self.setup if report.when == "setup" else self.seconds
        times[report.nodeid] = times.get(report.nodeid, 0.0) + report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid
            self.why = str(report.longrepr)[-200:]
        if report.skipped and self._limits is not None and not self.failed:
            # It passed before. Where its backend is required, as in CI, this is a failure.
            self.failed, self.why = report.nodeid, str(report.longrepr)[-200:]
        if not report.passed:
            self.bad.add(report.nodeid)


def main() -> None:
    os.nice(int(os.environ.get("MUTATE_NICE", "15")))
    _prctl(_BECOME_REAPER, 1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _preload()
    for line in sys.stdin:
        job = json.loads(line)
        answer = _in_child(job)
        print(json.dumps(answer), file=answers, flush=True)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


def _preload() -> None:
    """Import what takes long in what Toolfold imports, without Toolfold."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _in_child(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job in a child; what it leaves running ends with it."""
    answer = Path(job["folder"]) / "answer.json"
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            log = os.open(Path(job["folder"]) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            answer.write_text(json.dumps(_map(job) if job["do"] == "map" else _run(job)))
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            os._exit(status)
    hung = not _ended(child, job["limit"])
    _end_descendants()
    shutil.rmtree(Path(job["folder"]) / "tmp", ignore_errors=True)
    done: dict[str, Any] = json.loads(answer.read_text()) if answer.exists() else {"status": "hung" if hung else "died"}
    return {**done, "seconds_taken": round(time.monotonic() - begun, 2)}


def _ended(child: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == child:
                    return True
                if pid == 0:
                    break
        time.sleep(0.02)
    return False


def _end_descendants() -> None:
    """Orphans are ours, so everything that the child started is below this process."""
    until = time.monotonic() + _REAPED_WITHIN
    while (left := _descendants()) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _options(job: dict[str, Any]) -> list[str]:
    folder = job["folder"]
    return ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=1", "--basetemp", f"{folder}/tmp", "--tb=short"]


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Whether the chosen tests pass."""
    results = Results(job["tests"])
    status = int(pytest.main(["-x", *_options(job), *job["files"]], plugins=[results]))
    outcome = {0: "survived", 1: "killed", 2: "killed", 3: "killed"}.get(status, "error")
    if outcome == "survived" and results.failed:
        outcome = "killed"
    return {"status": outcome, "test": results.failed or "at import", "why": results.why}


def _map(job: dict[str, Any]) -> dict[str, Any]:
    """Which functions each test of a file reaches, and how long it takes."""
    from coverage import Coverage

    coverage = Coverage(data_file=None, source=[str(SOURCE.resolve())], config_file=False, concurrency=["thread"])
    coverage.start()
    results = Results(None, coverage)
    pytest.main([*_options(job), "--timeout=300", *job["files"]], plugins=[results])
    coverage.stop()
    tests = [name for name in results.seconds if name not in results.bad]
    numbers = {name: number for number, name in enumerate(tests)}
    reach: dict[str, dict[str, dict[int, list[int]]]] = {}
    data = coverage.get_data()
    for path in data.measured_files():
        places = places_of(Path(path).read_bytes())
        file = str(Path(path).relative_to(SOURCE.resolve()))
        for line, contexts in data.contexts_by_lineno(path).items():
            place, first = places.get(line, ("", 0))
            reached = [numbers[context] for context in contexts if context in numbers]
            if place and reached:
                reach.setdefault(file, {}).setdefault(place, {})[line - first] = reached
    return {
        "tests": [[name, round(results.setup.get(name, 0.0), 3), round(results.seconds[name], 3)] for name in tests],
        "bad": sorted(results.bad),
        "reach": reach,
    }


def places_of(source: bytes) -> dict[int, tuple[str, int]]:
    """The innermost function that each line is in, and that function's first line."""
    places: dict[int, tuple[str, int]] = {}

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
                if not isinstance(child, ast.ClassDef):
                    for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                        places[line] = (inner, child.lineno)
            walk(child, inner)

    walk(ast.parse(source), "")
    return places


if __name__ == "__main__":
    main()
