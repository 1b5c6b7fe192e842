"""The risk of a program by the look of its text, and what the settings make of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.office import office
from toolfold import ApprovalRequest, Finished, Question
from toolfold.codegen.names import ApiNames
from toolfold.config.policy import ReviewSettings
from toolfold.config.settings import Settings
from toolfold.definitions import ToolDefinition
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.programs import Programs
from toolfold.review.risk import Risk, assess
from toolfold.schema.validation import Validators

TOOLS = [
    ToolDefinition(server="hub", name="delete_repo"),
    ToolDefinition(server="hub", name="list_repos", annotations={"readOnlyHint": True}),
]
NAMES = ApiNames.of(TOOLS)


def risk(code: str) -> Risk:
    def tool(server: str, name: str) -> ToolDefinition | None:
        return next((one for one in TOOLS if (one.server, one.name) == (server, name)), None)

    return assess(code, NAMES, tool, lambda name: tool("hub", name.rpartition("__")[2]))


@pytest.mark.parametrize(
    ("code", "level", "reason"),
    [
        ("print(1)", "low", ""),
        ("from servers.hub import list_repos\nfor n in range(3): await list_repos()", "low", ""),
        ("this is no python", "low", ""),
        ("x = 1\nexec('y = 2')", "high", "line 2: `exec` makes code while it runs"),
        ("import builtins\nbuiltins.eval('1')", "high", "makes code"),
        ("import ctypes", "high", "line 1: `ctypes` calls machine code"),
        ("from ctypes.util import find_library", "high", "calls machine code"),
        ("import subprocess as s\ns.run(['ls'])", "medium", "`subprocess` starts processes"),
        ("import os\nos.system('ls')", "medium", "line 2: `system` starts processes"),
        ("import platform\nprint(platform.system())", "low", ""),
        ("().__class__.__mro__[1].__subclasses__()", "high", "`__subclasses__` reaches into the interpreter"),
        ("from toolfold import save_skill\nsave_skill('x')", "medium", "line 2: `save_skill` writes a skill"),
        ("open('skills/a.py', 'w').write('x')", "medium", "writes a skill"),
        ("open('skills/a.py').read()", "low", ""),
        ("open('workspace/a.py', 'w').write('x')", "low", ""),
        ("open('./skills/a.py', 'a')", "medium", "writes a skill"),
        ("import os\nopen(os.path.join('/agent/skills/', 'a.py'), 'x')", "medium", "writes a skill"),
        ("from pathlib import Path\nPath('workspace/skills.txt').write_text('')", "low", ""),
        ("from pathlib import Path\nPath('skills/a.py').write_text('')", "medium", "writes a skill"),
        ("from servers.hub import delete_repo\nawait delete_repo()", "medium", "calls hub.delete_repo, which is"),
        (
            "from servers.hub import delete_repo as d\nfor n in [1]:\n  await d()",
            "high",
            "line 3: calls hub.delete_repo",
        ),
        ("import servers.hub as h\n[await h.delete_repo() for n in [1]]", "high", "in a loop"),
        (
            # Through a function of its own.
            "from servers import hub\nasync def a(): await hub.delete_repo()\nb = lambda: a()\nwhile 1: await a()",
            "high",
            "line 4: calls hub.delete_repo",
        ),
        ("from toolfold import call_mcp_tool as c\nwhile 1: await c('mcp__hub__delete_repo', {})", "high", "in a loop"),
        ("'" + "x" * 100_001 + "'", "high", "was not read"),
        ("[" * 150 + "await h() for n in [1]" + " for n in [1]]" * 150, "low", ""),
    ],
)
def test_the_level_and_its_reason(code: str, level: str, reason: str) -> None:
    found = risk(code)
    assert found.level == level, found
    assert reason in str(found)


def test_the_gravest_reason_comes_first_and_imports_are_listed() -> None:
    found = risk("import json, os.path\nfrom servers.hub import delete_repo\nawait delete_repo()\neval('1')")
    assert [reason.level for reason in found.reasons] == ["high", "medium"]
    assert found.imports == ("json", "os")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("review", "code", "said"),
    [
        ({"high": "refuse"}, "eval('1')", "Programs of high risk are not run here: line 1: `eval` makes code"),
        ({"medium": "ask"}, "import subprocess", "need a person's approval, and there is nobody to ask"),
        ({"imports": ["json"]}, "import json, socket", "socket is not allowed. Allowed are json, and servers"),
    ],
)
async def test_a_program_is_refused_by_setting(runtime_dir: Path, review: dict[str, Any], code: str, said: str) -> None:
    async with office(runtime_dir, review=review, sandbox={"pool": 0}) as lab:
        refused = await lab.fold.run(code, check=False)
        fine = await lab.fold.run("import json\nfrom servers.office import create_note\nprint(await create_note())")
    assert refused.error is not None
    assert refused.error.text.startswith("Nothing was run. ")
    assert said in refused.error.text
    assert fine.output == "did create_note\n"


@pytest.mark.anyio
@pytest.mark.parametrize("yes", [True, False])
async def test_a_person_is_asked_about_a_program(runtime_dir: Path, yes: bool) -> None:
    asked: list[str] = []
    async with office(runtime_dir, review={"high": "ask"}, sandbox={"pool": 0}) as lab:
        async for event in lab.fold.stream("print(eval('1 + 1'))"):
            match event:
                case ApprovalRequest(question=question):
                    asked.append(question.text)
                    assert event.approve() if yes else event.deny()
                case Finished(result=result):
                    assert result.output == ("2\n" if yes else "")
                    assert yes or (result.error is not None and result.error.code == "approval_denied")
                case _:
                    pass
    assert asked == ["Run a program of high risk? line 1: `eval` makes code while it runs."]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("no", "A person refused to run this program."),
        ("yes", "A person refused to run this program."),
        (None, "A person refused to run this program."),
        (RuntimeError(), "This program was not allowed: asking a person failed."),
        ("never", "This program was not allowed: no person answered within 0.01 s."),
    ],
)
async def test_nothing_but_a_yes_lets_a_program_run(tmp_path: Path, answer: Any, said: str) -> None:
    async def ask(question: Question) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return await asyncio.get_running_loop().create_future() if answer == "never" else answer

    timeout = 0.01 if answer == "never" else 60
    settings = {"review": {"high": "ask"}, "approval": {"timeout": timeout}, "data_dir": tmp_path}
    programs = Chain(Settings.model_validate(settings), [], Validators()).programs
    run = RunContext("ada", None, Deadline(60), asker=ask)
    refused = await asyncio.wait_for(programs.refusal(run, lambda: risk("eval('1')")), 20)
    assert refused is not None
    assert (refused.code, refused.message) == ("approval_denied", said)
    assert refused.text == f"Nothing was run. {said}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("review", "recorded", "noted"),
    [
        ({}, False, "passed"),
        ({}, True, "passed, high risk: line 1: `eval` makes code while it runs"),
        ({"low": "ask"}, False, "passed, high risk: line 1: `eval` makes code while it runs"),
        ({"imports": []}, False, "passed, high risk: line 1: `eval` makes code while it runs"),
    ],
)
async def test_the_risk_is_worked_out_where_it_makes_a_difference(
    review: dict[str, Any], recorded: bool, noted: str
) -> None:
    run = RunContext("ada", None, Deadline(60))
    run.notes.review = "passed"
    programs = Programs(ReviewSettings.model_validate(review), recorded=recorded, timeout=1)
    assert await programs.refusal(run, lambda: risk("eval('1')")) is None
    assert run.notes.review == noted


def test_every_way_that_is_known_to_be_risky_is_named() -> None:
    """One line each; what stands beside them is harmless."""
    ways = {
        "high": [
            *(f"import {module}" for module in ("ctypes", "_ctypes", "cffi")),
            *(f"{function}('x')" for function in ("exec", "eval", "compile", "__import__")),
            *(
                f"x.{name}"
                for name in ("__subclasses__", "__globals__", "__builtins__", "__mro__", "__bases__", "__code__")
            ),
            "x.__closure__",
            "import sys\nsys._getframe(1)",
            "import gc\ngc.get_objects()",
            "from gc import get_referrers\nget_referrers(x)",
            "().get_objects()",
        ],
        "medium": [
            *(f"import {name}" for name in ("subprocess", "multiprocessing.pool", "pty", "_posixsubprocess", "pickle")),
            *(f"import {name}" for name in ("marshal", "shelve", "gc", "inspect", "code", "codeop", "dis")),
            *(f"{name}()" for name in ("globals", "vars", "breakpoint")),
            *(f"import os\nos.{name}()" for name in ("system", "popen", "fork", "forkpty", "posix_spawn", "kill")),
            *(f"import os\nos.{name}()" for name in ("execv", "execve", "execvp", "execl", "spawnv", "spawnl")),
            "from posix import fork as f\nf()",
            "import importlib\nimportlib.import_module(x)",
            "import toolfold\ntoolfold.save_skill('x')",
            "from pathlib import Path\nPath('skills/a.py').write_bytes(b'')",
            "open('skills/a.py', 'r+')",
            "from servers import hub\nawait hub.delete_repo.delete_repo()",
            "from client import get_client\nawait get_client().call_tool('mcp__hub__delete_repo', {})",
        ],
        "low": [
            "x.fork()",
            "x.kill()",
            "code = 1\ncompiled = 2",
            "import json, re, asyncio, os.path",
            "globals",
            "from servers import hub\nhub.delete_repo",
            "from servers.hub import nothing\nfor n in x: await nothing()",
            "await call_mcp_tool(name, {})",
            "from servers.hub import delete_repo\nfor n in x: print(n)",
        ],
    }
    assert [(level, code) for level, codes in ways.items() for code in codes if risk(code).level != level] == []


def test_a_destructive_call_is_found_through_functions_that_call_each_other() -> None:
    functions = "from servers.hub import delete_repo\nasync def a(): await delete_repo()\nasync def b(): await a()\n"
    functions += "async def c(): await b()\n"
    looped = "line 5: calls hub.delete_repo, which is destructive in a loop"
    assert risk(f"{functions}await c()").level == "medium"
    assert looped in str(risk(f"{functions}while x: await b()"))
    assert looped in str(risk(f"{functions}while x: await c()"))
    assert risk(f"{functions}async def d(): pass\nwhile x: await d()").level == "medium"


def test_reasons_are_so_many_the_gravest_first_and_each_once() -> None:
    code = "import subprocess\n" * 25 + "eval(eval('1'))\n"
    found = risk(code)
    assert len(found.reasons) == 20
    assert [reason.line for reason in found.reasons] == [26, *range(1, 20)]
    assert str(found.reasons[0]) == "line 26: `eval` makes code while it runs"
    assert risk("x" * 100_000).level == "low"
    assert str(risk("(" * 5000)) in {"low risk", "high risk: it is nested too deep to be read"}
