"""Options that several commands share, and the way from them to an open fold."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from toolfold.fold import Toolfold

Config = Annotated[
    Path | None, typer.Option("--config", help="A config file of any supported client; default: what is found here.")
]
CatalogDirs = Annotated[
    list[Path] | None,
    typer.Option("--catalog", help="A folder of definitions ({server, tools}) to add without starting anything."),
]
DataDir = Annotated[Path | None, typer.Option("--data", help="Where caches, sessions and logs are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

_SWITCH_INTERVAL = 0.0005
T = TypeVar("T")


def open_fold(config: Path | None, catalog: list[Path] | None, data: Path | None) -> Toolfold:
    """The fold that the options name. What is wrong in the config, or left out of it, is said once, on stderr."""
    from toolfold.cli.console import note
    from toolfold.fold import Toolfold

    fold = Toolfold.open(config, catalog_dirs=tuple(catalog or ()), data_dir=data)
    log_to_file(fold.settings.data_dir / "logs")
    if fold.loaded.data_problem:
        note(fold.loaded.data_problem, "yellow")
    for problem in fold.loaded.problems:
        note(f"config: {problem}", "yellow")
    for project in fold.loaded.untrusted:
        note(f"config: {project.text}", "yellow")
    return fold


def moment(text: str) -> float:
    """A time as people write it, or an age, in seconds since 1970."""
    import contextlib
    from datetime import UTC, datetime

    from toolfold.config.units import parse_age
    from toolfold.errors import ConfigError

    with contextlib.suppress(ValueError, TypeError):
        return datetime.now(UTC).timestamp() - parse_age(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{text!r} is neither a time nor an age.", hint="For example 2026-11-02T08:00, or 2h."
        ) from None


def exported_spans(*, quiet: bool = False) -> AbstractContextManager[None]:
    """Meanwhile spans go where OpenTelemetry's variables say. Why they do not is printed, unless `quiet`."""
    from toolfold.telemetry.otel import exported

    def say(text: str) -> None:
        from toolfold.cli.console import note

        if not quiet:
            note(text, "yellow")

    return exported(os.environ, say)


def log_to_file(folder: Path) -> None:
    """Warnings of libraries go to a file: a command's stderr is for the person, who is shown what takes long."""
    from logging.handlers import RotatingFileHandler

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A full disk is no reason for a traceback between the lines of a command.
    logging.raiseExceptions = False
    handler = RotatingFileHandler(folder / "toolfold.log", maxBytes=1_000_000, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            from toolfold.cli.console import note

            if record.levelno == logging.INFO:
                note(record.getMessage(), "dim")

    own = logging.getLogger("toolfold")
    own.setLevel(logging.INFO)
    own.addHandler(Shown())


def run_async(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end. Ctrl-C and SIGTERM cancel it, so that everything it started is ended first.

    The exit code is then the usual one, 130 or 143, and what goes wrong on the way out is for the log.
    """
    # A search in its thread gives the interpreter back to runs that are under way ten times as often as is usual.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    received: list[signal.Signals] = []
    try:
        return asyncio.run(_interruptible(work(), received))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            received.append(signal.SIGINT)
        if not received:
            raise
        if not isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            logging.getLogger(__name__).warning("Stopped by %s, with an error", received[0].name, exc_info=error)
        raise SystemExit(128 + received[0]) from None


async def _interruptible(work: Awaitable[T], received: list[signal.Signals]) -> T:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        # Only the first one cancels: a second would cancel the clean-up.
        if not received:
            task.cancel()
        received.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return await task
