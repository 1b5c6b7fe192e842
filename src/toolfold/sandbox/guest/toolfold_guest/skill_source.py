"""The source of a function that a program saves as a skill, with the imports that it needs elsewhere."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any


def skill_source(function: Callable[..., Any] | str, name: str | None, source: str | None) -> tuple[str, str]:
    """The name and the source of what is to be saved, whichever way round they were given."""
    if isinstance(function, str):
        if source is not None:
            function, name = source, name or function
        elif isinstance(name, str) and function.replace("-", "_").isidentifier():
            # The name first, then the source.
            function, name = name, function
        elif callable(name):
            return skill_source(name, function, None)
        found = re.findall(r"^(?:async )?def ([A-Za-z]\w*)", textwrap.dedent(function), re.MULTILINE)
        return name or (found[-1] if found else ""), textwrap.dedent(function)
    try:
        lines = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise ValueError("save_skill: give the source of the function as text") from None
    return name or function.__name__, "\n".join([*dict.fromkeys(_imports(function, lines)), "", "", lines]).lstrip()


def _imports(function: Any, source: str) -> Iterator[str]:
    """The program's imports of what the function uses."""
    plain = inspect.unwrap(function)
    space: dict[str, Any] = getattr(plain, "__globals__", {})
    used = _names(source)
    for filename in [name for name in linecache.cache if name.startswith("program")]:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            for node in ast.parse("".join(linecache.getlines(filename))).body:
                if not isinstance(node, ast.Import | ast.ImportFrom):
                    continue
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    if bound in used and isinstance(space.get(bound), types.ModuleType | Callable | type):
                        one = ast.ImportFrom(node.module, [alias], 0) if isinstance(node, ast.ImportFrom) else None
                        yield ast.unparse(one or ast.Import([alias]))


def _names(source: str) -> set[str]:
    with contextlib.suppress(SyntaxError, RecursionError):
        return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return set()
