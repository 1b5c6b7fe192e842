"""The demo's report as a person reads it, and as a script does."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toolfold.demo.run import Report, Row
from toolfold.telemetry.tokens import INSTALL, is_exact

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COUNTED = (
    "{how}, in the context as it stands at the end: the definitions once (name, "
    "description, input schema; the server's instructions), each call's name and arguments, each complete result "
    "text. For folded that is two definitions, the searches with their answers, the program and what it printed. "
    "Calls that do not need each other share a round trip. Not counted, and the same on both sides: the question "
    "and the closing words."
)


def as_data(report: Report) -> dict[str, Any]:
    """Everything that was measured, for `--json`."""
    data = asdict(report)
    for row, measured in zip(data["rows"], report.rows, strict=True):
        row["same_answer"] = measured.same_answer
    return data | {"same_answers": report.same_answers, "exact": is_exact(), "counted": _counted()}


def show(report: Report, console: Console) -> None:
    """The table, then what it does not say by itself."""
    console.print(_table(report))
    console.print()
    for paragraph in _remarks(report):
        console.print(paragraph, highlight=False, markup=False)
        console.print()


def _table(report: Report) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"{report.servers} MCP servers, {report.tools} tools: direct calls against Toolfold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        title_justify="left",
        title_style="bold",
    )
    table.add_column("scenario", no_wrap=True)
    for heading in ("direct\ntokens", "folded\ntokens", "token\nratio", "direct\ntrips", "folded\ntrips"):
        table.add_column(heading, justify="right")
    table.add_column("same\nanswer")
    for row in report.rows:
        cheaper = row.folded.tokens < row.direct.tokens
        table.add_row(
            row.scenario,
            f"{row.direct.tokens:,}",
            f"{row.folded.tokens:,}",
            f"[{'green' if cheaper else 'yellow'}]{_share(row)}[/]",
            str(row.direct.round_trips),
            str(row.folded.round_trips),
            "[green]yes[/]" if row.same_answer else "[red]NO[/]",
        )
    return table


def _share(row: Row) -> str:
    return f"{row.folded.tokens / row.direct.tokens:.1%}"


def _remarks(report: Report) -> list[str]:
    own = report.folded_definitions
    remarks = [
        (
            f"Definitions alone: {report.direct_definitions:,} tokens for the {report.tools} tools, "
            f"{own:,} for Toolfold's two tools and instructions, however many servers there are."
        )
    ]
    if catalog := report.catalog:
        remarks.append(
            f"Definitions in {catalog.folder}: {catalog.servers} servers, {catalog.tools:,} tools, "
            f"{catalog.tokens:,} tokens; Toolfold's two tools stay at {own:,} (1 to {catalog.tokens / own:,.0f})."
        )
        remarks += [f"Not counted: {problem}" for problem in catalog.problems]
    remarks += [_where_direct_wins(report), _counted(), f"Took {report.seconds:.1f} s."]
    return remarks


def _counted() -> str:
    how = "Counted with the o200k tokenizer" if is_exact() else f"Estimated in o200k tokens (exact with: {INSTALL})"
    return _COUNTED.format(how=how)


def _where_direct_wins(report: Report) -> str:
    wins = [reason for row in report.rows if (reason := _direct_wins(row))]
    if not wins:
        return "Direct calls are cheaper or shorter in none of these scenarios."
    return "\n".join(["Where direct calls are cheaper or shorter:", *(f"- {reason}" for reason in wins)])


def _direct_wins(row: Row) -> str:
    """Why direct calls are the better choice for this scenario; empty when they are not."""
    reasons: list[str] = []
    folded, alone = row.folded.tokens, row.direct_tokens_with_needed_servers_only
    if row.direct.tokens < folded:
        reasons.append(f"{row.direct.tokens:,} tokens against {folded:,}")
    elif alone < folded:
        reasons.append(f"{alone:,} tokens against {folded:,} if only {_servers(row)} is connected")
    if row.direct.round_trips < row.folded.round_trips:
        reasons.append(f"{row.direct.round_trips} round trip against {row.folded.round_trips}")
    return f"{row.scenario}: {'; '.join(reasons)}" if reasons else ""


def _servers(row: Row) -> str:
    return " and ".join(row.servers)
