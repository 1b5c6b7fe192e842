"""What the rules and the profile say about a call, and what a caller may know of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from toolfold.catalog.effects import READING, Effects, effects_of
from toolfold.catalog.entries import EVERYTHING, Entry, Scope
from toolfold.config.policy import Do, PolicySettings, Profile, Rule
from toolfold.definitions import ToolDefinition
from toolfold.guards.guard import Call
from toolfold.schema.look_alikes import folded
from toolfold.schema.patterns import EXACT, LOOSE, NO, ArgumentPattern, Match, TargetPattern, TextPattern

_STRICTNESS: dict[Do, int] = {"allow": 0, "ask": 1, "deny": 2}

_MOST_SCOPES = 1_000
_MOST_ENTRIES = 500_000


@dataclass(frozen=True)
class Decision:
    do: Do
    rule: str
    """The rule or profile that decided, as a person finds it."""
    reason: str = ""
    """Why it applies, where that does not go without saying."""

    def or_stricter(self, other: Decision) -> Decision:
        return other if _STRICTNESS[other.do] > _STRICTNESS[self.do] else self


class Policy:
    """The first rule that matches a call decides, and the profile where none does.

    A rule that matches loosely (see `patterns`) only makes the decision of what follows it stricter.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self._profile: Profile = settings.profile
        self._rules = [_Rule(number, rule) for number, rule in enumerate(settings.rules, 1)]
        self._scopes: dict[str, Scope] = {}
        """By caller, as far as it was worked out."""

    def decide(self, call: Call) -> Decision:
        """What is to be done with a call, with its arguments as they will be sent."""
        effects = _effects(call.kind, call.name, call.tool.annotations if call.tool is not None else {})
        if call.run.read_only and not effects.read_only:
            return Decision("deny", "read-only run", "it is not marked as read-only")
        schema = call.tool.input_schema if call.tool is not None else {}
        stricter: Decision | None = None
        for rule in self._rules:
            match = rule.match(call, effects, schema)
            if match == EXACT:
                return _strictest(stricter, rule.decision)
            if match == LOOSE:
                stricter = _strictest(stricter, rule.loose_decision)
        return _strictest(stricter, _by_profile(self._profile, effects))

    def scope(self, caller: str) -> Scope:
        """What a caller may know of: all but what is denied to it in every session and with any arguments."""
        if caller not in self._scopes:
            if len(self._scopes) >= _MOST_SCOPES:
                self._scopes.clear()
            self._scopes[caller] = self._scope(caller)
        return self._scopes[caller]

    def _scope(self, caller: str) -> Scope:
        rules = [rule for rule in self._rules if rule.concerns(caller)]
        if self._profile != "read_only" and not any(rule.do == "deny" and not rule.conditional for rule in rules):
            return EVERYTHING
        texts = [self._profile, *(rule.identity for rule in rules)]
        key = blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()
        known: dict[bytes, bool] = {}

        def allow(entry: Entry) -> bool:
            # Asked of every entry at every search.
            seen = known.get(entry.digest)
            if seen is None:
                seen = not self._denial(entry.kind, entry.server, entry.key, entry.annotations, rules)
                if len(known) >= _MOST_ENTRIES:
                    known.clear()
                known[entry.digest] = seen
            return seen

        return Scope(key, allow, lambda server: _may_know(server, rules))

    def denial(self, caller: str, tool: ToolDefinition) -> Decision | None:
        """Why a caller may not call a tool in any session and with any arguments; None if it may."""
        rules = [rule for rule in self._rules if rule.concerns(caller)]
        return self._denial("tool", tool.server, tool.name, tool.annotations, rules)

    def _denial(
        self, kind: str, server: str, name: str, annotations: Mapping[str, Any], rules: Iterable[_Rule]
    ) -> Decision | None:
        effects = _effects(kind, name, annotations)
        denied: Decision | None = None
        for rule in rules:
            match = rule.match_target(kind, server, name, effects)
            if rule.conditional:
                if match == EXACT and rule.do != "deny" and denied is None:
                    return None
            elif match:
                if rule.do == "deny":
                    denied = denied or rule.decision
                if match == EXACT:
                    return denied
        profile = _by_profile(self._profile, effects)
        return denied or (profile if profile.do == "deny" else None)


