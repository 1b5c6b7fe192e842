"""What a gateway counts, for `/metrics`: plain numbers, kept as things happen and read by each scrape.

Names that become labels are bounded: those of the config and the catalog, and only so many of them. Text that a caller
or a program chose never becomes one.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolfold.telemetry.observe import Observer, SeenCall, SeenQuestion, SeenRun, SeenSearch

if TYPE_CHECKING:
    from toolfold.telemetry.ledger_reader import LedgerReader

OTHER = "other"
"""In place of a name that is not known, or is one too many."""
_MOST_TOOLS = 1_000
_LONGEST_NAME = 200
_MOST_COMBINATIONS = 200
_MOST_CODES = 100
_NAMED_TOOLS = 5
"""Tools that a combination names; a larger one is told by its servers."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_PATIENCE = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_CHARACTERS = (50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200)
_CALLS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)

_TOKENS = {
    ("direct", "definitions"): "tokens_direct_definitions",
    ("direct", "results"): "tokens_results",
    ("toolfold", "definitions"): "tokens_definitions",
    ("toolfold", "searches"): "tokens_searches",
    ("toolfold", "code"): "tokens_code",
    ("toolfold", "outputs"): "tokens_outputs",
}
"""Way and use of tokens → the ledger's name for them."""

TokenUse = tuple[str, str]
Key = TypeVar("Key")


