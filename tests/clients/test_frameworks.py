"""The programs of docs/frameworks.md, each in its framework's environment, with a scripted model on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.agents import HOME
from tests.clients.model import Model, Writer, serving
from tests.clients.wires import Call
from tests.third_party import node
from toolfold.demo.fleet import demo_servers

pytestmark = pytest.mark.timeout(180)

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
FIRST = """
from servers.google_drive import get_sheet
rows = (await get_sheet(sheet_id="orders-2026"))["rows"]
pending = [row for row in rows if row["status"] == "pending"]
print(len(rows), "orders")
"""
SECOND = "print('pending:', len(pending))"
ANSWER = "Some orders are pending."
CALLS = [
    Call("search_tools", {"query": "read a spreadsheet"}),
    Call("run_code", {"code": FIRST}),
    Call("run_code", {"code": SECOND}),
    Call("run_code", {"code": "await get_sheet(sheet_id='nothing')"}),
]
SEARCH = "from toolfold import search_tools\nprint(await search_tools('read a spreadsheet'))"
WORDS = [
    f"Thought: find it.\n<code>\n{SEARCH}\n</code>",
    f"Thought: read it.\n<code>\n{FIRST}\n</code>",
    f"Thought: count them.\n<code>\n{SECOND}\n</code>",
    "Thought: once more.\n<code>\nawait get_sheet(sheet_id='nothing')\n</code>",
    f"Thought: that is it.\n<code>\nfinal_answer({ANSWER!r} if pending else 0)\n</code>",
]


@dataclass(frozen=True)
class Framework:
    environment: str
    """A list of packages in tests/clients."""
    env: dict[str, str]
    """What points its model at ADDRESS, as its users would."""


OPENAI = {"OPENAI_BASE_URL": "ADDRESS/v1", "OPENAI_API_KEY": "scripted"}
FRAMEWORKS = {
    "pydantic-ai": Framework("frameworks", OPENAI),
    "openai-agents": Framework("frameworks", OPENAI | {"OPENAI_AGENTS_DISABLE_TRACING": "1"}),
    "LangChain and LangGraph": Framework("frameworks", OPENAI),
    "google-adk": Framework("frameworks", {"GOOGLE_GEMINI_BASE_URL": "ADDRESS", "GOOGLE_API_KEY": "scripted"}),
    "Claude Agent SDK": Framework(
        "frameworks",
        {
            "ANTHROPIC_BASE_URL": "ADDRESS",
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    ),
    "Strands": Framework("strands", OPENAI),
    "smolagents": Framework("smolagents", OPENAI),
}


def test_every_program_of_the_page_is_run() -> None:
    assert set(FRAMEWORKS) == {name for name, text in SECTIONS.items() if "```python" in text}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_program_searches_runs_code_twice_in_one_session_and_answers(name: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", SECTIONS[name], re.DOTALL)
    model = Writer(WORDS) if name == "smolagents" else Model(CALLS, ANSWER)
    with serving(model):
        done = run(program, FRAMEWORKS[name], model.address, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ANSWER in done.stdout
    told = model.asked[-1].turns if name == "smolagents" else model.results
    assert len(told) == len(CALLS), done.stdout + done.stderr
    assert "get_sheet" in told[0]
    assert "10000 orders" in told[1]
    assert re.search(r"pending: \d+", told[2])
    assert "no sheet nothing" in told[3]


def test_the_executor_keeps_its_promises_to_smolagents(tmp_path: Path) -> None:
    program = (Path(__file__).parent / "executor_program.py").read_text()
    done = run(program, FRAMEWORKS["smolagents"], "", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "left: []\n"


def run(program: str, framework: Framework, address: str, home: Path) -> subprocess.CompletedProcess[str]:
    python = HOME / framework.environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the environment {framework.environment} is not installed: run scripts/test-clients")
    config = home / ".config" / "toolfold" / "toolfold.toml"
    config.parent.mkdir(parents=True)
    entry = demo_servers()["google_drive"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    config.write_text("\n".join(["[servers.google_drive]", *lines]))
    script = home / "program.py"
    script.write_text(program)
    programs = [Path(sys.executable).parent, HOME / "node_modules" / ".bin", Path(node()).parent, "/usr/bin", "/bin"]
    env = {key: value.replace("ADDRESS", address) for key, value in framework.env.items()}
    return subprocess.run(
        [python, script],
        cwd=home,
        env={"HOME": str(home), "PATH": os.pathsep.join(map(str, programs)), "LANG": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
