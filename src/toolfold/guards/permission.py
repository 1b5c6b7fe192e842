"""A call is allowed, put to a person, or refused, as the policy decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from toolfold.definitions import ToolResult
from toolfold.errors import PolicyDenied
from toolfold.guards.guard import Call, Proceed
from toolfold.guards.policy import Decision, Policy
from toolfold.schema.text import one_line

Approve = Callable[[Call, Decision], Awaitable[None]]
"""Returns when a person has said yes to the call; raises ApprovalDenied otherwise."""


class Permission:
    """Decides on exactly what will be sent, and notes the decision for the record."""

    def __init__(self, policy: Policy, approve: Approve) -> None:
        self._policy = policy
        self._approve = approve

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        decision = self._policy.decide(call)
        call.notes.decision, call.notes.rule = decision.do, decision.rule
        if decision.do == "deny":
            raise PolicyDenied(denial(call.target, decision), hint=how_to_allow(call.target))
        if decision.do == "ask":
            await self._approve(call, decision)
        return await proceed(call)


def denial(target: str, decision: Decision) -> str:
    because = f", because {decision.reason}" if decision.reason else ""
    return f"Policy denies {one_line(target, 200)}: {decision.rule}{because}."


def how_to_allow(target: str) -> str:
    # Names are the server's: what a person copies into a shell must stay one word.
    word = one_line(target, 200).replace("'", "'\"'\"'")
    return f"A person can allow it: toolfold policy allow '{word}'."
