"""The API tree on disk and in a Python that imports it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.typed_api import CALLS, FORMS, run_with_tree, simple
from toolfold.codegen import tree
from toolfold.codegen.tree import write_tree
from toolfold.definitions import ToolDefinition
from toolfold.errors import ConfigError

TOOLS = [
    simple("create_issue", "github", owner_={"type": "string"}, repo_={"type": "string"}, labels={"type": "array"}),
    simple("list-issues", "github", **{"If-Match": {"type": "string"}, "from": {"type": ["string", "null"]}}),
    simple("self", "my server", self_={"type": "string"}, name={"type": "string"}, args={"type": "object"}),
]


def contents(dest: Path) -> dict[str, bytes]:
    root = dest / "servers"
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def changed(tool: ToolDefinition, **fields: Any) -> ToolDefinition:
    return msgspec.structs.replace(tool, **fields)


# --- on disk


def test_the_same_catalog_gives_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    one = write_tree(TOOLS, tmp_path / "one")
    two = write_tree(TOOLS[::-1], tmp_path / "two")
    assert one.version == two.version
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_nothing_changed_writes_nothing(tmp_path: Path) -> None:
    first = write_tree(TOOLS, tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = write_tree(TOOLS, tmp_path)
    assert (first.written, first.unchanged, first.removed) == (3, 0, 0)
    assert (again.written, again.unchanged, again.removed) == (0, 3, 0)
    assert again.version == first.version
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


def test_only_the_changed_tool_is_written_again(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    kept = (tmp_path / "servers/github/list_issues.py").stat().st_ino
    report = write_tree([changed(TOOLS[0], description="Other."), *TOOLS[1:]], tmp_path)
    assert (report.written, report.unchanged, report.removed) == (1, 2, 0)
    assert (tmp_path / "servers/github/list_issues.py").stat().st_ino == kept
    assert "Other." in (tmp_path / "servers/github/create_issue.py").read_text()
    assert "create_issue: Other." in (tmp_path / "servers/github/__init__.py").read_text()


def test_a_tool_that_is_gone_leaves_no_file(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    report = write_tree(TOOLS[1:], tmp_path)
    assert (report.written, report.unchanged, report.removed) == (0, 2, 1)
    assert not (tmp_path / "servers/github/create_issue.py").exists()
    assert write_tree([], tmp_path).removed == 2
    assert list(contents(tmp_path)) == ["__init__.py", "__init__.pyi", "_call.py"]


def test_an_incremental_tree_equals_a_fresh_one(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path / "old")
    later = [*TOOLS[1:], simple("list_issues", "github"), simple("new", "third")]
    write_tree(later, tmp_path / "old")
    write_tree(later, tmp_path / "fresh")
    assert contents(tmp_path / "old") == contents(tmp_path / "fresh")


def test_a_reader_keeps_the_version_it_opened_and_the_link_moves_in_one_step(tmp_path: Path) -> None:
    before = write_tree(TOOLS, tmp_path)
    write_tree(TOOLS[:1], tmp_path)
    assert (before.path / "my_server" / "self.py").is_file()
    assert not (tmp_path / "servers" / "my_server").exists()
    assert (tmp_path / "servers").is_symlink()


def test_old_versions_do_not_pile_up(tmp_path: Path) -> None:
    for number in range(8):
        write_tree([changed(TOOLS[0], description=f"Version {number}.")], tmp_path)
    assert len(list((tmp_path / ".trees").glob("[!.]*"))) == 3
    assert "Version 7." in (tmp_path / "servers/github/create_issue.py").read_text()


def test_a_write_that_fails_leaves_the_old_tree_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(TOOLS, tmp_path)
    before = contents(tmp_path)
    render = tree.render.module

    def breaks(names: Any, tool: ToolDefinition) -> str:
        if tool.name == "self":
            raise OSError("the disk is full")
        return render(names, tool)

    monkeypatch.setattr(tree.render, "module", breaks)
    with pytest.raises(OSError, match="disk is full"):
        write_tree([changed(tool, description="New.") for tool in TOOLS], tmp_path)
    assert contents(tmp_path) == before
    assert {path.name for path in (tmp_path / ".trees").iterdir()} == {write_tree(TOOLS, tmp_path).version}
    assert [path.name for path in _state(tmp_path).iterdir() if path.is_dir()] == []


def _state(dest: Path) -> Path:
    return dest.with_name(f".{dest.name}.state")


def test_a_tree_holds_nothing_but_the_link_and_whole_versions(tmp_path: Path) -> None:
    """Programs see all of it: what a writer waits for, notes or builds must be somewhere else."""
    dest = tmp_path / "api"
    versions = {write_tree([changed(TOOLS[0], description=text)], dest).version for text in ("One.", "Two.")}
    assert {path.name for path in dest.iterdir()} == {"servers", ".trees"}
    assert {path.name for path in (dest / ".trees").iterdir()} == versions
    assert all([path.name for path in home.iterdir()] == ["servers"] for home in (dest / ".trees").iterdir())


def test_the_notes_of_versions_that_are_gone_are_gone(tmp_path: Path) -> None:
    dest = tmp_path / "api"
    for number in range(8):
        write_tree([changed(TOOLS[0], description=f"Version {number}.")], dest)
    kept = {f"{path.name}.json" for path in (dest / ".trees").iterdir()}
    assert {path.name for path in _state(dest).iterdir()} == kept


def test_a_lock_on_anything_in_the_tree_delays_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_LOCK_SECONDS", float("inf"))
    dest = tmp_path / "api"
    write_tree(TOOLS, dest)
    locks = [os.open(path, os.O_RDONLY) for path in (dest, *dest.rglob("*"))]
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_SH)
        writing = threading.Thread(target=write_tree, args=(TOOLS[:1], dest), daemon=True)
        writing.start()
        writing.join(30)
        assert not writing.is_alive()
    finally:
        for lock in locks:
            os.close(lock)


def test_a_writer_does_not_wait_for_ever_for_one_that_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(TOOLS, tmp_path)
    monkeypatch.setattr(tree, "_LOCK_SECONDS", 0.05)
    lock = os.open(_state(tmp_path), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_tree(TOOLS[:1], tmp_path)
    finally:
        os.close(lock)
    assert sorted(contents(tmp_path)) == [
        "__init__.py",
        "__init__.pyi",
        "_call.py",
        *(f"github/{name}" for name in ("__init__.py", "__init__.pyi", "create_issue.py", "index.py")),
    ]


def test_two_writers_at_once_both_end_with_a_whole_tree(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.test_codegen_tree import TOOLS, changed;"
        "from toolfold.codegen.tree import write_tree;"
        "[write_tree([changed(t, description=f'D{n}.') for t in TOOLS], Path(sys.argv[1])) for n in range(20)]"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        for _ in range(2)
    ]
    for writer in writers:
        _, problems = writer.communicate(timeout=60)
        assert writer.returncode == 0, problems.decode()
    write_tree([changed(tool, description="D19.") for tool in TOOLS], tmp_path)
    write_tree([changed(tool, description="D19.") for tool in TOOLS], tmp_path / "alone")
    assert contents(tmp_path) == contents(tmp_path / "alone")


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="is a folder of its own"):
        write_tree(TOOLS, tmp_path)
    assert [path.name for path in (tmp_path / "servers").iterdir()] == ["mine.txt"]


def test_what_all_modules_share_is_compiled_and_says_nothing_about_the_host(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_tree(TOOLS, tmp_path / folder)
    one, two = [sorted((tmp_path / folder / "servers").rglob("*.pyc")) for folder in ("one", "two")]
    assert [path.name.split(".")[0] for path in one] == ["_call"]
    assert one[0].read_bytes() == two[0].read_bytes()
    assert str(tmp_path).encode() not in one[0].read_bytes()


# --- imported


def test_keywords_and_one_dict_arrive_under_their_wire_names(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
from servers.github import create_issue, list_issues
from servers.my_server import self
async def main():
    return [
        await create_issue(owner="o", repo="r"),
        await create_issue({"owner": "o", "repo": "r", "anything": [1, {"x": None}]}),
        await list_issues(If_Match="x", from_=None),
        await list_issues({"If-Match": "x", "from": None}),
        await list_issues({"If_Match": "x"}),
        await list_issues(If_Match=..., from_="f"),
        await self(self="s", name="n", args={"kwargs": 1}),
    ]
answer = asyncio.run(main())
""",
    )
    assert answer == [
        ["github", "create_issue", {"owner": "o", "repo": "r"}],
        ["github", "create_issue", {"owner": "o", "repo": "r", "anything": [1, {"x": None}]}],
        ["github", "list-issues", {"If-Match": "x", "from": None}],
        ["github", "list-issues", {"If-Match": "x", "from": None}],
        ["github", "list-issues", {"If-Match": "x"}],
        ["github", "list-issues", {"from": "f"}],
        ["my server", "self", {"self": "s", "name": "n", "args": {"kwargs": 1}}],
    ]


