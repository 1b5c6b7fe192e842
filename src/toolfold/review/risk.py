"""How much harm a program may be up to, by the look of its text: a level, and the lines that give the reasons.

This is advice for a person and for the record. A program can always hide what it does from a reader of its text; what
holds it is the sandbox, and what its calls may do is decided call by call.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from toolfold.catalog.effects import effects_of
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.sandbox.guest.toolfold_guest import source

Level = Literal["low", "medium", "high"]
LEVELS: tuple[Level, ...] = ("low", "medium", "high")
Named = Callable[[str], ToolDefinition | None]
"""The tool that a full name such as `mcp__github__delete_repo` names."""

_LONGEST = 100_000
_MOST_REASONS = 20
_OWN_MODULES = frozenset({"servers", "skills", "toolfold", "client", "tool_discovery", "__future__"})
_MODULES: dict[str, tuple[Level, str]] = {
    **dict.fromkeys(("ctypes", "_ctypes", "cffi"), ("high", "calls machine code")),
    **dict.fromkeys(("subprocess", "multiprocessing", "pty", "_posixsubprocess"), ("medium", "starts processes")),
    **dict.fromkeys(("pickle", "marshal", "shelve"), ("medium", "loads objects that may be code")),
    **dict.fromkeys(("gc", "inspect", "code", "codeop", "dis"), ("medium", "looks into the interpreter")),
}
_FUNCTIONS: dict[str, tuple[Level, str]] = {
    **dict.fromkeys(("exec", "eval", "compile", "__import__"), ("high", "makes code while it runs")),
    **dict.fromkeys(("globals", "vars", "breakpoint"), ("medium", "looks into the interpreter")),
    "save_skill": ("medium", "writes a skill that later programs run"),
}
_ATTRIBUTES: dict[str, tuple[Level, str]] = {
    **dict.fromkeys(
        ("__subclasses__", "__globals__", "__builtins__", "__mro__", "__bases__", "__code__", "__closure__"),
        ("high", "reaches into the interpreter"),
    ),
    **dict.fromkeys(("_getframe", "get_objects", "get_referrers"), ("high", "reaches into the interpreter")),
    **dict.fromkeys(("system", "popen", "fork", "forkpty", "posix_spawn", "kill"), ("medium", "starts processes")),
    **dict.fromkeys(("execv", "execve", "execvp", "execl", "spawnv", "spawnl"), ("medium", "starts processes")),
    "import_module": ("medium", "imports by a name that is made while it runs"),
    "save_skill": _FUNCTIONS["save_skill"],
}
_PROCESS_MODULES = frozenset({"os", "posix"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WRITING = frozenset("wax+")


@dataclass(frozen=True)
class Reason:
    level: Level
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True)
class Risk:
    level: Level
    reasons: tuple[Reason, ...] = ()
    """The gravest first, then by line."""
    imports: tuple[str, ...] = ()
    """The modules that the program imports, beside Toolfold's own."""

    def __str__(self) -> str:
        return f"{self.level} risk" + (f": {'; '.join(map(str, self.reasons))}" if self.reasons else "")


def assess(code: str, names: ApiNames, tool: Callable[[str, str], ToolDefinition | None], named: Named) -> Risk:
    """The risk of a program. One that cannot be read counts as high; one that is no Python will not run."""
    if len(code) > _LONGEST:
        return Risk("high", (Reason("high", 0, f"it has more than {_LONGEST:,} characters and was not read"),))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree, _ = source.parse(code, "program.py")
        reader = _Reader(tree, names, tool, named)
        found = list(dict.fromkeys(reader.reasons()))
    except (SyntaxError, ValueError):
        return Risk("low")
    except (RecursionError, MemoryError):
        return Risk("high", (Reason("high", 0, "it is nested too deep to be read"),))
    levels: list[Level] = ["low", *(reason.level for reason in found)]
    level: Level = max(levels, key=LEVELS.index)
    found.sort(key=lambda reason: (-LEVELS.index(reason.level), reason.line))
    return Risk(level, tuple(found[:_MOST_REASONS]), tuple(sorted(reader.imported - _OWN_MODULES)))


