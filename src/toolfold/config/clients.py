"""The clients whose configs are read: where each keeps its files, how to know one, how to read one.

Adding a client is adding a line to `FORMATS`, and a function where its file is more than one object of servers.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from toolfold.config import documents, opencode, overlay
from toolfold.config.documents import Problem
from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.oauth import Redirect
from toolfold.config.settings import Settings


class Scope(enum.IntEnum):
    """Who a file speaks for. The lower one wins when two give the same server or setting."""

    OURS_PROJECT = 0
    OURS_USER = 1
    LOCAL = 2
    """A person's own servers for this project, kept outside it."""
    PROJECT = 3
    USER = 4

    @property
    def of_project(self) -> bool:
        """Whether the file came with the project's folder."""
        return self in {Scope.OURS_PROJECT, Scope.PROJECT}


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is being read, as far as a reader may care."""

    name: str
    """How messages call it."""
    path: Path | None
    """None for a config given in memory."""
    scope: Scope
    cwd: Path


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One server as the file has it: `key` says where."""

    name: str
    value: object
    key: str
    scope: Scope
    dialect: Dialect


@dataclass(slots=True)
class Reading:
    """What one document holds, as it is written: nothing is checked or expanded yet."""

    entries: list[RawEntry] = field(default_factory=list[RawEntry])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Our own settings by their own names; only our own file has them."""
    blocks: list[object] = field(default_factory=list[object])
    """Values of `mcpCodeExecution`, the one that wins first."""
    inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """VS Code's `inputs` by id."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Servers that the client itself does not start, with the reason."""
    denied: set[str] = field(default_factory=set[str])
    """Servers of the project's shared file that this person has refused."""
    bare_variables: bool = False
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, doc: Mapping[str, Any], key: str, source: Source, dialect: Dialect, **place: Any) -> None:
        """Takes the servers under `doc[key]`. `prefix` and `scope` may say that `doc` is only a part of the file."""
        if doc.get(key) is None:
            return
        shown = f"{place.get('prefix', '')}{key}"
        servers = doc[key]
        if not isinstance(servers, Mapping):
            self.problems.append(Problem(source.name, shown, "expected an object of servers"))
            return
        scope = place.get("scope", source.scope)
        for name, value in cast("Mapping[object, object]", servers).items():
            self.entries.append(RawEntry(str(name), value, f"{shown}.{name}", scope, dialect))

    def skip(self, names: Iterable[str], reason: str) -> None:
        """Leaves out the servers called `names`."""
        self.skipped |= dict.fromkeys(names, reason)
        self.entries = [entry for entry in self.entries if entry.name not in self.skipped]

    def __bool__(self) -> bool:
        """Whether there is anything in the document that is meant for us."""
        return bool(self.entries or self.settings or self.blocks or self.skipped or self.denied)


Reader = Callable[[Mapping[str, Any], Source], Reading]


@dataclass(frozen=True, slots=True)
class Format:
    """One client.

    A file that a person names is this client's when its path ends in one of `project` or `tails`, or else when
    `fits` recognises its content.
    """

    name: str
    reader: Reader
    project: tuple[str, ...] = ()
    """Its files in a project."""
    user: Callable[[Host], Iterable[Path]] = lambda host: ()
    """Its files outside of projects."""
    tails: tuple[str, ...] = ()
    fits: Callable[[Mapping[str, Any]], bool] = lambda doc: False
    limit: int = documents.LIMIT

    def read(self, content: Mapping[str, Any], source: Source) -> Reading:
        reading = self.reader(content, source)
        if overlay.BLOCK in content:
            reading.blocks.append(content[overlay.BLOCK])
        return reading

    def named(self, path: Path) -> bool:
        """Whether `path` is called like a file of this client."""
        endings = (tuple(name.split("/")) for name in (*self.project, *self.tails))
        return any(path.parts[-len(ending) :] == ending for ending in endings)


@dataclass(frozen=True, slots=True)
class Location:
    """A place where some client keeps its config."""

    format: Format
    path: Path
    scope: Scope


