"""The order of the guards, with the reason for each place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from toolfold.catalog.entries import Scope
from toolfold.config.settings import Settings
from toolfold.definitions import ToolDefinition
from toolfold.errors import AuditUnavailable
from toolfold.guards.approval import Approvals
from toolfold.guards.arguments import CheckArguments
from toolfold.guards.context import RunContext
from toolfold.guards.events import RunResult
from toolfold.guards.guard import Call, Guard, Own, Proceed, stack
from toolfold.guards.inject import Inject
from toolfold.guards.limits import Count, Slots
from toolfold.guards.permission import Permission, denial
from toolfold.guards.pins import Pinned
from toolfold.guards.policy import Policy
from toolfold.guards.programs import Programs
from toolfold.guards.record import Record
from toolfold.guards.relay import Relay
from toolfold.guards.usage import Limits, Usage
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators
from toolfold.telemetry.audit_records import ToolNoted

if TYPE_CHECKING:
    from toolfold.guards.audit import Audit, Tokenise
    from toolfold.guards.privacy import KeepPrivate
    from toolfold.privacy.privacy import RunPrivacy


class Chain:
    """The guards of one fold. What lives across runs is held here; `for_run` makes what belongs to one run."""

    def __init__(
        self,
        settings: Settings,
        own: Sequence[Guard],
        validators: Validators,
        is_held: Callable[[str, str], bool] = lambda server, tool: False,
    ) -> None:
        """`is_held(server, tool)` says whether a tool has changed since it was accepted."""
        self._limits = settings.sandbox
        self._own = [Own(guard) for guard in own]
        self._validators = validators
        self._inject = Inject(settings.context)
        self._policy = Policy(settings.policy)
        self._pinned = Pinned(is_held)
        self._approvals = Approvals(settings.approval)
        self._approval_timeout = settings.approval.timeout
        self._usage = Usage(settings.limits)
        self._privacy = _privacy(settings) if settings.privacy.enabled else None
        tokenise = self._privacy.tokenise if self._privacy is not None else None
        self._audit = _audit(settings, tokenise) if settings.audit.enabled else None
        self.programs = Programs(settings.review, recorded=self._audit is not None, timeout=self._approval_timeout)

    async def audit_problem(self) -> str:
        """Why nothing can be recorded, and so nothing is done; empty where it can be, or need not be."""
        try:
            if self._audit is not None:
                await self._audit.log.prove()
        except AuditUnavailable as error:
            return error.message
        return ""

    def note(self, noted: ToolNoted) -> None:
        """Put what became of a definition into the audit log, where there is one."""
        if self._audit is not None:
            self._audit.log.add(noted)

    async def close(self) -> None:
        if self._audit is not None:
            await self._audit.close()

    async def privacy_of(self, caller: str, session: str | None) -> RunPrivacy | None:
        """For the context of one run, which must then be passed to `recorded`."""
        return None if self._privacy is None else await self._privacy.for_run(caller, session)

    async def recorded(self, code: str, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """`work`, which is a whole run, in the audit log where there is one. A run is refused if it cannot be.

        Where personal values are kept private, there are none in its result. Observers are told of it.
        """
        if run.watch is not None:
            return await run.watch.run(run, lambda: self._recorded(code, run, work))
        return await self._recorded(code, run, work)

    async def _recorded(self, code: str, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        if self._privacy is None:
            return await self._audited(code, run, work)
        privacy = self._privacy
        return await privacy.run(run, lambda: self._audited(code, run, lambda: privacy.protected(run, work)))

    async def _audited(self, code: str, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        return await (work() if self._audit is None else self._audit.run(code, run, work))

    def person(self, call: Call) -> Relay | None:
        """Who answers what a server asks during a call; None where no person can be asked."""
        return Relay(call, self._approval_timeout) if call.run.asker is not None else None

    def scope(self, caller: str) -> Scope:
        """What a caller may know of."""
        return self._policy.scope(caller)

    def denial(self, caller: str, tool: ToolDefinition) -> str:
        """Why a caller may not call a tool whatever the arguments; empty if it may."""
        decision = self._policy.denial(caller, tool)
        return f"{denial(f'{tool.server}.{tool.name}', decision)}" if decision is not None else ""

    def for_run(self, upstream: Proceed, record: Record, replies: ReplyBudget) -> Proceed:
        """One run's way to the upstreams. Nothing rewrites a call below the line that decides on it."""
        guards: list[Guard] = [
            record,  # outermost: a refused call is recorded too, with the arguments that the program wrote
            Count(self._limits.tool_calls),  # before anything that costs: a flood is refused cheaply
            *([self._audit] if self._audit is not None else []),  # what is refused below is in the log; a flood is not
            self._pinned,  # nothing is asked, restored or checked for a tool that is not what it was
            *self._own,  # may refuse, rewrite and ask, and what they wrote is checked below
            *([self._privacy] if self._privacy is not None else []),  # writes arguments, takes values out of results
            self._inject,  # writes arguments too: what it fills in is checked, decided on and shown like the rest
            CheckArguments(self._validators),  # the arguments as they will be sent; nothing below changes them
            Permission(self._policy, self._approvals.approve),  # on exactly what will be sent, as a person is shown it
            Limits(self._usage),  # counts what is really sent: what was refused above costs nothing
            Slots(self._limits.concurrent_calls, replies),  # innermost: a call that waits for a person holds no slot
        ]
        return stack(guards, upstream)


def _audit(settings: Settings, tokenise: Tokenise | None) -> Audit:
    from toolfold.guards.audit import Audit  # with its database: only where it is asked for

    return Audit(settings, tokenise)


def _privacy(settings: Settings) -> KeepPrivate:
    from toolfold.guards.privacy import KeepPrivate  # with all its patterns: only where it is asked for

    return KeepPrivate(settings)