class _Rule:
    """One rule, ready to be compared."""

    def __init__(self, number: int, rule: Rule) -> None:
        self.do = rule.do
        self.identity = rule.model_copy(update={"caller": None}).model_dump_json()
        group = rule.caller.removeprefix("group:") if rule.caller and rule.caller.startswith("group:") else None
        self.conditional = bool(rule.args) or rule.session is not None or group is not None
        """Whether it depends on more than what is called by whom."""
        self.decision = Decision(rule.do, rule_title(number, rule))
        self.loose_decision = Decision(rule.do, self.decision.rule, "the call may be read as one that the rule names")
        self._target = TargetPattern(rule.match)
        self._when = [(name, wanted) for name, wanted in rule.when if wanted is not None]
        self._caller = None if rule.caller is None or group is not None else TextPattern(rule.caller, folded)
        self._group = group
        self._session = None if rule.session is None else TextPattern(rule.session, folded)
        self._arguments = [
            ArgumentPattern(path, wanted if isinstance(wanted, tuple) else (wanted,))
            for path, wanted in rule.args.items()
        ]

    def concerns(self, caller: str) -> bool:
        return self._caller is None or self._caller.match(caller) == EXACT

    def covers(self, server: str) -> bool:
        """Whether it matches every tool of a server, by whomever and however it is called."""
        return not self.conditional and not self._when and self._target.covers(server)

    def concerns_some(self, server: str) -> bool:
        """Whether it may match something of a server."""
        return self._target.concerns_some(server)

    def match(self, call: Call, effects: Effects, schema: Mapping[str, Any]) -> Match:
        if not self.concerns(call.run.caller) or (self._group is not None and self._group not in call.run.groups):
            return NO
        match = self.match_target(call.kind, call.server, call.name, effects)
        if self._session is not None and match:
            match = min(match, self._session.match(call.run.session) if call.run.session is not None else NO)
        for argument in self._arguments:
            if match == NO:
                return NO
            match = min(match, argument.match(call.arguments, schema))
        return match

    def match_target(self, kind: str, server: str, name: str, effects: Effects) -> Match:
        match = self._target.match(kind, server, name)
        for mark, wanted in self._when:
            if match == NO:
                return NO
            match = min(match, _match_mark(mark, wanted, effects))
        return match


def _match_mark(mark: str, wanted: bool, effects: Effects) -> Match:
    found: bool | None = getattr(effects, mark)
    if found is None:
        # MCP's defaults: what does not say may be destructive, and open to the world.
        return LOOSE if wanted == (mark == "open_world") else NO
    return EXACT if found == wanted else NO


def _effects(kind: str, name: str, annotations: Mapping[str, Any]) -> Effects:
    return effects_of(name, annotations) if kind == "tool" else READING


def _by_profile(profile: Profile, effects: Effects) -> Decision:
    name = f"profile {profile}"
    if profile == "open" or effects.read_only:
        return Decision("allow", name)
    if profile == "careful":
        return Decision("ask", name, effects.reason) if effects.destructive else Decision("allow", name)
    return Decision("ask" if profile == "strict" else "deny", name, "it is not marked as read-only")


def _may_know(server: str, rules: Iterable[_Rule]) -> bool:
    """Whether some tool of a server may be allowed, whatever its tools are."""
    for rule in rules:
        if rule.do == "deny":
            if rule.covers(server):
                return False
        elif rule.concerns_some(server):
            return True
    return True


def _strictest(stricter: Decision | None, decision: Decision) -> Decision:
    return decision if stricter is None else decision.or_stricter(stricter)


def rule_title(number: int, rule: Rule) -> str:
    """`rule 2 (deny github.delete_* where owner)`: names and patterns of targets, no values."""
    conditions = [*rule.args, *(name for name, wanted in rule.when if wanted is not None)]
    where = f" where {', '.join(conditions)}" if conditions else ""
    who = f" for {rule.caller}" if rule.caller else ""
    session = " in one session" if rule.session else ""
    return f"rule {number} ({rule.do} {rule.match}{where}{who}{session})"
