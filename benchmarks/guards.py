"""What the whole chain of guards costs per call, with an upstream that answers at once.

Processor time of all threads, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, median_ms
from benchmarks.runs import UPSTREAM, sdk_client
from toolfold.config.load import load_here
from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import RunResult
from toolfold.guards.guard import Call
from toolfold.guards.record import Record
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators

_BUDGET = 0.5
_CALLS = 500
_TEXT = {"type": "string"}
_TOOL = ToolDefinition(
    server="github",
    name="create_issue",
    input_schema={
        "type": "object",
        "properties": {"owner": _TEXT, "repo": _TEXT, "title": _TEXT, "user_id": {"type": "integer"}},
        "required": ["owner", "repo", "title", "user_id"],
        "additionalProperties": False,
    },
)
_ARGUMENTS = {"owner": "my-org", "repo": "toolfold", "title": "A title of usual length, and then some"}
_RULES: list[dict[str, Any]] = [
    {"match": "stripe.*", "do": "deny"},
    {"match": "github.delete_*", "do": "deny"},
    {"match": "github.*", "args": {"owner": ["evil", "bad-*"]}, "do": "deny"},
    {"match": "github.*", "session": "trial", "do": "ask"},
    {"match": "*", "caller": "ci", "do": "ask"},
    {"match": "*.create_*", "when": {"open_world": True, "read_only": True}, "do": "ask"},
    {"match": "resource:docs:file:///private/*", "do": "deny"},
    {"match": "files.write_*", "args": {"path": "/etc/*"}, "do": "deny"},
    {"match": "slack.post_*", "do": "ask"},
    {"match": "github.*", "args": {"owner": "my-org"}, "do": "allow"},
]
_EVERYTHING: dict[str, Any] = {
    "policy": {"rules": _RULES},
    "context": {"inject": {"github.*": {"user_id": "context.user_id"}}},
    "limits": {
        "calls_per_minute": 10**6,
        "concurrent_calls": 64,
        "result_bytes": "1MB",
        "tools": {"github.*": 10**6},
        "prices": {"maps.*": 0.01, "github.*": 0.001},
        "spend_per_day": 10**6,
    },
}


async def measure(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    for what, config in (
        ("a call through the guards as they are by default", {"context": _EVERYTHING["context"]}),
        ("with ten rules, injected values and every limit", _EVERYTHING),
        ("and with the audit log", {**_EVERYTHING, "audit": True}),
        ("and with privacy: all guards", {**_EVERYTHING, "audit": True, "privacy": True}),
    ):
        progress(what)
        figures.append(Figure(what, await _per_call(home, config, rounds), _BUDGET, "0.5 ms", budget=1.0))
    progress("a call of a plain SDK client")
    async with sdk_client(sys.executable, UPSTREAM) as client:
        plain = await median_ms(lambda: client.call_tool("echo", {"text": "hi"}), rounds * 10)
    return [*figures, Figure("all guards", figures[-1].ours, plain, "a whole call of a plain SDK client")]


async def _per_call(home: Path, config: dict[str, Any], rounds: int) -> float:
    """The median over the rounds, in milliseconds: calls one after the other, as a loop makes them."""
    settings = load_here(config, data_dir=home).settings
    chain = Chain(settings, [], Validators())
    answer = ToolResult(structured={"number": 7, "url": "https://example.org/7"}, has_structured=True)

    async def upstream(call: Call) -> ToolResult:
        return answer

    took: list[float] = []

    async def work(run: RunContext) -> RunResult:
        proceed = chain.for_run(upstream, Record(), ReplyBudget())
        begun = time.process_time()
        for number in range(_CALLS):
            await proceed(Call(f"{run.id}-{number}", "tool", "github", "create_issue", _ARGUMENTS, run, _TOOL))
        took.append((time.process_time() - begun) * 1000 / _CALLS)
        return RunResult(success=True)

    for _ in range(rounds + 1):
        privacy = await chain.privacy_of("local", "bench")
        values = {"user_id": "7"}
        run = RunContext("local", "bench", Deadline(600), values=values, privacy=privacy)
        await chain.recorded("bench", run, lambda run=run: work(run))
        await asyncio.sleep(0)
    await chain.close()
    return statistics.median(took[1:])
