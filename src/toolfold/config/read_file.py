"""One config file read to the end: the servers it offers and the settings it gives, checked and expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolfold.config import code_execution, edge, overlay
from toolfold.config.documents import Document
from toolfold.config.edge import Host
from toolfold.config.entries import EntryReader, Skipped
from toolfold.config.expand import UnsetError, Variables
from toolfold.config.problems import Problem, one_line
from toolfold.config.readers.shape import Reading, Scope, Source
from toolfold.config.settings import ServerConfig


@dataclass(frozen=True, slots=True)
class Offer:
    """A server that a file offers, before it is known who wins."""

    name: str
    server: ServerConfig | Skipped
    scope: Scope


@dataclass(slots=True)
class ConfigFile:
    """One file that was read, or could not be."""

    name: str
    format: str
    scope: Scope
    offers: list[Offer] = field(default_factory=list[Offer])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """By dotted name."""
    denied: set[str] = field(default_factory=set[str])
    """Servers of the project's shared file that this one refuses."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])

    def report(self, key: str, expected: str, server: str = "") -> None:
        self.problems.append(Problem(self.name, key, expected, server))

    def take(self, document: Document, reading: Reading, source: Source, host: Host) -> None:
        """Turns what a reader found into offers and settings."""
        variables = Variables(
            env=host.env,
            project=host.cwd,
            home=host.home,
            platform=host.platform,
            inputs=reading.inputs,
            bare=reading.bare_variables,
        )
        self.problems += reading.problems
        self.denied = reading.denied
        self.skipped |= reading.skipped
        for name in sorted({entry.name for entry in reading.entries} & set(document.duplicates)):
            self.report(name, "expected each server once; the last one counts", name)
        reader = EntryReader(self.name, variables, self.problems)
        for entry in reading.entries:
            server = reader.read(entry.name, entry.value, key=entry.key, dialect=entry.dialect)
            if server is not None:
                self.offers.append(Offer(entry.name, server, entry.scope))
        self._take_settings(document, reading, variables)
        self._make_paths_absolute(source.path.parent if source.path else host.cwd, host.home)

    def _take_settings(self, document: Document, reading: Reading, variables: Variables) -> None:
        """Our own names win over `mcpCodeExecution` in the same file."""
        layers = [self._checked(reading.settings, variables, {})]
        blocks = [*reading.blocks]
        if code_execution.KEY in document.content:
            blocks.append(document.content[code_execution.KEY])
        for block in blocks:
            mapped = code_execution.read(self._filled(block, variables), self._report_in_block)
            layers.append(self._checked(mapped, variables, code_execution.NAMES))
        for layer in reversed(layers):
            self.settings |= layer

    def _checked(self, values: Mapping[str, Any], variables: Variables, names: Mapping[str, str]) -> dict[str, Any]:
        found, problems = overlay.checked(values, file=self.name, variables=variables, names=names)
        self.problems += problems
        return found

    def _report_in_block(self, key: str, expected: str) -> None:
        self.report(f"{code_execution.KEY}.{key}".rstrip("."), expected)

    def _filled(self, block: object, variables: Variables) -> object:
        """The block with its variables filled in; a key that needs one without a value is reported and dropped."""
        if not isinstance(block, Mapping):
            return block
        filled: dict[str, Any] = {}
        for key, value in cast("Mapping[object, Any]", block).items():
            try:
                filled[str(key)] = overlay.expanded(value, variables)
            except UnsetError as unset:
                self._report_in_block(str(key), f"expected {one_line(unset.wanted)}; this is ignored")
        return filled

    def _make_paths_absolute(self, base: Path, home: Path) -> None:
        """A relative path in a file is relative to that file."""
        if "data_dir" in self.settings:
            self.settings["data_dir"] = edge.absolute(str(self.settings["data_dir"]), home=home, base=base)
        folders = self.settings.get("catalog_dirs")
        if folders is not None:
            self.settings["catalog_dirs"] = tuple(
                edge.absolute(str(folder), home=home, base=base) for folder in folders
            )
