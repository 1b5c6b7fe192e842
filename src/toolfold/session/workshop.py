"""What a program, and a skill that is saved, has to pass before it runs: reading it, and trying its examples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from toolfold.catalog.live import LiveCatalog
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import RunError, RunResult
from toolfold.schema.validation import Validators

if TYPE_CHECKING:
    from toolfold.review.risk import Risk
    from toolfold.session.start import Started


class Workshop:
    """Implements `skills.Workshop`, with what one fold knows."""

    def __init__(
        self, live: LiveCatalog, chain: Chain, validators: Validators, started: Callable[[], Awaitable[Started]]
    ) -> None:
        self._live = live
        self._catalog = live.catalog
        self._chain = chain
        self._validators = validators
        self._started = started

    async def refusal(self, code: str, run: RunContext, *, check: bool = True) -> RunError | None:
        """Why a program is not run, as far as reading it tells; None if it may be."""
        refused = self._review(code, run.caller) if check else None
        run.notes.review = "refused" if refused is not None else "passed" if check else "off"
        return refused or await self._chain.programs.refusal(run, lambda: self._risk(code))

    async def rehearse(self, code: str, run: RunContext, seconds: float) -> RunResult:
        """Run a program of the same caller beside `run`, with read-only tools alone."""
        privacy = await self._chain.privacy_of(run.caller, None)
        inner = RunContext(run.caller, None, Deadline(seconds), privacy=privacy, code=code, read_only=True)
        sessions = (await self._started()).sessions
        return await self._chain.recorded(code, inner, lambda: sessions.run_beside(code, inner))

    def taken(self, name: str, caller: str) -> str:
        """What a caller knows by this name: a server or a tool; empty where nothing has it."""
        names = self._catalog.names_in(self._chain.scope(caller))
        found = names.named(name)
        return f"the server {name}" if names.behind(name) else f"the tool {found[0]}.{name}" if found else ""

    def _review(self, code: str, caller: str) -> RunError | None:
        from toolfold.review.review import review

        scope = self._chain.scope(caller)
        names = self._catalog.names_in(scope)

        def denied(module: str, function: str) -> str:
            found = self._catalog.names.resolve(module, function)
            tool = self._catalog.tool(*found) if found is not None else None
            return self._chain.denial(caller, tool) if tool is not None else ""

        # A server that is not listed yet has no module: say so, and why.
        absent = {
            self._catalog.names.coming(name): state.text.removeprefix(f"{name}: ")
            for name, state in self._live.missing(scope).items()
        }
        findings = review(code, names, self._catalog.shown_tool, self._validators, denied, absent)
        if not findings:
            return None
        lines = [f"line {each.line}: {each.message} {each.hint}".rstrip() for each in findings[:5]]
        lines += self._usages(finding.tool for finding in findings[:5])
        first = findings[0]
        return RunError(
            code=first.code,
            message=first.message,
            hint=first.hint,
            line=first.line,
            text="\n".join(["Nothing was run.", *lines]),
        )

    def _risk(self, code: str) -> Risk:
        from toolfold.review.risk import assess

        return assess(code, self._catalog.names, self._catalog.tool, self._catalog.named)

    def _usages(self, tools: Iterable[tuple[str, str] | None]) -> list[str]:
        """How the tools that were called wrongly are called, each once."""
        from toolfold.codegen.render import usage

        found = [self._catalog.shown_tool(*tool) for tool in dict.fromkeys(tools) if tool is not None]
        return [usage(self._catalog.names, tool) for tool in found[:2] if tool is not None]
