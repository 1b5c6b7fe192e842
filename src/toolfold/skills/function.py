"""What a skill's source says of itself, read and never run: signature, words, examples, what it imports."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import Any

from toolfold.errors import SkillError

MAX_SOURCE = 100_000
"""Characters of a skill that is saved: what is longer is not reviewed either."""
_Def = ast.FunctionDef | ast.AsyncFunctionDef
_JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
}


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: str = ""
    default: str = ""

    def __str__(self) -> str:
        typed = f"{self.name}: {self.annotation}" if self.annotation else self.name
        return f"{typed} = {self.default}" if self.default else typed


@dataclass(frozen=True)
class Function:
    """The function that has the skill's name."""

    name: str
    is_async: bool
    arguments: str
    """As they are written between the parentheses."""
    parameters: tuple[Parameter, ...]
    returns: str
    doc: str
    skills: tuple[str, ...]
    """Other skills that the source imports, by their modules."""
    servers: tuple[str, ...]
    """Server modules that the source imports."""

    @property
    def signature(self) -> str:
        """`async sales_report(month: str) -> dict`"""
        returns = f" -> {self.returns}" if self.returns else ""
        return f"{'async ' if self.is_async else ''}{self.name}({self.arguments}){returns}"

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return " ".join(self.doc.split("\n\n", 1)[0].split())

    @property
    def has_examples(self) -> bool:
        if ">>>" not in self.doc:
            return False
        import doctest  # with a debugger and all: only where it is needed

        try:
            return bool(doctest.DocTestParser().get_examples(self.doc))
        except ValueError as error:
            raise SkillError(f"the examples in its docstring cannot be read: {error}") from None

    @property
    def input_schema(self) -> dict[str, Any]:
        """A JSON Schema of what it takes, as far as the type hints tell."""
        found = {one.name: _schema(one.annotation) for one in self.parameters}
        return {
            "type": "object",
            "properties": found,
            "required": [one.name for one in self.parameters if not one.default],
        }


def read_function(source: str, module: str) -> Function:
    """The function `module` of a skill. SkillError where the source is no Python, or has no such function."""
    tree = parsed(source)
    function = defined(tree, module)
    if function is None:
        there = [node.name for node in tree.body if isinstance(node, _Def)]
        other = f"; it has {', '.join(there[:5])}" if there else ""
        raise SkillError(f"skill.py must define the function {module!r}{other}")
    skills, servers = _imports(tree)
    return Function(
        name=module,
        is_async=isinstance(function, ast.AsyncFunctionDef),
        arguments=ast.unparse(function.args),
        parameters=tuple(_parameters(function.args)),
        returns=ast.unparse(function.returns) if function.returns is not None else "",
        doc=ast.get_docstring(function) or ast.get_docstring(tree) or "",
        skills=skills,
        servers=servers,
    )


def parsed(source: str) -> ast.Module:
    """The source as a module that compiles."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, "skill.py")
            compile(tree, "skill.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        shown = f" in `{error.text.strip()[:120]}`" if error.text and error.text.strip() else ""
        raise SkillError(f"{type(error).__name__} on line {error.lineno or 1}: {error.msg}{shown}") from None
    except ValueError as error:
        raise SkillError(f"skill.py is no Python: {error}") from None
    except (RecursionError, MemoryError):
        raise SkillError("skill.py is nested too deeply") from None
    return tree


def defined(tree: ast.Module, name: str) -> _Def | None:
    """The function of this name at the top level, also where `name = function` gives it the name."""
    functions = {node.name: node for node in tree.body if isinstance(node, _Def)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            for target in node.targets:
                if isinstance(target, ast.Name) and node.value.id in functions:
                    functions.setdefault(target.id, functions[node.value.id])
    return functions.get(name)


def named(source: str, module: str) -> str:
    """The source with its function under the skill's name: an only function of another name gets a second one."""
    tree = parsed(source)
    if defined(tree, module) is not None:
        return source
    functions = [node.name for node in tree.body if isinstance(node, _Def) and not node.name.startswith("_")]
    if len(functions) != 1:
        return source
    return f"{source.rstrip()}\n\n\n{module} = {functions[0]}\n"


def document(name: str, description: str, function: Function) -> str:
    """The Markdown of a SKILL.md: usage, inputs and outputs."""
    given = ", ".join(f"{one.name}=…" for one in function.parameters if not one.default)
    call = f"{'await ' if function.is_async else ''}{function.name}({given})"
    lines = [f"# {name}", "", description, "", "## Usage", "", "```python"]
    lines += [f"from skills import {function.name}", "", f"result = {call}", "```", "", "## Inputs", ""]
    lines += [f"- `{one}`" for one in function.parameters] or ["None."]
    lines += ["", "## Outputs", "", f"`{function.returns or 'Any'}`"]
    if function.servers or function.skills:
        needs = [f"`servers.{one}`" for one in function.servers] + [f"`skills.{one}`" for one in function.skills]
        lines += ["", "## Needs", "", ", ".join(needs)]
    if function.doc and " ".join(function.doc.split()) != description:
        lines += ["", "## Details", "", "```text", *function.doc.replace("```", "'''").splitlines(), "```"]
    return "\n".join(lines)


def _parameters(given: ast.arguments) -> list[Parameter]:
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    both = [*zip(plain, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [
        Parameter(
            argument.arg,
            ast.unparse(argument.annotation) if argument.annotation is not None else "",
            ast.unparse(default) if default is not None else "",
        )
        for argument, default in both
    ]


def _imports(tree: ast.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The skills and the server modules that the source imports anywhere."""
    found: dict[str, dict[str, None]] = {"skills": {}, "servers": {}}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            path = node.module.split(".")
            paths = [[*path, alias.name] for alias in node.names] if len(path) == 1 else [path]
        else:
            continue
        for path in paths:
            if path[0] in found and len(path) > 1 and path[1] != "*":
                found[path[0]][path[1]] = None
    return tuple(found["skills"]), tuple(found["servers"])


def _schema(annotation: str) -> dict[str, Any]:
    base = annotation.partition("[")[0].strip()
    return {"type": _JSON_TYPES[base]} if base in _JSON_TYPES and "|" not in annotation else {}
