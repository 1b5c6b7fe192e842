"""The generated API, read as data. A signature is parsed, never imported: here no wall would hold what it did."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from toolfold.codegen.tree_runtime import Fit, Parameters


@dataclass(frozen=True)
class Tool:
    """One generated function: its parameters, and the tool that it calls."""

    server: str
    name: str
    signature: str
    doc: str
    parameters: Parameters

    def arguments(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """What goes over the wire. Raises TypeError, with the signature, for what the function would not take."""
        try:
            return self.parameters.fill(args, keywords)
        except TypeError as error:
            function = self.signature.partition("(")[0]
            raise TypeError(f"{function}() {error}. Signature: {self.signature}") from None


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
    names.discard("index")
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
    renamed: dict[str, str] = rest[0] if rest else {}
    parameters = [argument.arg for argument in function.args.args]
    needed = len(parameters) - len(function.args.defaults)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    first = function.args.args[0].annotation if parameters else None
    return Tool(
        server=str(server),
        name=str(tool),
        signature=f"{name}({ast.unparse(function.args)}){returns}",
        doc=ast.get_docstring(function) or "",
        parameters=Parameters(
            tuple(parameters),
            tuple(parameters[:needed]),
            function.args.kwarg is not None,
            {str(key): str(value) for key, value in renamed.items()},
            partial(_fit, first, _named_types(module)),
        ),
    )


def _named_types(module: ast.Module) -> dict[str, ast.AST]:
    """The types that a module defines, by name."""
    found: dict[str, ast.AST] = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


def _fit(annotation: ast.AST | None, types: Mapping[str, ast.AST], value: Mapping[str, Any]) -> Fit:
    """Whether a parameter of this type can be the object `value`."""
    match annotation:
        case ast.Name(id="Any") | ast.Subscript(value=ast.Name(id="dict")):
            return "any"
        case ast.BinOp(left, ast.BitOr(), right):
            return _best([_fit(part, types, value) for part in (left, right)])
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts)):
            return _best([_fit(part, types, value) for part in elts])
        case ast.Name(id=name) if name in types:
            return _fit(types[name], types, value)
        case ast.Constant(value=str() as quoted):
            return _fit(ast.parse(quoted, mode="eval").body, types, value)
        case ast.ClassDef(body=body):
            rows = [row for row in body if isinstance(row, ast.AnnAssign)]
            keys = {ast.unparse(row.target): row.annotation for row in rows}
            return _fit_keys(keys, value, partial=any(word.arg == "total" for word in annotation.keywords))
        case ast.Call(func=ast.Name(id="TypedDict"), args=[_, ast.Dict(keys, values)]):
            named = {ast.literal_eval(key): row for key, row in zip(keys, values, strict=True) if key is not None}
            return _fit_keys(named, value, partial=bool(annotation.keywords))
        case _:
            return "no"


def _best(fits: list[Fit]) -> Fit:
    return "keys" if "keys" in fits else "any" if "any" in fits else "no"


def _fit_keys(rows: Mapping[str, ast.AST], value: Mapping[str, Any], *, partial: bool) -> Fit:
    """`partial`: a key may be missing unless it is marked `Required`; else only if it is marked `NotRequired`."""

    def needed(annotation: ast.AST) -> bool:
        mark = annotation.value if isinstance(annotation, ast.Subscript) else None
        word = mark.id if isinstance(mark, ast.Name) else ""
        return word == "Required" if partial else word != "NotRequired"

    required = {key for key, annotation in rows.items() if needed(annotation)}
    return "keys" if required <= value.keys() <= rows.keys() else "no"
