"""`scripts/mutate`: change the code in one place, run the tests that reach it, and list what none of them noticed."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.mutation.equivalents import EQUIVALENTS
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.reach import Reach, Test
from tests.mutation.tree import Tree, Trees

ROOMS = ("sandbox", "session", "upstream", "catalog", "guards", "review")
NOT_OURS = ("sandbox/guest/", "sandbox/walls/seccomp.py", "sandbox/walls/syscalls.py")
"""What runs inside the sandbox, and the tables of system calls."""
_KILLED = ("killed", "hung")
"""What counts. A test process that died twice may have done so for a reason of its own."""
_AT_FIRST = 5.0
"""Seconds of tests that are run before the others: most mutants are killed by those, and fewer files are read."""
FEWEST = 30
"""Mutants of a module, however small it is beside the others."""
PROJECT = Path(__file__).parents[2]
Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"Another run uses {work}; give this one its own with --work.") from None
    results = _Results(work / "results.jsonl")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    source = PROJECT / "src" / "toolfold"
    sample = sampled(source, options.seed, options.count, options.only)
    if options.list:
        for mutant in sample:
            print(_shown(mutant, (source / mutant.file).read_bytes()))
        return 0
    done: list[Result] = []
    with Trees(PROJECT, work, options.jobs) as trees:
        try:
            reach = Reach(work / "reach.json")
            reach.refresh(trees)

            def attempt(tree: Tree, mutant: Mutant) -> Result:
                return _try(tree, reach, results, mutant, options.budget, again=options.again)

            for result in trees.each(attempt, sample):
                done.append(result)
                took = f"{result['seconds_taken']:6.1f} s" if "seconds_taken" in result else ""
                print(
                    f"{len(done)}/{len(sample)} {result['status']:8} {took} {result['where']} {result['kind']}",
                    flush=True,
                )
        except KeyboardInterrupt:
            print("interrupted; the same command goes on from here")
    done.sort(key=lambda result: result["where"])
    report = _report(done)
    if options.json is not None:
        options.json.write_text(json.dumps({"seed": options.seed, **report, "mutants": done}, indent=1) + "\n")
    _print(done, report)
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description=__doc__,
        epilog="Example: scripts/mutate --only session --count 60. The first run maps the tests (once, some minutes).",
    )
    parser.add_argument("--seed", default="1", help="which mutants are drawn (default: 1)")
    parser.add_argument("--count", type=int, default=320, help="how many, spread by size (default: 320)")
    parser.add_argument("--only", default="", metavar="MODULE", help="a room or a file: session, sandbox/pool.py")
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of tests for each mutant (default: 40)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="mutants tried at a time, a copy of the tree each (default: 1)"
    )
    parser.add_argument("--again", action="store_true", help="try survivors again even if no test has changed")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it to a file")
    parser.add_argument("--work", type=Path, default=PROJECT / ".mutation", help="where maps and results are kept")
    return parser


def sampled(source: Path, seed: str, count: int, only: str = "") -> list[Mutant]:
    """Drawn by hash, so that a change to one function leaves the others' mutants in the sample.

    They come in the order of their hashes too: a run that is stopped half way has seen a bit of every module.
    """

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed}\0{mutant.key}".encode()).digest()

    found = {file: mutants_of(file, (source / file).read_bytes()) for file in _files(source) if file.startswith(only)}
    sizes: Counter[str] = Counter()
    for file, mutants in found.items():
        sizes[file.split("/")[0]] += len(mutants)
    sample: list[Mutant] = []
    for file, mutants in found.items():
        size = sizes[file.split("/")[0]]
        of_room = max(min(FEWEST, count), count * size / sizes.total())
        sample += sorted(mutants, key=rank)[: max(1, round(of_room * len(mutants) / size))] if mutants else []
    return sorted(sample, key=rank)


def _files(source: Path) -> list[str]:
    files = sorted(str(path.relative_to(source)) for room in ROOMS for path in (source / room).rglob("*.py"))
    return [file for file in files if not file.startswith(NOT_OURS)]


class _Results:
    """What is known of mutants that were tried before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known: dict[str, Result] = {result["key"]: result for result in map(json.loads, lines)}
        self._reliable: set[str] = set()
        self.unreliable: set[str] = set()

    def get(self, mutant: Mutant, tests: str) -> Result | None:
        """A kill holds while the mutant is the same; a survivor is tried again when tests have changed."""
        known = self._known.get(mutant.key)
        return known if known and (known["status"] in _KILLED or known["tests"] == tests) else None

    def killers(self, file: str) -> set[str]:
        """The tests that noticed other mutants of a file."""
        known = list(self._known.values())
        return {one["test"] for one in known if one["status"] == "killed" and one["where"].startswith(f"{file}:")}

    def is_doubtful(self, test: str) -> bool:
        """Whether it was not seen to pass without a mutant, in the order in which it failed with one."""
        return test != "at import" and test not in self._reliable

    def judge(self, test: str, passes: bool) -> None:
        (self._reliable if passes else self.unreliable).add(test)

    def add(self, result: Result) -> None:
        self._known[result["key"]] = result
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def _try(tree: Tree, reach: Reach, results: _Results, mutant: Mutant, budget: float, *, again: bool) -> Result:
    source = (tree.source / mutant.file).read_bytes()
    tests = reach.tests_for(mutant, source, budget, results.killers(mutant.file))
    tests = [test for test in tests if test.name not in results.unreliable]
    digest = reach.digest(tests)
    known = results.get(mutant, digest)
    where = f"{mutant.file}:{mutant.line}"
    if known is not None and not (again and known["status"] == "survived"):
        return {**known, "where": where}
    outcome: Result = {"status": "survived", "test": "no test reaches it"}
    tree.write(mutant.file, mutant.apply(source))
    try:
        for step in _in_steps(tests):
            some = step
            outcome = _outcome(tree, some, mutant)
            while outcome["status"] == "killed" and results.is_doubtful(outcome["test"]):
                # It may fail in this order, or on this machine, whatever the code does.
                count = [test.name for test in some].index(outcome["test"]) + 1
                tree.write(mutant.file, source)
                results.judge(outcome["test"], _outcome(tree, some[:count], mutant)["status"] == "survived")
                tree.write(mutant.file, mutant.apply(source))
                if outcome["test"] not in results.unreliable:
                    break
                some = [test for test in some if test.name not in results.unreliable]
                outcome = _outcome(tree, some, mutant) if some else {"status": "survived", "test": ""}
            if outcome["status"] != "survived":
                break
    finally:
        tree.write(mutant.file, source)
    if outcome["status"] == "error":
        raise SystemExit(f"pytest could not run for {where}:\n{tree.log[-3000:]}")
    result = {
        "key": mutant.key,
        "where": where,
        "kind": mutant.kind,
        "place": mutant.place,
        "diff": mutant.diff(source),
        "tests": digest,
        "tests_run": len(tests),
        **outcome,
    }
    if result["status"] == "survived" and tests:
        result["test"] = ""
    results.add(result)
    return result


