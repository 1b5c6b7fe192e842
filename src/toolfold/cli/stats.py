"""`toolfold stats`: what has been run until now, what it cost, and what direct calls would have cost."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli.console import cell, counted, note, print_table, stdout, write_json
from toolfold.cli.options import Config, DataDir, Json, moment

if TYPE_CHECKING:
    from toolfold.telemetry.ledger_reader import LedgerReader
    from toolfold.telemetry.totals import Totals

_SUMS = ("runs", "failed", "calls", "tokens_sent", "tokens_direct", "tokens_saved")


def register(app: typer.Typer) -> None:
    app.command("stats")(stats)


def stats(
    since: Annotated[str, typer.Option(help="From this day on (2026-11-02, in UTC), or an age (7d).")] = "",
    caller: Annotated[str | None, typer.Option(help="Only what this caller did.")] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Only what was done in this session; tools are not counted by session, and left out."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 10,
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Show runs, calls and errors by day, caller, session and tool, and the tokens and money that they saved.

    Read from the data folder, whether a gateway runs or not. docs/savings.md has the method.

    Examples: toolfold stats
              toolfold stats --since 7d --caller ci --json
    """
    from toolfold.config.load import load_here
    from toolfold.telemetry.ledger_reader import LedgerReader

    settings = load_here(config, data_dir=data).settings
    ledger = LedgerReader(settings)
    day = _day(since) if since else None
    totals = ledger.totals(since=day, caller=caller, session=session)
    if json:
        write_json(_as_data(ledger, totals, day, caller, session))
    elif not totals.requests:
        note("Nothing has been run or searched yet." if not since else "Nothing has been run or searched since then.")
    else:
        _show_totals(totals, settings.tokenizer)
        _show_parts(ledger, day, caller, session, limit)


def _day(since: str) -> str:
    with contextlib.suppress(ValueError):
        return date.fromisoformat(since).isoformat()
    return datetime.fromtimestamp(moment(since), UTC).date().isoformat()


def _as_data(
    ledger: LedgerReader, totals: Totals, since: str | None, caller: str | None, session: str | None
) -> dict[str, Any]:
    from dataclasses import asdict

    from toolfold.telemetry.totals import METHOD

    callers = ledger.by_caller(since=since, caller=caller, session=session)
    sessions = ledger.by_session(since=since, caller=caller, session=session)
    tools = ledger.by_tool(since=since, caller=caller) if session is None else []
    return {
        "since": since,
        "caller": caller,
        "session": session,
        "totals": totals.data(),
        "days": [
            {"day": day, **each.data()}
            for day, each in ledger.by_day(since=since, caller=caller, session=session).items()
        ],
        "callers": [{"caller": name, **each.data()} for name, each in callers.items()],
        "sessions": [{"caller": who, "session": name, **each.data()} for (who, name), each in sessions.items()],
        "tools": [asdict(each) for each in tools],
        "method": METHOD,
    }


def _show_totals(totals: Totals, tokenizer: str) -> None:
    console = stdout()
    console.print(
        f"{counted(totals.runs, 'run')} ({totals.failed:,} failed), {counted(totals.calls, 'call')}"
        f" ({totals.call_errors:,} failed), {counted(totals.searches, 'search', 'es')}"
        f" in {counted(totals.conversations, 'conversation')}",
        highlight=False,
    )
    console.print()
    labels = totals.labels
    rows = [
        (
            f"our definitions, {counted(totals.requests, 'request')}",
            totals.tokens_definitions,
            labels["tokens_definitions"],
        ),
        ("searches", totals.tokens_searches, labels["tokens_searches"]),
        ("code", totals.tokens_code, labels["tokens_code"]),
        ("outputs", totals.tokens_outputs, labels["tokens_outputs"]),
        ("[bold]sent[/]", totals.tokens_sent, labels["tokens_sent"]),
        (
            f"all definitions, {counted(totals.requests_direct, 'request')}",
            totals.tokens_direct_definitions,
            labels["tokens_direct_definitions"],
        ),
        ("results", totals.tokens_results, labels["tokens_results"]),
        ("[bold]direct calls would have sent[/]", totals.tokens_direct, labels["tokens_direct"]),
        (f"[bold]saved ({totals.share_saved:.1%})[/]", totals.tokens_saved, labels["tokens_saved"]),
        ("saved if all definitions were cached", totals.cached_saved, labels["tokens_saved"]),
    ]
    print_table(
        ("", "tokens", "dollars", ""),
        [(name, f"{tokens:,}", _dollars(totals.cost(tokens)), label) for name, tokens, label in rows],
        lines_after=(4, 7),
    )
    console.print(f"${totals.price:g} per million tokens (`token_price`).", highlight=False)
    if totals.label == "estimated":
        from toolfold.telemetry.counting import can_count
        from toolfold.telemetry.tokens import INSTALL

        later = "A gateway counts exactly after ten seconds, `toolfold run` never does."
        why = later if can_count(tokenizer) else f"Exact with: {INSTALL}"
        console.print(f"Partly estimated. {why}", highlight=False, markup=False)


def _show_parts(ledger: LedgerReader, since: str | None, caller: str | None, session: str | None, limit: int) -> None:
    days = list(ledger.by_day(since=since, caller=caller, session=session).items())
    parts: list[tuple[str, list[tuple[str, Totals]]]] = [("day", days[-limit:])]
    if caller is None and session is None:
        parts.append(("caller", list(ledger.by_caller(since=since).items())[:limit]))
    if session is None:
        sessions = ledger.by_session(since=since, caller=caller).items()
        named = [(f"{name or '(none)'} · {who}", each) for (who, name), each in sessions]
        parts.append(("session", named[:limit]))
    for title, rows in parts:
        stdout().print()
        print_table(
            (title, "runs", "failed", "calls", "sent", "direct", "saved"),
            [(cell(name), *(f"{getattr(each, field):,}" for field in _SUMS)) for name, each in rows],
        )
    tools = ledger.by_tool(since=since, caller=caller)[:limit] if session is None else []
    if tools:
        stdout().print()
        rows = [
            (cell(each.tool), f"{each.calls:,}", f"{each.errors:,}", f"{each.tokens_results:,}", each.label)
            for each in tools
        ]
        print_table(("tool", "calls", "failed", "tokens of results", ""), rows)


def _dollars(amount: float) -> str:
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.4f}"