def locations(host: Host) -> Iterator[Location]:
    """Every place where a config may be. One that is both a project's and the person's is the person's: that is so
    when Toolfold runs in the home folder."""
    own = {os.path.realpath(path) for known in FORMATS for path in known.user(host)}
    for known in FORMATS:
        ours = known.name == "toolfold"
        for path in (host.cwd / name for name in known.project):
            if os.path.realpath(path) not in own:
                yield Location(known, path, Scope.OURS_PROJECT if ours else Scope.PROJECT)
        for path in dict.fromkeys(known.user(host)):
            yield Location(known, path, Scope.OURS_USER if ours else Scope.USER)


def recognise(content: Mapping[str, Any], path: Path | None) -> Format:
    """The format of a document that a person gave: by the file's name, else by its content."""
    if path is not None:
        for known in FORMATS:
            if known.named(path):
                return known
    return next((known for known in FORMATS if known.fits(content)), PLAIN)


# ---- where things are


def app_config(host: Host) -> Path:
    """Where desktop programs keep their settings on this system."""
    if host.platform == "darwin":
        return host.home / "Library" / "Application Support"
    if host.platform == "win32":
        roaming = host.env.get("APPDATA")
        return Path(roaming) if roaming else host.home / "AppData" / "Roaming"
    return host.config_dir


def _moved(host: Host, variable: str, usual: Path) -> Path:
    """The folder that `variable` names, else the usual one."""
    moved = host.env.get(variable)
    return Path(moved) if moved else usual


def _zed_settings(host: Host) -> Path:
    # On macOS Zed keeps to ~/.config, unlike most programs there.
    return (app_config(host) / "Zed" if host.platform == "win32" else host.config_dir / "zed") / "settings.json"


# ---- how to read them


def _servers(key: str, dialect: Dialect | None = None) -> Reader:
    """A reader for clients whose whole config is one object of servers under `key`."""

    def read(doc: Mapping[str, Any], source: Source) -> Reading:
        reading = Reading()
        reading.add(doc, key, source, dialect or Dialect())
        return reading

    return read


_OUR_SERVER_KEYS = ("servers", "mcpServers", "mcp_servers")


def _toolfold(doc: Mapping[str, Any], source: Source) -> Reading:
    """Our own file: every setting by its own name, and the servers."""
    reading = Reading()
    for key in _OUR_SERVER_KEYS:
        reading.add(doc, key, source, Dialect(timeout="s", strict=True))
    reading.settings = {key: doc[key] for key in doc if key not in {*_OUR_SERVER_KEYS, overlay.BLOCK, "$schema"}}
    return reading


def _is_toolfold(doc: Mapping[str, Any]) -> bool:
    """Some setting of ours is there. Servers alone do not tell: other clients call them the same."""
    ours = Settings.model_fields.keys() - {"servers"}
    return bool(doc.keys() & ours) and not doc.keys() & {"inputs", "context_servers", "projects"}


def _claude_code(doc: Mapping[str, Any], source: Source) -> Reading:
    """The project's own servers, then those for every project. What the person switched off stays off."""
    reading, dialect = Reading(), Dialect(timeout="ms", redirect=Redirect(port=0))
    project = _claude_project(doc, source.cwd)
    reading.denied = {str(name) for name in _list(project, "disabledMcpjsonServers")}
    prefix = "projects.(this folder)."
    reading.add(project, "mcpServers", source, dialect, prefix=prefix, scope=min(source.scope, Scope.LOCAL))
    reading.add(doc, "mcpServers", source, dialect)
    reading.skip(sorted(map(str, _list(project, "disabledMcpServers"))), "disabled for this project")
    reading.blocks = [project[overlay.BLOCK]] if overlay.BLOCK in project else []
    return reading


def _claude_project(doc: Mapping[str, Any], cwd: Path) -> Mapping[str, Any]:
    key = claude_project_key(doc, cwd)
    return {} if key is None else _object(_object(doc, "projects"), key)


