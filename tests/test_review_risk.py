"""The risk of a program by the look of its text, and what the settings make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.office import office
from toolfold import ApprovalRequest, Finished
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.review.risk import Risk, assess

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
