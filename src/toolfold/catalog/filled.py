"""Arguments that are filled in on the way to a server (`context.inject`), which no program has to write."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from toolfold.catalog.entries import Entry
from toolfold.config.policy import ContextSettings
from toolfold.schema.patterns import NO, TargetPattern


class FilledIn:
    def __init__(self, settings: ContextSettings) -> None:
        self._patterns = [
            (TargetPattern(pattern), {name: value.removeprefix("context.") for name, value in filled.items()})
            for pattern, filled in settings.inject.items()
        ]

    def arguments(self, kind: str, server: str, name: str) -> dict[str, str]:
        """Argument → name in the run's context, for one target; where two patterns fill one, the first counts."""
        found: dict[str, str] = {}
        for pattern, filled in reversed(self._patterns):
            if pattern.match(kind, server, name) != NO:
                found |= filled
        return found

    def shown(self, entry: Entry) -> Entry:
        """A tool as programs see it, without these arguments. Its digest stays that of what the server offers."""
        if not self._patterns or entry.kind != "tool":
            return entry
        filled = self.arguments(entry.kind, entry.server, entry.name)
        schema = entry.tool().input_schema if filled else {}
        properties: Any = schema.get("properties")
        if not isinstance(properties, dict) or filled.keys().isdisjoint(cast("dict[str, Any]", properties)):
            return entry
        shown: dict[str, Any] = {
            **schema,
            "properties": {
                key: value for key, value in cast("dict[str, Any]", properties).items() if key not in filled
            },
        }
        required: Any = schema.get("required")
        if isinstance(required, list):
            shown["required"] = [key for key in cast("list[Any]", required) if key not in filled]
        body = msgspec.json.encode({"input_schema": shown, "output_schema": entry.tool().output_schema})
        return msgspec.structs.replace(entry, body=body)