def claude_project_key(doc: Mapping[str, Any], cwd: Path) -> str | None:
    """Under which key of `projects` the entry for `cwd` is: its path as given or with links followed."""
    wanted = {path.as_posix().rstrip("/") for path in (cwd, cwd.resolve())}
    for path, entry in _object(doc, "projects").items():
        if str(path).replace("\\", "/").rstrip("/") in wanted and isinstance(entry, Mapping):
            return str(path)
    return None


def _gemini(doc: Mapping[str, Any], source: Source) -> Reading:
    """`httpUrl` is streamable HTTP; a `url` without a type is SSE unless its path says otherwise; both win over a
    command. `$VAR` needs no braces. `mcp.allowed` and `mcp.excluded` say which servers are used."""
    reading = Reading(bare_variables=True)
    redirect = Redirect("http://localhost:{port}/oauth/callback", 0)
    reading.add(doc, "mcpServers", source, Dialect(timeout="ms", remote="sse", url_first=True, redirect=redirect))
    rules = _object(doc, "mcp")
    excluded = set(map(str, _list(rules, "excluded")))
    if isinstance(rules.get("allowed"), list):
        allowed = set(map(str, _list(rules, "allowed")))
        excluded |= {entry.name for entry in reading.entries} - allowed
    left_out = [entry.name for entry in reading.entries if entry.name in excluded]
    reading.skip(left_out, "not among the servers that `mcp` allows")
    return reading


def _vscode(doc: Mapping[str, Any], source: Source) -> Reading:
    """`servers` and `inputs`, at the top or in the `mcp` part of a `settings.json`, as earlier versions had them."""
    reading = Reading()
    dialect = Dialect(redirect=Redirect("http://127.0.0.1:{port}/", 33418))
    for part, prefix in ((doc, ""), (_object(doc, "mcp"), "mcp.")):
        reading.add(part, "servers", source, dialect, prefix=prefix)
        for declared in _list(part, "inputs"):
            if isinstance(declared, Mapping):
                known = cast("Mapping[str, Any]", declared)
                reading.inputs.setdefault(str(known.get("id")), known)
    # People paste other clients' snippets here; VS Code ignores them, but what is meant is plain.
    reading.add(doc, "mcpServers", source, Dialect())
    return reading


def _is_vscode(doc: Mapping[str, Any]) -> bool:
    return ("servers" in doc and "inputs" in doc) or ("servers" in _object(doc, "mcp") and not _is_opencode(doc))


def _zed(doc: Mapping[str, Any], source: Source) -> Reading:
    """Entries without a command or URL belong to Zed's extensions."""
    reading = Reading()
    reading.add(doc, "context_servers", source, Dialect())
    keys = {entry.name: _object({"": entry.value}, "").keys() for entry in reading.entries}
    extensions = [name for name, has in keys.items() if not has & {"command", "url"} and has & {"settings", "source"}]
    reading.skip(extensions, "started by a Zed extension")
    return reading


def _opencode(doc: Mapping[str, Any], source: Source) -> Reading:
    """Servers under `mcp`, in version 2 under `mcp.servers`. An entry without a type only switches one that an
    organization provides."""
    reading = Reading()
    dialect = Dialect(redirect=Redirect("http://127.0.0.1:{port}/mcp/oauth/callback", 19876))
    part = _object(doc, "mcp")
    if "type" not in _object(part, "servers") and isinstance(part.get("servers"), Mapping):
        reading.add(part, "servers", source, dialect, prefix="mcp.")
    else:
        reading.add(doc, "mcp", source, dialect)
    folder = source.path.parent if source.path is not None else source.cwd
    reading.entries = [replace(entry, value=opencode.translated(entry.value, folder)) for entry in reading.entries]
    switches = [entry.name for entry in reading.entries if "type" not in _object({"": entry.value}, "")]
    reading.skip(switches, "provided by an organization")
    return reading


