"""What upstreams offered stays known: to the next process, to many at once, and after any death in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from toolfold.catalog.catalog import Catalog
from toolfold.catalog.rankers import Rankers
from toolfold.config.settings import ServerConfig, Settings
from toolfold.definitions import Listing, PromptArgument, PromptDefinition, ResourceDefinition, ToolDefinition

SECRET = "ghp_this-token-must-stay-here"


def settings(folder: Path, **env: str) -> Settings:
    return Settings(servers={"github": ServerConfig(command="github-mcp", env=env)}, data_dir=folder)


def tool(name: str, description: str = "", **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties}
    return ToolDefinition(server="github", name=name, description=description, input_schema=schema)


def listing(*tools: ToolDefinition) -> Listing:
    return Listing(server="github", tools=list(tools))


def test_a_listing_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Catalog.open(settings(tmp_path))
    assert first.missing == ["github"]
    whole = Listing(
        server="github",
        instructions="Be gentle.",
        tools=[tool("create_issue", "Create an issue", title={"type": "string"})],
        resources=[ResourceDefinition(server="github", uri="repo://readme", name="readme", mime_type="text/plain")],
        prompts=[
            PromptDefinition(server="github", name="triage", arguments=[PromptArgument(name="label", required=True)])
        ],
    )
    assert first.update(whole)
    second = Catalog.open(settings(tmp_path))
    assert second.missing == []
    assert second.version == first.version
    assert list(second.tools) == whole.tools
    assert list(second.resources) == whole.resources
    assert list(second.prompts) == whole.prompts
    (server,) = second.servers
    assert (server.name, server.tools, server.resources, server.prompts) == ("github", 1, 1, 1)
    assert (server.source, server.instructions, server.missing) == ("cache", "Be gentle.", False)


def test_another_command_or_token_is_another_server(tmp_path: Path) -> None:
    Catalog.open(settings(tmp_path, TOKEN="one")).update(listing(tool("create_issue")))
    assert Catalog.open(settings(tmp_path, TOKEN="one")).missing == []
    assert Catalog.open(settings(tmp_path, TOKEN="two")).missing == ["github"]


def test_secrets_of_the_config_are_nowhere_in_the_cache(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path, GITHUB_TOKEN=SECRET))
    catalog.update(listing(tool("create_issue")))
    catalog.warm()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert SECRET.encode() not in path.read_bytes()
        assert SECRET not in path.name


def test_the_version_changes_when_a_definition_does_and_only_then(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    catalog.update(listing(tool("a", x={"type": "string", "minLength": 1}), tool("b")))
    version = catalog.version
    assert not catalog.update(listing(tool("b"), tool("a", x={"minLength": 1, "type": "string"}))), "only the order"
    assert catalog.version == version
    assert catalog.update(listing(tool("a", x={"type": "string", "minLength": 2}), tool("b")))
    assert catalog.version != version


def test_definitions_come_sorted_whatever_order_they_were_listed_in(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    catalog.update(listing(tool("zeta"), tool("alpha"), tool("Beta")))
    assert [one.name for one in catalog.tools] == ["Beta", "alpha", "zeta"]
    assert [one.name for one in catalog.tools[1:]] == ["alpha", "zeta"]


def test_half_a_character_in_a_description_does_no_harm(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    assert catalog.update(listing(tool("broken\ud800", "half \udfff of it", **{"key\ud800": {"enum": ["\udead"]}})))
    again = Catalog.open(settings(tmp_path))
    assert [one.name for one in again.tools] == ["broken?"]
    assert again.search("half").hits


def test_a_damaged_cache_is_as_good_as_none(tmp_path: Path) -> None:
    Catalog.open(settings(tmp_path)).update(listing(tool("create_issue", "Create an issue")))
    (kept,) = (tmp_path / "catalog").glob("*.listing")
    whole = kept.read_bytes()
    for damaged in (b"", b"\x00" * 40, whole[: len(whole) // 2], b"\xff" + whole):
        kept.write_bytes(damaged)
        catalog = Catalog.open(settings(tmp_path))
        assert catalog.missing == ["github"]
        assert catalog.update(listing(tool("create_issue", "Create an issue")))


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    catalog.update(listing(tool("create_issue", "Create an issue"), tool("list_labels", "List the labels")))
    before = catalog.search("create issue").text
    indexes = [*(tmp_path / "catalog").glob("*.index"), *(tmp_path / "catalog").glob("*.vectors")]
    assert indexes
    for path in indexes:
        whole = path.read_bytes()
        for damaged in (b"", b"tfarr1\0\0" + b"\xff" * 64, whole[: len(whole) // 2]):
            path.write_bytes(damaged)
            assert Catalog.open(settings(tmp_path)).search("create issue").text == before


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path) -> None:
    (tmp_path / "catalog").write_text("a file where the folder should be")
    catalog = Catalog.open(settings(tmp_path))
    assert catalog.update(listing(tool("create_issue", "Create an issue")))
    assert catalog.search("create issue").hits[0].name == "create_issue"
    assert "could not be stored" in catalog.problems[0]


WRITER = """
import sys
from pathlib import Path
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import ServerConfig, Settings
from toolfold.definitions import Listing, ToolDefinition
servers = {"github": ServerConfig(command="github-mcp")}
settings = Settings(servers=servers, data_dir=Path(sys.argv[1]), trusted_servers=("*",))
catalog = Catalog.open(settings)
for round in range(int(sys.argv[2])):
    tools = [ToolDefinition(server="github", name=f"tool_{n}", description=f"round {round}") for n in range(200)]
    catalog.update(Listing(server="github", tools=tools))
    print(round, flush=True)
