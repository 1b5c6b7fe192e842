"""The order of the guards, with the reason for each place."""

from __future__ import annotations

from collections.abc import Sequence

from toolfold.config.settings import SandboxSettings
from toolfold.guards.arguments import CheckArguments
from toolfold.guards.guard import Guard, Own, Proceed, stack
from toolfold.guards.limits import Count, Slots
from toolfold.guards.record import Record
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators


def guarded(
    upstream: Proceed,
    record: Record,
    own: Sequence[Guard],
    validators: Validators,
    limits: SandboxSettings,
    replies: ReplyBudget,
) -> Proceed:
    """One run's way to the upstreams. Nothing rewrites a call below the line that decides on it."""
    guards: list[Guard] = [
        record,  # outermost: a refused call is recorded too, with the arguments that the program wrote
        Count(limits.tool_calls),  # before anything that costs: a flood is refused cheaply
        *map(Own, own),  # may refuse, rewrite and ask, and what they wrote is checked below
        # Restoring private values and injecting context values belong here: they write arguments.
        CheckArguments(validators),  # the arguments as they will be sent; nothing below changes them
        # Permission and approval belong here: they decide on exactly what will be sent.
        Slots(limits.concurrent_calls, replies),  # innermost: a call that waits for a person holds no slot
    ]
    return stack(guards, upstream)