class _Reader:
    def __init__(
        self,
        tree: ast.Module,
        names: ApiNames,
        tool: Callable[[str, str], ToolDefinition | None],
        named: Named,
    ) -> None:
        self._tree = tree
        self._names = names
        self._tool = tool
        self._named = named
        self.imported: set[str] = set()
        self._bound: dict[str, str] = {}
        """Name in the program → the dotted name that it was imported by."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported.add(alias.name.partition(".")[0])
                    self._bound[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.imported.add(node.module.partition(".")[0])
                self._bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def reasons(self) -> Iterator[Reason]:
        """In one walk, however deep the program nests."""
        calls: list[tuple[ast.Call, bool, str]] = []
        pending: list[tuple[ast.AST, bool, str]] = [(self._tree, False, "")]
        while pending:
            node, looped, function = pending.pop()
            if isinstance(node, ast.Call):
                calls.append((node, looped, function))
                yield from self._of_call(node)
            elif isinstance(node, ast.Import):
                yield from _of_modules(node.lineno, [alias.name for alias in node.names])
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from _of_modules(node.lineno, [node.module])
            elif isinstance(node, ast.Attribute) and node.attr[0] == "_" and (found := _ATTRIBUTES.get(node.attr)):
                yield Reason(found[0], node.lineno, f"`{node.attr}` {found[1]}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node.name
            looped = looped or isinstance(node, _LOOPS)
            pending.extend((child, looped, function) for child in ast.iter_child_nodes(node))
        harms = {id(node): harm for node, _, _ in calls if (harm := self._harm(node))}
        own = self._harmful_functions(calls, harms)
        for node, looped, _ in calls:
            harm = harms.get(id(node))
            if harm:
                yield Reason("medium", node.lineno, f"calls {harm}")
            if looped and (harm := harm or own.get(_called(node))):
                yield Reason("high", node.lineno, f"calls {harm} in a loop")

    def _of_call(self, node: ast.Call) -> Iterator[Reason]:
        path = self._path(node.func).removeprefix("builtins.")
        name = path.rpartition(".")[2]
        found = _FUNCTIONS.get(path) or (_FUNCTIONS["save_skill"] if path == "toolfold.save_skill" else None)
        if found is None and "." in path and (known := _ATTRIBUTES.get(name)):
            process = known[1] == "starts processes"
            found = known if not process or path.partition(".")[0] in _PROCESS_MODULES else None
        if found is not None:
            yield Reason(found[0], node.lineno, f"`{name}` {found[1]}")
        if name in {"open", "write_text", "write_bytes"} and _writes_skill(node, name):
            yield Reason("medium", node.lineno, "writes a skill that later programs run")

    def _harmful_functions(self, calls: list[tuple[ast.Call, bool, str]], harms: dict[int, str]) -> dict[str, str]:
        """The program's own functions that call a destructive tool, directly or through one another."""
        found = {function: harms[id(node)] for node, _, function in calls if function and id(node) in harms}
        callers: dict[str, set[str]] = {}
        for node, _, function in calls:
            callers.setdefault(_called(node), set()).add(function)
        pending = list(found)
        while pending:
            known = pending.pop()
            for function in callers.get(known, ()):
                if function and function not in found:
                    found[function] = found[known]
                    pending.append(function)
        return found

    def _harm(self, node: ast.Call) -> str:
        """The destructive tool that a call is of, as policies write it; empty when it is of none."""
        path = self._path(node.func)
        tool: ToolDefinition | None = None
        if path.startswith("servers."):
            parts = path.split(".")
            target = self._names.resolve(parts[1], parts[-1]) if len(parts) > 2 else None
            tool = self._tool(*target) if target is not None else None
        elif path.rpartition(".")[2] in {"call_mcp_tool", "call_tool"} and node.args:
            first = node.args[0]
            tool = (
                self._named(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            )
        if tool is None or not effects_of(tool.name, tool.annotations).destructive:
            return ""
        return f"{tool.server}.{tool.name}, which is destructive"

    def _path(self, node: ast.expr) -> str:
        """`gh.delete_repo` as `servers.github.delete_repo`; what is no plain name is empty."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return f"?.{attributes[-1]}" if attributes else ""
        return ".".join([self._bound.get(node.id, node.id), *attributes])


def _of_modules(line: int, modules: Iterable[str]) -> Iterator[Reason]:
    for module in modules:
        if found := _MODULES.get(module.partition(".")[0]):
            yield Reason(found[0], line, f"`{module}` {found[1]}")


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _writes_skill(node: ast.Call, name: str) -> bool:
    parts = [node.func.value, *node.args] if isinstance(node.func, ast.Attribute) else node.args
    inner = [part for each in parts for part in (each, *(each.args if isinstance(each, ast.Call) else ()))]
    texts = [part.value for part in inner if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if not any(text.lstrip("./").startswith("skills/") or "/skills/" in text for text in texts):
        return False
    return name != "open" or any(not _WRITING.isdisjoint(text) for text in texts if len(text) <= 3)