def test_a_wrong_call_is_told_the_signature(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
from servers.github import create_issue
answer = []
for call in (
    lambda: create_issue(owner="o"),
    lambda: create_issue(owner="o", repo="r", lables=[]),
    lambda: create_issue({"owner": "o"}),
    lambda: create_issue("o", "r", [], "x"),
    lambda: create_issue("o", "r", owner="x"),
    lambda: create_issue({"owner": "o", "repo": "r"}, repo="x"),
    lambda: create_issue(),
):
    try:
        call()
    except TypeError as error:
        answer.append(str(error))
""",
    )
    signature = "Signature: create_issue(owner: str, repo: str, labels: list[Any] = ...) -> Any"
    assert answer == [
        f"create_issue() missing required argument 'repo'. {signature}",
        f"create_issue() got an unexpected argument 'lables' (did you mean 'labels'?). {signature}",
        f"create_issue() missing required argument 'repo'. {signature}",
        f"create_issue() takes at most 3 arguments, not 4. {signature}",
        f"create_issue() got multiple values for argument 'owner'. {signature}",
        f"create_issue() got multiple values for argument 'repo'. {signature}",
        f"create_issue() missing required arguments 'owner', 'repo'. {signature}",
    ]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each call sends, or what it is refused for."""
    folder = tmp_path_factory.mktemp("forms")
    write_tree(FORMS, folder)
    program = """
from functools import partial
from servers.s import *
async def outcome(call):
    try:
        return (await eval(call))[2]
    except TypeError as error:
        return str(error).partition(". ")[0]
async def main():
    return {call: await outcome(call) for call in given}
answer = asyncio.run(main())
"""
    return run_with_tree(folder, program, [call for call, _ in CALLS])


@pytest.mark.parametrize(("call", "sent"), CALLS)
def test_every_way_to_give_arguments_sends_the_same(outcomes: dict[str, Any], call: str, sent: Any) -> None:
    assert outcomes[call] == sent


def test_a_tool_counts_as_a_function_to_await(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
from servers.github import create_issue
later = create_issue("o", "r")
answer = [asyncio.iscoroutinefunction(create_issue), asyncio.iscoroutine(later), asyncio.run(later)[2]]
""",
    )
    assert answer == [True, True, {"owner": "o", "repo": "r"}]


def test_a_signature_shows_a_short_object_and_not_its_name(tmp_path: Path) -> None:
    total = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    rows = {"type": "object", "properties": {f"column_{n}": {"type": "string"} for n in range(9)}}
    write_tree([changed(TOOLS[0], output_schema=total), changed(TOOLS[1], output_schema=rows)], tmp_path)
    answer = run_with_tree(
        tmp_path, "from servers.github import *\nanswer = [repr(create_issue), repr(list_issues), str(create_issue)]"
    )
    assert answer[0].endswith(' -> {"sum": float}>')
    assert answer[1].endswith(" -> Result>")
    assert answer[2].startswith("class Result(TypedDict):")


def test_importing_one_tool_loads_one_tool(tmp_path: Path) -> None:
    write_tree([simple(f"tool_{n}", "big") for n in range(50)], tmp_path)
    answer = run_with_tree(
        tmp_path,
        "from servers.big import tool_7\nanswer = [n for n in sys.modules if n.startswith('servers.')]",
    )
    assert sorted(answer) == ["servers._call", "servers.big", "servers.big.tool_7"]


def test_every_way_to_import_gives_the_same_tool(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
import servers.github.create_issue
import servers, servers.github as gh
from servers import github
from servers.github import *
from servers.github.create_issue import create_issue as deep
from servers.github.index import create_issue as indexed
import servers.github.index as index
tools = [servers.github.create_issue, gh.create_issue, github.create_issue, create_issue, deep, indexed]
tools += [index.create_issue, servers.github.index.create_issue]
answer = [len(set(map(id, tools))), callable(list_issues), servers.my_server.self.name, dir(github)]
""",
    )
    assert answer == [1, True, "self", ["create_issue", "list_issues"]]


def test_the_index_lists_a_servers_tools_and_a_tool_of_that_name_gets_another(tmp_path: Path) -> None:
    write_tree([*TOOLS, simple("index", "search"), simple("find", "search")], tmp_path)
    listing = (tmp_path / "servers/github/index.py").read_text()
    assert "create_issue: Does it.\nlist_issues: Does it." in listing
    answer = run_with_tree(
        tmp_path,
        """
import servers
from servers.search import index_
answer = [dir(servers.search), asyncio.run(index_())]
""",
    )
    assert answer == [["find", "index_"], ["search", "index", {}]]
    assert write_tree(TOOLS, tmp_path).removed == 2


def test_help_print_and_signature_tell_how_to_call_it(tmp_path: Path) -> None:
    nested = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}}
    write_tree([simple("visit", "s", place_=nested, when={"type": "string", "description": "A day"})], tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
import inspect, pydoc
from servers.s import visit
answer = [pydoc.plain(pydoc.render_doc(visit)), str(visit), repr(visit), str(inspect.signature(visit)), visit.__name__]
""",
    )
    helped, printed, shown, signature, name = answer
    for text in (helped, printed):
        assert "class Place(TypedDict, total=False):" in text
        assert "city: str  # Where" in text
        assert "async def visit(" in text
        assert "when: A day" in text
    assert shown == '<tool visit(place: {"city": str}, when: str = ...) -> Any>'
    assert signature.startswith("(place: servers.s.visit.Place, when: str = Ellipsis)")
    assert name == "visit"


def test_the_packages_are_an_index_with_a_line_per_tool(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        """
import servers, servers.github
problems = []
for name in ("creat_issue", "nothing_like_it"):
    try:
        getattr(servers.github, name)
    except AttributeError as error:
        problems.append(str(error))
answer = [servers.__doc__, servers.github.__doc__, dir(servers), servers.github.__all__, problems]
answer.append(servers.my_server.__doc__)
""",
    )
    top, index, names, tools, problems, other = answer
    assert top.endswith("github: 2\nmy_server: 1\n")
    assert "create_issue: Does it.\nlist_issues: Does it." in index
    assert index.startswith("github\n")
    assert other.startswith("my server: from servers.my_server import <tool>\n")
    assert names == ["github", "my_server"]
    assert tools == ["create_issue", "list_issues"]
    assert problems[0] == "servers.github has no 'creat_issue'. Did you mean create_issue or list_issues?"
    assert problems[1] == "servers.github has no 'nothing_like_it'. It has create_issue, list_issues."


def test_a_forgotten_await_is_reported_under_the_tools_name(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    answer = run_with_tree(
        tmp_path,
        "from servers.github import create_issue\ncall = create_issue(owner='o', repo='r')\n"
        "answer = call.__qualname__\ncall.close()",
    )
    assert answer == "create_issue"


def test_the_tree_can_be_imported_without_a_sandbox(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    script = "from servers.github import create_issue; print(create_issue)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("async def create_issue("), done.stderr
