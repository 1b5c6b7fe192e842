"""The servers' own tools as clients are offered them, beside our two or in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolfold.gateway.names import offered_names
from toolfold.schema.patterns import EXACT, TargetPattern
from toolfold.telemetry.tokens import estimate

if TYPE_CHECKING:
    from toolfold.catalog.entries import Entry
    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold

PAGE = 500
"""Tools in one answer; the client asks for the next ones with a cursor."""
DEFAULT_BUDGET = 1500
FIRST_LISTING = 6.0
"""Seconds that a list waits for servers that were never listed: some clients give up after ten. The rest is announced
when it is there."""
_ESTIMATED = 0.93
"""The share of the budget that is used: tokens are estimated, since exact counts would load 60 MB of vocabulary."""
_Key = tuple[str, str]


class Offers:
    """What `hybrid` and `direct` add. Which tools these are changes only when the servers' definitions do."""

    def __init__(self, fold: Toolfold, mode: Mode) -> None:
        self._fold = fold
        self._mode = mode
        self._wanted = [TargetPattern(each) for each in fold.settings.direct]
        budget = fold.settings.direct_budget
        self._budget = budget if budget is not None else (0 if self._wanted else DEFAULT_BUDGET)
        self._version = ""
        self._keys: dict[str, _Key] = {}
        self._names: dict[_Key, str] = {}
        self._chosen: dict[str, list[str]] = {}
        """The names that are offered, in order, by the key of a scope."""

    @cached_property
    def _uses(self) -> dict[_Key, int]:
        """How often each tool was used until now. Later uses count in the next process: a list that changes by being
        used would cost clients their caches."""
        return self._fold.uses.counts()

    async def page(self, caller: str, cursor: str | None, version: str) -> tuple[list[types.Tool], str | None]:
        """The tools after `cursor`, which is the last name of the page before, and the next cursor."""
        await self.listed()
        await self._fold.live.recheck()
        names = [name for name in self._offered(caller) if cursor is None or name > cursor]
        tools: list[types.Tool] = []
        for name in names[:PAGE]:
            tool = self._fold.catalog.shown_tool(*self._keys[name])
            if tool is not None:
                entry = {
                    "name": name,
                    "title": tool.title,
                    "description": tool.description,
                    "inputSchema": tool.input_schema,
                    "outputSchema": tool.output_schema,
                    "annotations": tool.annotations,
                }
                tools.append(_tool(entry, version))
        return tools, names[PAGE - 1] if len(names) > PAGE else None

    async def find(self, caller: str, name: str) -> _Key | None:
        """The server and the tool that a client means; None where it may know of none of that name."""
        await self._fold.live.recheck()
        self._refresh()
        if name not in self._keys:
            await self.listed()  # it may know the name from before
            self._refresh()
        key = self._keys.get(name)
        return key if key is not None and key in self._visible(caller) else None

    async def listed(self) -> None:
        """Wait once for servers that were never listed; where the settings name all tools, only for theirs."""
        named = {pattern.partition(".")[0] for pattern in self._fold.settings.direct}
        is_fixed = self._mode == "hybrid" and not self._budget
        await self._fold.live.listed_once(named if is_fixed else None, timeout=FIRST_LISTING)

    def _refresh(self) -> None:
        catalog = self._fold.catalog
        if self._version != catalog.version:
            tools = catalog.entries_in("tool")
            self._keys = offered_names((entry.server, entry.name) for entry in tools)
            self._names = {key: name for name, key in self._keys.items()}
            self._chosen.clear()
            self._version = catalog.version

    def _visible(self, caller: str) -> dict[_Key, Entry]:
        entries = self._fold.catalog.entries_in("tool", self._fold.scope(caller))
        return {(entry.server, entry.name): entry for entry in entries}

    def _offered(self, caller: str) -> list[str]:
        self._refresh()
        scope = self._fold.scope(caller)
        if scope.key not in self._chosen:
            entries = self._fold.catalog.entries_in("tool", scope)
            chosen = entries if self._mode == "direct" else self._choose(entries)
            if self._mode == "hybrid":
                self._fold.ledger.offered("hybrid", sum(map(self._cost, chosen)))
            self._chosen[scope.key] = sorted(self._names[entry.server, entry.name] for entry in chosen)
        return self._chosen[scope.key]

    def _choose(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that the settings name, and within the budget the most used ones, of these the smallest first."""
        named = [entry for entry in entries if any(self._is_named(entry, each) for each in self._wanted)]
        left = int(self._budget * _ESTIMATED) - sum(map(self._cost, named))
        if left <= 0:
            return named
        uses = self._uses
        others = [entry for entry in entries if entry not in named]
        others.sort(key=lambda each: (-uses.get((each.server, each.name), 0), _size(each), each.server, each.name))
        chosen = named
        for entry in others:
            cost = self._cost(entry) if _size(entry) < left * 16 else left + 1
            if cost <= left:
                chosen.append(entry)
                left -= cost
            elif not uses.get((entry.server, entry.name)):
                break  # those after it are never used either, and larger
        return chosen

    @staticmethod
    def _is_named(entry: Entry, pattern: TargetPattern) -> bool:
        return pattern.match("tool", entry.server, entry.name) == EXACT

    def _cost(self, entry: Entry) -> int:
        schema = entry.tool().input_schema
        return definition_cost(self._names[entry.server, entry.name], entry.description, schema)


def definition_cost(name: str, description: str, schema: Mapping[str, Any]) -> int:
    """About how many tokens a model reads of one definition."""
    return estimate(json.dumps({"name": name, "description": description, "inputSchema": schema}))


def _size(entry: Entry) -> int:
    return len(entry.body) + len(entry.description)


def _tool(entry: dict[str, Any], version: str) -> types.Tool:
    """A definition as its server gave it, as far as the client's version of the protocol has a place for it."""
    schema: dict[str, Any] = entry["inputSchema"]
    if schema.get("type") != "object":
        entry["inputSchema"] = {**schema, "type": "object"}
    output = entry["outputSchema"]
    if output is not None and version not in MODERN_PROTOCOL_VERSIONS and output.get("type") != "object":
        entry["outputSchema"] = None
    given = {key: value for key, value in entry.items() if value or key == "inputSchema"}
    try:
        return types.Tool.model_validate(given)
    except ValidationError:
        # Hints of the wrong kind are no reason to withhold a tool.
        return types.Tool.model_validate({key: given[key] for key in given if key != "annotations"})
