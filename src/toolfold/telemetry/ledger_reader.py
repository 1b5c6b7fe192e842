"""What the ledger of tokens says: sums by day, caller, session and tool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from datetime import date
from typing import TypeVar

from toolfold.config.settings import Settings
from toolfold.telemetry.ledger_files import Catalogued, Counts, Key, LedgerFiles
from toolfold.telemetry.totals import ToolTotals, Totals

_Group = TypeVar("_Group")
_UNKNOWN = Catalogued("", 0, 0)


class LedgerReader:
    """Reads the ledger of a data folder, whether a gateway runs there or not.

    `since` is a day of UTC, as a date or as `2026-11-16`. Without a `caller` the sums are over all of them; a `session`
    is by its name, or empty for what belongs to no named one.
    """

    def __init__(self, settings: Settings) -> None:
        self._files = LedgerFiles(settings.data_dir)
        self._price = settings.token_price

    def totals(
        self, *, since: date | str | None = None, caller: str | None = None, session: str | None = None
    ) -> Totals:
        """One sum of everything."""
        return self._grouped(lambda day, key: "", since, caller, session).get("") or Totals(price=self._price)

    def by_day(
        self, *, since: date | str | None = None, caller: str | None = None, session: str | None = None
    ) -> dict[str, Totals]:
        """By days as `2026-11-16`, the first one first."""
        return self._grouped(lambda day, key: day, since, caller, session)

    def by_caller(
        self, *, since: date | str | None = None, caller: str | None = None, session: str | None = None
    ) -> dict[str, Totals]:
        """By callers, those with the most requests first."""
        return _most_first(self._grouped(lambda day, key: key.caller, since, caller, session))

    def by_session(
        self, *, since: date | str | None = None, caller: str | None = None, session: str | None = None
    ) -> dict[tuple[str, str], Totals]:
        """By caller and session, those with the most requests first."""
        return _most_first(self._grouped(lambda day, key: (key.caller, key.session), since, caller, session))

    def by_tool(self, *, since: date | str | None = None, caller: str | None = None) -> list[ToolTotals]:
        """The tools that were called, the most used first. They are not counted by session."""
        sums: dict[str, Counts] = defaultdict(Counts)
        for _, key, counts in self._rows(since):
            if key.tool and caller in (None, key.caller):
                sums[key.tool].add(counts)
        found = [
            ToolTotals(
                tool,
                each.calls,
                each.call_errors,
                each.result + each.result_est,
                "estimated" if each.result_est else "measured",
            )
            for tool, each in sums.items()
        ]
        return sorted(found, key=lambda each: (-each.calls, each.tool))

    def write(self) -> None:
        """Called before reading: everything that is known must be in the files."""

    def _grouped(
        self,
        group: Callable[[str, Key], _Group],
        since: date | str | None,
        caller: str | None = None,
        session: str | None = None,
    ) -> dict[_Group, Totals]:
        rows = list(self._rows(since))
        catalogs = self._files.catalogs()
        found: dict[_Group, Totals] = {}
        for day, key, counts in rows:
            if not key.tool and caller in (None, key.caller) and session in (None, key.session):
                catalog = catalogs.get(key.catalog, _UNKNOWN)
                totals = found.setdefault(group(day, key), Totals(price=self._price))
                totals.add(counts, catalog.tokens, exact=catalog.exact)
        return found

    def _rows(self, since: date | str | None) -> Generator[tuple[str, Key, Counts]]:
        self.write()
        for day in self._files.days(str(since or "")):
            for key, counts in self._files.of_day(day).items():
                yield day, key, counts


def _most_first(totals: dict[_Group, Totals]) -> dict[_Group, Totals]:
    return dict(sorted(totals.items(), key=lambda each: (-each[1].requests, str(each[0]))))
