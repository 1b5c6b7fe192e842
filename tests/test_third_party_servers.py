"""Programs over MCP servers that others wrote: three from npm, two from PyPI, all five in one fold."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.third_party import data_dir, npm_program, python_program, server
from toolfold import Toolfold
from toolfold.guards.events import Finished, Progress, RunResult, ToolCall

pytestmark = pytest.mark.anyio


class Five(NamedTuple):
    fold: Toolfold
    files: Path
    repo: Path
    graph: Path


@pytest.fixture(scope="module")
async def five(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Five]:
    """One fold over all five servers, with a folder, a repository and a memory of its own."""
    home = tmp_path_factory.mktemp("five").resolve()
    files, repo, graph = home / "files", home / "repo", home / "memory.jsonl"
    files.mkdir()
    _make_repository(repo)
    servers = {
        "everything": server(npm_program("mcp-server-everything")),
        "filesystem": server(npm_program("mcp-server-filesystem"), str(files)),
        "memory": server(npm_program("mcp-server-memory"), env={"MEMORY_FILE_PATH": str(graph)}),
        "time": server(python_program("mcp-server-time"), "--local-timezone", "UTC"),
        "git": server(python_program("mcp-server-git"), "--repository", str(repo)),
    }
    # Nobody is asked here, and these servers mark what overwrites a file as destructive.
    config = {"mcpServers": servers, "sandbox": {"pool": 1}, "policy": {"profile": "open"}}
    async with Toolfold.open(config, data_dir=data_dir(home, shared_runtime)) as fold:
        yield Five(fold, files, repo, graph)


def _make_repository(repo: Path) -> None:
    repo.mkdir()

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    for number in (1, 2, 3):
        (repo / "notes.txt").write_text(f"note {number}\n")
        git("add", "notes.txt")
        git("commit", "--quiet", "--message", f"Note number {number}")


async def ran(fold: Toolfold, code: str, session: str | None = None) -> RunResult:
    result = await fold.run(code, session=session)
    assert result.success, result.error
    return result


async def printed(fold: Toolfold, code: str, session: str | None = None) -> list[str]:
    return (await ran(fold, code, session)).output.splitlines()


async def test_every_server_is_listed_and_its_tools_are_found(five: Five) -> None:
    overview = (await five.fold.search("")).text
    assert five.fold.unlisted == {}
    for name in ("everything", "filesystem", "memory", "time", "git"):
        assert name in overview
    for question, tool in (
        ("show the commit history", "git_log"),
        ("what time is it in Tokyo", "convert_time"),
        ("write text to a file", "write_file"),
        ("create entities in the knowledge graph", "create_entities"),
    ):
        hits = await five.fold.search(question, detail="name_only", limit=5)
        assert tool in hits.text, f"{question}: {hits.text}"


async def test_a_file_is_written_and_read_back(five: Five) -> None:
    code = f"""
from servers.filesystem import directory_tree, read_text_file, write_file
path = {str(five.files / "report.txt")!r}
await write_file(path=path, content="héllo ✓\\nsecond line\\n")
read = await read_text_file(path=path, head=1)
print(read["content"].strip())
"""
    assert await printed(five.fold, code) == ["héllo ✓"]
    assert (five.files / "report.txt").read_text(encoding="utf-8") == "héllo ✓\nsecond line\n"


async def test_a_refusal_of_the_server_is_a_tool_error_with_its_words(five: Five) -> None:
    code = """
from servers.filesystem import read_text_file
from toolfold import ToolError
try:
    await read_text_file(path="/etc/hostname")
except ToolError as error:
    print(error.server, error.tool, "outside allowed directories" in str(error))
"""
    assert await printed(five.fold, code) == ["filesystem read_text_file True"]


async def test_a_wrong_argument_never_reaches_the_server(five: Five) -> None:
    result = await five.fold.run("from servers.time import convert_time\nawait convert_time(zone='UTC')")
    assert not result.success
    assert "source_timezone" in str(result.error)
    assert result.tool_calls == []


async def test_entities_are_remembered_and_found(five: Five) -> None:
    code = """
from servers.memory import create_entities, create_relations, search_nodes
likes = {"Ada": "looms", "Alan": "runs"}
await create_entities(
    entities=[{"name": who, "entityType": "person", "observations": [f"likes {what}"]} for who, what in likes.items()]
)
await create_relations(relations=[{"from": "Ada", "to": "Alan", "relationType": "inspires"}])
found = await search_nodes(query="looms")
print([entity["name"] for entity in found["entities"]])
"""
    assert await printed(five.fold, code) == ["['Ada']"]
    assert '"inspires"' in five.graph.read_text()


async def test_the_log_of_a_repository_is_read(five: Five) -> None:
    code = f"""
from servers.git import git_diff_unstaged, git_log, git_status
repo = {str(five.repo)!r}
history = await git_log(repo_path=repo, max_count=2)
print(str(history).count("Message:"), "Note number 3" in str(history), "Note number 1" in str(history))
"""
    assert await printed(five.fold, code) == ["2 True False"]


async def test_a_time_is_converted_as_typed_data(five: Five) -> None:
    code = """
