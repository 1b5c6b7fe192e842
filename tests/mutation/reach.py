"""Which tests reach which code, found once by coverage and kept until a test file changes."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant
from tests.mutation.tree import Tree

_OTHER_ROOMS = (
    "test_bench_*",
    "test_cli*",
    "test_codegen_*",
    "test_config_*",
    "test_conformance*",
    "test_demo_*",
    "test_docs_*",
    "test_extras*",
    "test_gateway_*",
    "test_hostile_programs*",
    "test_layers*",
    "test_mutation*",
    "test_readme*",
    "test_third_party_*",
)
"""Tests of other rooms, or of whole programs in processes of their own: too dear to be asked about each mutant."""
_RUNS_ELSEWHERE = {
    "upstream/processes/supervisor_process.py": "upstream/processes/supervisor.py",
    "sandbox/monty/worker/": "sandbox/monty/backend.py",
}
"""Code that runs in a process of its own, where coverage does not see it, and the code that starts it."""


@dataclass(frozen=True)
class Test:
    name: str
    setup: float
    seconds: float
    """Without its set-up, which may be shared."""

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


class Reach:
    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._files: dict[str, dict[str, Any]] = json.loads(cache.read_text()) if cache.exists() else {}

    def refresh(self, tree: Tree) -> None:
        """Run the test files that are new or have changed, once each, with coverage."""
        files = {str(path.relative_to(tree.root)): path for path in sorted((tree.root / "tests").rglob("test_*.py"))}
        wanted = {name: _digest(path) for name, path in files.items() if not _is_other(path.name)}
        for gone in set(self._files) - set(wanted):
            del self._files[gone]
        for number, (name, digest) in enumerate(wanted.items(), 1):
            if self._files.get(name, {}).get("digest") == digest:
                continue
            print(f"mapping {number}/{len(wanted)} {name} …", end=" ", flush=True)
            found = tree.do({"do": "map", "file": name, "limit": 1800})
            if "reach" not in found:
                print(f"failed: {found}\n{tree.log[-2000:]}")
                continue
            print(f"{len(found['tests'])} tests, {found['seconds_taken']} s")
            if found["bad"]:
                print(f"  {len(found['bad'])} do not pass here and are not used: {', '.join(found['bad'])[:300]}")
            self._files[name] = {**found, "digest": digest}
            self._cache.write_text(json.dumps(self._files))

    def tests_for(self, mutant: Mutant, source: bytes, budget: float) -> list[Test]:
        """The tests that reach a mutant, those that are about its file first, then the quickest, within a budget."""
        chosen: list[Test] = []
        words = {word for part in Path(mutant.file).with_suffix("").parts for word in part.split("_")}
        groups: list[tuple[int, float, list[Test]]] = []
        for name, data in self._files.items():
            tests = [Test(*test) for test in data["tests"]]
            reached = [tests[number] for number in self._reached(data["reach"], len(tests), mutant, source)]
            if reached:
                # A fixture that a file's tests share is charged to the first of them.
                setup = max(test.setup for test in tests)
                affinity = len(words & set(Path(name).stem.split("_")))
                quickest = sorted(reached, key=lambda test: test.seconds)
                groups.append((-affinity, setup + sum(test.seconds for test in quickest), quickest))
        spent = 0.0
        for _, _, tests in sorted(groups, key=lambda group: group[:2]):
            for test in tests:
                spent += test.seconds
                if chosen and spent > budget:
                    break
                chosen.append(test)
            spent += max(test.setup for test in tests)
        return chosen

    def _reached(self, reach: dict[str, Any], count: int, mutant: Mutant, source: bytes) -> set[int]:
        other = next((host for part, host in _RUNS_ELSEWHERE.items() if mutant.file.startswith(part)), None)
        if other is not None:
            # A test file that uses a part of it directly is about it, and so is each of its tests.
            own = range(count) if mutant.file in reach else ()
            return _tests_in(reach.get(other, {}).values()) | {*own}
        functions: dict[str, Any] = reach.get(mutant.file, {})
        if mutant.place in functions:
            lines = functions[mutant.place]
            return set(lines.get(str(mutant.offset), ())) or _tests_in([lines])
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
    return any(fnmatch(name, f"{pattern}" if pattern.endswith("*") else f"{pattern}.py") for pattern in _OTHER_ROOMS)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
