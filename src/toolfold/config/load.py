"""From the configs that a person already has to one `Settings`.

Without a source, every known client's files are read. Where two give the same server, the first of these wins:

1. `./toolfold.toml`, then `~/.config/toolfold/toolfold.toml`
2. a person's own servers for this project (`~/.claude.json`, under `projects`)
3. other files in the project (`.mcp.json`, `.cursor/mcp.json`, …)
4. other files of the person (`~/.claude.json`, Claude Desktop, …)

and, within one of these, the order of `readers.FORMATS`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolfold.config import documents, edge, overlay
from toolfold.config.edge import Host
from toolfold.config.precedence import FileReport, settle
from toolfold.config.problems import Problem
from toolfold.config.read_file import ConfigFile
from toolfold.config.readers import FORMATS, plain
from toolfold.config.readers.shape import Format, Scope, Source
from toolfold.config.settings import Settings
from toolfold.errors import ConfigError

IN_MEMORY = "(given config)"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, where they came from, and what is wrong in the files."""

    settings: Settings
    files: list[FileReport] = field(default_factory=list[FileReport])
    problems: list[Problem] = field(default_factory=list[Problem])


def load(
    source: Path | str | Mapping[str, Any] | Settings | None,
    *,
    cwd: Path,
    home: Path,
    env: Mapping[str, str],
    data_dir: Path | None = None,
    catalog_dirs: Sequence[Path] = (),
    platform: str = sys.platform,
) -> Loaded:
    """The settings for `source`: a file, the same shapes in memory, ready settings, or `None` for what is found.

    Raises `ConfigError` when a file that was named cannot be read or parsed. Everything else that is wrong is a
    `Problem` in the answer, and costs only the server or setting that it is about.
    """
    host = Host(cwd=cwd.absolute(), home=home, env=env, platform=platform)
    if isinstance(source, Settings):
        values = {key: getattr(source, key) for key in source.model_fields_set}
        return Loaded(_settings(values, host, data_dir or values.get("data_dir"), catalog_dirs))
    if source is None:
        files = _discovered(host)
    elif isinstance(source, Mapping):
        files = [_in_memory(source, host)]
    else:
        files = [_named(edge.absolute(str(source), home=home, base=host.cwd), host)]
    servers, reports = settle(files)
    # Stable: within one scope, files stay in the order of the table.
    layers = [file.settings for file in sorted(files, key=lambda file: file.scope)]
    values: dict[str, Any] = {**overlay.merged(layers), "servers": servers}
    problems = [problem for file in files for problem in file.problems]
    if isinstance(source, Mapping):
        # Said by the caller in so many words, so the environment has no say.
        data_dir = data_dir or values.get("data_dir")
    return Loaded(_settings(values, host, data_dir, catalog_dirs), reports, problems)


def load_here(
    source: Path | str | Mapping[str, Any] | Settings | None,
    *,
    data_dir: Path | None = None,
    catalog_dirs: Sequence[Path] = (),
) -> Loaded:
    """`load` in this process's own surroundings."""
    here = edge.host()
    return load(
        source,
        cwd=here.cwd,
        home=here.home,
        env=here.env,
        data_dir=data_dir,
        catalog_dirs=catalog_dirs,
        platform=here.platform,
    )


def _settings(values: dict[str, Any], host: Host, data_dir: Path | None, catalog_dirs: Sequence[Path]) -> Settings:
    """The settings, with the paths that the caller or the environment decides filled in and made absolute."""
    from_env = edge.data_dir(cwd=host.cwd, home=host.home, env=host.env)
    folder = data_dir or (from_env if host.env.get("TOOLFOLD_DATA") else values.get("data_dir", from_env))
    folders = [*catalog_dirs, *values.get("catalog_dirs", ())]
    return Settings(
        **{key: value for key, value in values.items() if key not in {"data_dir", "catalog_dirs"}},
        data_dir=edge.absolute(str(folder), home=host.home, base=host.cwd),
        catalog_dirs=tuple(edge.absolute(str(one), home=host.home, base=host.cwd) for one in folders),
    )


def _discovered(host: Host) -> list[ConfigFile]:
    """Every file that is where some client keeps its config. A bad one is a problem, never a failure."""
    files: list[ConfigFile] = []
    seen: set[Path] = set()
    for known in FORMATS:
        for place in known.locate(host):
            if place.path in seen:
                continue
            seen.add(place.path)
            file = ConfigFile(str(place.path), known.name, place.scope)
            try:
                document = documents.read(place.path, limit=known.limit)
            except FileNotFoundError:
                continue
            except documents.UnreadableError as error:
                file.report("", str(error))
            else:
                source = Source(file.name, place.path, place.scope, host.cwd)
                file.take(document, known.read(document.content, source), source, host)
            files.append(file)
    return files


def _named(path: Path, host: Host) -> ConfigFile:
    limits = {ending: known.limit for known in FORMATS for ending in known.tails}
    limit = max((size for ending, size in limits.items() if _ends(path, ending)), default=documents.LIMIT)
    try:
        document = documents.read(path, limit=limit, named=True)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.", hint="Name an existing config file.") from None
    except documents.UnreadableError as error:
        raise ConfigError(f"{path}: {error}.", hint="Correct the file, or name another one.") from None
    return _read_as(document, Source(str(path), path, Scope.OURS_PROJECT, host.cwd), host)


def _in_memory(content: Mapping[str, Any], host: Host) -> ConfigFile:
    try:
        document = documents.Document(documents.as_object(content))
    except documents.UnreadableError as error:
        raise ConfigError(f"{IN_MEMORY}: {error}.") from None
    return _read_as(document, Source(IN_MEMORY, None, Scope.OURS_PROJECT, host.cwd), host)


def _read_as(document: documents.Document, source: Source, host: Host) -> ConfigFile:
    """Reads a document of a format that is yet to be recognised."""
    known = _recognised(document.content, source.path)
    reading = known.read(document.content, source)
    if not reading.entries and not reading.skipped and plain.fits(document.content):
        # A client's file name with another client's content: the content is what was meant.
        other = plain.FORMAT.read(document.content, source)
        known, reading.entries = (plain.FORMAT, other.entries) if other.entries else (known, [])
    file = ConfigFile(source.name, known.name, source.scope)
    if document.empty:
        file.report("", "expected servers or settings, the file is empty")
    elif known is plain.FORMAT and not plain.fits(document.content):
        choices = ", ".join(f"`{key}`" for key in plain.KEYS)
        file.report("", f"expected servers under one of {choices}")
    file.take(document, reading, source, host)
    return file


def _recognised(content: Mapping[str, Any], path: Path | None) -> Format:
    for known in FORMATS:
        if path is not None and any(_ends(path, ending) for ending in known.tails):
            return known
    return next((known for known in FORMATS if known.fits(content)), plain.FORMAT)


def _ends(path: Path, ending: str) -> bool:
    parts = ending.split("/")
    return list(path.parts[-len(parts) :]) == parts
