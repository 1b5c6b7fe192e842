"""`toolfold run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolfold.cli.console import note, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, exported_spans, open_fold, run_async
from toolfold.cli.question import is_interactive
from toolfold.cli.trust import offer_trust
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.guards.events import RunResult


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    file: Annotated[str | None, typer.Argument(help="A program, or - for standard input.")] = None,
    code: Annotated[str | None, typer.Option("-c", "--code", help="The program itself.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Keep files under this name.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.001, help="Seconds the program may take.")] = None,
    images: Annotated[Path | None, typer.Option("--images", help="Where to write images that it shows.")] = None,
    check: Annotated[bool, typer.Option(help="Review the program before it runs.")] = True,
    config: Config = None,
    catalog: CatalogDirs = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Run a program in the sandbox, as an agent would.

    Example: toolfold run -c 'from servers.github import create_issue; print(await create_issue(title="Hello"))'
    """
    offer_trust(config)
    program = _read(file, code)

    async def work() -> RunResult:
        async with open_fold(config, catalog, data) as fold:
            if json:
                return await fold.run(program, session=session, timeout=timeout, check=check)
            from toolfold.cli.live import Live

            with Live() as live:
                return await fold.run(
                    program,
                    session=session,
                    timeout=timeout,
                    check=check,
                    on_event=live.on_event,
                    ask=live.ask if is_interactive() else None,
                )

    with exported_spans():
        result = run_async(work)
        if json:
            write_json(result)
        else:
            from toolfold.cli.live import conclude

            conclude(result)
            _write_images(result, images)
        sys.stdout.flush()  # what is left of spans is sent after the result
    if not result.success:
        raise SystemExit(1)


def _write_images(result: RunResult, folder: Path | None) -> None:
    """What a model would see; a terminal cannot show it."""
    if not result.images:
        return
    from tempfile import mkdtemp

    if folder is None:
        folder = Path(mkdtemp(prefix="toolfold-images-"))
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(result.images, 1):
        path = folder / f"{number}.{image.mime_type.partition('/')[2]}"
        path.write_bytes(image.data)
        note(f"image: {path} ({image.width} × {image.height})")


def _read(file: str | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise ConfigError("Give one program: a FILE, - for standard input, or -c CODE.")
    if code is not None:
        return code
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(str(file)).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read {file}: it is not UTF-8 text.") from None
