"""Every public name of the library, and every name that programs may import, is documented."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import toolfold
from toolfold import errors
from toolfold.guards.context import RunOptions
from toolfold.review.finding import Code

ROOT = Path(__file__).parents[1]
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
PROGRAMS = (ROOT / "docs" / "writing-programs.md").read_text(encoding="utf-8").partition("## Everything in")[2]
SOURCE = ROOT / "src" / "toolfold"
GUEST = SOURCE / "sandbox" / "guest"

NOT_FOR_USERS = {
    "ApprovalRequest": {"reply"},
    "Call": {"notes"},
    "RunContext": {"on_event", "asker", "privacy", "notes", "direct", "read_only", "session_of", "answered"}
    | {"session_key", "shown_session", "replied", "watch", "has_listeners", "printed", "owner"},
    "RunError": {"of"},
    "Settings": {"model_config", "uses_keyring"},
    "SkillsManager": {"saved"},
}
"""Public for other parts of Toolfold only."""


@cache
def words(page: str) -> set[str]:
    """Every word inside of code on the page."""
    code = "\n".join(re.findall(r"`([^`\n]+)`", page))
    return set(re.findall(r"\w+", code))


def own_members(name: str) -> set[str]:
    """The public methods, properties and fields of an exported class."""
    kind: Any = getattr(toolfold, name)
    if not inspect.isclass(kind) or kind is toolfold.Settings or issubclass(kind, Exception):
        return set()
    ours = [base for base in kind.__mro__ if base.__module__.startswith("toolfold")]
    found = {member for base in ours for member in (*vars(base), *getattr(base, "__annotations__", ()))}
    if kind is toolfold.Toolfold:
        found |= set(re.findall(r"^        self\.([a-z]\w*)(?:: .*)? = ", inspect.getsource(kind), re.MULTILINE))
    return {member for member in found if not member.startswith("_")} - NOT_FOR_USERS.get(name, set())


def parameters(function: Any) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in {"self", "cls"} and parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter.name


@pytest.mark.parametrize("name", toolfold.__all__)
def test_an_exported_name_is_documented_with_its_members(name: str) -> None:
    assert {name, *own_members(name)} - words(LIBRARY) == set()


def test_every_argument_of_the_library_is_documented() -> None:
    wanted: set[str] = set(get_type_hints(RunOptions))
    for name in ("open", "search", "run", "stream", "call", "refresh", "listed"):
        wanted |= set(parameters(getattr(toolfold.Toolfold, name)))
    assert wanted - words(LIBRARY) - {"send"} == set(), "`send` is for the gateway"


def test_every_error_and_its_code_is_in_the_table() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", LIBRARY.partition("What raises")[2], re.MULTILINE))
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.ToolfoldError)]
    assert table == {kind.__name__: kind.code for kind in kinds}


def test_every_code_of_a_failed_run_is_in_the_table() -> None:
    section = LIBRARY.partition("`error.code` of a result:")[2].partition("What raises")[0]
    shown = {
        code for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for code in re.findall(r"`(\w+)`", row)
    }
    made = set(get_args(Code))
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        made |= set(re.findall(r'RunError\(\s*code="(\w+)"|_refused\("(\w+)"', text)) if "RunError" in text else set()
    made = {code for found in made for code in ([found] if isinstance(found, str) else found) if code}
    results = (SOURCE / "session" / "results.py").read_text(encoding="utf-8")
    made |= set(re.findall(r': "(\w+)"', results)) | set(re.findall(r'code = "(\w+)"', results)) | {"program"}
    raised = {errors.PolicyDenied, errors.ApprovalDenied, errors.LimitExceeded, errors.SandboxDied}
    assert shown == made | {kind.code for kind in raised}


def guest_functions() -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """What the guest's modules define, by name. They cannot be imported here: `toolfold` is another module."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
    for module in ("api", "channel", "kept", "results", "sessions", "show"):
        for node in ast.parse((GUEST / "toolfold_guest" / f"{module}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.setdefault(node.name, node)
    return found


def exported_to_programs() -> list[str]:
    names: list[str] = []
    for module in ("toolfold", "client", "tool_discovery"):
        tree = ast.parse((GUEST / f"{module}.py").read_text(encoding="utf-8"))
        (value,) = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        names += ast.literal_eval(value)
    return sorted(set(names))


@pytest.mark.parametrize("name", exported_to_programs())
def test_what_programs_may_import_is_documented_with_its_arguments(name: str) -> None:
    classes = {"get_client": "Client", "sessions": "Sessions"}
    wanted = {name}
    node = guest_functions().get(name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        wanted |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    node = guest_functions().get(classes.get(name, name))
    if isinstance(node, ast.ClassDef):
        functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        wanted |= {item.name for item in functions if not item.name.startswith("_")}
        wanted |= set(re.findall(r"self\.([a-z]\w*) = ", ast.unparse(node)))
        wanted |= {ast.unparse(target) for item in node.body if isinstance(item, ast.Assign) for target in item.targets}
    assert wanted - words(PROGRAMS) == set()
