"""Every tool, resource and prompt that is known, answered from disk: nothing is started to search or to generate.

`store` holds what servers last offered, `files` reads definitions from files, and `search` keeps its index beside them,
which is rebuilt from the definitions whenever it is missing or out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolfold.catalog.answer import (
    Answer,
    Detail,
    Hit,
    Query,
    check_detail,
    fitting,
    nothing_known,
    one_server,
    overview,
    ranked_answer,
    server_label,
    show,
    with_skills,
)
from toolfold.catalog.entries import (
    Allow,
    Definitions,
    Entry,
    HeldEntry,
    Kind,
    Knows,
    Scope,
    ServerInfo,
    View,
    encodable,
    entries_of,
    with_counts,
)
from toolfold.catalog.files import read_catalogs
from toolfold.catalog.filled import FilledIn
from toolfold.catalog.pins import Acceptance, Change, note_of
from toolfold.catalog.rankers import Rankers
from toolfold.catalog.resolve import WrittenNames, nearest_words
from toolfold.catalog.skill_entries import SERVER, SkillEntries
from toolfold.catalog.store import Store, StoredListing, stored_listing
from toolfold.codegen.names import ApiNames
from toolfold.config.settings import Settings
from toolfold.definitions import Listing, PromptDefinition, ResourceDefinition, ToolDefinition
from toolfold.schema import text
from toolfold.telemetry.audit_records import ToolNoted

if TYPE_CHECKING:
    from toolfold.catalog.search.ranking import Ranker

__all__ = ["Allow", "Answer", "Catalog", "Definitions", "Detail", "Entry", "Hit", "ServerInfo"]

_LONGEST_QUOTE = 60
_LONGEST_NAME = 200
_IDENTIFIER = re.compile(r"[_./:-]|[a-z][A-Z]")
"""What tells a name from a word."""
_ALMOST = 0.5
"""How much a query must look like a name to be taken for a misspelling of it."""


class Catalog:
    """One catalog per process. Not for use from several threads at once, but for `examine`."""

    def __init__(
        self, settings: Settings, live: Iterable[StoredListing], files: Iterable[StoredListing], problems: list[str]
    ) -> None:
        self._settings = settings
        self._folder = settings.data_dir / "catalog"
        self._store = Store(self._folder)
        self._files = {one.server: one for one in files}
        self._rankers = Rankers(self._folder, semantic=settings.semantic)
        self.problems = problems
        """What could not be read or stored, each with its file and the reason."""
        self.acceptance = Acceptance(self._folder / "pins", settings, problems)
        self._offered = {one.server: one for one in live}
        self._live = {one.server: self.acceptance.usable(one) for one in self._offered.values()}
        """What is used of what each server offers: a change counts when a person has accepted it."""
        self._filled = FilledIn(settings.context)
        self._state = _State(self._live, self._files, settings.servers, self._filled)

    @classmethod
    def open(cls, settings: Settings) -> Catalog:
        """What is known of the configured servers and the catalog files, without starting anything."""
        store = Store(settings.data_dir / "catalog")
        live = [one for name, config in settings.servers.items() if (one := store.read(name, config)) is not None]
        problems: list[str] = []
        return cls(settings, live, read_catalogs(settings.catalog_dirs, problems), problems)

    # What is known

    @property
    def version(self) -> str:
        """Changes if and only if a definition does."""
        return self._state.version

    @property
    def names(self) -> ApiNames:
        return self._state.names

    @property
    def entries(self) -> Sequence[Entry]:
        """Everything that search can find, in catalog order."""
        return self._state.entries

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return Definitions(self._state.of_kind["tool"], Entry.tool)

    def tools_in(self, scope: Scope) -> Sequence[ToolDefinition]:
        """The tools that a scope holds."""
        return Definitions(self.entries_in("tool", scope), Entry.tool)

    def entries_in(self, kind: Kind, scope: Scope | None = None) -> Sequence[Entry]:
        """What a scope holds of one kind, or all of it, in catalog order."""
        found, allow = self._state.of_kind[kind], scope.allow if scope is not None else None
        return found if allow is None else [entry for entry in found if allow(entry)]

    @property
    def resources(self) -> Sequence[ResourceDefinition]:
        return Definitions(self._state.of_kind["resource"], Entry.resource)

    @property
    def prompts(self) -> Sequence[PromptDefinition]:
        return Definitions(self._state.of_kind["prompt"], Entry.prompt)

    @property
    def servers(self) -> list[ServerInfo]:
        return self._state.servers

    @property
    def missing(self) -> list[str]:
        """Configured servers that have never been listed."""
        return [name for name in sorted(self._settings.servers) if name not in self._offered]

    def names_in(self, scope: Scope) -> ApiNames:
        """The names of the tools that a scope holds."""
        if scope.allow is None:
            return self.names
        known = self._state.names_in
        if scope.key not in known:
            seen = ((one.server, one.name) for one in self._state.of_kind["tool"] if scope.allow(one))
            known[scope.key] = self.names.only(seen)
        return known[scope.key]

    def tool(self, server: str, name: str) -> ToolDefinition | None:
        """The tool as its server offers it."""
        found = self._state.tools.get((server, name))
        return self._state.offered(found).tool() if found is not None else None

    def shown_tool(self, server: str, name: str) -> ToolDefinition | None:
        """The tool as programs see it: without arguments that are filled in for them."""
        found = self._state.tools.get((server, name))
        return found.tool() if found is not None else None

    def named(self, written: str) -> ToolDefinition | None:
        """The one tool that `written` names, as `find` reads it, or None. Quick: does not look for similar names."""
        found = self._state.written.matches(written)
        return self._state.offered(found[0]).tool() if len(found) == 1 else None

    def find(self, written: str, *, allow: Allow | None = None) -> ToolDefinition:
        """The tool that `written` names: in any usual way, by its generated name, or by its bare name if unique.

        Raises UnknownTool with the nearest names, or with the server's tools where none is near; no name of what
        `allow` refuses is in it.
        """
        return self._state.offered(self._state.written.resolve(written, allow)).tool()

    # Changed

    def update(self, listing: Listing) -> bool:
        """Take over what a server offers now, and store it for later processes. False when nothing has changed."""
        examined = self.examine(listing)
        return examined is not None and self.take(*examined)

    def examine(self, listing: Listing) -> tuple[StoredListing, StoredListing] | None:
        """Store what a server offers now, for `take` with what may be used of it; None when nothing has changed.

        It waits for the disk, so it may run beside all else but `recheck` and `accept`.
        """
        listing = encodable(listing)
        new = stored_listing(listing.server, listing.instructions, entries_of(listing))
        old = self._offered.get(listing.server)
        if old is not None and old.digest == new.digest:
            return None
        usable = self.acceptance.usable(new, announce=True)
        self._keep(new)
        return new, usable

    def take(self, offered: StoredListing, usable: StoredListing) -> bool:
        """Let what was examined count from now on; whether that changes anything."""
        self._offered[offered.server] = offered
        return self._use(usable)

    def _use(self, listing: StoredListing) -> bool:
        before = self.version
        self._live[listing.server] = listing
        self._state = _State(self._live, self._files, self._settings.servers, self._filled)
        return self.version != before

    def _keep(self, offered: StoredListing) -> None:
        config = self._settings.servers.get(offered.server)
        if config is None:
            return
        try:
            self._store.write(replace(offered, settled=self.acceptance.is_settled(offered.server)), config)
        except OSError as error:
            self.problems.append(f"{self._folder}: the listing of {offered.server!r} could not be stored: {error}")

    def is_held(self, server: str, tool: str) -> bool:
        """Whether a tool has changed and the change was not accepted yet."""
        return isinstance(self._state.tools.get((server, tool)), HeldEntry)

    def accept(self, changes: Sequence[Change]) -> list[ToolNoted]:
        """Let changed definitions count from now on, here and in every gateway on this data folder; a note of each."""
        for server in self.acceptance.accept(changes):
            self._use(self.acceptance.usable(self._offered[server]))
            self._keep(self._offered[server])
        return [note_of("accepted", change.after, change.before) for change in changes]

    def recheck(self) -> None:
        """Take over what another process has accepted of what is held back here."""
        for server in self.acceptance.outdated():
            self._use(self.acceptance.usable(self._offered[server]))

    @property
    def semantic(self) -> bool:
        """Whether search goes by meaning too: the setting allows it and the `semantic` extra is installed."""
        from toolfold.catalog.search.vectors import Meanings

        return self._settings.semantic and Meanings.open() is not None

    def warm(self) -> None:
        """Make search ready now instead of at the first question: index, vectors, vocabulary."""
        self._ranker().load()

    # Search

    def search(
        self,
        query: str,
        *,
        detail: Detail = "with_description",
        limit: int | None = None,
        server: str | None = None,
        allow: Allow | None = None,
        knows: Knows | None = None,
        explain: bool = False,
        skills: SkillEntries | None = None,
    ) -> Answer:
        """What matches, best first. An empty query lists the servers, `server:NAME` (or `server=`) one of them.

        `allow` decides what the caller may know of: what it refuses is neither shown nor counted nor hinted at. `knows`
        does so for servers that nothing is known of yet. `skills` are found beside tools, as a server `skills`.
        """
        check_detail(detail)
        asked = Query.read(query)
        view = View.of(self.entries, self.servers, allow, knows)
        wanted = server or asked.server
        if wanted:
            known = self._server(wanted, view.servers)
            if known is None and skills is not None and wanted == SERVER:
                if not asked.words:
                    return one_server(skills.info, skills.entries, self.names, detail, limit, asked.page)
                return self._ranked(asked.words, detail, limit, view.within(""), explain, skills)
            if known is None:
                return self._unknown_server(wanted, view.servers)
            view, skills = view.within(known.name), None
            if not asked.words:
                return one_server(known, view.entries, self.names, detail, limit, asked.page)
        elif not asked.words:
            answer = overview(view.servers, view.entries, self.names, asked.page)
            return answer if skills is None else with_skills(answer, skills, self.names)
        return self._ranked(asked.words, detail, limit, view, explain, skills)

    def everything(
        self,
        detail: Detail = "name_only",
        *,
        limit: int | None = None,
        offset: int = 0,
        server: str | None = None,
        allow: Allow | None = None,
    ) -> list[dict[str, Any]]:
        """Every tool (of one server, if given) by name, as `Answer.rows()` gives hits; empty for an unknown server.

        `offset`: how many of the first to leave out.
        """
        check_detail(detail)
        view = View.of(self.entries, self.servers, allow)
        known = self._server(server, view.servers) if server else None
        if server and known is None:
            return []
        tools = (
            entry for entry in view.entries if entry.kind == "tool" and (known is None or entry.server == known.name)
        )
        chosen = islice(tools, offset, offset + limit if limit and limit > 0 else None)
        return [Hit(entry, self.names).row(detail) for entry in chosen]

    def _ranked(
        self, query: str, detail: Detail, limit: int | None, view: View, explain: bool, skills: SkillEntries | None
    ) -> Answer:
        if not view.entries and skills is None:
            return nothing_known(view.servers)
        named, reason = self._named(query, view)
        mask, worth = view.mask, skills.bonus if skills is not None else None
        if skills is not None:
            mask = None if mask is None else [*mask, *[True] * len(skills.entries)]
            if query in skills.by_name:
                named, reason = [skills.by_name[query], *named], "exact name"
        found = self._ranker(skills).rank(query, mask, worth)
        if not named and not found.total:
            return self._nearest(query, detail, limit, view)
        first = {tool.digest for tool in named}

        def hits() -> Iterator[Hit]:
            for tool in named:
                yield Hit(tool, self.names, score=found.top + 1, why=(lambda: [reason]) if explain else None)
            for match in found:
                if match.entry.digest not in first:
                    why = partial(found.why, match) if explain else None
                    yield Hit(match.entry, self.names, score=match.score, why=why)

        return ranked_answer(hits(), found.total, detail, limit)

    def _named(self, query: str, view: View) -> tuple[list[Entry], str]:
        """The tools that a query names exactly or nearly; a sentence names none."""
        if any(map(str.isspace, query)) or len(query) > _LONGEST_NAME:
            return [], ""
        exact = view.only(self._state.written.matches(query))
        if exact or not _IDENTIFIER.search(query):
            return exact, "exact name"
        return view.only(self._state.written.nearest(query, 10, least=_ALMOST))[:3], "nearest name"

    def _nearest(self, query: str, detail: Detail, limit: int | None, view: View) -> Answer:
        """Nothing matches: what looks like the query, and what to do next."""
        near = view.only(self._state.written.nearest(query, 20))[:5]
        hits, _ = fitting([Hit(tool, self.names) for tool in near], detail, limit)
        before = f"No match for {_quoted(query)}."
        words = "other words" if query.isascii() else "other words or in English"
        servers = f"the {len(view.servers)} servers" if len(view.servers) != 1 else "the server"
        step = f'Say what it should do in {words}, or "" lists {servers}.'
        if hits:
            return Answer(hits, 0, f"{before} Nearest names:\n{show(hits, detail)}\n{step}", detail)
        return Answer(text=f"{before} {step}", detail=detail)

    def _server(self, written: str, servers: Sequence[ServerInfo]) -> ServerInfo | None:
        """The server of that name, or of that module, or of that name but for case and hyphens."""
        for server in servers:
            if server.name == written:
                return server
        folded = written.casefold().replace("-", "_")
        modules = {module.casefold(): name for module, name in self.names.modules().items()}
        by_name = {server.name: server for server in servers}
        if modules.get(folded) in by_name:
            return by_name[modules[folded]]
        return next((one for one in servers if one.name.casefold().replace("-", "_") == folded), None)

    def _unknown_server(self, written: str, servers: Sequence[ServerInfo]) -> Answer:
        labels = [server_label(self.names, server.name) for server in servers]
        listed = ", ".join(nearest_words(written, labels) or labels[:10])
        others = f' Nearest: {listed}. "" lists all {len(servers)}.' if servers else ""
        return Answer(text=f"There is no server {_quoted(written)}.{others}")

    def _ranker(self, skills: SkillEntries | None = None) -> Ranker:
        return self._rankers.ranker(self._state.scope, self._state.version, self._state.entries, skills)


class _State:
    """The catalog at one moment. What follows from the definitions is computed once, when it is first needed."""

    def __init__(
        self,
        live: dict[str, StoredListing],
        files: dict[str, StoredListing],
        configured: Iterable[str],
        filled: FilledIn,
    ) -> None:
        # What a server said itself wins over a file.
        self._listings = [(files | live)[name] for name in sorted(files.keys() | live.keys())]
        self._live = frozenset(live)
        self._configured = sorted(configured)
        digest = blake2b(b"".join(one.server.encode() + b"\0" + one.digest for one in self._listings), digest_size=16)
        self.version = digest.hexdigest()
        self.scope = blake2b(repr(sorted({*self._configured, *files})).encode(), digest_size=8).hexdigest()
        self.entries = [filled.shown(entry) for one in self._listings for entry in one.entries]
        self._offered = {
            (shown.server, shown.name): entry
            for entry, shown in zip(
                (entry for one in self._listings for entry in one.entries), self.entries, strict=True
            )
            if shown is not entry
        }

        self.names_in: dict[str, ApiNames] = {}
        """By the keys of scopes."""

    def offered(self, entry: Entry) -> Entry:
        """A tool as its server offers it, with the arguments that are filled in for programs."""
        return self._offered.get((entry.server, entry.name), entry)

    @cached_property
    def of_kind(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {"tool": [], "resource": [], "prompt": []}
        for entry in self.entries:
            found[entry.kind].append(entry)
        return found

    @cached_property
    def tools(self) -> dict[tuple[str, str], Entry]:
        return {(entry.server, entry.name): entry for entry in self.of_kind["tool"]}

    @cached_property
    def names(self) -> ApiNames:
        tools = (ToolDefinition(server=one.server, name=one.name) for one in self.of_kind["tool"])
        return ApiNames.of(tools, self._configured)

    @cached_property
    def written(self) -> WrittenNames:
        return WrittenNames(self.of_kind["tool"], self.tools, self.names)

    @cached_property
    def servers(self) -> list[ServerInfo]:
        known = {
            one.server: ServerInfo(
                name=one.server,
                instructions=one.instructions,
                source="cache" if one.server in self._live else "file",
                missing=one.server in self._configured and one.server not in self._live,
            )
            for one in self._listings
        }
        for name in self._configured:
            known.setdefault(name, ServerInfo(name=name, missing=True))
        return with_counts([known[name] for name in sorted(known)], self.entries, drop=False)


def _quoted(written: str) -> str:
    return f'"{text.one_line(written, _LONGEST_QUOTE)}"'
