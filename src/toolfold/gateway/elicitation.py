"""A question as an MCP form, and a client's answer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolfold.guards.events import Replied
from toolfold.schema.forms import InvalidValueError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolfold.guards.events import Question

_CHANNEL = "elicitation"
_INVALID = Replied("no", _CHANNEL, "the client's answer was invalid")
# Clients without a person at them (`claude -p`, `codex exec`) decline or cancel at once, so this is not a person's no.
_DECLINED = Replied("no", _CHANNEL, "the client declined or closed the question")


def offers_forms(ctx: ServerRequestContext[Any]) -> bool:
    """Whether the client can show a form. An empty capability means that it can."""
    capabilities = ctx.session.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    return offered is not None and (offered.form is not None or offered.url is None)


def is_modern(ctx: ServerRequestContext[Any]) -> bool:
    """Whether the client is asked by `InputRequiredResult`, and not by a request of ours."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(question: Question) -> types.ElicitRequestFormParams:
    if question.form is not None:
        return types.ElicitRequestFormParams(message=question.text, requested_schema=question.form.schema)
    answer = {
        "type": "string",
        "title": "Allow this?" if question.waiting == 1 else f"Allow these {question.waiting} calls?",
        "enum": list(question.replies),
        "enumNames": [question.label(reply) for reply in question.replies],
    }
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return types.ElicitRequestFormParams(message=question.text, requested_schema=schema)


def replied(question: Question, response: Any) -> Replied:
    """What the client's response says. Declining and dismissing are a no, and so is what cannot be understood."""
    if not isinstance(response, types.ElicitResult):
        return _INVALID
    if response.action != "accept":
        return _DECLINED
    if question.form is not None:
        try:
            return Replied("once", _CHANNEL, values=question.form.check(response.content or {}))
        except InvalidValueError:
            return _INVALID
    answer = (response.content or {}).get("answer")
    return next((Replied(reply, _CHANNEL) for reply in question.replies if reply == answer), _INVALID)
