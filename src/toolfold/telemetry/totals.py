"""Sums of the ledger as people read them: each number with how it is known, and what it costs.

The direct way is computed: its requests are the rounds of calls and one answer for each conversation, each with all
definitions, and it reads every result. Ours are the searches, the programs and the same answers, each with our own
definitions; it reads code, searches and outputs. docs/savings.md has the whole method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from toolfold.telemetry.ledger_files import Counts

Label = Literal["measured", "computed", "estimated"]
METHOD = (
    "Direct: all definitions of the configured servers in each request (one for each round of calls, where calls that"
    " overlap share a round, and one answer for each conversation) and every result. Sent: our definitions in each"
    " request (one for each search and run, and the same answers), searches with their answers, code and outputs."
    " Texts are counted once; the history that requests repeat, arguments of direct calls and images are left out."
    " `cached` has the definitions once for each conversation, as if all prompts were cached."
)
"""What the numbers mean."""


@dataclass(slots=True)
class Totals:
    """Tokens and counts of some part of the ledger. `labels` says how each number of tokens is known."""

    runs: int = 0
    failed: int = 0
    """Runs that ended with an error."""
    searches: int = 0
    calls: int = 0
    call_errors: int = 0
    conversations: int = 0
    """A caller's use of one session, or of none, on one day of one gateway."""
    requests: int = 0
    """Of the model, with Toolfold."""
    requests_direct: int = 0
    """Of the model, had it made the same calls itself."""
    tokens_definitions: int = 0
    """Our own definitions, over all requests."""
    tokens_searches: int = 0
    tokens_code: int = 0
    tokens_outputs: int = 0
    tokens_sent: int = 0
    """All of the above."""
    tokens_direct_definitions: int = 0
    tokens_results: int = 0
    """Everything that the servers answered."""
    tokens_direct: int = 0
    """Both of these."""
    cached_sent: int = 0
    cached_direct: int = 0
    price: float = 3.0
    """Dollars per million tokens."""
    labels: dict[str, Label] = field(default_factory=dict[str, Label])
    _estimated: set[str] = field(default_factory=set[str], repr=False)

    def __post_init__(self) -> None:
        self._label()

    def add(self, counts: Counts, definitions: int, *, exact: bool) -> None:
        """Add some counts, for which all definitions cost so many tokens in each request."""
        self.runs += counts.runs
        self.failed += counts.failed
        self.searches += counts.searches
        self.calls += counts.calls
        self.call_errors += counts.call_errors
        self.conversations += counts.conversations
        self.requests += counts.runs + counts.searches + counts.conversations
        self.requests_direct += counts.rounds + counts.conversations
        own = counts.own + counts.own_est + counts.passed * definitions
        direct = (counts.rounds + counts.conversations) * definitions
        texts = {
            "tokens_searches": (counts.search, counts.search_est),
            "tokens_code": (counts.code, counts.code_est),
            "tokens_outputs": (counts.output, counts.output_est),
            "tokens_results": (counts.result, counts.result_est),
        }
        for name, (measured, estimated) in texts.items():
            setattr(self, name, getattr(self, name) + measured + estimated)
            if estimated:
                self._estimated.add(name)
        said = sum(map(sum, list(texts.values())[:3]))
        results = sum(texts["tokens_results"])
        self.tokens_definitions += own
        self.tokens_sent += own + said
        self.tokens_direct_definitions += direct
        self.tokens_direct += direct + results
        self.cached_sent += counts.own_once + counts.passed_once * definitions + said
        self.cached_direct += counts.conversations * definitions + results
        if counts.own_est or (counts.passed and not exact):
            self._estimated.add("tokens_definitions")
        if direct and not exact:
            self._estimated.add("tokens_direct_definitions")
        self._label()

    @property
    def tokens_saved(self) -> int:
        return self.tokens_direct - self.tokens_sent

    @property
    def share_saved(self) -> float:
        """Of what the direct way would have cost; negative where it would have cost less."""
        return self.tokens_saved / self.tokens_direct if self.tokens_direct else 0.0

    @property
    def cached_saved(self) -> int:
        return self.cached_direct - self.cached_sent

    @property
    def label(self) -> Label:
        """How `tokens_saved` is known: `computed` from measured numbers only, or `estimated`."""
        return "estimated" if self._estimated else "computed"

    def cost(self, tokens: int) -> float:
        """Dollars."""
        return tokens * self.price / 1_000_000

    def data(self) -> dict[str, Any]:
        """All of it, for JSON."""
        own = (
            "runs", "failed", "searches", "calls", "call_errors", "conversations", "requests", "requests_direct",
            "tokens_definitions", "tokens_searches", "tokens_code", "tokens_outputs", "tokens_sent",
            "tokens_direct_definitions", "tokens_results", "tokens_direct", "tokens_saved",
        )  # fmt: skip
        return {name: getattr(self, name) for name in own} | {
            "share_saved": round(self.share_saved, 6),
            "cached": {"sent": self.cached_sent, "direct": self.cached_direct, "saved": self.cached_saved},
            "dollars_per_million_tokens": self.price,
            "dollars_sent": round(self.cost(self.tokens_sent), 6),
            "dollars_direct": round(self.cost(self.tokens_direct), 6),
            "dollars_saved": round(self.cost(self.tokens_saved), 6),
            "labels": self.labels,
        }

    def _label(self) -> None:
        def known(*names: str) -> Label:
            return "estimated" if self._estimated.intersection(names) else "measured"

        texts = ("tokens_searches", "tokens_code", "tokens_outputs")
        direct = ("tokens_direct_definitions", "tokens_results")
        self.labels.update({name: known(name) for name in (*texts, "tokens_results")})
        self.labels.update(
            tokens_definitions=_computed(known("tokens_definitions")),
            tokens_sent=_computed(known("tokens_definitions", *texts)),
            tokens_direct_definitions=_computed(known("tokens_direct_definitions")),
            tokens_direct=_computed(known(*direct)),
            tokens_saved=self.label,
            dollars=self.label,
        )


@dataclass(frozen=True, slots=True)
class ToolTotals:
    """How often one tool was called, and what its results would have cost."""

    tool: str
    """As policies write it; resources only by their server."""
    calls: int
    errors: int
    tokens_results: int
    label: Label


def _computed(label: Label) -> Label:
    return "computed" if label == "measured" else label
