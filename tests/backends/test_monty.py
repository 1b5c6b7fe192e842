"""Monty: what the subset lacks is named, and the process around it does nothing that a program can turn against us."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.available import candidate
from tests.backends.box import SETTINGS, Box, Host, box_around
from tests.typed_api import CALLS, FORMS
from toolfold.codegen.tree import write_tree
from toolfold.errors import SandboxDied
from toolfold.sandbox.monty.worker import source
from toolfold.sandbox.monty.worker.tree import Tree

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def monty(engine_data: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Box]:
    found = await candidate("monty", engine_data, SETTINGS)
    async with box_around(found.backend, tmp_path_factory.mktemp("monty")) as box:
        yield box


async def test_nothing_is_left_of_an_interpreter_whose_driver_was_killed(monty: Box) -> None:
    assert await monty.printed("print(1)") == "1\n"
    assert monty.sandbox is not None
    [driver] = _drivers(monty)
    busy = asyncio.create_task(monty.sandbox.run("while True: pass", Host(), 60))
    async with asyncio.timeout(30):
        while len(_group(driver)) < 2:
            await asyncio.sleep(0.01)
    os.kill(driver, signal.SIGKILL)
    with pytest.raises(SandboxDied):
        await busy
    assert _group(driver) == []
    assert await monty.printed("print(2)") == "2\n"


def _drivers(monty: Box) -> list[int]:
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"monty.worker.boot" in (words := path.read_bytes()) and str(monty.home.path).encode() in words
    ]


def _group(number: int) -> list[str]:
    """The living processes of a process group."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if group == str(number) and state != "Z":
                found.append(path.parent.name)
    return found


class TestSubset:
    @pytest.mark.parametrize(
        ("code", "named"),
        [
            ("def g():\n    yield 1", "yield expressions"),
            ("class A(Exception): pass", "class inheritance"),
            ("del x", "the 'del' statement"),
            ("import statistics", "the module `statistics`"),
            ("import urllib.parse", "the module `urllib`"),
            ("import asyncio\nasyncio.create_task(None)", "`asyncio.create_task`"),
            ("input()", "`input`"),
            ("x = globals", "`globals`"),
            ("import sys\nsys.exit(3)", "`sys.exit`"),
        ],
    )
    async def test_what_is_not_supported_is_named(self, monty: Box, code: str, named: str) -> None:
        ran = await monty.run(code)
        assert f"Monty, a subset of Python that does not support {named}" in ran.error

    async def test_a_package_that_no_python_has_is_not_blamed_on_the_subset(self, monty: Box) -> None:
        assert "subset" not in (await monty.run("import no_such_package")).error

    async def test_skills_say_that_they_need_another_backend(self, monty: Box) -> None:
        ran = await monty.run("from toolfold import save_skill\nsave_skill('def f(): pass', 'f')")
        assert "subset" in ran.error

    @pytest.mark.parametrize("code", ["keep('x', 1)", "show(b'x')", "kept['x']", "kept.get('x')", "sessions.list()"])
    async def test_keeping_and_showing_say_so_too(self, monty: Box, code: str) -> None:
        ran = await monty.run(f"from toolfold import keep, kept, sessions, show\n{code}")
        assert "subset" in ran.error

    async def test_the_evidence_says_that_it_is_a_subset(self, engine_data: Path) -> None:
        found = await candidate("monty", engine_data, SETTINGS)
        assert "subset of Python" in await found.title()


