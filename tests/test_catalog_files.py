"""Definitions from files: what is good is used, what is not is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import ServerConfig, Settings
from toolfold.definitions import Listing, ToolDefinition


def write(folder: Path, name: str, content: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def opened(tmp_path: Path, *places: Path, servers: dict[str, ServerConfig] | None = None) -> Catalog:
    return Catalog.open(Settings(servers=servers or {}, catalog_dirs=places, data_dir=tmp_path / "data"))


def test_tools_resources_and_prompts_are_read_as_mcp_writes_them(tmp_path: Path) -> None:
    content = {
        "server": "docs",
        "instructions": "Read first.",
        "tools": [
            {
                "name": "open",
                "title": "Open it",
                "description": "Opens a page",
                "inputSchema": {"type": "object", "properties": {"page": {"type": "integer"}}},
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            }
        ],
        "resources": [{"uri": "docs://one", "name": "one", "mimeType": "text/plain"}],
        "resourceTemplates": [{"uriTemplate": "docs://{page}", "name": "page"}],
        "prompts": [{"name": "explain", "arguments": [{"name": "topic", "required": True}]}],
    }
    catalog = opened(tmp_path, write(tmp_path / "c", "docs.json", content))
    (tool,) = catalog.tools
    assert (tool.server, tool.name, tool.title, tool.annotations) == ("docs", "open", "Open it", {"readOnlyHint": True})
    assert tool.input_schema == {"type": "object", "properties": {"page": {"type": "integer"}}}
    assert tool.output_schema == {"type": "object"}
    assert [(one.uri, one.template) for one in catalog.resources] == [("docs://one", False), ("docs://{page}", True)]
    (prompt,) = catalog.prompts
    assert prompt.arguments[0].name == "topic"
    assert prompt.arguments[0].required
    assert catalog.problems == []
    assert catalog.servers[0].source == "file"


def test_every_real_catalog_is_read_whole(shared: Path, tmp_path: Path) -> None:
    catalog = opened(tmp_path, shared / "catalogs")
    wanted: dict[tuple[str, str], Any] = {}
    for path in (shared / "catalogs").glob("*.json"):
        listing = json.loads(path.read_text())
        wanted |= {(listing["server"], tool["name"]): tool for tool in listing["tools"]}
    assert catalog.problems == []
    assert {(tool.server, tool.name) for tool in catalog.tools} == wanted.keys()
    for tool in catalog.tools:
        raw = wanted[tool.server, tool.name]
        assert tool.input_schema == raw["inputSchema"]
        assert tool.output_schema == raw.get("outputSchema")
        assert tool.description == (raw.get("description") or "")


def test_a_bad_file_and_a_bad_tool_cost_only_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    write(folder, "a.json", "{not json")
    write(folder, "b.json", {"tools": []})
    good = {"name": "fine", "inputSchema": {"type": "object"}}
    bad = [{"name": ""}, {"description": "no name"}, {"name": "odd", "inputSchema": [1]}, 7, {"name": "fine"}]
    write(folder, "c.json", {"server": "c", "tools": [good, *bad]})
    catalog = opened(tmp_path, folder, tmp_path / "absent")
    assert [tool.name for tool in catalog.tools] == ["fine"]
    assert len(catalog.problems) == 2 + len(bad) + 1
    assert any("a.json" in problem for problem in catalog.problems)
    assert any("tool 2 of 6" in problem for problem in catalog.problems)
    assert any("absent" in problem for problem in catalog.problems)


def test_a_server_that_has_spoken_is_believed_over_a_file(tmp_path: Path) -> None:
    content = {"server": "github", "tools": [{"name": "from_file"}]}
    path = write(tmp_path / "c", "github.json", content)
    servers = {"github": ServerConfig(command="github-mcp")}
    catalog = opened(tmp_path, path, servers=servers)
    assert [tool.name for tool in catalog.tools] == ["from_file"]
    assert catalog.missing == ["github"], "a file is no reason not to ask"
    catalog.update(Listing(server="github", tools=[ToolDefinition(server="github", name="live")]))
    assert [tool.name for tool in catalog.tools] == ["live"]
    assert [tool.name for tool in opened(tmp_path, path, servers=servers).tools] == ["live"]


def test_of_two_files_for_one_server_the_first_is_used_and_the_other_named(tmp_path: Path) -> None:
    write(tmp_path / "c", "1.json", {"server": "s", "tools": [{"name": "first"}]})
    write(tmp_path / "c", "2.json", {"server": "s", "tools": [{"name": "second"}]})
    catalog = opened(tmp_path, tmp_path / "c")
    assert [tool.name for tool in catalog.tools] == ["first"]
    assert "2.json" in catalog.problems[0]


def test_blanks_in_a_file_do_not_change_the_version(tmp_path: Path) -> None:
    tool: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {}}}}
    content = {"server": "s", "tools": [tool]}
    compact = opened(tmp_path, write(tmp_path / "c1", "s.json", content))
    spread = opened(tmp_path, write(tmp_path / "c2", "s.json", json.dumps(content, indent=4)))
    assert compact.version == spread.version
    tool["description"] = "now with words"
    assert opened(tmp_path, write(tmp_path / "c3", "s.json", content)).version != compact.version


def test_a_schema_nested_beyond_reason_leaves_a_usable_tool(tmp_path: Path) -> None:
    deep = '{"properties":{"a":' * 5_000 + "{}" + "}}" * 5_000
    path = write(tmp_path / "c", "s.json", f'{{"server": "s", "tools": [{{"name": "deep", "inputSchema": {deep}}}]}}')
    catalog = opened(tmp_path, path)
    for tool in catalog.tools:
        assert isinstance(tool.input_schema, dict)
    catalog.search("deep")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
tools = st.fixed_dictionaries(
    {},
    optional={
        "name": json_values | st.text(max_size=20),
        "description": json_values | st.text(),
        "title": json_values,
        "inputSchema": json_values | st.fixed_dictionaries({"properties": json_values}),
        "annotations": json_values,
    },
)


@given(listed=st.lists(tools | json_values, max_size=5), server=json_values | st.text(min_size=1, max_size=10))
def test_no_file_can_break_the_catalog(tmp_path_factory: Any, listed: list[Any], server: Any) -> None:
    folder = tmp_path_factory.mktemp("c")
    path = write(folder, "any.json", {"server": server, "tools": listed, "resources": listed, "prompts": listed})
    catalog = opened(folder, path)
    for tool in catalog.tools:
        assert tool.name.strip()
        assert isinstance(tool.input_schema, dict)
        assert catalog.tool(tool.server, tool.name) == tool
    assert catalog.search("anything at all").text
    assert catalog.search("").text
