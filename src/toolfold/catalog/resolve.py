"""From a name as a program or a person writes it to the tool that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from toolfold.catalog.entries import Allow, Entry
from toolfold.codegen.names import ApiNames
from toolfold.errors import UnknownTool

_SEPARATORS = ("__", ".", "/", ":")
_PREFIXES = ("mcp__", "servers.", "mcp.", "mcp/")
_SHOWN = 5
_LONGEST_SHOWN = 80
_LONGEST_LIST = 240
"""Characters of a server's tools in an error."""
_LIKELY_MEANT = 0.25
"""How much a name must look like the one written to be suggested before a list of the server's tools."""


class WrittenNames:
    """Every way to write a tool's name, over one state of the catalog."""

    def __init__(self, tools: Sequence[Entry], exact: Mapping[tuple[str, str], Entry], names: ApiNames) -> None:
        self._tools = tools
        self._exact = exact
        self._names = names

    @cached_property
    def _bare(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for tool in self._tools:
            for name in {tool.name, self._names.function(tool.server, tool.name)}:
                found.setdefault(name, []).append(tool)
        return found

    @cached_property
    def _loose(self) -> dict[tuple[str, str], list[Entry]]:
        """By names without their case and punctuation: `chrome-devtools.takeScreenshot` is not far from its name."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for tool in self._tools:
            function = self._names.function(tool.server, tool.name)
            for server in {folded(tool.server), folded(self._names.server(tool.server))}:
                for name in {folded(tool.name), folded(function)}:
                    found.setdefault((server, name), []).append(tool)
        return found

    def resolve(self, written: str, allow: Allow | None = None) -> Entry:
        """The one tool that `written` names. UnknownTool with the nearest names, or else the server's tools."""
        if allow is not None:
            return self._within(allow).resolve(written)
        found = self.matches(written)
        if len(found) == 1:
            return found[0]
        shown = written.strip()[:_LONGEST_SHOWN]
        if found:
            several = ", ".join(self.labels(found[:_SHOWN]))
            raise UnknownTool(f"{shown!r} is a tool of several servers.", hint=f"Write one of: {several}.")
        if not self._tools:
            raise UnknownTool(f"There is no tool {shown!r}.", hint="No tools are known yet.")
        server, name = self._server_in(written)
        if server is not None:
            message = f"{self._names.server(server)} has no tool {name[:_LONGEST_SHOWN]!r}."
            near = self._bare.get(name, [])[:_SHOWN] or self.nearest(name, least=_LIKELY_MEANT, server=server)
            if not near:
                raise UnknownTool(message, hint=self._tools_of(server))
        else:
            message = f"There is no tool {shown!r}."
            near = self.nearest(written)
        labels = ", ".join(self.labels(near))
        hint = f"Nearest: {labels}." if near else "search_tools() finds tools by what they do."
        raise UnknownTool(message, hint=hint)

    def _within(self, allow: Allow) -> WrittenNames:
        """The same names for a caller who may know of these tools only."""
        seen = [tool for tool in self._tools if allow(tool)]
        return WrittenNames(seen, {(tool.server, tool.name): tool for tool in seen}, self._names)

    def _server_in(self, written: str) -> tuple[str | None, str]:
        """The server that `written` begins with, in any of its spellings, and the rest."""
        return server_in(written, self._servers)

    @cached_property
    def _servers(self) -> dict[str, str]:
        spellings = {folded(self._names.server(tool.server)): tool.server for tool in self._tools}
        return spellings | {folded(tool.server): tool.server for tool in self._tools}

    def _tools_of(self, server: str) -> str:
        """`It has: create_issue, list_issues, … (42 in all).`"""
        functions = sorted(self._names.function(server, tool.name) for tool in self._tools if tool.server == server)
        shown = functions[:1]
        for function in functions[1:]:
            if len(", ".join([*shown, function])) > _LONGEST_LIST:
                break
            shown.append(function)
        more = f", … ({len(functions)} in all)" if len(shown) < len(functions) else ""
        return f"It has: {', '.join(shown)}{more}."

    def matches(self, written: str) -> list[Entry]:
        """The tools that `written` may name, the strictest reading that finds any: usually one or none."""
        written = written.strip()
        for text in dict.fromkeys([written, *(written.removeprefix(prefix) for prefix in _PREFIXES)]):
            pairs = list(_halves(text))
            for server, name in pairs:
                if tool := self._exact.get((server, name)):
                    return [tool]
            for server, name in pairs:
                resolved = self._names.resolve(server, name)
                if resolved is not None and resolved in self._exact:
                    return [self._exact[resolved]]
            if bare := self._bare.get(text):
                return bare
            for server, name in pairs:
                if loose := self._loose.get((folded(server), folded(name))):
                    return loose
        return []

    def nearest(
        self, written: str, count: int = _SHOWN, *, least: float = 0.2, server: str | None = None
    ) -> list[Entry]:
        """The tools (of one server, if given) that look most like `written`, nearest first, none below `least`."""
        wanted = folded(written.strip()[:200])
        pieces = _trigrams(wanted)
        if not wanted:
            return []
        scored: list[tuple[float, str, Entry]] = []
        for tool in self._tools:
            if server is not None and tool.server != server:
                continue
            name, whole = folded(tool.name), f"{folded(tool.server)}_{folded(tool.name)}"
            score = max(_overlap(pieces, _trigrams(name)), _overlap(pieces, _trigrams(whole)))
            if name.startswith(wanted):
                score += 0.5
            if score >= least:
                scored.append((-score, whole, tool))
        scored.sort(key=lambda one: one[:2])
        return [tool for _, _, tool in scored[:count]]

    def labels(self, tools: Iterable[Entry]) -> list[str]:
        return [f"{self._names.server(one.server)}.{self._names.function(one.server, one.name)}" for one in tools]


def server_in(written: str, servers: Mapping[str, str]) -> tuple[str | None, str]:
    """The server that a tool's name begins with, and the rest. `servers` has them by their folded names."""
    for text in (written.removeprefix(prefix) for prefix in (*_PREFIXES, "")):
        for server, name in _halves(text.strip()):
            if server := servers.get(folded(server)):
                return server, name
    return None, written


def nearest_words(written: str, known: Iterable[str], count: int = _SHOWN) -> list[str]:
    """Those of `known` that look most like `written`, nearest first."""
    wanted = folded(written)
    pieces = _trigrams(wanted)
    scored: list[tuple[float, str]] = []
    for one in known:
        name = folded(one)
        begins = 0.5 if wanted and name.startswith(wanted) else 0.0
        scored.append((-_overlap(pieces, _trigrams(name)) - begins, one))
    return [one for score, one in sorted(scored) if score <= -0.15][:count]


def _halves(text: str) -> Iterable[tuple[str, str]]:
    """Every way to cut `text` into a server and a tool: either may hold a separator itself."""
    for separator in _SEPARATORS:
        at = text.find(separator)
        while at > 0:
            yield text[:at], text[at + len(separator) :]
            at = text.find(separator, at + 1)


def folded(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_")


def _trigrams(name: str) -> set[str]:
    padded = f"  {name} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


def _overlap(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b)
