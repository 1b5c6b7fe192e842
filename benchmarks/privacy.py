"""How well personal values are recognised, how fast, and what the guard costs a call."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.privacy_look_alikes import look_alikes
from benchmarks.privacy_values import Sample, values
from benchmarks.report import Figure
from toolfold.config.privacy import PrivacySettings
from toolfold.privacy.privacy import Privacy, RunPrivacy

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Score:
    """Of one kind: values that were found, values that were missed, and what was taken for one and is none."""

    found: int = 0
    missed: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list[str])

    @property
    def recall(self) -> float:
        return self.found / ((self.found + self.missed) or 1)

    @property
    def precision(self) -> float:
        return self.found / ((self.found + self.wrong) or 1)


def scores() -> tuple[dict[str, Score], int, int]:
    """Kind → its score; and how many values and look-alikes there are."""
    found: dict[str, Score] = {}
    labelled, alike = list(values()), list(look_alikes())
    for sample in [*labelled, *alike]:
        got = Counter(_recognised(sample))
        wanted = Counter(sample.values)
        for value, kind in (got & wanted).elements():
            found.setdefault(kind, Score()).found += 1
            del value
        for value, kind in (wanted - got).elements():
            score = found.setdefault(kind, Score())
            score.missed += 1
            score.examples.append(f"missed {value!r} in {sample.text!r}")
        for value, kind in (got - wanted).elements():
            score = found.setdefault(kind, Score())
            score.wrong += 1
            score.examples.append(f"took {value!r} in {sample.text!r} {sample.field}")
    return found, sum(len(sample.values) for sample in labelled), len(alike)


def _run() -> RunPrivacy:
    privacy = Privacy(PrivacySettings(enabled=True), Path("unused"))
    return RunPrivacy(privacy, "bench", None, privacy.new_vault())


def _recognised(sample: Sample) -> list[tuple[str, str]]:
    """The values that became tokens, as they stood in the text."""
    run = _run()
    data: Any = {sample.field: sample.text, "also": "x"} if sample.field else [sample.text]
    run.incoming("bench", None).data(data)
    entries = run.vault.snapshot(with_values=True).entries
    return [(entry[0], name.rpartition("_")[0].lower()) for name, entry in entries.items()]


_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
"""What a person would begin with."""
PROSE = (
    "The committee met again on Thursday and agreed that the plan, which had been discussed since 2019, should go on.\n"
    "Nobody knew why 12 of the 40 members had left; the chair said that it was of no importance to the work at hand.\n"
)
LOG = (
    "2026-11-16T11:54:12.123Z INFO [worker-3] GET /v1/items/8472 took 15 ms status=200 bytes=10234 id=7f3a9c21\n"
    "2026-11-16T11:54:12.140Z DEBUG [worker-1] cache miss for key items:8472:v3, loading from disk (retry 0 of 3)\n"
)


def rows(count: int = 10_000) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "name": f"Ada Lovelace {number}",
            "email": f"ada{number}@example.com",
            "phone": f"+1 415 {200 + number % 700} {number % 10000:04d}",
            "city": "Berlin",
            "amount": number * 1.25,
            "created_at": "2026-11-16T11:54:12Z",
            "note": "asked twice about order 12345 and was told to wait",
        }
        for number in range(count)
    ]


def measure(rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    for name, text in (("prose", PROSE), ("log lines", LOG)):
        progress(f"{name} without matches")
        size = 4_000_000
        whole = text * (size // len(text))
        seconds = _best(rounds, lambda whole=whole: _run().incoming("bench", None).json_text(whole))
        figures.append(
            Figure(f"{name} without matches", len(whole) / seconds / 1e6, 20.0, "wanted", "MB/s", at_least=1.0)
        )
    progress("10,000 rows × 8 fields")
    data = rows()
    seconds = _best(rounds, lambda: _run().incoming("bench", None).data(data))
    figures.append(Figure("10,000 rows × 8 fields, 30,000 values", seconds * 1000, 1000.0, "allowed", budget=1.0))
    bare = _best(rounds, lambda: _EMAIL.sub("[email]", msgspec.json.encode(data).decode()))
    figures.append(Figure("the same", seconds * 1000, bare * 1000, "one expression for e-mails alone"))
    raw = msgspec.json.encode(data)
    seconds = _best(rounds, lambda: _run().incoming("bench", None).raw(raw))
    figures.append(Figure("the same as JSON text", seconds * 1000, 1000.0, "allowed", budget=1.0))
    progress("one small call")
    run = _run()
    arguments = {"to": "EMAIL_1", "subject": "Hello", "body": "Dear EMAIL_1, the order 12345 has shipped."}
    result = {"id": 7, "status": "sent", "to": "ada@example.com", "at": "2026-11-16T11:54:12Z"}
    run.incoming("bench", None).data(result)

    def one_call() -> None:
        run.restorer("bench").data(arguments)
        run.incoming("bench", None).data(result)

    seconds = _best(rounds, lambda: [one_call() for _ in range(1000)]) / 1000
    figures.append(
        Figure("a small call: restore and tokenise", seconds * 1000, 0.5, "the whole chain may cost", budget=1.0)
    )
    return figures


def _best(rounds: int, work: Callable[[], Any]) -> float:
    """The shortest of several, in seconds of this process: what others do at the time does not count."""
    taken: list[float] = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def show(found: dict[str, Score], labelled: int, alike: int, console: Console, *, examples: bool) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"Recognisers: {labelled} values, {alike} look-alikes", title_justify="left", box=box.SIMPLE_HEAD
    )
    for name in ("kind", "values", "recall", "precision", "missed", "wrong"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    scores = list(found.values())
    whole = Score(sum(one.found for one in scores), sum(one.missed for one in scores), sum(one.wrong for one in scores))
    for kind, score in [*sorted(found.items()), ("all", whole)]:
        counts = (str(score.found + score.missed), f"{score.recall:.1%}", f"{score.precision:.1%}")
        table.add_row(kind, *counts, str(score.missed), str(score.wrong))
    console.print(table)
    if examples:
        for score in found.values():
            for example in score.examples:
                console.print(example, markup=False, highlight=False)