class TestCalls:
    async def test_only_what_is_awaited_here_is_called(self, monty: Box) -> None:
        ran = await monty.run("from servers.lab import echo\nlost = echo(text='lost')\nawait echo(text='kept')")
        assert ran.host.calls == [("echo", {"text": "kept"})]
        assert ran.error.startswith("NotAwaited: line 2: echo(...) was not awaited, so it never ran")

    async def test_a_call_of_an_earlier_program_cannot_be_awaited_later(self, monty: Box) -> None:
        await monty.run("from servers.lab import echo\nold = echo(text='x')")
        ran = await monty.run("await old")
        assert "make it again" in ran.error
        assert ran.host.calls == []

    async def test_arguments_that_are_not_json_are_refused(self, monty: Box) -> None:
        ran = await monty.run("from servers.lab import echo\nawait echo(text={1, 2})")
        assert "arguments must be plain JSON data" in ran.error
        assert ran.host.calls == []

    async def test_tool_error_may_be_imported_with_others_and_under_another_name(self, monty: Box) -> None:
        code = """
from toolfold import (
    progress,
    ToolError as Failed,
)
from servers.lab import boom
try:
    await boom()
except Failed as error:
    progress('caught')
    1/0
"""
        ran = await monty.run(code)
        assert ran.host.reported == [("caught", None)]
        assert "line 11: 1/0" in ran.error

    async def test_an_own_error_with_the_words_of_an_earlier_tool_error_is_not_the_tools(self, monty: Box) -> None:
        error = (await monty.run("from servers.lab import boom\nawait boom()")).error
        assert "ToolError: lab.boom: it went boom" in error
        error = (await monty.run("raise RuntimeError('it went boom')")).error
        assert error.endswith("RuntimeError: it went boom")


class TestLimits:
    async def test_memory_that_stays_full_ends_the_session_and_says_so(self, monty: Box) -> None:
        ran = await monty.run("y = []\nwhile True: y.append('z' * 100 + str(len(y)))", timeout=60)
        assert "The session's variables are gone." in ran.error
        assert "NameError" in (await monty.run("y")).error


