"""Subscriptions to resources, and completions of arguments, through the gateway: clients and servers of both eras."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.subscriptions import ResourceUpdated

from tests import warm
from tests.test_gateway_modes import ERAS, SHELF, Served, serving, settings
from tests.third_party import npm_program, server
from tests.upstream_lab import eventually
from toolfold.gateway import exchange
from toolfold.gateway.subscriptions import PER_CLIENT

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

WATCHED = Path(__file__).parent / "servers" / "watched.py"
UPSTREAMS = ["older", "newer"]


@dataclass
class Lab:
    served: Served
    folder: Path

    def subscribed(self, upstream: str) -> list[str]:
        """What the server is subscribed to now."""
        return json.loads((self.folder / f"{upstream}.json").read_text())

    async def touch(self, upstream: str, uri: str) -> None:
        await self.served.fold.call(upstream, "touch", {"uri": uri})


@pytest.fixture(scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    folder = tmp_path_factory.mktemp("subscriptions")
    servers = {
        name: {"command": sys.executable, "args": [str(WATCHED), str(folder / f"{name}.json"), name]}
        for name in UPSTREAMS
    }
    config = settings(expose=["prompts", "resources"])
    config["servers"] |= servers
    denied = [{"match": f"{kind}:*er:*", "caller": "dora", "do": "deny"} for kind in ("resource", "prompt")]
    config["policy"]["rules"] += denied
    async with serving(config, folder / "data") as served:
        await served.fold.listed()
        yield Lab(served, folder)


async def subscribe(client: Any, uri: str) -> None:
    await client.subscribe_resource(uri)


async def unsubscribe(client: Any, uri: str) -> None:
    await client.unsubscribe_resource(uri)


@dataclass
class Watcher:
    """One client, and the resources that it was told have changed."""

    client: Client
    era: str
    updates: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])

    async def next(self) -> str:
        async with asyncio.timeout(20):
            return await self.updates.get()

    @asynccontextmanager
    async def subscribed(self, *uris: str) -> AsyncGenerator[list[str]]:
        """Yields those of the URIs that the gateway took."""
        if self.era == "legacy":
            for uri in uris:
                await subscribe(self.client, uri)
            yield [*uris]
            for uri in uris:
                await unsubscribe(self.client, uri)
            return
        async with self.client.listen(resource_subscriptions=uris) as events:

            async def forward() -> None:
                async for event in events:
                    assert isinstance(event, ResourceUpdated)
                    await self.updates.put(event.uri)

            forwarding = asyncio.create_task(forward())
            try:
                yield [*(events.honored.resource_subscriptions or ())]
            finally:
                forwarding.cancel()


@asynccontextmanager
async def watching(lab: Lab, era: str, who: str = "cy") -> AsyncGenerator[Watcher]:
    watcher: Watcher

    async def on_message(message: Any) -> None:
        if era == "legacy" and message.method == "notifications/resources/updated":
            await watcher.updates.put(str(message.params.uri))

    async with lab.served.client(who, era, message_handler=on_message) as client:
        watcher = Watcher(client, era)
        yield watcher


def gateway(upstream: str, uri: str) -> str:
    return f"toolfold://{upstream}/{uri}"


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ERAS)
async def test_an_update_reaches_exactly_the_clients_that_subscribed(lab: Lab, era: str, upstream: str) -> None:
    one, two = (gateway(upstream, f"w://{name}") for name in ("one", "two"))
    async with watching(lab, era) as first, watching(lab, era, "ada") as second:
        if era == "legacy":
            offered = first.client.server_capabilities.resources
            assert offered is not None
            assert offered.subscribe is True
        async with first.subscribed(one), second.subscribed(one, two):
            # The server is asked once for each, whoever wants to know.
            await eventually(lambda: lab.subscribed(upstream) == ["w://one", "w://two"])
            await lab.touch(upstream, "w://two")
            await lab.touch(upstream, "w://one/page")
            await lab.touch(upstream, "w://three")
            assert [await first.next(), await second.next(), await second.next()] == [one, two, one]
        await eventually(lambda: lab.subscribed(upstream) == [])
        await lab.touch(upstream, "w://one")
        async with first.subscribed(two):
            await lab.touch(upstream, "w://two")
            assert await first.next() == two
        assert first.updates.empty()
        assert second.updates.empty()


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_subscription_ends_with_its_client_and_no_other(lab: Lab, upstream: str) -> None:
    uri = gateway(upstream, "w://one")
    async with watching(lab, "2026-07-28") as stays, stays.subscribed(uri):
        async with watching(lab, "legacy") as leaves:
            await subscribe(leaves.client, uri)
            await subscribe(leaves.client, gateway(upstream, "w://two"))
        await eventually(lambda: lab.subscribed(upstream) == ["w://one"])
        await lab.touch(upstream, "w://one")
        assert await stays.next() == uri
    await eventually(lambda: lab.subscribed(upstream) == [])


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_subscription_is_renewed_when_the_server_was_restarted(lab: Lab, upstream: str) -> None:
    uri = gateway(upstream, "w://one")
    async with watching(lab, "legacy") as watcher, watcher.subscribed(uri):
        with pytest.raises(Exception, match="exit status 3"):
            await lab.served.fold.call(upstream, "leave")
        # It is told at once, since the resource may have changed meanwhile.
        assert await watcher.next() == uri
        assert lab.subscribed(upstream) == ["w://one"]
        await lab.touch(upstream, "w://one")
        assert await watcher.next() == uri
    await eventually(lambda: lab.subscribed(upstream) == [])


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_who_may_not_read_a_resource_may_not_subscribe_to_it(lab: Lab, upstream: str) -> None:
    uri = gateway(upstream, "w://one")
    async with watching(lab, "legacy", "dora") as older, watching(lab, "2026-07-28", "dora") as newer:
        with pytest.raises(MCPError, match="Policy denies"):
            await subscribe(older.client, uri)
        async with newer.subscribed(uri) as taken:
            assert taken == []
            assert lab.subscribed(upstream) == []


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_what_cannot_be_subscribed_to_is_refused_and_the_rest_is_not(lab: Lab, upstream: str) -> None:
    one, shy = (gateway(upstream, f"w://{name}") for name in ("one", "shy"))
    async with watching(lab, "legacy") as older, watching(lab, "2026-07-28") as newer:
        for uri, reason in (
            (shy, "updates of"),
            ("toolfold://shelf/shelf://books/one", "does not send updates of its resources"),
            ("toolfold://nowhere/a", "Unknown resource"),
        ):
            with pytest.raises(MCPError, match=reason):
                await subscribe(older.client, uri)
        async with newer.subscribed(shy, one, "toolfold://shelf/shelf://books/one") as taken:
            assert taken == [one]
            await lab.touch(upstream, "w://one")
            assert await newer.next() == one


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ERAS)
async def test_arguments_of_prompts_and_templates_are_completed_by_their_server(
    lab: Lab, era: str, upstream: str
) -> None:
    prompt = types.PromptReference(name=f"{upstream}__paint")
    template = types.ResourceTemplateReference(uri=gateway(upstream, "w://paint/{colour}"))
    other = types.ResourceTemplateReference(uri="toolfold://shelf/shelf://books/{title}")
    argument = {"name": "colour", "value": "r"}
    async with lab.served.client("cy", era) as client, lab.served.client("dora", era) as denied:
        for ref in (prompt, template):
            found = (await client.complete(ref, argument, {"size": "7"})).completion
            assert found.values == ["colour=red7", "colour=rose7"]
            with pytest.raises(MCPError, match=r"Unknown prompt|Policy denies"):
                await denied.complete(ref, argument)
        # A server without completions has nothing to suggest.
        assert (await client.complete(other, argument)).completion.values == []
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.complete(types.PromptReference(name="paint"), argument)
        if era == "legacy":
            assert client.server_capabilities.completions is not None


async def test_a_client_has_a_limited_number_of_subscriptions(lab: Lab) -> None:
    uris = [gateway("older", f"w://{number}") for number in range(PER_CLIENT + 1)]
    async with watching(lab, "legacy") as older, watching(lab, "2026-07-28") as newer:
        async with newer.subscribed(*uris) as taken:
            assert taken == uris[:-1]
        async with older.subscribed(*uris[:-1]):
            await subscribe(older.client, uris[0])
            with pytest.raises(MCPError, match="Too many subscriptions: at most 100"):
                await subscribe(older.client, uris[-1])
        async with older.subscribed(uris[-1]):
            pass
    await eventually(lambda: lab.subscribed("older") == [])


async def test_a_client_that_opens_no_stream_for_updates_keeps_none(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_WITHOUT_STREAM", 0.2)
    headers = {"Authorization": "Bearer owner", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

    def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    async with httpx2.AsyncClient(headers=headers) as http:
        begun = await http.post(lab.served.url, json=request("initialize", hello))
        http.headers["Mcp-Session-Id"] = begun.headers["Mcp-Session-Id"]
        await http.post(lab.served.url, json=request("resources/subscribe", {"uri": gateway("older", "w://one")}))
        assert lab.subscribed("older") == ["w://one"]
        await eventually(lambda: lab.subscribed("older") == [])


async def test_without_exposed_resources_no_subscriptions_are_offered(tmp_path: Path) -> None:
    async with (
        serving(settings(mode="direct"), tmp_path) as served,
        served.client("ada", "legacy") as client,
        served.client("ada", "auto") as newer,
    ):
        assert newer.server_capabilities.resources is not None
        assert newer.server_capabilities.resources.subscribe is False
        uri = "toolfold://shelf/shelf://books/one"
        async with newer.listen(tools_list_changed=True, resource_subscriptions=[uri]) as events:
            assert events.honored.tools_list_changed is True
            assert not events.honored.resource_subscriptions
        offered = client.server_capabilities.resources  # of long results
        assert offered is not None
        assert not offered.subscribe
        with pytest.raises(MCPError, match="not found"):
            await subscribe(client, "toolfold://shelf/shelf://books/one")


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_of_others_sends_updates_over_stdio(tmp_path: Path, era: str) -> None:
    config = tmp_path / "toolfold.json"
    everything = server(npm_program("mcp-server-everything"))
    shown = {"servers": {"everything": everything, "shelf": SHELF}, "expose": ["resources"], "mode": "hybrid"}
    config.write_text(json.dumps({**shown, "direct": ["everything.toggle*"]}))
    words = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(tmp_path)]
    updates: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if message.method == "notifications/resources/updated":
            await updates.put(str(message.params.uri))

    parameters = StdioServerParameters(command=warm.python(), args=words)
    uri = "toolfold://everything/demo://resource/static/document/features.md"
    async with Client(parameters, mode=era, message_handler=on_message) as client:
        watcher = Watcher(client, era, updates)
        async with watcher.subscribed(uri) as taken:
            assert taken == [uri]
            await client.call_tool("everything__toggle-subscriber-updates", {})
            assert await watcher.next() == uri
