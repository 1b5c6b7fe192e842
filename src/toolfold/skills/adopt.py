"""Skills that were written for other agents: a folder with SKILL.md, scripts and references, but no skill.py.

Programs get one that is made from it: the functions of its Python scripts, where these can be imported, and a function
of the skill's name that returns its instructions and its text files. The folder's own files stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from toolfold.errors import SkillError
from toolfold.skills.folder import Skill
from toolfold.skills.function import MAX_SOURCE, defined, parsed
from toolfold.skills.names import check_module_name

MADE = "made"
"""The provenance of a skill.py that was made here."""
_ROOM = MAX_SOURCE - 10_000
_PLAIN = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


def adopted(skill: Skill) -> Skill:
    """The skill with a skill.py. One that has its own is returned as it is."""
    if skill.source:
        return skill
    check_module_name(skill.module)
    scripts = _scripts(skill)
    source = "\n\n".join(scripts.values())
    functions = [name for script in scripts.values() for name in _functions(parsed(script))]
    if skill.module not in functions:
        source = f"{source}\n\n{_reader(skill, functions, _ROOM - len(source))}".lstrip("\n")
    if any("from __future__ import annotations" in script for script in scripts.values()):
        source = "from __future__ import annotations\n\n" + source.replace("from __future__ import annotations\n", "")
    return replace(skill, source=source, provenance={**skill.provenance, MADE: "from SKILL.md"})


def outgoing(skill: Skill) -> Skill:
    """The skill as others get it: without a skill.py that was made here, nor what only concerns this machine."""
    source = "" if MADE in skill.provenance else skill.source
    kept = {key: value for key, value in skill.provenance.items() if key == "created"}
    return replace(skill, source=source, provenance=kept)


def _scripts(skill: Skill) -> dict[str, str]:
    """The Python files whose functions can be imported: they only define, and do not share names with each other."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    siblings = {path.rpartition("/")[2].removesuffix(".py") for path in skill.files if path.endswith(".py")}
    for path, content in sorted(skill.files.items()):
        if not path.endswith(".py") or len(content) > _ROOM // 2:
            continue
        try:
            text = content.decode().removeprefix("\ufeff").replace("\r\n", "\n")
            tree = parsed(text)
        except (SkillError, UnicodeDecodeError):
            continue
        names = set(_names(tree))
        room = _ROOM // 2 - sum(map(len, found.values()))
        is_usable = _functions(tree) and all(map(_only_defines, tree.body)) and siblings.isdisjoint(_imported(tree))
        if is_usable and names.isdisjoint(taken) and len(text) < room and _is_plain(tree, skill.module):
            found[path] = text.strip("\n") + "\n"
            taken |= names
    return found


def _is_plain(tree: ast.Module, module: str) -> bool:
    """Whether the skill's own name is free, or a function."""
    return module not in _names(tree) or defined(tree, module) is not None


def _only_defines(node: ast.stmt) -> bool:
    """Whether a statement does nothing that a person would notice when the module is imported."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return "__name__" in ast.unparse(node.test)
    return isinstance(node, _PLAIN)


def _functions(tree: ast.Module) -> list[str]:
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in found if not name.startswith("_")]


def _names(tree: ast.Module) -> Iterable[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _imported(tree: ast.Module) -> set[str]:
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in found}


def _reader(skill: Skill, functions: list[str], room: int) -> str:
    """A function that returns the texts of the skill, as far as they have room."""
    texts: dict[str, str] = {}
    left: list[str] = []
    files = {"SKILL.md": skill.body.encode(), **skill.files}
    for path, content in files.items():
        text = content.decode("utf-8", "ignore")
        if text.encode() != content or "\x00" in text or len(repr(text)) > room:
            left.append(path)
        else:
            texts[path] = text
            room -= len(repr(text)) + len(repr(path)) + 10
    about = [skill.description, "", "Instructions to read: without an argument the SKILL.md, else one of its files."]
    if len(texts) > 1:
        about.append(f"Files: {', '.join(path for path in texts if path != 'SKILL.md')[:1000]}.")
    if functions:
        about.append(f"Functions beside this one: {', '.join(functions)[:1000]}.")
    doc = "\n".join(about)
    body = "".join(f"    {path!r}: {text!r},\n" for path, text in texts.items())
    return (
        f"_TEXTS = {{\n{body}}}\n_NOT_HERE = {left[:50]!r}\n\n\n"
        f"def {skill.module}(path: str = 'SKILL.md') -> str:\n"
        f"    {doc!r}\n"
        "    if path not in _TEXTS:\n"
        "        why = 'is not a text, or too long' if path in _NOT_HERE else 'is not in this skill'\n"
        "        raise ValueError(f\"{path!r} {why}. Choose from {', '.join(_TEXTS)}.\")\n"
        "    return _TEXTS[path]\n"
    )
