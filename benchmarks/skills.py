"""What skills cost: to save one, to import one in the sandbox, to search among thousands."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from benchmarks.search_speed import one_core, synthesize, timed
from toolfold import Toolfold
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings
from toolfold.skills.folder import Skill, files_of_skill
from toolfold.skills.names import MAX_NAME
from toolfold.skills.skills import Skills

_SKILLS = 5_000
_SAVE = """
import time
from toolfold import save_skill
begun = time.perf_counter()
save_skill({source!r})
(time.perf_counter() - begun) * 1000
"""
_WRITE = """
import os, time
begun = time.perf_counter()
with open("workspace/{name}.py", "w") as file:
    file.write({source!r})
    file.flush()
    os.fsync(file.fileno())
(time.perf_counter() - begun) * 1000
"""
_IMPORT_FILE = (
    "import sys, time\nsys.path.insert(0, 'workspace')\nbegun = time.perf_counter()\nimport {name}\n"
    "(time.perf_counter() - begun) * 1000"
)
_IMPORT = "import time\nbegun = time.perf_counter()\nfrom skills import {name}\n(time.perf_counter() - begun) * 1000"


def source(name: str, number: int, example: str = "") -> str:
    steps = "".join(f"    step_{line} = [row.get(key, {line}) for row in rows]\n" for line in range(20))
    head = f'import json\n\n\ndef {name}(rows: list[dict], key: str = "total") -> float:\n'
    return f'{head}    """Sum a column of rows, number {number}.\n{example}    """\n{steps}    return sum(step_0)\n'


async def measure(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """In one fold without servers, with the clock inside the sandbox: what a program waits for."""
    example = '\n    >>> {}([{{"total": 2}}])\n    2\n'
    async with Toolfold.open({"servers": {}}, data_dir=home) as fold:
        await fold.warm_up()

        async def took(code: str, session: str | None = None) -> float:
            result = await fold.run(code, session=session)
            if not isinstance(result.value, float):
                raise RuntimeError(str(result.error))
            return result.value

        progress(f"saving {rounds} skills, and as many with an example")
        names = [f"bench_skill_{number}" for number in range(rounds)]
        saves = [await took(_SAVE.format(source=source(name, 0)), "saving") for name in names]
        again = [await took(_SAVE.format(source=source(names[0], number)), "saving") for number in range(1, rounds)]
        tried = [
            await took(_SAVE.format(source=source(f"tried_{name}", 0, example.format(f"tried_{name}"))), "saving")
            for name in names
        ]
        files = [await took(_WRITE.format(name=name, source=source(name, 0)), "saving") for name in names]
        modules = [await took(_IMPORT_FILE.format(name=name), "saving") for name in names]
        progress(f"importing {rounds} skills in new sandboxes")
        imports: list[float] = []
        for name in names:
            imports.append(await took(_IMPORT.format(name=name)))
            await asyncio.sleep(0.05)  # the pool makes the next sandbox meanwhile
    return [
        Figure("save a skill", statistics.median(saves), 50.0, "budget", budget=1.0),
        Figure("save a new version", statistics.median(again), 50.0, "budget", budget=1.0),
        Figure("save a skill whose example is tried first", statistics.median(tried), None, ""),
        Figure("import a skill in a new sandbox", statistics.median(imports), 5.0, "budget", budget=1.0),
        Figure("save a skill", statistics.median(saves), statistics.median(files), "a file, with fsync"),
        Figure("import a skill", statistics.median(imports), statistics.median(modules), "a module in workspace/"),
    ]


def measure_search(shared: Path, home: Path, progress: Callable[[str], None]) -> list[Figure]:
    """5,000 skills by themselves, and beside 4,000 tools; on one core."""
    progress(f"writing {_SKILLS:,} skills")
    _write_many(shared, _skills(home).store("user").root)
    queries = synthesize(shared, home / "catalogs", 4_000)
    figures: list[Figure] = []
    with one_core():
        progress("reading them for the first time")
        first = timed(partial(_skills(home).entries, "local"))
        figures.append(Figure(f"read {_SKILLS:,} skills for the first time", first, None, ""))
        skills = _skills(home)
        known = timed(partial(skills.entries, "local"))
        figures.append(Figure(f"know {_SKILLS:,} skills in a new process", known, None, ""))
        # Budgets are 1.5 ms for 4,000 entries and 12 ms for 100,000; in between, in proportion.
        for label, dirs, budget in (("", (), 1.6), (" and 4,000 tools", (home / "catalogs",), 2.05)):
            progress(f"asking {len(queries)} questions over {_SKILLS:,} skills{label}")
            catalog = Catalog.open(Settings(catalog_dirs=dirs, data_dir=home))
            catalog.search("warm up", skills=skills.entries("local"))
            taken = [timed(partial(_ask, catalog, skills, query)) for query in queries]
            what = f"search over {_SKILLS:,} skills{label}, median of {len(queries)}"
            figures.append(Figure(what, statistics.median(taken), budget, "budget", budget=1.0))
    return figures


def _ask(catalog: Catalog, skills: Skills, query: str) -> None:
    catalog.search(query, skills=skills.entries("local"))


def _skills(home: Path) -> Skills:
    nothing_is_saved: Any = None
    return Skills(Settings(data_dir=home), nothing_is_saved)


def _write_many(shared: Path, root: Path) -> None:
    """Skills that are described as real tools are. Written plainly: to wait for the disk is not measured here."""
    catalogs = sorted((shared / "catalogs").glob("*.json"))
    tools: list[dict[str, Any]] = [tool for path in catalogs for tool in json.loads(path.read_text("utf-8"))["tools"]]
    for number in range(_SKILLS):
        tool = tools[number % len(tools)]
        words = "".join(c if c.isascii() and c.isalnum() else " " for c in tool["name"]).lower().split()
        name = "-".join(["do", *words])[: MAX_NAME - 8].strip("-") + f"-{number}"
        said = "".join(c if c.isprintable() else " " for c in tool.get("description") or name)
        function = f"def {name.replace('-', '_')}(a: str) -> str:\n    return a\n"
        skill = Skill(name=name, description=" ".join(said.split())[:300], source=function)
        (root / name).mkdir(parents=True)
        for path, data in files_of_skill(skill).items():
            (root / name / path).write_bytes(data)