class Buckets:
    """A histogram: how many values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Buckets:
        copied = Buckets(self.bounds)
        copied.counts, copied.total = self.counts.copy(), self.total
        return copied


class Metrics(Observer):
    """Counts what happens in a fold. `is_tool` says whether the catalog has a tool of a server.

    `callers` and `servers` are the configured ones: others are counted under a common name.
    """

    def __init__(self, callers: Iterable[str], servers: Iterable[str], is_tool: Callable[[str, str], bool]) -> None:
        self._callers = frozenset(callers)
        self._servers = frozenset(servers)
        self._is_tool = is_tool
        self._tools: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        self.active = 0
        self.asking = 0
        self.runs: Counter[tuple[str, str, str]] = Counter()
        """By caller, language and status."""
        self.run_errors: Counter[str] = Counter()
        self.run_seconds = {"python": Buckets(_SECONDS), "direct": Buckets(_SECONDS)}
        self.run_calls = Buckets(_CALLS)
        self.code = Buckets(_CHARACTERS)
        self.output = 0
        """Characters that the model read of what runs and searches answered."""
        self.combinations: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str, str, str]] = Counter()
        """By kind, server, tool and status."""
        self.call_errors: Counter[tuple[str, str]] = Counter()
        """By server and code."""
        self.call_seconds: dict[str, Buckets] = {}
        self.call_bytes: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter(dict.fromkeys(("allow", "ask", "deny"), 0))
        self.approvals: Counter[str] = Counter(dict.fromkeys(("once", "run", "session", "no"), 0))
        self.approval_seconds = Buckets(_PATIENCE)
        self.search_seconds = Buckets(_SECONDS)

    def run_started(self, run: SeenRun) -> None:
        self.active += 1

    def run_ended(self, run: SeenRun) -> None:
        self.active -= 1
        language = run.language if run.language in self.run_seconds else OTHER
        self.runs[self.caller(run.caller), language, "ok" if run.ok else "error"] += 1
        if not run.ok:
            self.run_errors[_bounded(self.run_errors, run.error_code or OTHER, _MOST_CODES)] += 1
        if language not in self.run_seconds:
            self.run_seconds[language] = Buckets(_SECONDS)
        self.run_seconds[language].add(run.ms / 1000)
        self.output += len(run.text)
        if language != "direct":
            self.run_calls.add(run.call_count)
            self.code.add(len(run.code))
            if run.call_count > 1:
                self._combine(run)

    def call_ended(self, run: SeenRun, call: SeenCall) -> None:
        kind, server, tool = self._named(call)
        self.calls[kind, server, tool, "ok" if call.ok else "error"] += 1
        if not call.ok:
            self.call_errors[server, call.error_code or OTHER] += 1
        seconds = self.call_seconds.get(server)
        if seconds is None:
            seconds = self.call_seconds[server] = Buckets(_SECONDS)
        seconds.add(call.ms / 1000)
        self.call_bytes[server] += call.result_size
        if call.decision in self.decisions:
            self.decisions[call.decision] += 1

    def searched(self, search: SeenSearch) -> None:
        self.search_seconds.add(search.seconds)
        self.output += len(search.text)

    def asked(self, question: SeenQuestion) -> None:
        self.asking += 1

    def answered(self, question: SeenQuestion) -> None:
        self.asking -= 1
        self.approvals[question.reply if question.reply in self.approvals else OTHER] += 1
        self.approval_seconds.add(question.ms / 1000)

    def copy(self) -> Metrics:
        """For another thread: nothing is added to it while it is read."""
        copied = copy(self)
        for name, value in vars(self).items():
            setattr(copied, name, _copied(value))
        return copied

    def caller(self, name: str) -> str:
        """The label of a caller: its own name only where the settings have it."""
        if name in self._callers:
            return name
        if name == "local" or name.startswith("token:"):
            return "owner"
        return "jwt" if name.startswith("jwt:") else OTHER

    def _named(self, call: SeenCall) -> tuple[str, str, str]:
        """The labels of a call. Addresses of resources are none: there is no end of them."""
        tool = call.name if call.kind == "tool" else ""
        key = (call.kind, call.server, tool)
        known = self._tools.get(key)
        if known is not None:
            return known
        if call.kind == "tool" and len(tool) <= _LONGEST_NAME and self._is_tool(call.server, tool):
            found = key if len(self._tools) < _MOST_TOOLS else (call.kind, call.server, OTHER)
        else:
            server = call.server if call.server in self._servers else OTHER
            found = (call.kind, server, OTHER if call.kind == "tool" else "")
        if found == key:
            self._tools[key] = key
        return found

    def _combine(self, run: SeenRun) -> None:
        used = {(server, tool) for kind, server, tool in map(self._named, run.calls) if kind == "tool"}
        if len(used) < 2:
            return
        if len(used) <= _NAMED_TOOLS:
            name = ", ".join(f"{server}.{tool}" for server, tool in sorted(used))
        else:
            servers = sorted({server for server, _ in used})
            name = ", ".join(f"{server}.*" for server in servers) if len(servers) <= _NAMED_TOOLS else OTHER
        self.combinations[_bounded(self.combinations, name, _MOST_COMBINATIONS)] += 1


class TokenCounts:
    """The ledger's sums since this was made, as counters: they never fall, though the ledger corrects its estimates.

    What other gateways of the same data folder do meanwhile is in them.
    """

    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger
        self._since = time.strftime("%Y-%m-%d", time.gmtime())
        self._before = self._read()
        self._days: dict[str, dict[TokenUse, int]] = {}
        self.is_estimated = False
        """Whether tokens are estimated, in part, of the last two days."""

    def read(self) -> dict[TokenUse, int]:
        """By way and use. Reads files."""
        for day, tokens in self._read().items():
            before, highest = self._before.get(day, {}), self._days.setdefault(day, {})
            for use, number in tokens.items():
                since_start = number - before.get(use, 0)
                highest[use] = max(highest.get(use, 0), since_start)
                self.is_estimated |= highest[use] > since_start  # left by an estimate that was too high
        # Of the day before, what is known may still become exact.
        self._since = sorted(self._days)[-2:][0] if self._days else self._since
        return {use: sum(day.get(use, 0) for day in self._days.values()) for use in _TOKENS}

    def _read(self) -> dict[str, dict[TokenUse, int]]:
        days = self._ledger.by_day(since=self._since)
        self.is_estimated = any(totals.label == "estimated" for totals in days.values())
        return {day: {use: getattr(totals, name) for use, name in _TOKENS.items()} for day, totals in days.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Buckets | Counter):
        return cast("Any", value).copy()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in cast("dict[Any, Any]", value).items()}
    return value


def _bounded(counter: Counter[Key], key: Key, most: int) -> Key | str:
    return key if key in counter or len(counter) < most else OTHER