from servers.time import convert_time
there = await convert_time(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
print(there["target"]["datetime"][11:16], there["time_difference"])
"""
    assert await printed(five.fold, code) == ["21:00 +9.0h"]


async def test_structured_content_arrives_as_the_declared_type(five: Five) -> None:
    code = """
from servers.everything import get_structured_content
weather = await get_structured_content(location="Chicago")
print(type(weather["temperature"]).__name__ in ("int", "float"), sorted(weather))
"""
    assert await printed(five.fold, code) == ["True ['conditions', 'humidity', 'temperature']"]


async def test_an_image_arrives_as_a_file_between_its_texts(five: Five) -> None:
    code = """
from servers.everything import get_tiny_image
before, image, after = await get_tiny_image()
data = open(image.path, "rb").read()
print(image.mime_type, data[:8] == b"\\x89PNG\\r\\n\\x1a\\n", len(data) == image.size, isinstance(before, str))
"""
    result = await ran(five.fold, code)
    assert result.output == "image/png True True True\n"


async def test_annotated_content_arrives(five: Five) -> None:
    code = """
from servers.everything import get_annotated_message
message, image = await get_annotated_message(messageType="error", includeImage=True)
print(message, image.mime_type)
"""
    assert await printed(five.fold, code) == ["Error: Operation failed image/png"]


async def test_links_and_embedded_resources_can_be_followed(five: Five) -> None:
    code = """
from servers.everything import get_resource_links, get_resource_reference, gzip_file_as_resource
from toolfold import read_resource
import gzip
_, first, second = await get_resource_links(count=2)
for link in (first, second):
    content = await read_resource("everything", link["uri"])
    text = content if isinstance(content, str) else open(content.path).read()
    print(link["uri"].rsplit("/", 2)[1], "Resource" in text)
_, embedded, _ = await get_resource_reference(resourceType="Text", resourceId=7)
print("Resource 7" in embedded)
packed = await gzip_file_as_resource(name="hello.gz", data="data:text/plain,hello", outputType="resource")
print(packed.mime_type, gzip.decompress(open(packed.path, "rb").read()))
"""
    lines = await printed(five.fold, code)
    assert sorted(lines[:2]) == ["blob True", "text True"]
    assert lines[2:] == ["True", "application/gzip b'hello'"]


async def test_a_resource_and_prompts_are_read(five: Five) -> None:
    code = """
from toolfold import get_prompt, read_resource
print((await read_resource("everything", "demo://resource/static/document/architecture.md")).splitlines()[0])
for name, arguments in [("simple-prompt", {}), ("args-prompt", {"city": "Paris"})]:
    message, = await get_prompt("everything", name, arguments)
    print(message["role"], message["content"]["text"])
"""
    title, simple, city = await printed(five.fold, code)
    assert title.startswith("#")
    assert simple.startswith("user ")
    assert city.startswith("user ")
    assert "Paris" in city


async def test_progress_of_a_long_call_is_heard_while_it_runs(five: Five) -> None:
    code = """
from servers.everything import trigger_long_running_operation
print(await trigger_long_running_operation(duration=0.4, steps=4))
"""
    events = [event async for event in five.fold.stream(code)]
    call = [index for index, event in enumerate(events) if isinstance(event, ToolCall)]
    heard = [index for index, event in enumerate(events) if isinstance(event, Progress)]
    assert heard, "no progress was heard"
    assert call[0] < heard[0] < heard[-1] < call[1], "progress belongs between the call and its end"
    assert isinstance(events[-1], Finished)
    assert events[-1].result.success, events[-1].result.error


async def test_one_program_moves_data_through_all_five(five: Five) -> None:
    """The point of it all: what moves between servers never leaves the sandbox; one line comes back."""
    target = five.files / "history.json"
    code = f"""
import asyncio, json
from servers.everything import get_sum
from servers.filesystem import read_text_file, write_file
from servers.git import git_log
from servers.memory import create_entities, open_nodes
from servers.time import get_current_time
now, history, total = await asyncio.gather(
    get_current_time(timezone="Europe/Paris"), git_log(repo_path={str(five.repo)!r}), get_sum(a=20, b=22)
)
subjects = [line.split(": ", 1)[1] for line in str(history).splitlines() if line.startswith("Message")]
report = {{"at": now["timezone"], "subjects": subjects, "sum": total}}
await write_file(path={str(target)!r}, content=json.dumps(report))
await create_entities(entities=[{{"name": "history", "entityType": "file", "observations": subjects}}])
saved = json.loads((await read_text_file(path={str(target)!r}))["content"])
kept = (await open_nodes(names=["history"]))["entities"][0]["observations"]
print(len(subjects), saved["subjects"] == kept == subjects, saved["at"], "42" in saved["sum"])
"""
    result = await ran(five.fold, code)
    assert result.output == "3 True Europe/Paris True\n"
    assert {call.server for call in result.tool_calls} == {"everything", "filesystem", "git", "memory", "time"}
    assert "Note number 3" in target.read_text()


async def test_calls_to_one_server_really_overlap(five: Five) -> None:
    """Twenty operations of 0.5 s each; one after another would take the whole time limit of the run and more."""
    code = """
import asyncio
from servers.everything import trigger_long_running_operation
done = await asyncio.gather(*[trigger_long_running_operation(duration=0.5, steps=1) for _ in range(20)])
print(len(done))
"""
    result = await asyncio.wait_for(five.fold.run(code, timeout=8), 30)
    assert result.output == "20\n", result.error
