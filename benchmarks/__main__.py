"""`scripts/bench NAME`: each benchmark prints its figures as ratios within one run."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.machine import described
from benchmarks.report import document, show
from benchmarks.rivals import FASTMCP, fastmcp_python
from toolfold.cli.options import DataDir, Json, run_async
from toolfold.errors import ToolfoldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from benchmarks.report import Figure


Rounds = Annotated[int, typer.Option(help="Timings per figure.")]
Shared = Annotated[
    Path, typer.Option("--shared", help="The folder that holds catalogs/ and retrieval/.", exists=True, file_okay=False)
]


def runs(rounds: Rounds = 20, data: DataDir = None, json: Json = False) -> None:
    """Runs, calls, rows, start-up and memory, beside a plain SDK client and FastMCP CodeMode.

    Example: scripts/bench runs --rounds 30
    """
    from benchmarks import runs as bench

    progress = _progress()
    figures = run_async(lambda: bench.measure(_home(data), rounds, progress))
    _print("runs", figures, "Runs and calls", FASTMCP, json=json)


def http(
    baseline: Annotated[
        Path | None, typer.Option(help="A checkout of another commit, with its .venv.", exists=True, file_okay=False)
    ] = None,
    rounds: Rounds = 7,
    json: Json = False,
) -> None:
    """Runs a second over HTTP beside another checkout, its latency beside stdio, and how soon `serve` answers.

    Example: scripts/bench http --baseline ../previous
    """
    from benchmarks import over_http as bench

    progress = _progress()
    _print("http", run_async(lambda: bench.measure(baseline, rounds, progress)), "Over HTTP", json=json)


def tokens(
    catalog: Annotated[
        Path, typer.Option(help="A folder of real definitions ({server, tools}).", exists=True, file_okay=False)
    ],
    sizes: Annotated[str, typer.Option(help="How many tools, separated by commas; `all` is the whole catalog.")] = "",
    seed: Annotated[int, typer.Option(help="Shuffles the order in which the catalog's tools are added.")] = 2310,
    plots: Annotated[Path | None, typer.Option(help="A folder for the curve as SVG pictures.")] = None,
    json: Json = False,
) -> None:
    """What the six scenarios cost with direct calls and folded, from one tool to the whole catalog, and the crossover.

    Example: scripts/bench tokens --catalog ../shared/catalogs --plots docs/pictures
    """
    from benchmarks import tokens as bench
    from benchmarks import tokens_report

    chosen = _sizes(sizes) or (*bench.SIZES, sys.maxsize)
    progress = _progress()
    curve = run_async(lambda: bench.measure(catalog, chosen, progress, seed=seed))
    if plots is not None:
        from benchmarks.plots import write

        for path in write(curve, plots):
            progress(f"wrote {path}")
    if json:
        _write(tokens_report.as_data(curve))
    else:
        tokens_report.show(curve, _stdout())
    if not all(promise.kept for promise in tokens_report.promises(curve)):
        raise SystemExit(1)


def search(shared: Shared, data: DataDir = None, json: Json = False) -> None:
    """How fast search is over 4,000 and 100,000 tools, made from the real ones, beside FastMCP's BM25.

    Example: scripts/bench search --shared ../shared
    """
    from benchmarks import search_speed

    progress = _progress()
    progress("getting FastMCP ready in an environment of its own")
    figures = search_speed.measure(shared, progress, fastmcp_python=fastmcp_python(_home(data)))
    _print("search", figures, "Search", FASTMCP, json=json)


def retrieval(shared: Shared, data: DataDir = None, json: Json = False) -> None:
    """Whether search finds the right tools: ours, ours without vectors, and FastMCP's BM25; and what an answer names.

    Example: scripts/bench retrieval --shared ../shared
    """
    from benchmarks import retrieval as bench

    progress = _progress()
    progress("getting FastMCP ready in an environment of its own")
    scores = bench.measure(shared, fastmcp_python(_home(data)), progress)
    readings = bench.readings(shared, progress)
    if json:
        found = {"rankings": [one.data() for one in scores], "answers": [one.data() for one in readings]}
        _write(document("retrieval", found, "rs-bpe", "wordllama", FASTMCP))
        return
    console = _stdout()
    bench.show(scores, console)
    bench.show_readings(readings, console)
    console.print(described("rs-bpe", "wordllama", FASTMCP), highlight=False)


def codegen(shared: Shared, rounds: Rounds = 5, json: Json = False) -> None:
    """What the generated API costs: to write, to import, to read, to review against.

    Example: scripts/bench codegen --shared ../shared
    """
    from benchmarks import codegen as bench

    _print("codegen", bench.measure(shared / "catalogs", rounds, _progress()), "The generated API", "rs-bpe", json=json)


def sandbox(rounds: Rounds = 20, data: DataDir = None, json: Json = False) -> None:
    """What a sandbox costs on every backend that runs here, beside plain processes.

    Example: scripts/bench sandbox --rounds 30
    """
    from benchmarks import sandbox as bench

    progress = _progress()
    _print("sandbox", run_async(lambda: bench.measure(_home(data), rounds, progress)), "Sandboxes", json=json)


def loop(
    seconds: Annotated[float, typer.Option(help="Of each kind in each round.")] = 8.0,
    rounds: Rounds = 3,
    json: Json = False,
) -> None:
    """How late a second session is beside a hostile one, and how long the event loop stalls.

    Example: scripts/bench loop --rounds 5
    """
    from benchmarks import loop as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-loop-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder), seconds, rounds, progress))
    _print("loop", figures, "A second session beside a hostile one", json=json)


def privacy(
    rounds: Rounds = 5,
    examples: Annotated[bool, typer.Option(help="Also print each value that was missed or taken wrongly.")] = False,
    json: Json = False,
) -> None:
    """How many personal values are recognised, and how many look-alikes are not; how fast, and at what cost a call.

    Example: scripts/bench privacy --examples
    """
    from benchmarks import privacy as bench

    found, labelled, alike = bench.scores()
    figures = bench.measure(rounds, _progress())
    if json:
        from dataclasses import asdict

        kinds = {kind: asdict(score) for kind, score in found.items()}
        _write(document("privacy", {"kinds": kinds, "figures": [figure.data() for figure in figures]}))
        return
    bench.show(found, labelled, alike, _stdout(), examples=examples)
    _print("privacy", figures, "Privacy", json=False)


def audit(rounds: Rounds = 11, json: Json = False) -> None:
    """What the audit log costs a call (at most 0.2 ms), and the whole chain of guards (at most 0.5 ms).

    Example: scripts/bench audit
    """
    from benchmarks import audit as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-audit-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder), rounds, progress))
    _print("audit", figures, "Guards, for each call", json=json)


def dashboard(rounds: Rounds = 9, json: Json = False) -> None:
    """The bytes of the dashboard, and its first paint in chromium with 10,000 audit records beside an empty page.

    Example: scripts/bench dashboard
    """
    from benchmarks import dashboard as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-dashboard-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder), rounds, progress))
    _print("dashboard", figures, "Dashboard, in a browser on this machine", json=json)


def guards(rounds: Rounds = 20, data: DataDir = None, json: Json = False) -> None:
    """What the whole chain of guards costs per call, by itself, and what those who count and trace it add (0.2 ms).

    Example: scripts/bench guards
    """
    from benchmarks import guards as bench

    progress = _progress()
    _print("guards", run_async(lambda: bench.measure(_home(data), rounds, progress)), "Guards, per call", json=json)


def sessions(rounds: Rounds = 20, json: Json = False) -> None:
    """How long a session that was put away takes to come back, what keeping a value costs, and 300 live sessions.

    Example: scripts/bench sessions
    """
    from benchmarks import sessions as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-sessions-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder), rounds, progress))
    _print("sessions", figures, "Sessions", json=json)


def skills(shared: Shared, rounds: Rounds = 30, json: Json = False) -> None:
    """What it costs to save a skill (at most 50 ms), to import one (at most 5 ms), and to search among 5,000.

    Example: scripts/bench skills --shared ../shared
    """
    from benchmarks import skills as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-skills-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder, "fold"), rounds, progress))
        figures += bench.measure_search(shared, Path(folder, "search"), progress)
    _print("skills", figures, "Skills", json=json)


def soak(
    count: Annotated[int, typer.Option("--runs", min=1, help="How many programs to run.")] = 10_000, json: Json = False
) -> None:
    """Thousands of runs, every twentieth a bad one, and counts of everything that could be left behind.

    Example: scripts/bench soak --runs 10000
    """
    from benchmarks import soak as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-soak-") as folder:
        result = run_async(lambda: bench.soak(Path(folder), count, progress))
    if json:
        _write(result.data())
    else:
        bench.show(result, _stdout())
    if not result.clean:
        raise SystemExit(1)


def load(
    users: Annotated[int, typer.Option(min=1, max=500, help="Users at once, each in a session of its own.")] = 50,
    minutes: Annotated[float, typer.Option(min=0.05, max=120, help="How long they run.")] = 5.0,
    idle: Annotated[int, typer.Option(min=0, max=1000, help="Sessions that stay open beside them, unused.")] = 300,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Many users at once over HTTP: how long their runs take, beside one user alone, what fails, and what is left.

    Example: scripts/bench load --users 50 --minutes 5 --idle 300
    """
    from benchmarks import load as bench

    progress = _progress()
    result = run_async(lambda: bench.measure(_home(data), users, minutes, idle, progress))
    if json:
        _write(result.data())
    else:
        bench.show(result, _stdout())
    if not result.clean:
        raise SystemExit(1)