class TestTheProcessAround:
    async def test_a_link_in_the_workspace_does_not_lead_a_result_outside(self, monty: Box, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        files = monty.home.workspace / "files"
        if files.exists():
            files.rename(monty.home.workspace / "files-before")
        files.symlink_to(outside)
        try:
            ran = await monty.run("from servers.lab import picture\nawait picture()")
        finally:
            files.unlink()
        assert ran.error or ran.failure
        assert list(outside.iterdir()) == []

    async def test_a_link_in_the_workspace_is_not_read(self, monty: Box, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        link = monty.home.workspace / "link"
        link.symlink_to(tmp_path / "secret")
        ran = await monty.run("print(open('workspace/link').read())")
        link.unlink()
        assert "secret" not in ran.output
        assert "PermissionError" in ran.error

    async def test_generated_code_is_read_and_never_run(self, monty: Box, tmp_path: Path) -> None:
        module = monty.api / "servers" / "lab" / "trap.py"
        sprung = tmp_path / "sprung"
        module.write_text(
            "from servers._call import tool\n"
            f"open({str(sprung)!r}, 'w').write('x')\n"
            f"@tool('lab', 'echo')\nasync def trap(text: str = open({str(sprung)!r}, 'w')) -> str:\n    ...\n"
        )
        await monty.close()
        ran = await monty.run("from servers.lab import trap\nprint(await trap(text='called'))")
        module.unlink()
        assert ran.output == "called\n"
        assert not sprung.exists()


class TestTree:
    def test_a_file_that_is_no_tool_is_none(self, tmp_path: Path) -> None:
        folder = tmp_path / "servers" / "x"
        folder.mkdir(parents=True)
        for number, text in enumerate(("", "x = (", "async def f(): ...", "@tool\nasync def f(): ...", "\0")):
            (folder / f"f{number}.py").write_text(text)
            assert Tree(tmp_path).tool(f"servers.x.f{number}") is None

    def test_renamed_keywords_and_optional_ones_go_over_the_wire_under_their_own_names(self, tmp_path: Path) -> None:
        folder = tmp_path / "servers" / "x"
        folder.mkdir(parents=True)
        text = """
@tool('x y', 'do-it', {'from_': 'from'})
async def do_it(from_: str, to: str = ...) -> str:
    'Doc.'
"""
        (folder / "do_it.py").write_text(text)
        tool = Tree(tmp_path).tool("servers.x.do_it")
        assert tool is not None
        assert (tool.server, tool.name, tool.doc) == ("x y", "do-it", "Doc.")
        assert tool.arguments((), {"from_": "a", "to": ...}) == {"from": "a"}
        assert tool.arguments(({"from": "b"},), {}) == {"from": "b"}
        for wrong in ({}, {"from_": "a", "too": "b"}):
            with pytest.raises(TypeError, match=re.escape("do_it(from_: str, to: str=...)")):
                tool.arguments((), wrong)
        assert tool.arguments(("a", "b"), {}) == {"from": "a", "to": "b"}

    def test_arguments_are_given_by_the_same_rule_as_in_python_itself(self, tmp_path: Path) -> None:
        write_tree(FORMS, tmp_path)
        tree = Tree(tmp_path)

        def sends(name: str) -> Callable[..., Any]:
            def call(*args: Any, **keywords: Any) -> Any:
                tool = tree.tool(f"servers.s.{name}")
                assert tool is not None
                return tool.arguments(args, keywords)

            return call

        names: dict[str, Any] = {tool.name: sends(tool.name) for tool in FORMS}
        for call, sent in CALLS:
            try:
                outcome = eval(call, {**names, "partial": partial})
            except TypeError as error:
                outcome = str(error).partition(". ")[0]
            assert outcome == sent, call


_names = st.sampled_from(["ToolError", "progress", "call_mcp_tool"])
_imports = st.lists(st.tuples(_names, st.sampled_from(["", " as other"])), min_size=1, max_size=4)


class TestSource:
    @given(_imports, st.booleans(), st.sampled_from(["toolfold", "client", "json"]), st.sampled_from(["", "    "]))
    def test_a_changed_import_keeps_every_line_and_is_python(
        self, imported: list[tuple[str, str]], spread: bool, module: str, indent: str
    ) -> None:
        names = [f"{name}{alias}" for name, alias in imported]
        listed = f"(\n{indent}    " + f",\n{indent}    ".join(names) + f",\n{indent})" if spread else ", ".join(names)
        opening = "if True:\n" if indent else "first = 'é'\n"
        code = f"{opening}{indent}from {module} import {listed}; after = 'ü'\nlast = 1"
        changed = source.adapted(code, ast.parse(code))
        tree = ast.parse(changed)
        assert changed.splitlines()[-1] == "last = 1"
        assert len(changed.splitlines()) == len(code.splitlines())
        assert source.names(tree) == source.names(ast.parse(code))
        if module != "json":
            assert not any(alias.name == "ToolError" for node in ast.walk(tree) for alias in getattr(node, "names", []))
        else:
            assert changed == code

    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("json.loads([1])", [1]),
            ("x = 'é'; json.loads('[1]') + json.loads([2])", [1, 2]),
            ("json.loads(\n    json.loads('[3]')\n)", [3]),
            ("json.loads('[1.5]', parse_float=str)", ["1.5"]),
        ],
    )
    def test_json_loads_takes_what_is_parsed_already(self, code: str, value: Any) -> None:
        changed = source.adapted(code, ast.parse(code))
        assert len(changed.splitlines()) == len(code.splitlines())
        *before, last = ast.parse(changed).body
        assert isinstance(last, ast.Expr)
        namespace: dict[str, Any] = {"json": json}
        exec(compile(ast.Module(before, []), "x", "exec"), namespace)
        assert eval(compile(ast.Expression(last.value), "x", "eval"), namespace) == value

    def test_names_are_those_of_the_top_level(self) -> None:
        code = """
import a.b, c as d
for i in x:
    j = i
def f(): inner = 1
class K: y = 2
[z for z in x]
_hidden = 1
if (w := 1): pass
"""
        assert source.names(ast.parse(code)) == {"a", "d", "i", "j", "f", "K", "w"}
