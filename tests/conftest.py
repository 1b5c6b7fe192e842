from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.lab import lab_fold
from toolfold import Toolfold

# No example is late on a busy machine. CI tries the same ones each time: new ones are for those who can look into them.
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if "TOOLFOLD_REQUIRED_BACKENDS" in os.environ else "here")

# A shell's background job ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose tests look at the whole machine (its processes, its containers): one worker each, one after the other.
ALONE = ("hostile", "backends")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests share a worker, and so do a folder's that look at the whole machine.

    `--dist loadgroup` does not group under pytest 9.2: xdist marks groups in a field that pytest no longer reads.
    """
    from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return next((folder for folder in ALONE if f"/{folder}/" in file), file)

    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Thousands of tests and what they import are there to stay: nobody need look through them for garbage."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped, in one line for each reason, which says how to get it."""
    lines = skipped(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("not run here")
        for line in lines:
            terminalreporter.write_line(line)


def skipped(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    reasons: Counter[str] = Counter()
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(reason.removeprefix("Skipped: ").split())] += 1
    return [f"{count} tests: {reason}" for reason, count in sorted(reasons.items())]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real catalogs and retrieval tasks, kept beside the project's root."""
    folder = Path(os.environ.get("TOOLFOLD_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared catalogs at {folder} (set TOOLFOLD_SHARED)")
    return folder


@pytest.fixture(scope="session")
def shared_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Building the sandbox's runtime takes a second; all tests share one."""
    folder = tmp_path_factory.getbasetemp().parent / "toolfold-runtime"
    folder.mkdir(exist_ok=True)
    return folder


def _data_dir(parent: Path, shared_runtime: Path) -> Path:
    data = parent / "data"
    data.mkdir()
    (data / "runtime").symlink_to(shared_runtime)
    return data


@pytest.fixture
def runtime_dir(tmp_path: Path, shared_runtime: Path) -> Path:
    """A data directory of the test's own."""
    return _data_dir(tmp_path, shared_runtime)


@pytest.fixture(scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    """A fold over the lab server that a module's tests share; each uses sessions of its own."""
    async with lab_fold(_data_dir(tmp_path_factory.mktemp("lab"), shared_runtime), output_chars=2000) as fold:
        yield fold
