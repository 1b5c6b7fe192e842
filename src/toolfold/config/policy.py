"""Settings of the guards: what may be called, who is asked, what is filled in, and how much is too much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from toolfold.config.model import Model
from toolfold.config.units import Seconds, Size

Do = Literal["allow", "ask", "deny"]
Profile = Literal["open", "careful", "strict", "read_only"]

Scalar = str | int | float | bool | None
_CONTEXT_VALUE = re.compile(r"context\.([A-Za-z_][A-Za-z0-9_-]*)")
_LONGEST_PATTERN = 500
_MOST_WILDCARDS = 20


def check_pattern(pattern: str) -> str:
    """`pattern` if it is one that targets can match; raises ValueError."""
    kind, colon, rest = pattern.partition(":")
    if len(pattern) > _LONGEST_PATTERN or pattern.count("*") > _MOST_WILDCARDS:
        raise ValueError(f"expected at most {_LONGEST_PATTERN} characters and {_MOST_WILDCARDS} stars")
    if colon and kind in {"resource", "prompt"} and all(part for part in rest.partition(":")):
        return pattern
    server, dot, tool = pattern.partition(".")
    if pattern == "*" or (server and dot and tool and not (colon and kind in {"resource", "prompt"})):
        return pattern
    raise ValueError('expected "server.tool", "resource:server:uri" or "prompt:server:name", with * for any text')


Pattern = Annotated[str, AfterValidator(check_pattern)]


def _check_tool_pattern(pattern: str) -> str:
    if pattern.startswith(("resource:", "prompt:")):
        raise ValueError('expected "server.tool", with * for any text')
    return check_pattern(pattern)


ToolPattern = Annotated[str, AfterValidator(_check_tool_pattern)]


def _flat(given: Any) -> Any:
    """`{"filter": {"owner": "a"}}` → `{"filter.owner": "a"}`."""
    if not isinstance(given, Mapping):
        return given
    flat: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", given).items():
        if isinstance(value, Mapping):
            inner = cast("dict[str, Any]", _flat(value))
            if not inner:
                raise ValueError(f"expected a value, a pattern or a list for {key!r}")
            flat |= {f"{key}.{name}": wanted for name, wanted in inner.items()}
        else:
            flat[str(key)] = value
    return flat


class When(Model):
    """What a tool's annotations must say. What is None does not matter."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class Rule(Model):
    """What is done with the calls that it matches. Everything that is given must match."""

    match: Pattern = "*"
    when: When = When()
    args: Annotated[dict[str, Scalar | tuple[Scalar, ...]], BeforeValidator(_flat)] = Field(default={})
    """Argument → a value, a pattern, or a list of these; a dotted name, or a table in a table, looks inside."""
    caller: str | None = Field(default=None, min_length=1)
    session: str | None = Field(default=None, min_length=1)
    do: Do

    @field_validator("args")
    @classmethod
    def _usable(cls, args: dict[str, Any]) -> dict[str, Any]:
        if any(value == () for value in args.values()):
            raise ValueError("expected at least one value in each list of `args`")
        return args


class PolicySettings(Model):
    """Who may call what: the first rule that matches decides, and the profile where none does."""

    profile: Profile = "careful"
    rules: tuple[Rule, ...] = ()


class ApprovalSettings(Model):
    timeout: Seconds = 300.0
    """Seconds until a question without an answer counts as a no."""
    on_disconnect: Literal["end", "wait"] = "end"
    """What a run does when its HTTP client goes away while a person is asked: end, or wait for the answer."""
    without_form: Literal["page", "deny"] = "page"
    """Where the client shows no form: ask on the page of this machine, or deny at once where no person is there."""


def _check_context_value(text: str) -> str:
    if _CONTEXT_VALUE.fullmatch(text) is None:
        raise ValueError('expected "context.NAME"')
    return text


class ContextSettings(Model):
    """Values of the run's context that are put into arguments, so that a program never writes them."""

    inject: dict[Pattern, dict[str, Annotated[str, AfterValidator(_check_context_value)]]] = Field(default={})
    """Pattern of targets → argument → `context.NAME`."""


Reaction = Literal["note", "ask", "refuse"]


class ReviewSettings(Model):
    """What the reading of a program leads to, by the risk that it finds. Advice: the sandbox is the boundary."""

    low: Reaction = "note"
    medium: Reaction = "note"
    high: Reaction = "note"
    imports: tuple[str, ...] | None = None
    """The only modules that a program may import, beside `servers`, `skills` and `toolfold`; None: any."""


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class CallerLimits(Model):
    """How much is too much. None: no limit here."""

    calls_per_run: Count | None = None
    calls_per_minute: Count | None = None
    """Calls of one caller, in all its runs."""
    calls_per_day: Count | None = None
    """Calls of one caller in 24 hours, counted since the gateway started."""
    concurrent_calls: Annotated[int, Field(ge=1)] | None = None
    """Calls of one caller that may be under way at once; more wait."""
    result_bytes: Size | None = None
    """Bytes of one result."""
    tools: dict[Pattern, Count] = Field(default={})
    """Pattern → calls of one run to all that it matches."""
    spend_per_run: Amount | None = None
    spend_per_day: Amount | None = None
    """What one caller's calls may come to in 24 hours, counted since the gateway started."""


class LimitSettings(CallerLimits):
    """The limits of every caller, and what is different for some."""

    prices: dict[Pattern, Amount] = Field(default={})
    """Pattern → an estimate of what one call costs; the first pattern that matches counts."""
    callers: dict[str, CallerLimits] = Field(default={})
    """Caller → its own limits, in place of those above."""


_PROFILES: tuple[Profile, ...] = ("open", "careful", "strict", "read_only")


def combined(setting: str, nearer: Any, farther: Any) -> Any:
    """What a guard's setting is when two files give it. A project's file can add to a person's own and not weaken it.

    For other settings, the nearer file wins.
    """
    if setting == "policy.rules":
        return (*farther, *nearer)
    if setting == "policy.profile":
        return max(nearer, farther, key=_PROFILES.index)
    if setting == "skills.approval":
        return nearer or farther
    if setting.startswith(("limits.", "context.")):
        return cast("dict[str, Any]", nearer) | farther if isinstance(nearer, dict) else min(nearer, farther)
    return nearer