def _is_opencode(doc: Mapping[str, Any]) -> bool:
    entries = [*_object(doc, "mcp").values(), *_object(_object(doc, "mcp"), "servers").values()]
    return any(_object({"": entry}, "").get("type") in ("local", "remote") for entry in entries)


PLAIN_KEYS = ("mcpServers", "servers", "mcp_servers", "context_servers")


def _plain(doc: Mapping[str, Any], source: Source) -> Reading:
    """Files that belong to no client: any JSON or TOML with servers under one of the names that clients use."""
    reading = Reading()
    for key in PLAIN_KEYS:
        reading.add(doc, key, source, Dialect())
    return reading


def _list(doc: Mapping[str, Any], key: str) -> list[Any]:
    found = doc.get(key)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _object(doc: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = doc.get(key)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


PLAIN = Format("servers", _plain, fits=lambda doc: bool(doc.keys() & {*PLAIN_KEYS, overlay.BLOCK}))

FORMATS: tuple[Format, ...] = (
    Format(
        "toolfold",
        _toolfold,
        project=("toolfold.toml",),
        user=lambda host: [host.config_dir / "toolfold" / "toolfold.toml"],
        tails=("toolfold.json",),
        fits=_is_toolfold,
    ),
    Format(
        "claude-code",
        _claude_code,
        project=(".mcp.json",),
        user=lambda host: [_moved(host, "CLAUDE_CONFIG_DIR", host.home) / ".claude.json"],
        tails=(".claude.json",),
        fits=lambda doc: isinstance(doc.get("projects"), Mapping),
        # `~/.claude.json` also holds the client's history, so it may be far larger than other configs.
        limit=64_000_000,
    ),
    Format(
        "claude-desktop",
        _servers("mcpServers"),
        user=lambda host: [app_config(host) / "Claude" / "claude_desktop_config.json"],
        tails=("claude_desktop_config.json",),
    ),
    Format(
        "cursor",
        _servers("mcpServers"),
        project=(".cursor/mcp.json",),
        user=lambda host: [host.home / ".cursor" / "mcp.json"],
    ),
    Format(
        "windsurf",
        _servers("mcpServers"),
        user=lambda host: [host.home / ".codeium" / name for name in ("windsurf/mcp_config.json", "mcp_config.json")],
        tails=("mcp_config.json",),
    ),
    Format(
        "gemini",
        _gemini,
        project=(".gemini/settings.json",),
        user=lambda host: [host.home / ".gemini" / "settings.json"],
    ),
    Format(
        "vscode",
        _vscode,
        project=(".vscode/mcp.json",),
        user=lambda host: [
            app_config(host) / edition / "User" / "mcp.json" for edition in ("Code", "Code - Insiders", "VSCodium")
        ],
        tails=("User/mcp.json",),
        fits=_is_vscode,
    ),
    Format(
        "codex",
        _servers("mcp_servers", Dialect(timeout="s", redirect=Redirect("http://127.0.0.1:{port}/callback", 0))),
        project=(".codex/config.toml",),
        user=lambda host: [_moved(host, "CODEX_HOME", host.home / ".codex") / "config.toml"],
        fits=lambda doc: "mcp_servers" in doc,
    ),
    Format(
        "zed",
        _zed,
        project=(".zed/settings.json",),
        user=lambda host: [_zed_settings(host)],
        tails=("zed/settings.json",),
        fits=lambda doc: "context_servers" in doc,
    ),
    Format(
        "opencode",
        _opencode,
        project=tuple(f"{folder}opencode.{ending}" for folder in ("", ".opencode/") for ending in ("json", "jsonc")),
        user=lambda host: [
            *([host.absolute(host.env["OPENCODE_CONFIG"])] if host.env.get("OPENCODE_CONFIG") else ()),
            *(host.config_dir / "opencode" / f"opencode.{ending}" for ending in ("json", "jsonc")),
        ],
        fits=_is_opencode,
    ),
    PLAIN,
)
"""In the order in which they win within one scope, and in which a named file is tried against them."""
