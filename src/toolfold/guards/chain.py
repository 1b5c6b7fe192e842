"""The order of the guards, with the reason for each place."""

from __future__ import annotations

from collections.abc import Sequence

from toolfold.catalog.entries import Scope
from toolfold.config.settings import Settings
from toolfold.guards.approval import Approvals
from toolfold.guards.arguments import CheckArguments
from toolfold.guards.guard import Guard, Own, Proceed, stack
from toolfold.guards.limits import Count, Slots
from toolfold.guards.permission import Permission
from toolfold.guards.policy import Policy
from toolfold.guards.record import Record
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators


class Chain:
    """The guards of one fold. What lives across runs is held here; `for_run` makes what belongs to one run."""

    def __init__(self, settings: Settings, own: Sequence[Guard], validators: Validators) -> None:
        self._limits = settings.sandbox
        self._own = [Own(guard) for guard in own]
        self._validators = validators
        self._policy = Policy(settings.policy)
        self._approvals = Approvals(settings.approval)

    def scope(self, caller: str) -> Scope:
        """What a caller may know of."""
        return self._policy.scope(caller)

    def for_run(self, upstream: Proceed, record: Record, replies: ReplyBudget) -> Proceed:
        """One run's way to the upstreams. Nothing rewrites a call below the line that decides on it."""
        guards: list[Guard] = [
            record,  # outermost: a refused call is recorded too, with the arguments that the program wrote
            Count(self._limits.tool_calls),  # before anything that costs: a flood is refused cheaply
            *self._own,  # may refuse, rewrite and ask, and what they wrote is checked below
            # Restoring private values and injecting context values belong here: they write arguments.
            CheckArguments(self._validators),  # the arguments as they will be sent; nothing below changes them
            Permission(self._policy, self._approvals.approve),  # on exactly what will be sent, as a person is shown it
            Slots(self._limits.concurrent_calls, replies),  # innermost: a call that waits for a person holds no slot
        ]
        return stack(guards, upstream)
