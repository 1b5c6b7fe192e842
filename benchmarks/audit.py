"""What the audit log and the whole chain of guards cost a call, without sandbox and upstream around them."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from benchmarks.report import Figure
from toolfold.config.settings import Settings
from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.guard import Call
from toolfold.guards.record import Record
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators

_CALLS = 500
_AT_ONCE = 50
_AUDIT_BUDGET = 0.2
_CHAIN_BUDGET = 0.5
_ARGUMENTS = {"owner": "my-org", "repo": "website", "title": "A title of some length", "labels": ["bug", "urgent"]}
_TOOL = ToolDefinition(
    server="github",
    name="create_issue",
    input_schema={
        "type": "object",
        "properties": {"owner": {"type": "string"}, "repo": {"type": "string"}, "title": {"type": "string"}},
        "required": ["owner", "repo", "title"],
    },
)
_RULES: list[dict[str, Any]] = [
    *({"match": f"server{each}.delete_*", "do": "deny"} for each in range(10)),
    {"match": "github.*", "args": {"owner": "my-*"}, "do": "allow"},
]
_EVERYTHING: dict[str, Any] = {
    "policy": {"rules": _RULES},
    "context": {"inject": {"supabase.*": {"user_id": "context.user_id"}}},
    "limits": {"calls_per_minute": 10_000_000, "prices": {"github.*": 0.001}},
    "privacy": True,
}


class _Way:
    """One run's way to an upstream that answers at once, with these settings."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir()
        given = {"sandbox": {"tool_calls": 10_000_000, "concurrent_calls": 100_000}, **settings}
        self._chain = Chain(Settings.model_validate({"data_dir": folder, **given}), (), Validators())
        self._result = ToolResult(structured={"number": 7, "url": "https://github.com/my-org"}, has_structured=True)
        self._number = 0

    async def open(self) -> None:
        privacy = await self._chain.privacy_of("local", None)
        self._run = RunContext("local", None, Deadline(3600), privacy=privacy)
        self._proceed = self._chain.for_run(self._upstream, Record(), ReplyBudget())

    async def close(self) -> None:
        await self._chain.close()

    async def _upstream(self, call: Call) -> ToolResult:
        await asyncio.sleep(0)
        return self._result

    async def call(self) -> None:
        self._number += 1
        await self._proceed(
            Call(str(self._number), "tool", "github", "create_issue", dict(_ARGUMENTS), self._run, _TOOL)
        )

    async def bare(self) -> None:
        self._number += 1
        await self._upstream(
            Call(str(self._number), "tool", "github", "create_issue", dict(_ARGUMENTS), self._run, _TOOL)
        )


async def measure(folder: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    plain, audited = _Way(folder / "plain"), _Way(folder / "audited", audit=True)
    whole = _Way(folder / "whole", audit=True, **_EVERYTHING)
    ways = (plain, audited, whole)
    for way in ways:
        await way.open()
    progress("one call after another")
    with (folder / "calls.log").open("a", encoding="utf-8") as log:
        turns = await _timed(rounds, _in_turn, plain.call, audited.call, whole.call, plain.bare, partial(_line, log))
    progress(f"{_AT_ONCE} calls at once")
    crowds = await _timed(rounds, _at_once, plain.call, audited.call, whole.call, plain.bare)
    for way in ways:
        await way.close()

    def figures(name: str, ours: int, other: int, budget: float) -> list[Figure]:
        return [
            Figure(
                f"{name}: {what}",
                times[ours] - times[other],
                budget if held else None,
                "budget" if held else "",
                budget=1.0 if held else None,
            )
            for what, times, held in (
                ("processor time in a loop", turns.processor, True),
                ("of it on the event loop", turns.loop, True),
                (f"processor time, {_AT_ONCE} calls at once", crowds.processor, True),
                ("by the clock in a loop", turns.wall, False),
                (f"by the clock, {_AT_ONCE} calls at once", crowds.wall, False),
            )
        ]

    log = [
        Figure(f"audit: {what}", times[1] - times[0], times[4], "two JSON lines, flushed, no chain")
        for what, times in (("processor time in a loop", turns.processor), ("by the clock in a loop", turns.wall))
    ]
    return figures("audit", 1, 0, _AUDIT_BUDGET) + log + figures("all guards", 2, 3, _CHAIN_BUDGET)


async def _line(log: TextIO) -> None:
    """What a person would write: a line before the call and one after it, handed to the system at once."""
    for state in ("begun", "ended"):
        log.write(json.dumps({"at": time.time(), "tool": "github.create_issue", "state": state, **_ARGUMENTS}) + "\n")
        log.flush()


@dataclass
class Times:
    """Milliseconds a call, for each of several works."""

    wall: list[float]
    processor: list[float]
    """Of all threads."""
    loop: list[float]


Work = Callable[[], Awaitable[None]]


async def _timed(rounds: int, how: Callable[[Work], Awaitable[None]], *works: Work) -> Times:
    """Medians, measured in turns. By the clock, other work of the machine counts too."""
    clocks = (time.perf_counter, time.process_time, time.thread_time)
    taken: list[list[list[float]]] = [[[] for _ in works] for _ in clocks]
    for _ in range(rounds):
        for number, work in enumerate(works):
            begun = [clock() for clock in clocks]
            await how(work)
            for clock, start, into in zip(clocks, begun, taken, strict=True):
                into[number].append((clock() - start) * 1000 / _CALLS)
    return Times(*([statistics.median(each) for each in of_clock] for of_clock in taken))


async def _in_turn(work: Work) -> None:
    for _ in range(_CALLS):
        await work()


async def _at_once(work: Work) -> None:
    for _ in range(_CALLS // _AT_ONCE):
        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
