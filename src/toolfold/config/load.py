"""From the configs that a person already has to one `Settings`.

Without a source, every known client's files are read. Where two give the same server, the first of these wins:

1. `./toolfold.toml`, then `~/.config/toolfold/toolfold.toml`
2. a person's own servers for this project (`~/.claude.json`, under `projects`)
3. other files in the project (`.mcp.json`, `.cursor/mcp.json`, …)
4. other files of the person (`~/.claude.json`, Claude Desktop, …)

and, within one of these, the order of `clients.FORMATS`. The project's files count only when a person has allowed them
(`trust`).

One server's way through here: `clients` finds and reads its file, `documents` parses it, `entries` turns what is
written there into a `ServerConfig` with the variables of `expand` filled in, and `_settle` decides whether it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolfold.config import clients, documents, edge, overlay, trust
from toolfold.config.clients import PLAIN, Reading, Scope, Source
from toolfold.config.documents import Document, Problem
from toolfold.config.edge import Host
from toolfold.config.entries import DISABLED, OURSELVES, EntryReader, Skipped, is_toolfold
from toolfold.config.expand import Variables
from toolfold.config.settings import ServerConfig, Settings
from toolfold.config.trust import Project
from toolfold.errors import ConfigError

IN_MEMORY = "(given config)"

ConfigSource = Path | str | Mapping[str, Any] | Settings | None
"""A file, the same shapes in memory, ready settings, or `None` for what is found on this machine."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What one file gave. Safe to show: names and reasons only."""

    path: str
    format: str
    servers: tuple[str, ...] = ()
    """Servers that are used from this file."""
    shadowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that another file defines differently and wins: name → that file."""
    same: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that another file defines identically: name → that file."""
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers left out on purpose: name → why (disabled, or it is Toolfold itself)."""
    settings: tuple[str, ...] = ()
    """Settings that this file gives, by their dotted names."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, where they came from, and what is wrong in the files."""

    settings: Settings
    files: list[FileReport] = field(default_factory=list[FileReport])
    problems: list[Problem] = field(default_factory=list[Problem])
    untrusted: tuple[Project, ...] = ()
    """Projects whose files were left out because no person has allowed them; `text` of each says so in one line."""
    data_problem: str = ""
    """Why a temporary data folder is used in place of the configured one."""


def load(
    source: ConfigSource,
    *,
    cwd: Path,
    home: Path,
    env: Mapping[str, str],
    data_dir: Path | None = None,
    catalog_dirs: Sequence[Path] = (),
    platform: str = sys.platform,
) -> Loaded:
    """The settings for `source`.

    Raises `ConfigError` when a file that was named cannot be read or parsed, and when what is wrong would leave open
    what is meant to be closed (`overlay.STRICT`). Everything else that is wrong is a `Problem` in the answer, and costs
    only the server or setting that it is about.
    """
    host = Host(cwd=cwd.absolute(), home=home, env=env, platform=platform)
    if isinstance(source, Settings):
        values = {key: getattr(source, key) for key in source.model_fields_set}
        return Loaded(_settings(values, host, data_dir or values.get("data_dir"), catalog_dirs))
    project: Project | None = None
    if source is None:
        files, project = _discovered(host)
    elif isinstance(source, Mapping):
        files = [_in_memory(source, host)]
    else:
        files = [_named(host.absolute(source), host)]
    _refuse([problem for file in files for problem in file.problems if problem.fatal])
    # Stable: within one scope, files stay in the order of the table.
    files.sort(key=lambda file: file.scope)
    servers = _settle(files)
    values: dict[str, Any] = {**overlay.merged(file.settings for file in files), "servers": servers}
    if isinstance(source, Mapping):
        # Said by the caller in so many words, so the environment has no say.
        data_dir = data_dir or values.get("data_dir")
    return Loaded(
        _settings(values, host, data_dir, catalog_dirs),
        [file.report() for file in files],
        [problem for file in files for problem in file.problems],
        () if project is None or project.trusted else (project,),
    )


def _refuse(problems: Sequence[Problem]) -> None:
    """Raise `ConfigError` if there is a problem that must not be started with."""
    if problems:
        more = f" And {len(problems) - 1} more." if len(problems) > 1 else ""
        hint = "Correct it first: otherwise something would be open that is meant to be closed."
        raise ConfigError(f"{problems[0]}.{more}", hint=hint)


