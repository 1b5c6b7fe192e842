"""Every error that Toolfold raises on purpose, split by who must act.

    ToolfoldError               code, message, hint
    ├── ConfigError             the operator: a config file or setting is wrong
    ├── SandboxUnavailable      the operator: no working sandbox was found
    ├── AuditUnavailable        the operator: the audit log cannot be written
    ├── ToolChanged             the operator: a tool is not as it was accepted
    ├── InvalidRequest          the embedding program: an argument of `run` or `search` cannot be used
    ├── FoldClosed              the embedding program: the fold is not open, or no longer
    ├── GuardError              the embedding program: one of its guards broke the rules
    ├── ProgramError            the agent: its program or its arguments are wrong
    │   ├── UnknownTool
    │   ├── InvalidArguments
    │   ├── ValueRefused        it cannot be kept or shown
    │   └── LimitExceeded       names the limit and the setting that moves it
    ├── SkillError              the author of a skill: it cannot be saved, read or imported
    │   └── PackageRefused      the person: a package was changed, or is not from the publisher that it was from
    ├── PolicyDenied            the person: a rule or a limit of theirs does not allow the call
    │   └── ApprovalDenied      they were asked and said no, or could not be asked
    ├── UpstreamError           the MCP server: it is down, slow, or sent an invalid response
    │   ├── UpstreamUnavailable
    │   │   ├── UpstreamIsToolfold   left out; nothing to do
    │   │   └── SignInNeeded    the person: `toolfold auth login SERVER`
    │   └── UpstreamTimeout
    └── SandboxDied             us: the sandbox ended without an answer

The text of an error is read by a model or by a person in a hurry: short, exact, and `hint` is the next step.
"""

from __future__ import annotations

from typing import ClassVar


class ToolfoldError(Exception):
    """The base. `code` is stable and machine-readable; `str(error)` is the message and the hint."""

    code: ClassVar[str] = "toolfold"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(ToolfoldError):
    code = "config"


class SandboxUnavailable(ToolfoldError):
    code = "sandbox_unavailable"


class AuditUnavailable(ToolfoldError):
    code = "audit"


class ToolChanged(ToolfoldError):
    code = "tool_changed"


class InvalidRequest(ToolfoldError, ValueError, TypeError):
    code = "invalid_request"


class FoldClosed(ToolfoldError):
    code = "closed"


class GuardError(ToolfoldError):
    code = "guard"


class ProgramError(ToolfoldError):
    code = "program"


class UnknownTool(ProgramError):
    code = "unknown_tool"


class InvalidArguments(ProgramError):
    code = "invalid_arguments"


class ValueRefused(ProgramError):
    code = "value_refused"


class LimitExceeded(ProgramError):
    """`limit` is the setting's dotted name, for example `sandbox.timeout`."""

    code = "limit"

    def __init__(self, message: str, *, limit: str, hint: str = "") -> None:
        super().__init__(message, hint=hint or f"The limit is `{limit}` in the settings.")
        self.limit = limit


class SkillError(ToolfoldError):
    code = "skill"


class PackageRefused(SkillError):
    code = "package_refused"


class PolicyDenied(ToolfoldError):
    """A program may catch it; the same call will be refused again."""

    code = "policy_denied"


class ApprovalDenied(PolicyDenied):
    code = "approval_denied"


class UpstreamError(ToolfoldError):
    code = "upstream"

    def __init__(self, server: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{server}: {message}", hint=hint)
        self.server = server


class UpstreamUnavailable(UpstreamError):
    code = "upstream_unavailable"


class UpstreamIsToolfold(UpstreamUnavailable):
    """A gateway is never folded into a gateway."""

    code = "upstream_is_toolfold"


class SignInNeeded(UpstreamUnavailable):
    """The server is there, and waits for a person to sign in."""

    code = "sign_in_needed"


class UpstreamTimeout(UpstreamError):
    code = "upstream_timeout"


class SandboxDied(ToolfoldError):
    code = "sandbox_died"
