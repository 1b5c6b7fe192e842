"""`scripts/faults --seed N --minutes 30`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.run import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=sys.modules[run.__module__].__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--runtime", type=Path, help="a folder that keeps the sandbox's runtime between runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfold-faults-") as folder:
        runtime: Path = given.runtime or Path(folder, "runtime")
        runtime.mkdir(exist_ok=True)
        work = run(Path(folder, "work"), runtime, given.seed, given.minutes * 60, lambda text: print(f"… {text}"))
        report = asyncio.run(work)
    print(report)
    raise SystemExit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
