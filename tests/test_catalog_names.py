"""Every usual way to write a tool's name finds it; anything else is answered with the nearest names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.catalog.catalog import Catalog
from toolfold.catalog.resolve import nearest_words
from toolfold.config.settings import ServerConfig, Settings
from toolfold.definitions import Listing, ToolDefinition
from toolfold.errors import UnknownTool
from toolfold.review.servers import named_servers


def catalog_of(**servers: list[str]) -> Catalog:
    catalog = Catalog.open(Settings(data_dir=Path("nowhere")))
    for server, names in servers.items():
        tools = [ToolDefinition(server=server, name=name) for name in names]
        catalog.update(Listing(server=server, tools=tools))
    return catalog


@pytest.fixture(scope="module")
def real(shared: Path) -> Catalog:
    return Catalog.open(Settings(catalog_dirs=(shared / "catalogs",), data_dir=Path("nowhere")))


@pytest.mark.parametrize(
    "written",
    [
        "mcp__github__create_issue",
        "github.create_issue",
        "github/create_issue",
        "github__create_issue",
        "servers.github.create_issue",
        "create_issue",
        " github.create_issue ",
        "GitHub.create-issue",
    ],
)
def test_the_usual_spellings_find_the_tool(written: str) -> None:
    found = catalog_of(github=["create_issue", "create_issue_comment"], slack=["post"]).find(written)
    assert (found.server, found.name) == ("github", "create_issue")


def test_generated_names_find_what_they_were_generated_from() -> None:
    catalog = catalog_of(**{"chrome-devtools": ["take-screenshot", "class"]})
    assert catalog.find("chrome_devtools.take_screenshot").name == "take-screenshot"
    assert catalog.find("take_screenshot").name == "take-screenshot"
    function = catalog.names.function("chrome-devtools", "class")
    assert catalog.find(f"chrome_devtools.{function}").name == "class"


def test_names_with_separators_inside_are_found() -> None:
    catalog = catalog_of(**{"my__odd.server": ["ns/tool.v1", "plain"], "my": ["odd.server.plain"]})
    for server, name in (("my__odd.server", "ns/tool.v1"), ("my", "odd.server.plain")):
        for separator in (".", "/", "__"):
            found = catalog.find(f"{server}{separator}{name}")
            assert (found.server, found.name) == (server, name)


def test_every_real_tool_is_found_by_every_spelling(real: Catalog) -> None:
    for tool in real.tools:
        module, function = real.names.server(tool.server), real.names.function(tool.server, tool.name)
        for written in (
            f"{tool.server}.{tool.name}",
            f"{tool.server}/{tool.name}",
            f"mcp__{tool.server}__{tool.name}",
            f"{module}.{function}",
        ):
            found = real.find(written)
            assert (found.server, found.name) == (tool.server, tool.name), written


def test_a_bare_name_on_several_servers_is_refused_with_the_full_ones() -> None:
    catalog = catalog_of(github=["create_issue"], gitlab=["create_issue"])
    with pytest.raises(UnknownTool, match=r"github\.create_issue, gitlab\.create_issue"):
        catalog.find("create_issue")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    catalog = catalog_of(github=["create_issue", "list_issues", "merge"], slack=["post_message"])
    with pytest.raises(UnknownTool) as raised:
        catalog.find("github.creat_isue")
    assert raised.value.hint.startswith("Nearest: github.create_issue")
    assert "post_message" not in str(raised.value)


def test_a_name_unlike_any_on_its_server_is_answered_with_the_servers_tools() -> None:
    catalog = catalog_of(github=["create_issue", "list_issues"], **{"tree-sitter": [f"tool_{n:02}" for n in range(80)]})
    for written in ("github.frobnicate", "mcp__github__frobnicate", "servers.github.frobnicate", "GitHub/frobnicate"):
        with pytest.raises(UnknownTool) as raised:
            catalog.find(written)
        assert str(raised.value) == "github has no tool 'frobnicate'. It has: create_issue, list_issues."
    with pytest.raises(UnknownTool) as raised:
        catalog.find("tree-sitter.frobnicate")
    assert str(raised.value).startswith("tree_sitter has no tool 'frobnicate'. It has: tool_00, tool_01, ")
    assert str(raised.value).endswith(", … (80 in all).")


def test_a_tool_that_another_server_has_is_found_there() -> None:
    catalog = catalog_of(github=["create_issue"], slack=["post_message"])
    with pytest.raises(UnknownTool, match=r"github has no tool 'post_message'\. Nearest: slack\.post_message\."):
        catalog.find("github.post_message")


def test_an_empty_catalog_says_that_it_is_empty() -> None:
    with pytest.raises(UnknownTool, match="No tools are known"):
        catalog_of().find("github.create_issue")


def test_a_tool_is_looked_up_by_server_and_name() -> None:
    catalog = catalog_of(github=["create_issue"])
    found = catalog.tool("github", "create_issue")
    assert found is not None
    assert found.name == "create_issue"
    assert catalog.tool("github", "create_isue") is None
    assert catalog.tool("gitlab", "create_issue") is None


@given(st.text(max_size=300))
def test_whatever_is_written_is_found_or_refused(written: str) -> None:
    catalog = catalog_of(github=["create_issue", "list_issues"], slack=["post_message"])
    try:
        assert catalog.find(written).name
    except UnknownTool as error:
        assert len(str(error)) < 500  # noqa: PT017 - the length is the promise


def test_a_server_has_the_same_module_before_and_after_another_one_was_listed(tmp_path: Path) -> None:
    servers = {name: ServerConfig(command="x") for name in ("git-hub", "git_hub")}
    catalog = Catalog.open(Settings(data_dir=tmp_path, servers=servers))
    catalog.update(Listing(server="git-hub", tools=[ToolDefinition(server="git-hub", name="merge")]))
    before = catalog.names
    catalog.update(Listing(server="git_hub", tools=[ToolDefinition(server="git_hub", name="merge")]))
    assert before.server("git-hub") == catalog.names.server("git-hub")
    assert before.resolve("git_hub", "merge") is None
    assert before.behind("git_hub") is None
    code = "from servers.git_hub import merge"
    assert named_servers(code, servers, before) == ["git_hub"]
    assert catalog.names.resolve("git_hub", "merge") == ("git_hub", "merge")


def test_the_words_that_look_most_alike_come_first() -> None:
    longer = "create_issue_comment_for_every_repository_of_an_organization_and_its_members_at_once_or_one_by_one"
    assert nearest_words("create_issue_comment", [longer, "create_isue_comment"]) == ["create_isue_comment", longer]
    assert nearest_words("git", ["digit", "github"]) == ["github", "digit"], "how it begins counts more"
    assert nearest_words("git", ["slack"]) == []
    assert nearest_words("a", ["a_d", "a_c", "a_b", "A"], 3) == ["A", "a_b", "a_c"]
    assert nearest_words("", ["slack"]) == []
