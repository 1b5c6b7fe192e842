"""Real coding agents, from `toolfold fold` to the final answer, with a scripted model and four real servers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import AGENTS, Agent, Desk
from tests.clients.model import Model, serving
from tests.clients.tokens import FOLDED, Sent, direct, sent, table
from tests.clients.wires import Call

pytestmark = pytest.mark.timeout(300)

ANSWER = "The answer is 42, by six and seven."
# As its owner would write it before: what may be done without a question, and how long a question waits.
OURS = """\
# mine
[approval]
timeout = 1

[[policy.rules]]
match = "filesystem.write_file"
do = "allow"
"""


def steps(project: Path) -> list[Call]:
    """A search, a run with calls of three servers, a second run, a wrong call, and one that a person must allow."""
    notes, answer = str(project / "notes.txt"), str(project / "answer.txt")
    first = f"""
import asyncio
from servers.filesystem import read_text_file, write_file
from servers.git import git_status
from servers.time import convert_time

notes, status = await asyncio.gather(read_text_file(path={notes!r}), git_status(repo_path={str(project)!r}))
product = 6 * 7
await write_file(path={answer!r}, content=str(product))
when = await convert_time(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
print(notes)
print(status)
print(when)
"""
    second = "print('still', product)\nopen('workspace/kept.txt', 'w').write(str(product))"
    return [
        Call("search_tools", {"query": "write a file"}),
        Call("run_code", {"code": first}),
        Call("run_code", {"code": second}),
        Call("run_code", {"code": "print(open('workspace/kept.txt').read())\nfrom servers.git import git_comit"}),
        Call(
            "run_code", {"code": "from servers.memory import delete_entities\nawait delete_entities(entityNames=['a'])"}
        ),
    ]


@dataclass
class Story:
    """What a client did with its servers folded, and what was in its files."""

    desk: Desk
    model: Model
    exit_code: int
    said: str
    before: dict[Path, bytes | None]
    folded: dict[Path, bytes]


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    return request.param


@pytest.fixture(scope="module")
def story(agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Generator[Story]:
    home = tmp_path_factory.mktemp(agent.name)
    model = Model(steps(home / "project"), ANSWER)
    with serving(model):
        desk = Desk(agent, home, model.address)
        ours = home / ".config" / "toolfold" / "toolfold.toml"
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text(OURS)
        files = [desk.file, ours, home / ".claude" / "settings.json"]
        before = {path: path.read_bytes() if path.exists() else None for path in files}
        done = desk.toolfold("fold", agent.name, "--yes")
        assert done.returncode == 0, done.stderr
        folded = {path: path.read_bytes() for path in files if path.exists()}
        done = desk.ask()
        yield Story(desk, model, done.returncode, done.stdout + done.stderr, before, folded)


def test_both_tools_are_in_its_first_request(story: Story) -> None:
    names = [name for name in story.model.asked[0].tools if name.endswith(("search_tools", "run_code"))]
    assert len(names) == 2
    assert not story.desk.owned(story.model.asked[0], *story.desk.servers)


def test_it_reaches_the_final_answer_without_asking_or_failing(story: Story) -> None:
    assert ANSWER in story.said
    assert story.exit_code == 0
    assert len(story.model.results) == 5


def test_the_model_is_told_what_it_searched_for(story: Story) -> None:
    assert "from servers.filesystem import write_file" in story.model.results[0]


def test_a_run_calls_the_real_servers(story: Story) -> None:
    first = story.model.results[1]
    assert "six by seven" in first
    assert "Untracked files" in first
    assert "21:00" in first
    assert (story.desk.project / "answer.txt").read_text() == "42"


def test_variables_and_files_are_still_there_in_the_next_run(story: Story) -> None:
    assert "still 42" in story.model.results[2]


def test_the_model_is_told_of_a_mistake_before_anything_runs(story: Story) -> None:
    told = story.model.results[3]
    assert "Nothing was run." in told
    assert "git_commit" in told


def test_the_model_is_told_how_a_person_allows_what_nobody_was_there_to_allow(story: Story) -> None:
    told = story.model.results[4]
    assert "memory.delete_entities was not allowed" in told
    assert "toolfold policy allow" in told
    assert "said no" not in told


def test_unfold_puts_its_files_back(story: Story) -> None:
    changed = {path for path, data in story.folded.items() if path.read_bytes() != data}
    done = story.desk.toolfold("unfold", story.desk.agent.name, "--yes")
    assert done.returncode == 0, done.stderr
    for path, data in story.before.items():
        if path not in changed:
            assert (path.read_bytes() if path.exists() else None) == data
        else:
            assert data is not None
            assert servers_in(path.read_bytes()) == servers_in(data)
    assert story.desk.home / ".config" / "toolfold" / "toolfold.toml" not in changed


def servers_in(data: bytes) -> Any:
    try:
        content = json.loads(re.sub(rb"(?m)^//.*", b"", data))
    except ValueError:
        content = tomllib.loads(data.decode())
    return next(content[key] for key in ("mcpServers", "mcp_servers", "mcp") if key in content)


MEASURED: list[tuple[Agent, Sent, Sent]] = []


def test_folded_definitions_are_a_fraction_of_direct_ones(story: Story, tmp_path: Path) -> None:
    after = sent(story.desk.owned(story.model.asked[0], *FOLDED))
    before = direct(story.desk.agent, tmp_path)
    MEASURED.append((story.desk.agent, before, after))
    assert after.tools == 2
    assert before.tools > 30
    assert after.tokens < before.tokens / 15


def test_the_readme_quotes_what_was_measured() -> None:
    if len(MEASURED) < len(AGENTS):
        pytest.skip("not every client was measured")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    quoted = re.search(r"<!-- clients -->\n```text\n(.*?)\n```", readme, re.DOTALL)
    assert quoted is not None
    assert quoted[1] == table(MEASURED)
