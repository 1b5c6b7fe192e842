"""Trust on first use: a project's files count for nothing until a person has said yes to them.

A project's files come with its folder, so they may be anybody's. What they say is shown, but not started and not
expanded, until the person allows this folder with this content; a changed file has to be allowed again. Files outside
of projects are the person's own and need no permission, and neither does a file that the person names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from toolfold.config import documents, overlay
from toolfold.config.clients import RawEntry, Reading
from toolfold.config.edge import Host
from toolfold.config.entries import HEADER_KEYS, URL_KEYS, fields_of, is_toolfold
from toolfold.errors import ConfigError

UNTRUSTED = "the folder is not trusted"
VARIABLE = "TOOLFOLD_TRUST"
"""Set to 1 in the environment, it allows the files of any project, whatever they hold: for CI."""

_REFERENCE = re.compile(r"\$\{((?:env|input|file):[^{}]*?|\w+)(?=:-|\})")
_BARE_REFERENCE = re.compile(r"\$(\w+)")


@dataclass(frozen=True, slots=True)
class ProjectServer:
    """One server of a project's file as it is written there: no variable is filled in."""

    name: str
    command: str = ""
    url: str = ""
    cwd: str = ""
    sets: tuple[str, ...] = ()
    """Names of the environment variables that it gives to the command."""
    sends: tuple[str, ...] = ()
    """Names of the HTTP headers that it sends."""
    reads: tuple[str, ...] = ()
    """Environment variables and files whose content it would get."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """What one file of a project would do."""

    name: str
    """Its path inside the folder."""
    servers: tuple[ProjectServer, ...]
    settings: tuple[str, ...]
    """As `name = value`."""


@dataclass(frozen=True, slots=True)
class Project:
    """The files of one folder, and what the person has said about them."""

    folder: Path
    """With links followed: one folder has one name."""
    digest: str
    """Of the content of all its files."""
    files: tuple[ProjectFile, ...] = field(repr=False)
    answer: Literal["yes", "no", "changed", ""]
    """What was said about this content; `changed` when the yes was to another one; empty when nothing was said."""

    @property
    def trusted(self) -> bool:
        return self.answer == "yes"

    @property
    def text(self) -> str:
        """One line about an untrusted project, for a person or a model: nothing in it is the project's own words."""
        servers = sum(len(file.servers) for file in self.files)
        settings = sum(len(file.settings) for file in self.files)
        counts = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((servers, "server"), (settings, "setting")) if n]
        names = ", ".join(file.name for file in self.files)
        changed = "it has changed since it was trusted" if self.answer == "changed" else UNTRUSTED
        return (
            f"Not used: {' and '.join(counts)} from this project's {names}, because {changed}. "
            f"The person can review and allow them: `toolfold trust` in that folder."
        )


class Decisions:
    """What the person has said, kept in a file of the person's config folder: by folder, the content and the answer.

    It is not in the data folder, since that may be inside a project, where a project could say yes to itself.
    """

    def __init__(self, host: Host) -> None:
        self.path = host.config_dir / "toolfold" / "trusted.json"

    def all(self) -> dict[str, dict[str, str]]:
        """By folder: `sha256` of the content and `answer` (yes or no). An unreadable file holds no decision."""
        with contextlib.suppress(documents.UnreadableError, FileNotFoundError, ValueError, RecursionError):
            found: Any = json.loads(documents.read_text(self.path))
            if isinstance(found, dict):
                known = cast("dict[str, Any]", found)
                return {folder: one for folder, one in known.items() if isinstance(one, dict)}
        return {}

    def about(self, folder: Path, digest: str) -> Literal["yes", "no", "changed", ""]:
        said = self.all().get(str(folder), {})
        answer = said.get("answer")
        if said.get("sha256") == digest:
            return "yes" if answer == "yes" else "no" if answer == "no" else ""
        return "changed" if answer == "yes" else ""

    def record(self, project: Project, answer: Literal["yes", "no"]) -> None:
        self._write({**self.all(), str(project.folder): {"sha256": project.digest, "answer": answer}})

    def forget(self, folder: Path) -> bool:
        """Whether there was something to forget."""
        known = self.all()
        found = known.pop(str(folder), None) is not None
        if found:
            self._write(known)
        return found

    def _write(self, decisions: Mapping[str, Any]) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                os.fchmod(fd, 0o600)
                json.dump(decisions, file, indent=2)
            unfinished.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise ConfigError(
                f"The decision cannot be kept in {self.path}: {error.strerror}.",
                hint=f"Make that folder writable, or set {VARIABLE}=1 where all projects are trusted.",
            ) from None


