"""The generated API, read as data. A signature is parsed, never imported: here no wall would hold what it did."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Tool:
    """One generated function: its keywords, and the tool that it calls."""

    server: str
    name: str
    signature: str
    doc: str
    required: tuple[str, ...]
    known: tuple[str, ...]
    any_keyword: bool
    renamed: dict[str, str] = field(default_factory=dict[str, str])

    def arguments(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """What goes over the wire. Raises TypeError, with the signature, for what the function would not take."""
        if args:
            if len(args) != 1 or keywords or not isinstance(args[0], dict):
                raise TypeError(f"use keywords or one dict: {self.signature}")
            return {**args[0]}
        given = {key: value for key, value in keywords.items() if value is not ...}
        missing = [name for name in self.required if name not in given]
        unknown = [] if self.any_keyword else [name for name in given if name not in self.known]
        for problem, words in (("misses", missing), ("does not know", unknown)):
            if words:
                named = ", ".join(map(repr, words[:8]))
                raise TypeError(f"{self.signature.partition('(')[0]}() {problem} {named}: {self.signature}")
        return {self.renamed.get(key, key): value for key, value in given.items()}


class Tree:
    """`servers/` of one API folder."""

    def __init__(self, api: Path) -> None:
        self._servers = api / "servers"
        self._tools: dict[str, Tool] = {}
        self.version = ""

    def refresh(self) -> bool:
        """Whether the tree is another one than before."""
        try:
            status = self._servers.stat()
            version = f"{self._servers.resolve()} {status.st_ino} {status.st_mtime_ns}"
        except OSError:
            version = ""
        if version == self.version:
            return False
        self.version = version
        self._tools.clear()
        return True

    def servers(self) -> dict[str, list[str]]:
        """The importable names of every server."""
        return {name: _names(self._servers / name) for name in _names(self._servers)}

    def tool(self, path: str) -> Tool | None:
        """The tool that agent code knows as `servers.SERVER.NAME`."""
        if path not in self._tools:
            _, server, name = path.split(".") if path.count(".") == 2 else ("", "", "")
            if not server.isidentifier() or not name.isidentifier():
                return None
            found = _read(self._servers / server / f"{name}.py", name)
            if found is None:
                return None
            self._tools[path] = found
        return self._tools[path]

    def near(self, path: str, name: str) -> list[str]:
        """Names close to one that does not exist in `servers` or `servers.SERVER`."""
        folder = self._servers.joinpath(*path.split(".")[1:])
        return difflib.get_close_matches(name, _names(folder), 3, 0.5)

    def modules(self, make: Callable[[dict[str, Any]], Any]) -> Any:
        """The whole tree as nested modules of placeholders; calls come back by their dotted name."""
        return make({server: make(dict.fromkeys(names, _placeholder)) for server, names in self.servers().items()})


def _placeholder(*args: Any, **keywords: Any) -> NoReturn:
    raise AssertionError("calls are answered by name")


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = {entry.name.removesuffix(".py") for entry in entries}
    except OSError:
        return []
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))


def _read(path: Path, name: str) -> Tool | None:
    try:
        module = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    functions = (node for node in module.body if isinstance(node, ast.AsyncFunctionDef))
    function = next((node for node in functions if node.decorator_list), None)
    if function is None or not isinstance(function.decorator_list[0], ast.Call):
        return None
    server, tool, *rest = (ast.literal_eval(argument) for argument in function.decorator_list[0].args)
    keywords = {word.arg: ast.literal_eval(word.value) for word in function.decorator_list[0].keywords}
    renamed: dict[str, str] = rest[0] if rest else keywords.get("renamed") or {}
    words = [argument.arg for argument in function.args.kwonlyargs]
    defaults = function.args.kw_defaults
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    return Tool(
        server=str(server),
        name=str(tool),
        signature=f"{name}({ast.unparse(function.args)}){returns}",
        doc=ast.get_docstring(function) or "",
        required=tuple(word for word, default in zip(words, defaults, strict=True) if default is None),
        known=tuple(words),
        any_keyword=function.args.kwarg is not None,
        renamed={str(key): str(value) for key, value in renamed.items()},
    )
