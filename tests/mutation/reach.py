"""Which tests reach which code, found once by coverage and kept until a test file changes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant
from tests.mutation.tree import Tree, Trees

_OTHER_FOLDERS = ("tests/clients/", "tests/optional/")
_OTHER_ROOMS = (
    "test_approval_browser*",
    "test_bench_*",
    "test_cli*",
    "test_codegen_*",
    "test_config_*",
    "test_conformance*",
    "test_demo_*",
    "test_docs_*",
    "test_extras*",
    "test_faults*",
    "test_gateway_*",
    "test_hostile_*",
    "test_layers*",
    "test_mutation*",
    "test_readme*",
    "test_third_party_*",
)
"""Tests of other rooms, or of whole programs in processes of their own: too dear to be asked about each mutant."""
_NEARER = 20
_FEW = 10
_IN_CONTAINERS = re.compile(r"/test_container|\[docker|\[podman")
"""Slow, and the same tests run in other sandboxes too; they are for mutants of containers."""
_RUNS_ELSEWHERE = {
    "upstream/processes/supervisor_process.py": "upstream/processes/supervisor.py",
    "sandbox/monty/worker/": "sandbox/monty/backend.py",
    "session/scaler.py": "session/images.py",
}
"""Code that runs in a process of its own, where coverage does not see it, and the code that starts it."""


@dataclass(frozen=True)
class Test:
    name: str
    setup: float
    seconds: float
    """Without its set-up, which may be shared."""
    number: int = 0
    """Its place in its file."""

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


class Reach:
    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._files: dict[str, dict[str, Any]] = json.loads(cache.read_text()) if cache.exists() else {}
        self._breadths: dict[str, list[int]] = {}

    def refresh(self, trees: Trees) -> None:
        """Run the test files that are new or have changed, once each, with coverage."""
        files = {str(path.relative_to(trees.root)): path for path in sorted((trees.root / "tests").rglob("test_*.py"))}
        wanted = {name: _digest(path) for name, path in files.items() if not _is_other(name)}
        for gone in set(self._files) - set(wanted):
            del self._files[gone]
        changed = [name for name, digest in wanted.items() if self._files.get(name, {}).get("digest") != digest]
        for number, (name, found, log) in enumerate(trees.each(_mapped, changed), 1):
            print(f"mapped {number}/{len(changed)} {name}:", end=" ", flush=True)
            if "reach" not in found:
                print(f"failed: {found}\n{log[-2000:]}")
                continue
            print(f"{len(found['tests'])} tests, {found['seconds_taken']} s")
            if found["bad"]:
                print(f"  {len(found['bad'])} do not pass here and are not used: {', '.join(found['bad'])[:300]}")
            self._files[name] = {**found, "digest": wanted[name]}
            self._breadths.pop(name, None)
            self._cache.write_text(json.dumps(self._files))

    def tests_for(self, mutant: Mutant, source: bytes, budget: float, killers: Collection[str] = ()) -> list[Test]:
        """The tests that reach a mutant, the most promising first, within a budget: those that reach its very line,
        then `killers`, tests of a file that is about it, those that reach little else, and quick ones."""
        elsewhere = _starter(mutant.file)
        words = _words(mutant.file.removesuffix(".py")) | _words((elsewhere or "").removesuffix(".py"))
        found: list[tuple[bool, float, Test]] = []
        for name, data in self._files.items():
            tests = [Test(*test) for test in data["tests"]]
            breadths = self._breadths_in(name)
            # A fixture that a file's tests share is charged to the first of them. What reaches little does not use it.
            shared, broadest = max((test.setup for test in tests), default=0.0), max(breadths, default=0)
            same_line = {*data["reach"].get(mutant.file, {}).get(mutant.place, {}).get(str(mutant.offset), ())}
            for number in self._reached(data["reach"], len(tests), mutant, source):
                test, breadth = tests[number], breadths[number]
                if _IN_CONTAINERS.search(test.name) and not mutant.is_of_containers:
                    continue
                setup = shared if breadth > broadest / _FEW else test.setup
                nearness = (1 + len(words & _words(test.name))) ** 2
                nearness *= _NEARER if test.name in killers else 1
                # Of code in another process nothing is known but the names of tests.
                rank = (test.seconds + setup / 4 + 0.01) * (1 / nearness if elsewhere else breadth) / nearness
                found.append((number not in same_line, rank, Test(test.name, setup, test.seconds, number)))
        chosen: list[Test] = []
        files: set[str] = set()
        spent = 0.0
        for _, _, test in sorted(found, key=lambda one: one[:2]):
            cost = test.seconds + (0.0 if test.file in files else test.setup)
            if chosen and spent + cost > budget:
                continue
            spent += cost
            files.add(test.file)
            chosen.append(test)
        return chosen

    def _breadths_in(self, file: str) -> list[int]:
        """How many functions each test of a file reaches."""
        if file not in self._breadths:
            data = self._files[file]
            reached = Counter(
                number
                for places in data["reach"].values()
                for lines in places.values()
                for number in _tests_in([lines])
            )
            self._breadths[file] = [reached[number] for number in range(len(data["tests"]))]
        return self._breadths[file]

    def _reached(self, reach: dict[str, Any], count: int, mutant: Mutant, source: bytes) -> set[int]:
        other = _starter(mutant.file)
        if other is not None:
            # It may be started once for all tests of a file.
            return {*range(count)} if mutant.file in reach or _tests_in(reach.get(other, {}).values()) else set()
        functions: dict[str, Any] = reach.get(mutant.file, {})
        if mutant.place in functions:
            lines = functions[mutant.place]
            return _tests_in([lines])
        users = set(_users(source, mutant.constant)) if mutant.constant else set[str]()
        if users:
            return _tests_in(lines for place, lines in functions.items() if place in users)
        # A class's body: what uses the class. The module's: whatever uses the module.
        inside = [lines for place, lines in functions.items() if place.startswith(f"{mutant.place}.")]
        return _tests_in(inside or functions.values())

    def digest(self, tests: Iterable[Test]) -> str:
        """Changes when other tests are chosen, or one of their files has changed."""
        names = [f"{test.name}\0{self._files[test.file]['digest']}" for test in tests]
        return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _starter(file: str) -> str | None:
    """The code that starts the process in which a file runs, where that is not the one of the tests."""
    return next((starter for part, starter in _RUNS_ELSEWHERE.items() if file.startswith(part)), None)


def _mapped(tree: Tree, name: str) -> tuple[str, dict[str, Any], str]:
    found = tree.do({"do": "map", "files": [name], "limit": 1800}, containers="/backends/" in name)
    return name, found, tree.log


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in re.split(r"[\W_]+", name)} - {"", "test", "py"}


def _tests_in(functions: Iterable[dict[str, list[int]]]) -> set[int]:
    return {number for lines in functions for numbers in lines.values() for number in numbers}


def _users(source: bytes, name: str) -> Iterator[str]:
    """The functions that read a name of the module."""

    def walk(node: ast.AST, place: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{place}.{child.name}" if place else child.name
            elif isinstance(child, ast.Name) and child.id == name and place:
                yield place
            yield from walk(child, inner)

    return walk(ast.parse(source), "")


def _is_other(name: str) -> bool:
    if name.startswith(_OTHER_FOLDERS):
        return True
    return any(fnmatch(Path(name).name, pattern) for pattern in _OTHER_ROOMS)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