def load_here(source: ConfigSource, *, data_dir: Path | None = None, catalog_dirs: Sequence[Path] = ()) -> Loaded:
    """`load` in this process's own surroundings, with a data folder that is ready to be used."""
    here = edge.host()
    loaded = load(
        source,
        cwd=here.cwd,
        home=here.home,
        env=here.env,
        data_dir=data_dir,
        catalog_dirs=catalog_dirs,
        platform=here.platform,
    )
    folder, problem = edge.prepare_data_dir(loaded.settings.data_dir)
    if problem and loaded.settings.audit.enabled:
        raise ConfigError(
            f"{problem.partition(' A temporary')[0]} The audit log must be kept there.",
            hint="Make it writable, or name another one with --data or TOOLFOLD_DATA.",
        )
    settings = loaded.settings if not problem else loaded.settings.model_copy(update={"data_dir": folder})
    return replace(loaded, settings=settings, data_problem=problem)


def _settings(values: dict[str, Any], host: Host, data_dir: Path | None, catalog_dirs: Sequence[Path]) -> Settings:
    """The settings, with the paths that the caller or the environment decides filled in and made absolute."""
    in_file = None if host.env.get("TOOLFOLD_DATA") else values.get("data_dir")
    folders = [*catalog_dirs, *values.get("catalog_dirs", ())]
    return Settings(
        **{key: value for key, value in values.items() if key not in {"data_dir", "catalog_dirs"}},
        data_dir=host.absolute(data_dir or in_file or host.data_dir),
        catalog_dirs=tuple(host.absolute(folder) for folder in folders),
    )


# ---- one file


@dataclass(frozen=True, slots=True)
class _Offer:
    """A server that a file offers, before it is known which file wins."""

    name: str
    server: ServerConfig | Skipped
    scope: Scope