"""


def writer(folder: Path, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())


def test_a_writer_killed_in_the_middle_leaves_a_whole_listing(tmp_path: Path) -> None:
    for rounds in (1, 2, 3, 5):
        process = writer(tmp_path, 1_000_000)
        assert process.stdout is not None
        for expected in range(rounds):
            assert process.stdout.readline() == f"{expected}\n"
        # It is somewhere in the midst of its next rounds now.
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        process.stdout.close()
        tools = list(Catalog.open(settings(tmp_path)).tools)
        assert len(tools) == 200
        assert len({one.description for one in tools}) == 1


def test_processes_that_write_at_once_leave_one_of_their_listings(tmp_path: Path) -> None:
    writers = [writer(tmp_path, 30) for _ in range(3)]
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            seen.append(len(Catalog.open(settings(tmp_path)).tools))

    reader = threading.Thread(target=read)
    reader.start()
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    done.set()
    reader.join(timeout=30)
    assert set(seen) <= {0, 200}
    last = list(Catalog.open(settings(tmp_path)).tools)
    assert {one.description for one in last} == {"round 29"}
    assert not list((tmp_path / "catalog").glob(".*.tmp"))


def test_a_listing_of_another_format_or_server_is_as_good_as_none(tmp_path: Path) -> None:
    Catalog.open(settings(tmp_path)).update(listing(tool("create_issue")))
    (kept,) = (tmp_path / "catalog").glob("*.listing")
    version, whole = msgspec.msgpack.decode(kept.read_bytes())
    for changed in ([version + 1, whole], [version - 1, whole], [version, ["gitlab", *whole[1:]]]):
        kept.write_bytes(msgspec.msgpack.encode(changed))
        assert Catalog.open(settings(tmp_path)).missing == ["github"]
    kept.write_bytes(msgspec.msgpack.encode([version, whole]))
    assert Catalog.open(settings(tmp_path)).missing == []


def test_a_listing_that_cannot_be_put_in_place_leaves_no_file(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    catalog.update(listing(tool("create_issue")))
    (kept,) = (tmp_path / "catalog").glob("*.listing")
    kept.unlink()
    (kept / "in its place").mkdir(parents=True)
    assert catalog.update(listing(tool("create_issue"), tool("another")))
    assert "could not be stored" in catalog.problems[0]
    assert [path for path in (tmp_path / "catalog").iterdir() if path.is_file() or path == kept] == [kept]


def test_unfinished_files_are_removed_once_they_are_old(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    folder.mkdir()
    old, young, foreign = folder / ".a.listing.0.tmp", folder / ".b.listing.0.tmp", folder / "c.tmp"
    for path, age in ((old, 3700), (young, 3500), (foreign, 3700)):
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    Catalog.open(settings(tmp_path)).update(listing(tool("create_issue")))
    assert not old.exists()
    assert young.exists(), "another process may be writing it"
    assert foreign.exists()


def test_a_search_after_an_update_knows_what_is_new_and_forgets_what_is_gone(tmp_path: Path) -> None:
    catalog = Catalog.open(settings(tmp_path))
    catalog.update(listing(tool("create_issue", "Create an issue"), tool("water_plants", "Water the plants")))
    assert names(catalog, "plants") == ["water_plants"]
    catalog.update(listing(tool("create_issue", "Create an issue"), tool("feed_animals", "Feed the animals")))
    assert "water_plants" not in names(catalog, "water plants")
    assert names(catalog, "animals") == ["feed_animals"]
    assert catalog.tool("github", "water_plants") is None
    assert [one.name for one in catalog.tools] == ["create_issue", "feed_animals"]


def test_the_index_of_another_process_is_not_believed_when_it_is_older(tmp_path: Path) -> None:
    first = Catalog.open(settings(tmp_path))
    first.update(listing(tool("water_plants", "Water the plants")))
    assert names(first, "plants") == ["water_plants"]
    (index,) = (tmp_path / "catalog").glob("*.index")
    old = index.read_bytes()
    second = Catalog.open(settings(tmp_path))
    second.update(listing(tool("feed_animals", "Feed the animals")))
    assert names(second, "animals") == ["feed_animals"]
    index.write_bytes(old)
    third = Catalog.open(settings(tmp_path))
    assert names(third, "animals") == ["feed_animals"]
    assert "water_plants" not in names(third, "water plants")


def test_the_index_is_kept_and_taken_over_as_it_is(tmp_path: Path) -> None:
    first = Catalog.open(settings(tmp_path))
    first.update(listing(tool("water_plants", "Water the plants"), tool("feed_animals", "Feed the animals")))
    found = first.search("water the plants", explain=True)
    (index,) = (tmp_path / "catalog").glob("*.index")
    before = index.stat().st_mtime_ns, index.stat().st_ino
    again = Catalog.open(settings(tmp_path)).search("water the plants", explain=True)
    assert again.text == found.text
    assert (index.stat().st_mtime_ns, index.stat().st_ino) == before


def names(catalog: Catalog, query: str) -> list[str]:
    return [hit.name for hit in catalog.search(query, detail="name_only") if hit.score > 0]


def test_the_rankers_that_were_used_last_are_held(tmp_path: Path) -> None:
    rankers = Rankers(tmp_path, semantic=False)

    def used(scope: str, version: str = "1") -> object:
        return rankers.ranker(scope, version, [], None)

    made = {scope: used(scope) for scope in "abcde"}
    assert used("a") is made["a"]
    used("f")  # one too many: the one that was used longest ago goes
    assert [scope for scope in "acde" if used(scope) is not made[scope]] == []
    assert used("b") is not made["b"]
    assert used("e", "2") is not made["e"]
