"""The servers' own tools through the gateway (`mode = "hybrid"` and `"direct"`), for real clients of both eras."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests import warm
from toolfold import Toolfold
from toolfold.gateway.http import serve_http
from toolfold.gateway.offers import PAGE
from toolfold.telemetry.audit_reader import AuditReader
from toolfold.telemetry.audit_records import CallStarted, RunEnded, RunStarted, decode

pytestmark = pytest.mark.anyio

SHELF: dict[str, Any] = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "shelf.py")]}
ERAS = ["legacy", "2026-07-28"]
MODES = {"ada": "direct", "bob": "hybrid", "cy": "code", "dora": "direct"}
OWN = ["search_tools", "run_code"]
TOOLS = [f"shelf__{name}" for name in ("burn", "echo", "grow", "person", "picture", "text", "wrapped")]


def token(who: str) -> str:
    return f"the token of {who}"


def settings(**more: Any) -> dict[str, Any]:
    callers = {
        name: {"token_sha256": hashlib.sha256(token(name).encode()).hexdigest(), "mode": mode}
        for name, mode in MODES.items()
    }
    denied = ["shelf.burn", "prompt:shelf:*", "resource:shelf:*cover"]
    rules = [{"match": match, "caller": "dora", "do": "deny"} for match in denied]
    return {"servers": {"shelf": SHELF}, "sandbox": {"pool": 1}, "callers": callers, "policy": {"rules": rules}, **more}


@dataclass
class Served:
    fold: Toolfold
    url: str

    @asynccontextmanager
    async def client(self, who: str, era: str, **more: Any) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {token(who) if who else 'owner'}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era, **more) as client,
        ):
            yield client


@asynccontextmanager
async def serving(config: dict[str, Any], data_dir: Path) -> AsyncGenerator[Served]:
    async with Toolfold.open(config, data_dir=data_dir) as fold:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(fold, "127.0.0.1", 0, token="owner", started=started.set_result))
        try:
            yield Served(fold, await started)
        finally:
            serving.cancel()
            await asyncio.wait([serving])


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Served]:
    """One gateway for all tests; what a caller is offered is in its name."""
    data_dir = tmp_path_factory.mktemp("modes")
    (data_dir / "runtime").symlink_to(shared_runtime)
    config = settings(audit=True, privacy=True, output_chars=2000, expose=["prompts", "resources"])
    async with serving(config, data_dir) as gateway:
        await gateway.fold.listed()
        yield gateway


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("who", "offered"), [("cy", OWN), ("bob", OWN + TOOLS), ("ada", TOOLS), ("dora", TOOLS[1:])])
async def test_the_mode_and_the_policy_of_a_caller_decide_what_it_is_offered(
    served: Served, who: str, offered: list[str], era: str
) -> None:
    async with served.client(who, era) as client:
        assert await names(client) == offered
        for hidden in {*OWN, *TOOLS} - {*offered}:
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(hidden, {"code": "1"})


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_keeps_its_definition_and_its_result(served: Served, era: str) -> None:
    async with served.client("ada", era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        wrapped = tools["shelf__wrapped"]
        assert (wrapped.title, wrapped.description) == ("Wrapped", "Shelf: wrapped.")
        assert wrapped.input_schema["required"] == ["size"]
        assert wrapped.output_schema is not None
        assert wrapped.output_schema["required"] == ["result"]
        assert wrapped.annotations is not None
        assert wrapped.annotations.read_only_hint is True
        result = await client.call_tool("shelf__wrapped", {"size": 3})
        assert (text(result), result.structured_content) == ("yyy", {"result": "yyy"})
        picture: Any = await client.call_tool("shelf__picture", {})
        image, link = picture.content
        assert (image.type, link.type, link.uri) == ("image", "resource_link", "toolfold://shelf/shelf://books/one")


@pytest.mark.parametrize("era", ERAS)
async def test_personal_values_of_a_direct_result_are_tokens(served: Served, era: str) -> None:
    async with served.client("ada", era) as client:
        result = await client.call_tool("shelf__person", {})
        assert "ada.l@" not in str(result)
        email = result.structured_content["email"]
        assert email.startswith("EMAIL_")
        # What the model writes is a token, and what its own server gets is the value.
        assert text(await client.call_tool("shelf__echo", {"text": email})) == f"20 characters: {email}"


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_result_becomes_a_preview_and_a_file_that_a_program_can_read(served: Served, era: str) -> None:
    async with served.client("bob", era) as client:
        result = await client.call_tool("shelf__text", {"size": 100_000})
        preview = text(result)
        assert len(preview) < 2_300
        assert "98,000 characters cut" in preview
        session, file = re.findall(r"in session '([^']+)': (\S+)", preview)[0]
        read = await client.call_tool("run_code", {"code": f"print(len(open({file!r}).read()))", "session": session})
        assert text(read) == "100000"
        # A client checks structured content against the declared schema, so it is cut to the same shape.
        wrapped = await client.call_tool("shelf__wrapped", {"size": 100_000})
        assert len(str(wrapped)) < 4_000
        assert wrapped.structured_content["result"].endswith("[… cut …]")


@pytest.mark.parametrize("era", ERAS)
async def test_without_programs_a_long_result_is_read_as_a_resource_by_its_caller_alone(
    served: Served, era: str
) -> None:
    async with served.client("ada", era) as client, served.client("dora", era) as other:
        result: Any = await client.call_tool("shelf__text", {"size": 100_000})
        link = result.content[-1]
        assert f"all of it: resource {link.uri}" in text(result)
        whole: Any = await client.read_resource(link.uri)
        assert whole.contents[0].text == "x" * 100_000
        for foreign in (link.uri, link.uri.replace("outputs/", "outputs/../")):
            with pytest.raises(MCPError, match="Unknown resource"):
                await other.read_resource(foreign)


@pytest.mark.parametrize("era", ERAS)
async def test_a_direct_call_that_needs_a_person_is_asked_for(served: Served, era: str) -> None:
    asked: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "no" if len(asked) == 1 else "once"})

    async with served.client("ada", era, elicitation_callback=answer) as client:
        refused = await client.call_tool("shelf__burn", {})
        assert refused.is_error
        assert "not allowed" in text(refused)
        allowed = await client.call_tool("shelf__burn", {})
        assert text(allowed) == "did burn"
    assert len(asked) == 2
    assert all("shelf.burn" in question for question in asked)


async def test_a_direct_call_is_a_run_in_the_audit_log(served: Served) -> None:
    async with served.client("ada", "legacy") as client:
        await client.call_tool("shelf__text", {"size": 7})
    with AuditReader.open(served.fold.settings.data_dir) as reader:
        records = [decode(row.body) for row in reader.rows()]
    runs = [each for each in records if isinstance(each, RunStarted) and each.code == "shelf.text"]
    calls = [each for each in records if isinstance(each, CallStarted) and each.run == runs[-1].run]
    ends = [each for each in records if isinstance(each, RunEnded) and each.run == runs[-1].run]
    assert (runs[-1].caller, runs[-1].language) == ("ada", "direct")
    assert [(each.target, each.caller, each.arguments) for each in calls] == [("shelf.text", "ada", {"size": "number"})]
    assert [(each.ok, each.calls) for each in ends] == [(True, 1)]


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_and_resources_of_the_servers_are_offered_by_names_of_their_own(served: Served, era: str) -> None:
    async with served.client("cy", era) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert (prompt.name, prompt.description) == ("shelf__greet", "A greeting.")
        assert prompt.arguments is not None
        assert [(each.name, each.required) for each in prompt.arguments] == [("who", True)]
        got: Any = await client.get_prompt("shelf__greet", {"who": "Bob"})
        assert got.messages[0].content.text == "Say hello to Bob, who is EMAIL_1."
        cover, one = (await client.list_resources()).resources
        assert (one.uri, one.name, one.mime_type) == ("toolfold://shelf/shelf://books/one", "one", "text/plain")
        (book,) = (await client.list_resource_templates()).resource_templates
        assert book.uri_template == "toolfold://shelf/shelf://books/{title}"
        for uri in (one.uri, book.uri_template.format(title="two")):
            found: Any = await client.read_resource(uri)
            (read,) = found.contents
            assert read.uri == uri
            assert read.text == f"text of {uri.removeprefix('toolfold://shelf/')}, EMAIL_1"
        (picture,) = (await client.read_resource(cover.uri)).contents
        assert picture.mime_type == "image/png"
        for unknown in ("toolfold://nowhere/a", "shelf://books/one", "toolfold://shelf"):
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource(unknown)
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("shelf__nothing")


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_and_resources_are_denied_by_the_same_rules(served: Served, era: str) -> None:
    async with served.client("dora", era) as client:
        assert (await client.list_prompts()).prompts == []
        assert [one.name for one in (await client.list_resources()).resources] == ["one"]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("shelf__greet", {"who": "Bob"})
        with pytest.raises(MCPError, match="Policy denies"):
            await client.read_resource("toolfold://shelf/shelf://books/cover")


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_of_any_list_is_announced(served: Served, era: str) -> None:
    news: asyncio.Queue[Any] = asyncio.Queue()
    methods = {kind: f"notifications/{kind}s/list_changed" for kind in ("tool", "prompt", "resource")}

    async def on_message(message: Any) -> None:
        if era == "legacy":
            await news.put(message.method)

    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(served.client("bob", era, message_handler=on_message))
        if era == "legacy":
            lists = client.server_capabilities
            assert all(each and each.list_changed for each in (lists.tools, lists.prompts, lists.resources))
        else:
            listening = client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
            events = await stack.enter_async_context(listening)

            async def forward() -> None:
                async for event in events:
                    kind = type(event).__name__.removesuffix("sListChanged").lower()
                    await news.put(methods[kind])

            forwarding = asyncio.create_task(forward())
            stack.callback(forwarding.cancel)
        for kind, method in methods.items():
            name = f"{kind}-{era}"
            await client.call_tool("shelf__grow", {"kind": kind, "name": name})
            async with asyncio.timeout(30):
                assert await news.get() == method
        assert f"shelf__tool-{era}" in await names(client)
        assert f"shelf__prompt-{era}" in [one.name for one in (await client.list_prompts()).prompts]
        assert f"resource-{era}" in [one.name for one in (await client.list_resources()).resources]


async def test_thousands_of_tools_are_listed_in_pages_by_names_that_every_client_takes(
    tmp_path: Path, shared: Path
) -> None:
    async with serving({"catalog_dirs": [str(shared / "catalogs")], "mode": "direct"}, tmp_path) as served:
        for era in ERAS:
            found: list[types.Tool] = []
            pages, cursor = 0, None
            async with served.client("", era) as client:
                while pages == 0 or cursor is not None:
                    page = await client.list_tools(cursor=cursor)
                    found += page.tools
                    pages, cursor = pages + 1, page.next_cursor
            assert len(found) == len({tool.name for tool in found}) == len(served.fold.catalog.tools)
            assert pages == -(-len(found) // PAGE)
            assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,48}", tool.name) for tool in found)


@pytest.mark.parametrize("era", ERAS)
async def test_over_stdio_a_long_result_lies_in_the_connections_workspace_and_changes_are_announced(
    runtime_dir: Path, era: str
) -> None:
    news: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        await news.put(message.method)

    config = runtime_dir / "toolfold.json"
    config.write_text(json.dumps({"servers": {"shelf": SHELF}, "direct": ["shelf.t*", "shelf.grow"], "mode": "hybrid"}))
    words = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(runtime_dir)]
    parameters = StdioServerParameters(command=warm.python(), args=words)
    async with Client(parameters, mode=era, message_handler=on_message) as client:
        assert await names(client) == [*OWN, "shelf__grow", "shelf__text"]
        long = text(await client.call_tool("shelf__text", {"size": 50_000}))
        (file,) = re.findall(r"all of it: (workspace/\S+)", long)
        assert text(await client.call_tool("run_code", {"code": f"print(len(open({file!r}).read()))"})) == "50000"
        if era == "legacy":
            await client.call_tool("shelf__grow", {"kind": "tool", "name": "tell"})
            async with asyncio.timeout(30):
                # The server's first listing was announced too.
                while await news.get() == "notifications/tools/list_changed" and len(await names(client)) == 4:
                    pass
        else:
            async with client.listen(tools_list_changed=True) as events:
                await client.call_tool("shelf__grow", {"kind": "tool", "name": "tell"})
                async with asyncio.timeout(30):
                    assert type(await anext(aiter(events))).__name__ == "ToolsListChanged"
        assert await names(client) == [*OWN, "shelf__grow", "shelf__tell", "shelf__text"]