def crowd(rounds: Annotated[int, typer.Option(help="How often each fold is opened.")] = 2, json: Json = False) -> None:
    """What thirty servers that start, fail and hang cost a program that needs none of them.

    Example: scripts/bench crowd
    """
    from benchmarks import crowd as bench

    progress = _progress()
    with TemporaryDirectory(prefix="toolfold-crowd-") as folder:
        figures = run_async(lambda: bench.measure(Path(folder), rounds, progress))
    _print("crowd", figures, "Beside thirty servers", json=json)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sys.maxsize if word.strip() == "all" else int(word) for word in text.split(",") if word.strip())
    except ValueError:
        found = (0,)
    if any(size < 1 for size in found):
        raise typer.BadParameter(f"expected numbers from 1 on, or `all`, separated by commas: {text!r}")
    return found


def _home(data: Path | None) -> Path:
    from toolfold.config.load import load_here

    return load_here({}, data_dir=data).settings.data_dir


def _progress() -> Callable[[str], None]:
    from toolfold.cli.console import stderr

    return lambda text: stderr().print(f"… {text}", markup=False, highlight=False, style="dim")


def _stdout() -> Console:
    """The terminal; in a file or a pipe a row stays one line."""
    from toolfold.cli.console import stdout

    console = stdout()
    if not console.is_terminal:
        console.width = 110
    return console


def _write(data: Any) -> None:
    from json import dumps

    sys.stdout.write(dumps(data, indent=2, ensure_ascii=False) + "\n")


def _print(name: str, figures: list[Figure], title: str, *packages: str, json: bool) -> None:
    if json:
        _write(document(name, {"figures": [figure.data() for figure in figures]}, *packages))
    else:
        show(figures, title, _stdout(), *packages)


COMMANDS = (
    runs,
    http,
    tokens,
    search,
    retrieval,
    codegen,
    sandbox,
    loop,
    privacy,
    guards,
    audit,
    dashboard,
    sessions,
    skills,
    crowd,
    load,
    soak,
)


def main() -> None:
    app = typer.Typer(
        name="scripts/bench",
        help="Print the measured figures, as ratios within one run.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in COMMANDS:
        app.command(command.__name__)(command)
    try:
        app()
    except ToolfoldError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
