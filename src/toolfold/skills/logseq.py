"""Skills in a Logseq graph: a page for each, a line in the journal when one is new, and edits that come back.

`pages/Skills___sales_report.md` is the page `Skills/sales_report`. Its description and tags belong to both sides: what
was changed on one side since the last sync goes to the other, and what was changed on both is told and left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

from toolfold.errors import SkillError
from toolfold.locks import locked
from toolfold.skills.contained import ContainedFolder
from toolfold.skills.folder import Skill
from toolfold.skills.index import Use, record_of
from toolfold.skills.logseq_page import PageText, tags_in, tags_text
from toolfold.skills.manager import SkillsManager
from toolfold.skills.names import folder_name
from toolfold.skills.needs import needs_of
from toolfold.skills.store import SkillStore

_log = logging.getLogger(__name__)
Prefer = Literal["", "page", "skill"]
_LONGEST_PAGE = 5_000_000
_ATTEMPTS = 5
_SYNCED = "toolfold-synced"
"""The page property with the hashes of description and tags as both sides last had them."""
_EDN_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|;[^\n]*')
_EVENT = re.compile(r"- (\d{4}-\d\d-\d\d): (created|promoted from run .+)")
_RUN = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass
class SyncReport:
    """What a sync has done, by the skills' names."""

    created: list[str] = field(default_factory=list[str])
    """Pages that are new."""
    updated: list[str] = field(default_factory=list[str])
    """Pages that were changed."""
    unchanged: list[str] = field(default_factory=list[str])
    pulled: list[str] = field(default_factory=list[str])
    """Skills that took over an edit of their page."""
    conflicts: list[str] = field(default_factory=list[str])
    """What was changed on both sides, in sentences."""
    problems: list[str] = field(default_factory=list[str])
    """What could not be done, or needs a look, in sentences."""


