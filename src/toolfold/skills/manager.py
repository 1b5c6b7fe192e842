"""A Python front for a folder of skills, without a fold: `SkillsManager("skills").save_skill(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from toolfold.errors import SkillError
from toolfold.skills.draft import Draft, checked
from toolfold.skills.folder import Skill
from toolfold.skills.names import folder_name
from toolfold.skills.store import Saved, SkillStore


@dataclass(frozen=True)
class FoundSkill:
    """One hit of a search, with the score that it ranks by."""

    name: str
    description: str
    signature: str
    tags: tuple[str, ...]
    score: float


class SkillsManager:
    """The skills in one folder. What is saved is checked as far as that needs neither servers nor a sandbox."""

    def __init__(self, skills_dir: Path | str) -> None:
        self.store = SkillStore(Path(skills_dir))

    def save_skill(self, name: str, code: str, description: str = "", tags: Sequence[str] = ()) -> Skill:
        """Keep a function. It is on disk when this returns; SkillError says why it cannot be kept."""
        return self.saved(Draft(name, code, description, tags)).skill

    def saved(self, draft: Draft) -> Saved:
        """The same, and whether it is new."""
        skill, _ = checked(draft, self._dependencies)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return self.store.save(replace(skill, provenance={"created": now}))

    def get_skill(self, name: str) -> Skill:
        """A skill by either of its names."""
        return self.store.read(folder_name(name))

    def list_skills(self) -> list[Skill]:
        """All skills that can be read, by name."""
        return [self.store.read(name) for name, one in sorted(self.store.records().items()) if not one.problem]

    def delete_skill(self, name: str) -> None:
        self.store.remove(folder_name(name))

    def search_skills(self, query: str, limit: int = 10) -> list[FoundSkill]:
        """The skills that match, best first; all of them, by name, where the query is empty."""
        from toolfold.catalog.search.ranking import Ranker
        from toolfold.catalog.skill_entries import SkillEntries
        from toolfold.skills.skills import search_entry

        records = [one for _, one in sorted(self.store.records().items()) if not one.problem]
        if not query.strip():
            return [_found(self.store, one.name, 0.0) for one in records[:limit]]
        entries = [search_entry(one) for one in records]
        if not entries:
            return []
        version = f"{self.store.version}"
        ranker = Ranker("skills", version, entries, self.store.root / ".search", semantic=True)
        uses = self.store.uses()
        worth = [2 * uses[one.name].rate - 1 if one.name in uses else 0.0 for one in records]
        found = ranker.rank(query, None, SkillEntries("", version, entries, worth).bonus)
        best = islice(found, max(limit, 0))
        return [_found(self.store, match.entry.name.replace("_", "-"), match.score) for match in best]

    def _dependencies(self, module: str) -> Sequence[str] | None:
        record = self.store.find(module.replace("_", "-"))
        if record is None:
            return None
        return record.function.skills if record.function is not None else ()


def _found(store: SkillStore, name: str, score: float) -> FoundSkill:
    record = store.find(name)
    if record is None:
        raise SkillError(f"there is no skill {name!r}")
    signature = record.function.signature if record.function is not None else ""
    return FoundSkill(record.module, record.description, signature, record.tags, round(score, 4))
