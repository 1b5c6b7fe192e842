"""The rankers of one catalog: one over its tools, and one for each caller that has skills beside them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.catalog.entries import Entry
from toolfold.catalog.skill_entries import SkillEntries

if TYPE_CHECKING:
    from toolfold.catalog.search.ranking import Ranker

_MOST = 4
"""Rankers with skills that are held; the indexes of others are on disk."""


class Rankers:
    def __init__(self, folder: Path, *, semantic: bool) -> None:
        self._folder = folder
        self._semantic = semantic
        self._of: OrderedDict[str, Ranker] = OrderedDict()

    def ranker(self, scope: str, version: str, entries: Sequence[Entry], skills: SkillEntries | None) -> Ranker:
        """The ranker of these entries, and of the skills after them."""
        # Search brings numpy and an index with it: a process that only serves or generates never loads them.
        from toolfold.catalog.search.ranking import Ranker

        if skills is not None:
            scope, version = f"{scope}-{skills.scope}", f"{version}-{skills.version}"
            entries = [*entries, *skills.entries] if self._outdated(scope, version) else entries
        if self._outdated(scope, version):
            previous = self._of.get(scope) or next(reversed(self._of.values()), None)
            self._of[scope] = Ranker(scope, version, entries, self._folder, self._semantic, previous)
        self._of.move_to_end(scope)
        while len(self._of) > _MOST + 1:
            self._of.popitem(last=False)
        return self._of[scope]

    def _outdated(self, scope: str, version: str) -> bool:
        known = self._of.get(scope)
        return known is None or known.version != version