class LogseqSkillsIntegration:
    """Keeps the pages of a graph and the skills of a folder in step; without one, the person's own skills.

    `prefer` says which side counts where both have changed: `page`, `skill`, or neither, which leaves both as they are.
    """

    def __init__(
        self,
        graph_dir: str | Path,
        skills: SkillsManager | SkillStore | str | Path | None = None,
        *,
        prefer: Prefer = "",
    ) -> None:
        self.graph = Path(graph_dir).expanduser().absolute()
        store = skills.store if isinstance(skills, SkillsManager) else skills
        self._store = store if isinstance(store, SkillStore) else SkillStore(_skills_folder(store))
        self._prefer: Prefer = prefer
        try:
            self.graph.mkdir(exist_ok=True)
        except OSError as error:
            raise SkillError(
                f"There is no Logseq graph at {self.graph}: {error.strerror}.",
                hint="`[logseq] graph` names the folder that has `pages` and `journals`.",
            ) from None
        self._folder = ContainedFolder(self.graph)
        self._layout = _Layout.of(self._folder)

    def sync(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> SyncReport:
        """Sync every skill. What is wrong with one does not hold up the others."""
        report = SyncReport()
        with self._locked():
            records = sorted(self._store.records().items())
            for done, (name, record) in enumerate(records):
                on_progress(done, len(records))
                try:
                    if record.problem:
                        raise SkillError(record.problem)
                    self._sync(name, report)
                except SkillError as error:
                    report.problems.append(f"{name}: {error}")
        return report

    def sync_skill(self, name: str) -> SyncReport:
        """Sync one skill. SkillError where that cannot be done."""
        report = SyncReport()
        with self._locked():
            self._sync(folder_name(name), report)
        return report

    def page_of(self, name: str) -> Path:
        """Where the page of a skill is."""
        return self.graph / self._layout.page(folder_name(name).replace("-", "_"))

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """One sync of a graph at a time."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.graph, os.O_RDONLY | os.O_DIRECTORY))
            except OSError as error:
                raise SkillError(f"Cannot sync with {self.graph}: {error.strerror}.") from None
            yield

    def _sync(self, name: str, report: SyncReport) -> None:
        for _ in range(_ATTEMPTS):
            skill = self._store.read(name)
            path = self._layout.page(skill.module)
            before = self._folder.read(path, _LONGEST_PAGE)
            page = PageText.of(_decoded(before or b"", path))
            if self._prefer != "skill" and _is_anothers(page):
                report.conflicts.append(
                    f"{path} is about something else (`type:: {page.properties['type']}`), so it was left alone. "
                    "`--prefer skill` adds the skill to it."
                )
                return
            merged = _merged(page, skill, self._prefer)
            if merged.skill is not skill:
                skill = self._store.save(merged.skill).skill
                if name not in report.pulled:
                    report.pulled.append(name)
            ours = {} if "type" in page.properties else {"type": "skill"}
            ours |= {"skill": skill.module, **merged.properties, "version": str(skill.version), _SYNCED: merged.synced}
            page = page.with_properties(ours)
            events = _events([*reversed(self._store.history(name)), skill], page.managed_lines)
            new = [event for event in events if event not in _recorded(page.managed_lines)]
            page, moved = page.with_managed(_block(skill, self._store.uses().get(name, Use()), events))
            after = str(page).encode()
            if after != before:
                # The journal comes first: after a crash in between, its line is found and not written twice.
                for day, what in new:
                    done, _, origin = what.partition(" ")
                    text = f"{done.capitalize()} the skill [[Skills/{skill.module}]] {origin}".rstrip()
                    self._write_journal(day, text)
                if self._folder.read(path, _LONGEST_PAGE) != before:
                    continue  # saved by somebody just now
                self._folder.write(path, after)
            (report.created if before is None else report.updated if after != before else report.unchanged).append(name)
            report.conflicts += [f"{path}: {text}" for text in merged.conflicts]
            if moved:
                report.problems.append(f"{path}: lines inside the block that Toolfold manages were moved below it.")
            return
        raise SkillError(f"{self.page_of(name)} is being changed by something else. Try again.")

    def _write_journal(self, day: date, text: str) -> None:
        path = self._layout.journal(day)
        before = _decoded(self._folder.read(path, _LONGEST_PAGE) or b"", path)
        if any(line.strip().removeprefix("- ") == text for line in before.split("\n")):
            return
        end = "\r\n" if "\r\n" in before else "\n"
        gap = end if before and not before.endswith("\n") else ""
        self._folder.write(path, f"{before}{gap}- {text}{end}".encode())


def follow(graph: Path, store: SkillStore, name: str) -> None:
    """Sync a skill that was just saved. What goes wrong is for the log: the skill itself is safe."""
    try:
        report = LogseqSkillsIntegration(graph, store).sync_skill(name)
        problems = report.conflicts + report.problems
    except (SkillError, OSError) as error:
        problems = [str(error)]
    for problem in problems:
        _log.warning("Logseq: %s", problem)


def _skills_folder(skills: str | Path | None) -> Path:
    if skills is not None:
        return Path(skills).expanduser().absolute()
    from toolfold.config.settings import Settings
    from toolfold.skills.skills import scope_folder

    return scope_folder(Settings().data_dir / "skills", None, "user")


# Both sides


@dataclass(frozen=True)
class _Merged:
    skill: Skill
    """The very skill that was given, unless the page has changed it."""
    properties: dict[str, str]
    """What the page takes over."""
    synced: str
    conflicts: list[str]


def _merged(page: PageText, skill: Skill, prefer: Prefer) -> _Merged:
    """Description and tags, each compared with what both sides had after the last sync."""
    there = page.properties
    last = there.get(_SYNCED, "").split()
    sides = {
        "description": (_line(skill.description), _line(there.get("description", "")), skill.description),
        "tags": (
            tags_text(tags_in(tags_text(skill.tags))),
            tags_text(tags_in(there.get("tags", ""))),
            tags_text(skill.tags),
        ),
    }
    properties: dict[str, str] = {}
    taken: dict[str, str] = {}
    conflicts: list[str] = []
    synced: list[str] = []
    for number, (key, (ours, theirs, written)) in enumerate(sides.items()):
        base = last[number] if number < len(last) else ""
        if ours == theirs:
            choice = "same"
        elif not theirs and (key == "description" or base != _hash(ours)):
            choice = "skill"  # a skill has a description; and a page that was never synced has nothing to say
        elif base == _hash(theirs):
            choice = "skill"
        elif base == _hash(ours):
            choice = "page"
        else:
            choice = prefer or "neither"
        if choice == "skill":
            properties[key] = written
        elif choice == "page":
            taken[key] = theirs
        elif choice == "neither":
            conflicts.append(
                f"the {key} differs: {theirs[:80]!r} in the page, {ours[:80]!r} in the skill. "
                "Make them equal, or use `--prefer page` or `--prefer skill`."
            )
        synced.append({"page": _hash(theirs), "neither": base or "-"}.get(choice, _hash(ours)))
    changed = skill
    if taken:
        changed = dataclasses.replace(
            skill,
            description=taken.get("description", skill.description),
            tags=tags_in(taken["tags"]) if "tags" in taken else skill.tags,
        )
    return _Merged(changed, properties, " ".join(synced), conflicts)


def _is_anothers(page: PageText) -> bool:
    """Whether a person made the page, for something that is no skill."""
    there = page.properties
    return page.managed is None and _SYNCED not in there and _line(there.get("type", "skill")).strip("[]#") != "skill"


def _line(text: str) -> str:
    return " ".join(text.split())


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def _decoded(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SkillError(f"{path} is not UTF-8, so it was left alone.") from None


# The managed block


def _block(skill: Skill, use: Use, events: Sequence[tuple[date, str]]) -> list[str]:
    function = record_of(skill).function
    lines: list[str] = []
    if function is not None:
        call = f"{'await ' if function.is_async else ''}{function.signature.removeprefix('async ')}"
        code = [f"from skills import {skill.module}", call]
        lines += ["\t- **Usage**", "\t  ```python", *(f"\t  {line.replace('```', '...')}" for line in code), "\t  ```"]
    else:
        lines += ["\t- **Usage**", f"\t\t- Instructions only: read `skills/{skill.name}/SKILL.md`"]
    if tools := needs_of(skill.source).tools:
        lines += ["\t- **Tools**", *(f"\t\t- `{tool}`" for tool in tools)]
    tags = [f"(page-tags [[{tag}]])" for tag in skill.tags if not re.search(r'[\[\](){}"#\\]', tag)]
    alike = [f"(or {' '.join(tags)})"] if len(tags) > 1 else tags
    query = ["(and", '(page-property type "skill")', *alike, f'(not (page-property skill "{skill.module}")))']
    lines += ["\t- **Related skills**", f"\t\t- {{{{query {' '.join(query)}}}}}"]
    lines += ["\t- **Usage history**", *(f"\t\t- {day}: {what}" for day, what in events)]
    if use.count:
        share = f"{100 * use.ok // use.count}% of the runs succeeded"
        last = datetime.fromtimestamp(use.last).astimezone().date()
        lines.append(f"\t\t- used {use.count} time{'s' * (use.count > 1)}, {share}, last on {last}")
    return lines


def _events(versions: Sequence[Skill], lines: Sequence[str]) -> list[tuple[date, str]]:
    """When the skill was made, and when it was promoted from a run; the versions are given from the oldest.

    A day that the page has stays: versions are not kept for ever, and their days may not be told.
    """
    known = {what: day for day, what in _recorded(lines)}
    days = [_day(one.provenance.get("created", "")) for one in versions]
    today = datetime.now().astimezone().date()
    events = {"created": next(filter(None, days), today)}
    for one, day in zip(versions, days, strict=True):
        run = one.provenance.get("promoted-from", "")
        if _RUN.fullmatch(run):
            events.setdefault(f"promoted from run {run}", day or today)
    return [(known.get(what, day), what) for what, day in events.items()]


def _recorded(lines: Sequence[str]) -> list[tuple[date, str]]:
    found = [match for line in lines if (match := _EVENT.fullmatch(line))]
    return [(day, match[2]) for match in found if (day := _day(match[1]))]


def _day(written: str) -> date | None:
    """The day here that a moment was on."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        moment = datetime.fromisoformat(written)
        return moment.astimezone().date() if moment.tzinfo is not None else moment.date()
    return None


# The graph


@dataclass(frozen=True)
class _Layout:
    """Where a graph keeps its files, by its `logseq/config.edn`."""

    pages: str = "pages"
    journals: str = "journals"
    day: str = "%Y_%m_%d"
    slash: str = "___"

    @classmethod
    def of(cls, folder: ContainedFolder) -> _Layout:
        written = (folder.read("logseq/config.edn", _LONGEST_PAGE) or b"").decode("utf-8", "replace")
        text = _EDN_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "", written)

        def setting(key: str, pattern: str) -> str:
            found = re.search(rf"{key}\s+\"?(:?[^\s\"}}]+)", text)
            return found[1] if found and re.fullmatch(pattern, found[1]) else ""

        day = setting(":journal/file-name-format", r"(?:yyyy|MM|dd|[-_.])+")
        return cls(
            setting(":pages-directory", r"\w[\w-]*") or cls.pages,
            setting(":journals-directory", r"\w[\w-]*") or cls.journals,
            day.replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d") or cls.day,
            "%2F" if setting(":file/name-format", ":legacy") else cls.slash,
        )

    def page(self, module: str) -> str:
        return f"{self.pages}/Skills{self.slash}{module}.md"

    def journal(self, day: date) -> str:
        return f"{self.journals}/{day.strftime(self.day)}.md"