@dataclass(slots=True)
class _ConfigFile:
    """One file that was read, or could not be, and what became of its servers."""

    name: str
    format: str
    scope: Scope
    offers: list[_Offer] = field(default_factory=list[_Offer])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """By dotted name."""
    denied: set[str] = field(default_factory=set[str])
    """Servers of the project's shared file that this one refuses."""
    problems: list[Problem] = field(default_factory=list[Problem])
    used: list[str] = field(default_factory=list[str])
    shadowed: dict[str, str] = field(default_factory=dict[str, str])
    same: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    def problem(self, key: str, expected: str, server: str = "") -> None:
        self.problems.append(Problem(self.name, key, expected, server))

    def take(self, document: Document, reading: Reading, source: Source, host: Host) -> None:
        """Turns what a reader found into offers and settings, checked and expanded."""
        variables = Variables(host, inputs=reading.inputs, bare=reading.bare_variables)
        self.problems += reading.problems
        self.denied = reading.denied
        self.skipped |= reading.skipped
        for name in sorted({entry.name for entry in reading.entries} & set(document.duplicates)):
            self.problem(name, "expected each server once; the last one counts", name)
        reader = EntryReader(self.name, variables, self.problems)
        for entry in reading.entries:
            server = reader.read(entry.name, entry.value, key=entry.key, dialect=entry.dialect)
            if server is not None:
                self.offers.append(_Offer(entry.name, server, entry.scope))
        self.settings = overlay.settings_of(
            reading.settings, reading.blocks, file=self.name, variables=variables, problems=self.problems
        )
        self.problems = [
            replace(each, line=documents.line_of(document.data, each.key)) if each.fatal else each
            for each in self.problems
        ]
        # A relative path in a file is relative to that file.
        base = source.path.parent if source.path else host.cwd
        if "data_dir" in self.settings:
            self.settings["data_dir"] = host.absolute(self.settings["data_dir"], base)
        if "catalog_dirs" in self.settings:
            self.settings["catalog_dirs"] = tuple(host.absolute(one, base) for one in self.settings["catalog_dirs"])
        for key in ("skills.project", "logseq.graph"):
            if self.settings.get(key) is not None:
                self.settings[key] = host.absolute(self.settings[key], base)
        for key, path in (("audit", "head_file"), ("jwt", "jwks_file")):
            group = self.settings.get(key)
            if group is not None and getattr(group, path) is not None:
                self.settings[key] = group.model_copy(update={path: host.absolute(getattr(group, path), base)})

    def withhold(self, reading: Reading) -> None:
        """Takes nothing: the file is a project's that no person has allowed."""
        self.problems += reading.problems
        self.skipped |= {
            entry.name: OURSELVES if is_toolfold(entry.value) else trust.UNTRUSTED for entry in reading.entries
        }

    def report(self) -> FileReport:
        return FileReport(
            path=self.name,
            format=self.format,
            servers=tuple(self.used),
            shadowed=self.shadowed,
            same=self.same,
            skipped=self.skipped,
            settings=tuple(sorted(self.settings)),
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that is where some client keeps its config."""

    file: _ConfigFile
    source: Source
    document: Document | None
    """None when it could not be read."""
    reading: Reading


def _find(host: Host) -> tuple[list[_Found], Project | None]:
    """All files that exist, and the project that some of them belong to. A bad one is a problem, never a failure."""
    found: list[_Found] = []
    for place in clients.locations(host):
        file = _ConfigFile(str(place.path), place.format.name, place.scope)
        source = Source(file.name, place.path, place.scope, host.cwd)
        try:
            document = documents.read(place.path, limit=place.format.limit)
        except FileNotFoundError:
            continue
        except documents.UnreadableError as error:
            # A person's own file may hold what keeps things closed.
            file.problems.append(Problem(file.name, "", str(error), fatal=place.scope == Scope.OURS_USER))
            found.append(_Found(file, source, None, Reading()))
        else:
            found.append(_Found(file, source, document, place.format.read(document.content, source)))
    # Judged by the bytes that were parsed: a file that changes meanwhile does not get what another one was allowed.
    of_project = {
        one.source.name: (one.document.data, one.reading)
        for one in found
        if one.source.scope.of_project and one.document is not None
    }
    return found, trust.examine(host, of_project)


def _discovered(host: Host) -> tuple[list[_ConfigFile], Project | None]:
    found, project = _find(host)
    for one in found:
        if one.source.scope.of_project and not (project and project.trusted):
            one.file.withhold(one.reading)
        elif one.document is not None:
            one.file.take(one.document, one.reading, one.source, host)
    return [one.file for one in found], project


def project_of(host: Host) -> Project | None:
    """The project in `host.cwd`; `None` when there is nothing in its files to trust."""
    return _find(host)[1]


def _named(path: Path, host: Host) -> _ConfigFile:
    limit = max((known.limit for known in clients.FORMATS if known.named(path)), default=documents.LIMIT)
    try:
        document = documents.read(path, limit=limit, named=True)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.", hint="Name an existing config file.") from None
    except documents.UnreadableError as error:
        raise ConfigError(f"{path}: {error}.", hint="Correct the file, or name another one.") from None
    return _read_as(document, Source(str(path), path, Scope.OURS_PROJECT, host.cwd), host)


def _in_memory(content: Mapping[str, Any], host: Host) -> _ConfigFile:
    try:
        document = Document(documents.as_object(content))
    except documents.UnreadableError as error:
        raise ConfigError(f"{IN_MEMORY}: {error}.") from None
    return _read_as(document, Source(IN_MEMORY, None, Scope.OURS_PROJECT, host.cwd), host)


def _read_as(document: Document, source: Source, host: Host) -> _ConfigFile:
    """Reads a document of a format that is yet to be recognised."""
    known = clients.recognise(document.content, source.path)
    reading = known.read(document.content, source)
    if not reading.entries and not reading.skipped and PLAIN.fits(document.content):
        # A client's file name with another client's content: the content is what was meant.
        other = PLAIN.read(document.content, source)
        known, reading.entries = (PLAIN, other.entries) if other.entries else (known, [])
    file = _ConfigFile(source.name, known.name, source.scope)
    if document.empty:
        file.problem("", "expected servers or settings, the file is empty")
    elif known is PLAIN and not PLAIN.fits(document.content):
        choices = ", ".join(f"`{key}`" for key in clients.PLAIN_KEYS)
        file.problem("", f"expected servers under one of {choices}")
    file.take(document, reading, source, host)
    return file


# ---- several files


def _settle(files: Sequence[_ConfigFile]) -> dict[str, ServerConfig]:
    """The servers in force. Each file learns what became of its own. `files` come in the order in which they win."""
    denied = {name: file.name for file in files for name in file.denied}
    offers = [(offer, file) for file in files for offer in file.offers]
    # By name: the winner's file, and its server unless that file switches the name off.
    winners: dict[str, tuple[str, ServerConfig | None]] = {}
    for offer, file in sorted(offers, key=lambda pair: pair[0].scope):
        name, server = offer.name, offer.server
        if isinstance(server, Skipped):
            file.skipped[name] = server.reason
            if offer.scope <= Scope.OURS_USER and server.reason == DISABLED:
                # Switched off in our own file: that is how a person turns off what another client has.
                winners.setdefault(name, (file.name, None))
        elif name in denied and file.format == "claude-code" and offer.scope == Scope.PROJECT:
            file.skipped[name] = f"refused in {denied[name]}"
        elif name not in winners:
            winners[name] = (file.name, server)
            file.used.append(name)
        else:
            winner, chosen = winners[name]
            identical = chosen is not None and chosen.model_copy(update={"source": server.source}) == server
            (file.same if identical else file.shadowed)[name] = winner
    return {name: server for name, (_, server) in winners.items() if server is not None}