def examine(host: Host, files: Mapping[str, tuple[bytes, Reading]]) -> Project | None:
    """The project in `host.cwd` with these files, by path; `None` when they would start and set nothing."""
    relevant = sorted(
        (Path(path).relative_to(host.cwd).as_posix(), data, reading)
        for path, (data, reading) in files.items()
        if reading
    )
    shown = tuple(file for name, _, reading in relevant if (file := _shown(name, reading)).servers or file.settings)
    if not shown:
        return None
    digest = hashlib.sha256()
    for name, data, _ in relevant:
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    folder = Path(os.path.realpath(host.cwd))
    if host.env.get(VARIABLE, "").lower() in {"1", "true", "yes", "on"}:
        return Project(folder, digest.hexdigest(), shown, "yes")
    return Project(folder, digest.hexdigest(), shown, Decisions(host).about(folder, digest.hexdigest()))


# ---- what a file would do, in its own words


def _shown(name: str, reading: Reading) -> ProjectFile:
    servers = [_server(entry, bare=reading.bare_variables) for entry in reading.entries if not is_toolfold(entry.value)]
    blocks = [cast("Mapping[object, Any]", block) for block in reading.blocks if isinstance(block, Mapping)]
    settings = [f"{key} = {_text(value)}" for key, value in reading.settings.items()]
    settings += [f"{overlay.BLOCK}.{key} = {_text(value)}" for block in blocks for key, value in block.items()]
    return ProjectFile(name, tuple(servers), tuple(settings))


def _server(entry: RawEntry, *, bare: bool) -> ProjectServer:
    value = entry.value
    if not isinstance(value, Mapping):
        return ProjectServer(entry.name)
    fields = fields_of(cast("Mapping[object, Any]", value))
    words = [_text(word) for key in ("command", "args") for word in _items(fields.get(key))]
    return ProjectServer(
        entry.name,
        command=shlex.join(words),
        url=" ".join(_text(fields[key]) for key in URL_KEYS if key in fields),
        cwd=_text(fields.get("cwd", "")),
        sets=tuple(_names(fields, ("env",))),
        sends=tuple(_names(fields, (*HEADER_KEYS, "env_http_headers"))),
        reads=tuple(dict.fromkeys(_reads(fields, bare=bare))),
    )


def _reads(fields: Mapping[str, Any], *, bare: bool) -> Iterator[str]:
    """The variables and files that an entry refers to, in whichever way its client has for it."""
    for text in _strings(fields):
        yield from _REFERENCE.findall(text)
        yield from _BARE_REFERENCE.findall(text) if bare else ()
    yield from (_text(fields[key]) for key in ("bearer_token_env_var",) if key in fields)
    yield from (f"file:{_text(fields[key])}" for key in ("envFile",) if key in fields)
    for listed in _items(fields.get("env_vars")):
        yield _text(cast("Mapping[str, Any]", listed).get("name", "") if isinstance(listed, Mapping) else listed)
    yield from _strings(fields.get("env_http_headers"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _strings(one)


def _names(fields: Mapping[str, Any], keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        table = fields.get(key)
        yield from map(str, cast("Mapping[str, Any]", table)) if isinstance(table, Mapping) else ()


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, default=str)
    except ValueError:
        return "(a value that cannot be shown)"
