"""Working out what `toolfold fold` would change. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolfold.config import clients
from toolfold.config.clients import Location, RawEntry, Reading, Scope, Source
from toolfold.config.edge import Host
from toolfold.config.entries import URL_KEYS, fields_of, is_toolfold
from toolfold.config.folding import instructions, journal, jsonc, targets, tomltext, translate
from toolfold.config.folding.drafts import Draft
from toolfold.config.folding.journal import Change
from toolfold.config.folding.jsonc import EditError
from toolfold.config.folding.targets import NAME, Target
from toolfold.config.folding.translate import OURS, NotTheSameError
from toolfold.config.settings import ServerConfig
from toolfold.errors import ConfigError

BLOCK_USE = ""
"""Stands in `uses` for the part between our marks in a text for agents."""
OUR_FILE = "toolfold.toml"
_OUR_KEYS = ("servers", "mcpServers", "mcp_servers")
_THIS_PROJECT = "projects.(this folder).mcpServers"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client starts Toolfold."""

    short: tuple[str, ...]
    full: tuple[str, ...]
    """With the whole path of the program."""


@dataclass(frozen=True, slots=True)
class Options:
    hybrid: frozenset[str] = frozenset()
    """Servers that stay in the client."""
    user: bool = True
    project: bool = True
    granted: bool = True
    """Whether the client may call Toolfold without asking each time."""
    instructions: bool = False


@dataclass(slots=True)
class Plan:
    target: Target
    changes: list[Change] = field(default_factory=list[Change])
    moved: dict[str, str] = field(default_factory=dict[str, str])
    """Server → the file that it goes to."""
    left: dict[str, str] = field(default_factory=dict[str, str])
    """Server → why it stays in the client."""
    notes: list[str] = field(default_factory=list[str])
    uses: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    servers: list[ServerConfig] = field(default_factory=list[ServerConfig])
    """What is moved, to keep its secrets out of what is shown."""


def plan_fold(target: Target, host: Host, launch: Launch, options: Options) -> Plan:
    """What would change. `ConfigError` when a file cannot be read or edited."""
    return _Planner(target, host, launch, options).plan()


@dataclass(slots=True)
class _File:
    place: Location
    draft: Draft
    reading: Reading
    names: list[str] = field(default_factory=list[str])
    """Entries of Toolfold that it has."""
    inputs: list[str] = field(default_factory=list[str])
    """VS Code's inputs that the moved servers need."""
    taken: int = 0


