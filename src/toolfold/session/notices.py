"""What a run is told of its session: what was lost since the last one, what remains, and who else was there."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from toolfold.errors import ValueRefused
from toolfold.guards.events import ToolCall
from toolfold.guards.record import CANCELLED
from toolfold.schema.text import one_line
from toolfold.session.kept import KeptValues

_SHOWN = 8
_NOT_DEFINED = re.compile(r"NameError: name '(\w+)' is not defined")


@dataclass(frozen=True)
class Loss:
    """Told once. `keeps` says whether files and kept values are still there."""

    what: str
    keeps: bool = False
    brief: str = ""
    variables: tuple[str, ...] = ()

    @classmethod
    def of_variables(cls, session: str, reason: str, variables: list[str]) -> Loss:
        """`variables` is empty where they are not known."""
        names = f" ({_listed(variables)})" if variables else ""
        why = f" ({reason})" if reason else ""
        gone = f"was restarted{{}}: its variables{names} are gone"
        brief = f"{session} {gone.format('')}"
        return cls(f"{session} {gone.format(why)}", keeps=True, brief=brief, variables=tuple(variables))

    @classmethod
    def of_connection(cls, variables: list[str]) -> Loss:
        what = f"variables ({_listed(variables)}) and files" if variables else "files"
        text = f"This is a new connection: {what} of the last one are gone."
        return cls(f"{text} Give a `session` name to keep them.")

    def text(self, kept: KeptValues) -> str:
        """For the next run."""
        return self.what + _remains(kept) if self.keeps else self.what

    def at_once(self, kept: KeptValues) -> str:
        """For the run itself that was stopped, whose error says why."""
        return self.brief + _remains(kept)


@dataclass
class Earlier:
    """Who has run programs in a session that several callers use."""

    runs: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """For each caller, what others have run since."""

    def since(self, caller: str) -> list[str]:
        """A run of `caller` begins: what others did since its last one, in a line."""
        others, self.runs[caller] = self.runs.get(caller), Counter()
        for name, counts in self.runs.items():
            if name != caller:
                counts[caller] += 1
        if not others:
            return []
        told = ", ".join(f"{name} ({count})" for name, count in others.most_common(_SHOWN))
        return [f"Others ran programs in this session since your last one: {told}."]


def missing_name(error: str, left: list[str]) -> str:
    """What to say when a run without a session misses a variable that the caller's last one had."""
    found = _NOT_DEFINED.search(error)
    if found is None or found[1] not in left:
        return ""
    return f"This run has no session: `{found[1]}` of an earlier run is gone. Give a `session` name to keep variables."


def _remains(kept: KeptValues) -> str:
    try:
        names = kept.names()
    except (OSError, ValueRefused):
        names = []
    more = f", and so are kept values ({_listed(names)})" if names else ""
    return f", files in workspace/ are kept{more}."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def cut_off(calls: list[ToolCall]) -> str:
    """About calls that were under way when their run was ended."""
    named = dict.fromkeys(f"{call.server}.{call.tool}" for call in calls if call.error == CANCELLED)
    if not named:
        return ""
    shown = ", ".join(one_line(name, 100) for name in [*named][:3]) + (", …" if len(named) > 3 else "")
    return f"A call of {shown} was cancelled and may have taken effect."
