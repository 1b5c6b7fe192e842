"""`toolfold savings`: what the definitions of your own servers cost, and what Toolfold costs instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli.console import cell, counted, note, print_table, printable, stdout, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, open_fold, run_async
from toolfold.cli.trust import offer_trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolfold.definitions import ToolDefinition
    from toolfold.fold import Toolfold
    from toolfold.telemetry.savings import Savings

_SEARCHES = 5
_QUESTION_WORDS = 8
_LISTING_SECONDS = 20.0
_METHOD = (
    "Per request of the model, nothing cached: each tool's name, description and input schema as compact JSON, and the"
    " servers' instructions; Toolfold is counted in the mode `code`. {how} A conversation with Toolfold also pays for"
    " its searches and programs, and saves the results that only its programs read; `toolfold demo` measures whole"
    " conversations."
)


def register(app: typer.Typer) -> None:
    app.command("savings")(savings)


def savings(
    price: Annotated[
        float | None, typer.Option(min=0, help="Dollars per million input tokens; default: the setting `token_price`.")
    ] = None,
    config: Config = None,
    catalog: CatalogDirs = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Count what the tool definitions of your servers cost in every request, one row a server, and what Toolfold's do.

    Servers whose tools were never seen are started once.

    Examples: toolfold savings
              toolfold savings --price 1.25 --json
    """

    async def work() -> tuple[Savings, dict[str, str], float]:
        async with open_fold(config, catalog, data) as fold:
            if fold.catalog.missing:
                note(f"Listing {counted(len(fold.catalog.missing), 'server')} …")
                await fold.listed(timeout=_LISTING_SECONDS)
            states = fold.roster.states()
            left = {
                name: states[name].text.removeprefix(f"{name}: ") if name in states else "not listed yet"
                for name in fold.catalog.missing
            }
            return await _measured(fold), left, fold.settings.token_price if price is None else price

    offer_trust(config)
    measured, left, per_million = run_async(work)
    if json:
        write_json(_as_data(measured, left, per_million))
    else:
        _show(measured, left, per_million)
    if left and not measured.servers:
        raise typer.Exit(1)


async def _measured(fold: Toolfold) -> Savings:
    from toolfold.gateway.texts import INSTRUCTIONS, TOOLS
    from toolfold.telemetry.savings import Savings, ServerCost, definition_tokens
    from toolfold.telemetry.tokens import load_tokenizer, tokens_of

    count = load_tokenizer(fold.settings.tokenizer) if fold.settings.tokenizer else tokens_of
    by_server: dict[str, list[ToolDefinition]] = {}
    for tool in fold.catalog.tools:
        by_server.setdefault(tool.server, []).append(tool)
    costs = [
        ServerCost(
            info.name,
            info.tools,
            definition_tokens(
                ((tool.name, tool.description, tool.input_schema) for tool in by_server.get(info.name, ())),
                info.instructions,
                count,
            ),
        )
        for info in fold.catalog.servers
        if not info.missing
    ]
    searches: list[int] = []
    for question in _questions(fold.catalog.tools):
        answer = await fold.live.search(question)  # no model asks, so the ledger is not told
        searches.append(count(question) + count(answer.text))
    own = definition_tokens(
        ((tool["name"], tool["description"], tool["inputSchema"]) for tool in TOOLS), INSTRUCTIONS, count
    )
    return Savings(
        tuple(sorted(costs, key=lambda each: (-each.tokens, each.server))),
        own,
        round(sum(searches) / len(searches)) if searches else 0,
        fold.settings.tokenizer,
    )


def _questions(tools: Sequence[ToolDefinition]) -> list[str]:
    """The first words of some descriptions, from all over the catalog."""
    chosen = [tools[at] for at in range(0, len(tools), max(1, -(-len(tools) // _SEARCHES)))]
    return [" ".join((tool.description or tool.name).split()[:_QUESTION_WORDS]) for tool in chosen]


def _as_data(measured: Savings, left: dict[str, str], per_million: float) -> dict[str, Any]:
    from toolfold.telemetry.savings import price
    from toolfold.telemetry.tokens import is_exact

    return {
        "servers": [each._asdict() for each in measured.servers],
        "not_counted": left,
        "tools": measured.tools,
        "direct_tokens": measured.direct,
        "toolfold_tokens": measured.own,
        # Without tools there is nothing to search for.
        "search_tokens": measured.search if measured.tools else None,
        "crossover_tokens": measured.crossover if measured.tools else None,
        "crossover_tools": measured.crossover_tools if measured.tools else None,
        "dollars_per_million_tokens": per_million,
        "dollars_per_thousand_requests": {
            "direct": price(measured.direct, per_million),
            "toolfold": price(measured.own, per_million),
        },
        "counted": "measured" if measured.tokenizer or is_exact() else "estimated",
        "tokenizer": measured.tokenizer or "o200k",
        "method": _method(measured.tokenizer),
    }


def _show(measured: Savings, left: dict[str, str], per_million: float) -> None:
    from toolfold.telemetry.savings import price

    def row(name: str, tools: int, tokens: int, style: str = "") -> tuple[str, ...]:
        begin, end = (f"[{style}]", "[/]") if style else ("", "")
        dollars = f"{price(tokens, per_million):,.2f}"
        return f"{begin}{name}{end}", f"{tools:,}", f"{begin}{tokens:,}{end}", dollars

    console = stdout()
    if measured.servers:
        rows = [row(cell(each.server), each.tools, each.tokens) for each in measured.servers]
        rows.append(row("all of them, direct", measured.tools, measured.direct, "bold"))
        rows.append(row("Toolfold", 2, measured.own, "bold"))
        headings = ("server", "tools", "tokens", "$ per 1,000 requests")
        print_table(headings, rows, lines_after=[len(measured.servers) - 1])
        console.print()
    for line in _remarks(measured, left, per_million):
        console.print(printable(line), highlight=False, markup=False)


def _remarks(measured: Savings, left: dict[str, str], per_million: float) -> list[str]:
    lines = [f"Not counted: {name}: {reason}" for name, reason in left.items()]
    if not measured.servers:
        why = "no server could be listed" if left else "no server was found"
        return [*lines, f"There is nothing to count: {why}. Try: toolfold doctor"]
    if measured.saved > 0:
        share = measured.own / measured.direct
        lines.append(f"Toolfold's definitions are {share:.2%} of that: {measured.saved:,} tokens less in each request.")
    if measured.tools:
        verdict = "cheaper with direct calls" if measured.direct < measured.crossover else "past that"
        lines.append(
            f"Crossover: below {measured.crossover:,} tokens of definitions (about"
            f" {counted(measured.crossover_tools, 'tool')} like these) direct calls are cheaper: {measured.own} for the"
            f" two tools and {measured.search:,} for one search. This config is {verdict}."
        )
    return [
        *lines,
        _method(measured.tokenizer),
        f"Price: ${per_million:g} per million input tokens (`token_price`, --price).",
    ]


def _method(tokenizer: str) -> str:
    from toolfold.telemetry.tokens import INSTALL, is_exact

    exact = f"Counted with the {tokenizer or 'o200k'} tokenizer."
    how = exact if tokenizer or is_exact() else f"Estimated; exact with: {INSTALL}."
    return _METHOD.format(how=how)