class _Planner:
    def __init__(self, target: Target, host: Host, launch: Launch, options: Options) -> None:
        self._target, self._host, self._launch, self._options = target, host, launch, options
        self._plan = Plan(target)
        self._drafts: dict[Path, Draft] = {}
        self._places = [
            place
            for place in clients.locations(host)
            if place.format is target.format and (options.project if place.scope.of_project else options.user)
        ]

    def plan(self) -> Plan:
        files = self._files()
        self._check_hybrid(files)
        denied = {name for file in files for name in file.reading.denied}
        for file in files:
            # What counts everywhere first: it keeps its name when this project has another of the same name.
            for entry in sorted(file.reading.entries, key=lambda each: -each.scope):
                if entry.name not in file.names:
                    refused = file.place.scope is Scope.PROJECT and entry.name in denied
                    self._move(file, entry, "you refused it in Claude Code" if refused else "")
            self._plan.left |= file.reading.skipped
        name = self._register(files)
        if self._options.granted:
            for wanted in self._target.grants:
                path = wanted.file(self._host)
                if not wanted.only_if_listed or journal.current(path) is not None:
                    targets.grant(self._draft(path), wanted, name)
        if self._options.instructions:
            self._write_instructions()
        self._collect()
        return self._plan

    # ---- reading

    def _files(self) -> list[_File]:
        files: list[_File] = []
        for place in self._places:
            if journal.current(place.path) is None or journal.real(place.path, None) in self._drafts:
                continue
            draft = self._draft(place.path, of_project=place.scope.of_project)
            source = Source(str(place.path), place.path, place.scope, self._host.cwd)
            file = _File(place, draft, place.format.read(draft.content, source))
            file.names = [entry.name for entry in file.reading.entries if self._is_us(entry, place.path)]
            files.append(file)
        return files

    def _is_us(self, entry: RawEntry, path: Path) -> bool:
        value: object = entry.value
        fields = fields_of(cast("Mapping[object, Any]", value)) if isinstance(value, Mapping) else {}
        if is_toolfold(cast("object", value)):
            words = [*_words(fields.get("command")), *_words(fields.get("args"))]
            if any(word == "--config" or word.startswith("--config=") for word in words):
                raise ConfigError(
                    f"{path}: `{entry.name}` starts Toolfold with --config, so it would not see what is moved.",
                    hint="Take --config out of that entry, or add the servers to the file that it names.",
                )
            return True
        if entry.name != NAME:
            return False
        if not any(key in fields for key in URL_KEYS):
            raise ConfigError(f"{path}: `{NAME}` is another server there.", hint="Give that server another name.")
        return True

    def _draft(self, path: Path, *, of_project: bool = False) -> Draft:
        place = journal.real(path, self._host.cwd if of_project else None)
        if place not in self._drafts:
            self._drafts[place] = Draft(place, journal.current(path))
        return self._drafts[place]

    def _check_hybrid(self, files: list[_File]) -> None:
        there = {entry.name for file in files for entry in file.reading.entries}
        for name in sorted(self._options.hybrid - there):
            known = ", ".join(sorted(there)) or "none"
            raise ConfigError(f"{self._target.title} has no server `{name}`.", hint=f"It has: {known}.")

    # ---- one server

    def _move(self, file: _File, entry: RawEntry, refused: str) -> None:
        name = entry.name
        try:
            if refused:
                raise NotTheSameError(refused)
            if name in self._options.hybrid:
                raise NotTheSameError("left direct, as you asked")
            ours = translate.to_ours(entry, file.reading, self._host)
            inputs = translate.inputs_of(entry.value) if self._target.name == "vscode" else []
            if inputs and file.names:
                raise NotTheSameError("it asks for an input, which the entry of Toolfold there does not pass on")
            home = self._home(entry.scope)
            known = self._known(home, entry, file.reading)
            removed = file.draft.take(_path(entry, file.draft.content, self._host.cwd), name)
        except (NotTheSameError, EditError) as reason:
            text = str(reason) if isinstance(reason, NotTheSameError) else "it is not written as one entry of its own"
            self._plan.left[name] = text
            return
        if known:
            self._plan.uses.setdefault(str(home.path), []).append(name)
        else:
            said = (
                tomltext.comments(removed.text) if file.draft.path.suffix == ".toml" else jsonc.comments(removed.text)
            )
            home.add((self._our_key(home),), name, ours, said)
        file.taken += 1
        file.inputs += inputs
        self._plan.moved[name] = str(home.path)
        self._note(entry, ours)
        server = translate.meant(entry, file.reading, self._host)
        self._plan.servers += [server] if server is not None else []

    def _home(self, scope: Scope) -> Draft:
        """Our file for servers of that scope: a person's own ones never go into the project's folder."""
        if scope is Scope.PROJECT:
            return self._draft(self._host.cwd / OUR_FILE, of_project=True)
        return self._draft(_our_file(self._host))

    def _known(self, home: Draft, entry: RawEntry, reading: Reading) -> bool:
        """Whether our file has the same server already; `NotTheSameError` when it has another of that name."""
        for key in _OUR_KEYS:
            value = targets.found(home.content, (key, entry.name))
            if value is None:
                continue
            there = translate.meant(RawEntry(entry.name, value, key, entry.scope, OURS), Reading(), self._host)
            if there is None or there != translate.meant(entry, reading, self._host):
                raise NotTheSameError(f"another `{entry.name}` is in {home.path}")
            return True
        return False

    def _our_key(self, home: Draft) -> str:
        """Under which key a table can be added: an inline table cannot be added to."""
        for key in _OUR_KEYS:
            trial = Draft(home.path, home.text.encode())
            trial.add((key,), "toolfold-trial", {"command": "x"})
            try:
                trial.after()
            except ConfigError:
                continue
            return key
        raise ConfigError(f"{home.path}: no server can be added to it.", hint="Write its servers as tables.")

    def _note(self, entry: RawEntry, ours: Mapping[str, Any]) -> None:
        if entry.scope is Scope.LOCAL:
            self._plan.notes.append(f"{entry.name} was for this project only; now it is there for all of them.")
        if "url" in ours and not any(key in ours for key in ("headers", "http_headers", "bearer_token_env_var")):
            text = f"{entry.name} may need the sign-in that {self._target.title} had: toolfold auth login {entry.name}"
            self._plan.notes.append(text)

    # ---- Toolfold itself

    def _register(self, files: list[_File]) -> str:
        """See that the client starts Toolfold wherever servers were taken from, or at one place at least; the name."""
        names = [name for file in files for name in file.names]
        wanting = [file for file in files if file.taken and not file.names]
        if not names and not wanting:
            wanting = [self._first_file(files)]
        for file in wanting:
            self._add_entry(file)
        for file in files:
            allowed = targets.found(file.draft.content, ("mcp", "allowed"))
            if self._target.name == "gemini" and isinstance(allowed, list) and (file in wanting or file.names):
                file.draft.enlist(("mcp", "allowed"), [*file.names, NAME][0])
        return names[0] if names else NAME

    def _add_entry(self, file: _File) -> None:
        of_person = not file.place.scope.of_project
        command = self._launch.full if self._target.window and of_person else self._launch.short
        key, make = self._target.key, self._target.entry
        if self._target.name == "opencode" and isinstance(targets.found(file.draft.content, ("mcp", "servers")), dict):
            key, make = ("mcp", "servers"), targets.opencode_2
        entry = make(command, self._options.granted)
        if file.inputs:
            # VS Code asks the person for an input, or takes it from its own store, and hands it on.
            entry["env"] = {translate.input_variable(name): f"${{input:{name}}}" for name in dict.fromkeys(file.inputs)}
        file.draft.add(key, NAME, entry)

    def _first_file(self, files: list[_File]) -> _File:
        """Where the client looks for servers of the person, or of the project when only that is asked for."""
        in_order = sorted(self._places, key=lambda place: place.scope.of_project)
        if not in_order:
            raise ConfigError(f"{self._target.title} has no files in projects.", hint="Leave out --project.")
        chosen = next((file for file in files if file.place.scope.of_project == in_order[0].scope.of_project), None)
        place = in_order[0]
        return chosen or _File(place, self._draft(place.path, of_project=place.scope.of_project), Reading())

    def _write_instructions(self) -> None:
        if not self._target.instructions:
            self._plan.notes.append(f"{self._target.title} reads no instructions from a project.")
            return
        draft = self._draft(self._host.cwd / self._target.instructions, of_project=True)
        draft.block(instructions.BLOCK)
        if not draft.ops:
            self._plan.uses.setdefault(str(draft.path), []).append(BLOCK_USE)
        if self._target.name == "vscode" and self._options.user:
            path = targets.toolset_file(self._host, "Code")
            draft = self._draft(path)
            for name, value in instructions.TOOLSET.items():
                if name not in draft.content:
                    draft.add((), name, dict(value))

    # ---- the result

    def _collect(self) -> None:
        ours = {journal.real(path, None) for path in (_our_file(self._host), self._host.cwd / OUR_FILE)}
        # Our own file first: when writing stops in between, a server is in two places rather than in none.
        for path, draft in sorted(self._drafts.items(), key=lambda pair: pair[0] not in ours):
            if not draft.ops:
                continue
            mode = None
            if path in ours:
                mode = journal.PRIVATE
            elif draft.before is None and path.suffix == ".md":
                mode = 0o644
            self._plan.changes.append(Change(path, draft.before, draft.after(), draft.ops, mode))


def _our_file(host: Host) -> Path:
    return host.config_dir / "toolfold" / OUR_FILE


def _path(entry: RawEntry, content: Mapping[str, Any], cwd: Path) -> tuple[str, ...]:
    """Where the entry is in its document."""
    place = entry.key[: -len(entry.name) - 1]
    if place != _THIS_PROJECT:
        return tuple(place.split("."))
    return ("projects", clients.claude_project_key(content, cwd) or "", "mcpServers")


def _words(value: Any) -> list[str]:
    listed = cast("list[Any]", value) if isinstance(value, list) else str(value or "").split()
    return [str(word) for word in listed]
