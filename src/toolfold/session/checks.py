"""What is said of a program before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolfold.codegen.render import usage
from toolfold.guards.events import RunError
from toolfold.review.review import review
from toolfold.session.bridge import World

if TYPE_CHECKING:
    from toolfold.review.risk import Risk


def reviewed(world: World, code: str, caller: str) -> RunError | None:
    """Why a program is not run; None when the review found nothing."""
    live, chain = world.catalog, world.chain
    catalog = live.catalog

    def denied(module: str, function: str) -> str:
        found = catalog.names.resolve(module, function)
        tool = catalog.tool(*found) if found is not None else None
        return chain.denial(caller, tool) if tool is not None else ""

    findings = review(code, catalog.names_in(chain.scope(caller)), catalog.shown_tool, world.validators, denied)
    if not findings:
        return None
    lines = [f"line {each.line}: {each.message} {each.hint}".rstrip() for each in findings[:5]]
    # How the tools that were called wrongly are called, each once.
    wrong = dict.fromkeys(finding.tool for finding in findings[:5] if finding.tool is not None)
    tools = [catalog.shown_tool(*tool) for tool in wrong]
    lines += [usage(catalog.names, tool) for tool in tools[:2] if tool is not None]
    # A server that is not listed yet has no module: say so, and why.
    states = live.roster.states()
    lines += [states[server].text for server in live.unlisted_in(code) if server in states]
    first = findings[0]
    return RunError(
        code=first.code,
        message=first.message,
        hint=first.hint,
        line=first.line,
        text="\n".join(["Nothing was run.", *lines]),
    )


def risk_of(world: World, code: str) -> Risk:
    from toolfold.review.risk import assess

    catalog = world.catalog.catalog
    return assess(code, catalog.names, catalog.tool, catalog.named)
