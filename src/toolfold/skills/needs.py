"""What a skill needs beside itself: tools and other skills, read from its code, and ranges of versions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolfold.errors import SkillError
from toolfold.skills.folder import Skill

_CALLERS = frozenset({"call_mcp_tool", "call_tool"})
_FULL_NAME = re.compile(r"mcp__(\w+?)__(\w+)")
_RANGE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,9}(?:\.\d{1,9}){0,3})")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w-]*)\s*(.*?)\s*")


@dataclass(frozen=True)
class Needs:
    tools: tuple[str, ...] = ()
    """As `server.tool` in the names of the typed API; `server.*` where the code does not say which."""
    skills: tuple[str, ...] = ()
    """Names of modules: `sales_report`."""


def needs_of(source: str) -> Needs:
    """What the code uses by name. What it makes up while it runs is not seen: this is for a person to read."""
    try:
        tree = ast.parse(source)
        used = {path for path in _paths(tree) if len(path) > 1}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Needs()
    servers = {path[1:3] for path in used if path[0] == "servers"}
    tools = {".".join(path) for path in servers if len(path) == 2}
    tools |= {
        f"{path[0]}.*" for path in servers if len(path) == 1 and not any(t.startswith(f"{path[0]}.") for t in tools)
    }
    skills = {path[1] for path in used if path[0] == "skills" and path[1] != "*"}
    return Needs(tuple(sorted(tools)), tuple(sorted(skills)))


def _paths(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Dotted names below `servers` and `skills` that are imported, read, or named in a call of a tool."""
    bound: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = tuple(alias.name.split("."))
                bound[alias.asname or path[0]] = path if alias.asname else path[:1]
                yield from _ours(path)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                path = (*node.module.split("."), alias.name)
                bound[alias.asname or alias.name] = path
                yield from _ours(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                names.insert(0, inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in bound:
                yield from _ours((*bound[inner.id], *names))
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _ours(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if path[0] in {"servers", "skills"}:
        yield path


def _called(node: ast.Call) -> Iterator[tuple[str, ...]]:
    """The tool that `call_mcp_tool("mcp__github__create_issue")` or `(server=, tool=)` names."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if function not in _CALLERS:
        return
    words = {word.arg: word.value for word in node.keywords if word.arg}
    given = [*node.args[:1], *(words[name] for name in ("server", "tool", "name") if name in words)]
    texts = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if len(texts) == 1 and (found := _FULL_NAME.fullmatch(texts[0])):
        yield "servers", found[1], found[2]
    elif len(texts) == 2:
        yield "servers", *texts


def requirements_of(skill: Skill) -> dict[str, str]:
    """The ranges that its author wrote: `metadata: {requires: "toolfold>=0.1, other-skill>=2 <4"}` in SKILL.md."""
    metadata = skill.fields.get("metadata")
    written = cast("Mapping[str, Any]", metadata).get("requires", "") if isinstance(metadata, Mapping) else ""
    found: dict[str, str] = {}
    for part in str(written).split(","):
        if not part.strip():
            continue
        match = _REQUIREMENT.fullmatch(part)
        if match is None or not is_range(match[2]):
            raise SkillError(
                f"Invalid requirement {part.strip()[:80]!r} in SKILL.md.",
                hint="Write `requires: toolfold>=0.1, other-skill>=2 <4`.",
            )
        found[match[1].replace("_", "-")] = " ".join("".join(pair) for pair in _RANGE.findall(match[2]))
    return found


def is_range(text: str) -> bool:
    return not _RANGE.sub("", text).replace(",", "").strip()


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as `>=1.2 <2`. Anything is in an empty one, nothing in an invalid one."""
    if not is_range(wanted):
        return False
    return all(_compare(_numbers(version), sign, _numbers(limit)) for sign, limit in _RANGE.findall(wanted))


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,3}", version)
    numbers = [int(part) for part in found[0].split(".")] if found else [0]
    return tuple(numbers + [0] * (4 - len(numbers)))


def _compare(one: tuple[int, ...], sign: str, other: tuple[int, ...]) -> bool:
    return {
        ">=": one >= other,
        "<=": one <= other,
        "==": one == other,
        "!=": one != other,
        ">": one > other,
        "<": one < other,
    }[sign]
