"""The skills of every caller: found, imported and saved by programs, within what the caller may see.

Scopes, in the order in which a name is looked for:

    session     the files in the session's own `skills/`; the guest finds them by itself
    project     a folder that the settings name, for the person at this machine
    user        the caller's own
    shared      everybody's; written by a person (`toolfold skills`), never by a program

A skill is sent into the sandbox as text when it is imported, so no sandbox can reach another one's. It runs as part of
the program that imports it: its calls pass the guards of whoever runs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Protocol

from toolfold.catalog.entries import Entry
from toolfold.catalog.skill_entries import SkillBody, SkillEntries, skill_entry
from toolfold.config.settings import Settings
from toolfold.errors import SkillError, ToolfoldError
from toolfold.guards.context import LOCAL_CALLER, RunContext, RunNotes
from toolfold.guards.events import RunError, RunResult
from toolfold.skills import examples
from toolfold.skills.draft import Draft, checked
from toolfold.skills.folder import Skill
from toolfold.skills.function import Function
from toolfold.skills.index import Record, Use
from toolfold.skills.store import Saved, SkillStore

Scope = Literal["project", "user", "shared"]
SCOPES: tuple[Scope, ...] = ("project", "user", "shared")
_EXAMPLE_SECONDS = 10.0
_REMEMBERED = 1000
"""Sessions of which the imported skills are remembered."""


class Workshop(Protocol):
    """What the fold does for a skill that is saved."""

    async def refusal(self, code: str, run: RunContext) -> RunError | None:
        """Why the review does not let a program pass; None if it does."""
        ...

    async def rehearse(self, code: str, run: RunContext, seconds: float) -> RunResult:
        """Run a program of the same caller beside `run`, with read-only tools alone."""
        ...

    def taken(self, name: str, caller: str) -> str:
        """What else has this name: a server, a tool; empty where nothing does."""
        ...


class Skills:
    """One per fold. Nothing is read before it is asked for."""

    def __init__(self, settings: Settings, workshop: Workshop) -> None:
        self._settings = settings.skills
        self._graph = settings.logseq.graph
        self._root = settings.data_dir / "skills"
        self._workshop = workshop
        self._stores: dict[Path, SkillStore] = {}
        self._found: OrderedDict[str, tuple[object, SkillEntries | None]] = OrderedDict()
        self._entries: dict[str, Entry] = {}
        self._imported: OrderedDict[tuple[str, str], dict[str, SkillStore]] = OrderedDict()
        """By caller and session (or run): module → whose it is."""
        self._rehearsals = asyncio.Semaphore(2)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def store(self, scope: Scope, caller: str = LOCAL_CALLER) -> SkillStore:
        """The skills of a scope as one caller sees it. SkillError where the settings name no project folder."""
        folder = scope_folder(self._root, self._settings.project, scope, caller)
        if folder not in self._stores:
            self._stores[folder] = SkillStore(folder)
        return self._stores[folder]

    def seen_by(self, caller: str) -> list[SkillStore]:
        """What a caller sees, in the order in which names are looked for."""
        has_project = self._settings.project is not None and caller == LOCAL_CALLER
        return [self.store(scope, caller) for scope in SCOPES if scope != "project" or has_project]

    def find(self, caller: str, module: str) -> tuple[SkillStore, Record] | None:
        """A skill by its module, with whose it is."""
        name = module.replace("_", "-")
        for store in self.seen_by(caller):
            record = store.find(name)
            if record is not None and record.function is not None:
                return store, record
        return None

    # Search

    def entries(self, caller: str) -> SkillEntries | None:
        """The caller's skills as search sees them; None where there are none. For the catalog's thread."""
        stores = self.seen_by(caller)
        for store in stores:
            store.refresh()
        key = tuple((store.version, store.uses_version) for store in stores)
        found = self._found.get(caller)
        if found is None or found[0] != key:
            self._found[caller] = found = key, self._gathered(stores)
            while len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return found[1]

    def _gathered(self, stores: list[SkillStore]) -> SkillEntries | None:
        seen: dict[str, tuple[Record, Use]] = {}
        for store in stores:
            uses = store.uses()
            for name, record in store.records().items():
                if record.function is not None:
                    seen.setdefault(name, (record, uses.get(name, Use())))
        if not seen:
            return None
        records = [record for _, (record, _) in sorted(seen.items())]
        entries = [self._entry(record) for record in records]
        version = hashlib.blake2b(b"".join(entry.digest for entry in entries), digest_size=12).hexdigest()
        scope = hashlib.blake2b("\0".join(str(store.root) for store in stores).encode(), digest_size=6).hexdigest()
        worth = [2 * seen[record.name][1].rate - 1 for record in records]
        return SkillEntries(scope, version, entries, worth)

    def _entry(self, record: Record) -> Entry:
        if record.digest not in self._entries:
            if len(self._entries) > 50_000:
                self._entries.clear()
            self._entries[record.digest] = search_entry(record)
        return self._entries[record.digest]

    # Import

    async def source(self, run: RunContext, module: str) -> str:
        """What a program gets when it imports a skill. SkillError with the nearest names where there is none."""
        found, text = await asyncio.to_thread(self._read, run, module)
        if found is not None:
            key = (run.caller, run.session or run.id)
            self._imported.setdefault(key, {})[module] = found
            self._imported.move_to_end(key)
            while len(self._imported) > _REMEMBERED:
                self._imported.popitem(last=False)
        return text

    def _read(self, run: RunContext, module: str) -> tuple[SkillStore | None, str]:
        found = self.find(run.caller, module)
        waiting = self._waiting(run, module)
        if waiting is not None:
            return None, waiting.source
        if found is not None:
            return found[0], found[0].source(found[1].name)
        known = [record.module for store in self.seen_by(run.caller) for record in store.records().values()]
        near = get_close_matches(module, known, 3) if len(module) <= 100 else []
        broken = self._problem(run.caller, module)
        hint = f"Did you mean {' or '.join(near)}?" if near else ""
        raise SkillError(broken or f"there is no skill {module!r}.", hint="" if broken else hint)

    def _problem(self, caller: str, module: str) -> str:
        for store in self.seen_by(caller):
            record = store.find(module.replace("_", "-"))
            if record is not None:
                return record.problem or f"the skill {record.name!r} has no skill.py: it is instructions to read"
        return ""

    def _waiting(self, run: RunContext, module: str) -> Skill | None:
        """What waits for approval can be used in the session that saved it."""
        if not self._settings.approval or run.session is None:
            return None
        for skill in self.store("user", run.caller).pending():
            if skill.module == module and skill.provenance.get("session") == run.session:
                return skill
        return None

    # Use

    async def finished(self, run: RunContext, *, ok: bool) -> None:
        """A run has ended: count the skills that it used, which are those it imported or, in a session, names."""
        key = (run.caller, run.session or run.id)
        imported = self._imported.get(key)
        if not imported:
            return
        if run.session is None:
            del self._imported[key]
        used: dict[SkillStore, set[str]] = {}
        for module, store in imported.items():
            if re.search(rf"\b{re.escape(module)}\b", run.code):
                used.setdefault(store, set()).add(module.replace("_", "-"))
        for store, names in used.items():
            await asyncio.to_thread(store.used, names, ok=ok)

    # Saving

    async def save(
        self,
        run: RunContext,
        draft: Draft,
        scope: Scope = "user",
        *,
        approved: bool = False,
        provenance: Mapping[str, str] | None = None,
    ) -> Saved:
        """Check a skill, review it, try its examples, and keep it. SkillError with the reason if it is not kept.

        `approved`: a person saves it. `provenance` is of the run, unless it comes from elsewhere.
        """
        if run.read_only:
            raise SkillError("the examples of a skill cannot save skills")
        origin = (
            {"author": run.caller, "session": run.session or "", "run": run.id} if provenance is None else provenance
        )
        provenance = {"created": datetime.now(UTC).isoformat(timespec="seconds"), **origin}
        try:
            skill, function = await asyncio.to_thread(self._checked, run.caller, draft)
            skill = replace(skill, provenance={key: value for key, value in provenance.items() if value})
            store = self.store(scope, run.caller)
            same = await asyncio.to_thread(store.find, skill.name)
            if same is None or same.digest != skill.digest:
                await self._review(run, skill, function)
            saved = await asyncio.to_thread(store.save, skill, pending=self._settings.approval and not approved)
            if self._graph is not None and (scope, run.caller) == ("user", LOCAL_CALLER) and not saved.is_pending:
                from toolfold.skills.logseq import follow

                await asyncio.to_thread(follow, self._graph, store, skill.name)
            return saved
        except SkillError as error:
            raise SkillError(
                f"The skill {draft.name[:80]!r} was not saved: {error.message}.", hint=error.hint
            ) from None

    def _checked(self, caller: str, draft: Draft) -> tuple[Skill, Function]:
        def dependencies(module: str) -> tuple[str, ...] | None:
            found = self.find(caller, module)
            return found[1].function.skills if found is not None and found[1].function is not None else None

        return checked(draft, dependencies, lambda module: self._workshop.taken(module, caller))

    async def _review(self, run: RunContext, skill: Skill, function: Function) -> None:
        refused = await self._workshop.refusal(skill.source, replace(run, notes=RunNotes()))
        if refused is not None:
            raise SkillError((refused.text or refused.message).removeprefix("Nothing was run.").strip().rstrip("."))
        if not function.has_examples:
            return
        async with self._rehearsals:
            seconds = min(_EXAMPLE_SECONDS, max(run.deadline.remaining - 0.5, 0.1))
            try:
                result = await self._workshop.rehearse(examples.program(skill.module, skill.source), run, seconds)
            except ToolfoldError as error:
                raise SkillError(f"its examples could not be run: {error}") from None
        if result.error is not None:
            raise SkillError(f"its examples could not be run: {result.error.message}")
        if result.value:
            raise SkillError(
                f"its example fails: {str(result.value[0])[:1000].rstrip('.')}",
                hint="Examples may only call read-only tools; `# doctest: +SKIP` after one leaves it out.",
            )


def search_entry(record: Record) -> Entry:
    """A skill as search sees it."""
    function = record.function
    body = SkillBody(function.signature, function.doc, function.input_schema) if function is not None else SkillBody()
    return skill_entry(record.module, record.description, record.tags, body)


def scope_folder(root: Path, project: Path | None, scope: Scope, caller: str = LOCAL_CALLER) -> Path:
    """Where the skills of a scope are."""
    match scope:
        case "project":
            if project is None:
                raise SkillError("there is no project folder for skills", hint="Set `skills.project` in the settings.")
            return project
        case "shared":
            return root / "shared"
        case "user":
            return root / "callers" / _folder_of(caller)


def _folder_of(caller: str) -> str:
    """A caller's name as one folder: it may hold anything."""
    if caller == LOCAL_CALLER:
        return LOCAL_CALLER
    word = re.sub(r"[^a-z0-9]+", "-", caller.lower())[:40].strip("-")
    return f"{word}-{hashlib.sha256(caller.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