def _outcome(tree: Tree, tests: Sequence[Test], mutant: Mutant) -> Result:
    limits = {test.name: 15 + 6 * (test.setup + test.seconds) for test in tests}
    total = 60 + 5 * sum(test.setup + test.seconds for test in tests)
    files = list(dict.fromkeys(test.file for test in tests))
    job = {"do": "run", "files": files, "tests": limits, "limit": total}
    outcome = tree.do(job, containers=mutant.is_of_containers)
    return tree.do(job, containers=mutant.is_of_containers) if outcome["status"] in ("died", "hung") else outcome


def _in_steps(tests: Sequence[Test]) -> Iterator[Sequence[Test]]:
    """The first ones before the others; of each step a file's together and in its order, as they share fixtures."""
    spent, count = 0.0, 0
    while count < len(tests) and spent < _AT_FIRST:
        spent += tests[count].seconds
        count += 1
    for step in filter(None, (tests[:count], tests[count:])):
        files = list(dict.fromkeys(test.file for test in step))
        yield sorted(step, key=lambda test: (files.index(test.file), test.number))


def _report(done: list[Result]) -> dict[str, Any]:
    rooms: dict[str, list[bool]] = defaultdict(list)
    equivalent: Counter[str] = Counter()
    for result in done:
        room, killed = result["where"].split("/")[0], result["status"] in _KILLED
        if not killed and result["key"] in EQUIVALENTS:
            equivalent[room] += 1
        else:
            rooms[room].append(killed)
    shares = {
        room: {
            "mutants": len(killed) + equivalent[room],
            "equivalent": equivalent[room],
            "killed": sum(killed),
            "share": round(sum(killed) / len(killed), 3),
        }
        for room, killed in rooms.items()
    }
    return {"modules": shares}


def _print(done: list[Result], report: dict[str, Any]) -> None:
    survivors = [result for result in done if result["status"] not in _KILLED]
    for result in survivors:
        note = EQUIVALENTS.get(result["key"], result["test"])
        print(
            f"\nsrc/toolfold/{result['where']} {result['kind']}, in {result['place']} [{result['key']}]"
            f"{f' ({note})' if note else ''}\n{result['diff']}"
        )
    columns = ("mutants", "equivalent", "killed")
    print(f"\n{'module':10} " + " ".join(f"{name:>10}" for name in columns) + f" {'share':>8}")
    total: Counter[str] = Counter()
    for room, share in report["modules"].items():
        total.update({name: share[name] for name in columns})
        print(f"{room:10} " + " ".join(f"{share[name]:10}" for name in columns) + f" {share['share']:8.1%}")
    if done:
        counted = total["mutants"] - total["equivalent"]
        print(f"{'all':10} " + " ".join(f"{total[name]:10}" for name in columns) + f" {total['killed'] / counted:8.1%}")


def _shown(mutant: Mutant, source: bytes) -> str:
    return f"\nsrc/toolfold/{mutant.file}:{mutant.line} {mutant.kind}, in {mutant.place}\n{mutant.diff(source)}"


if __name__ == "__main__":
    sys.exit(main())
