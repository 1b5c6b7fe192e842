"""Servers written with the SDK, of both protocol eras, over stdio, streamable HTTP and SSE."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.upstream_lab import POLITE, eventually, polite, text_of
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing, TextPart
from toolfold.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from toolfold.upstream import server, session
from toolfold.upstream.asking import Answer, Asked
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio


class Site:
    """A server on a port of this machine."""

    def __init__(self, transport: str, *flags: str) -> None:
        self.transport = transport
        self.flags = flags
        self.port = ""
        self.start()

    def start(self) -> None:
        port = [self.port] if self.port else []
        self.process = subprocess.Popen(
            [warm.python(), POLITE, self.transport, *self.flags, *port], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = self.process.stdout.readline().strip()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def config(self, **settings: Any) -> ServerConfig:
        path = "sse" if self.transport == "sse" else "mcp"
        transport = "sse" if self.transport == "sse" else "http"
        return ServerConfig(transport=transport, url=f"http://127.0.0.1:{self.port}/{path}", **settings)


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def start(transport: str, *flags: str) -> Site:
        sites.append(Site(transport, *flags))
        return sites[-1]

    yield start
    for each in sites:
        each.stop()


async def works(fleet: Fleet) -> None:
    result = await fleet.call("a", "add", {"a": 1, "b": 2})
    assert result.structured == {"result": 3}
    assert result.parts == [TextPart("3")]
    listing = await fleet.listing("a")
    assert listing.instructions == "Ask nicely."
    assert {"add", "grow"} <= {tool.name for tool in listing.tools}
    schema = next(tool for tool in listing.tools if tool.name == "add").output_schema
    assert schema is not None
    assert (await fleet.call("a", "add", {"a": "?"})).is_error


class Traveller:
    """Somebody who answers."""

    run = "run"
    caller = "ada"

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return Answer("accept", asked.form.check({"city": "Rome"}))


async def asks(fleet: Fleet) -> None:
    """The server asks in the middle of a call, and goes on with the answer."""
    person = Traveller()
    result = await fleet.call("a", "book", {}, person=person)
    assert text_of(result) == "2 nights in Rome"
    assert [asked.message for asked in person.asked] == ["Where do you want to stay?"]
    # Without a person to ask, a server of the newer era is told so at once, and one of the older era is declined.
    try:
        assert (await fleet.call("a", "book", {})).is_error
    except UpstreamError as error:
        assert "needs a client that offers elicitation, which is not possible here" in error.message  # noqa: PT017
    assert len(person.asked) == 1


async def test_stdio_of_the_newer_era(tmp_path: Path) -> None:
    async with Fleet({"a": polite()}, log_dir=tmp_path) as fleet:
        await works(fleet)
        assert fleet.health()[0].protocol_version == "2026-07-28"
        await asks(fleet)


@pytest.mark.parametrize(
    ("transport", "flags", "version"),
    [("http", (), "2026-07-28"), ("http", ("older",), "2025-11-25"), ("sse", (), "2025-11-25")],
)
async def test_http_of_either_era_and_sse(
    tmp_path: Path, site: Callable[..., Site], transport: str, flags: tuple[str, ...], version: str
) -> None:
    async with Fleet({"a": site(transport, *flags).config()}, log_dir=tmp_path) as fleet:
        await works(fleet)
        assert fleet.health()[0].protocol_version == version
        answers = await asyncio.gather(*(fleet.call("a", "add", {"a": n, "b": n}) for n in range(20)))
        assert [answer.structured["result"] for answer in answers] == [2 * n for n in range(20)]
        steps: list[float] = []
        await fleet.call("a", "count", {}, on_progress=lambda step, _total, _text: steps.append(step))
        await eventually(lambda: steps == [1, 2, 3])
        await asks(fleet)


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_large_result_arrives_by_every_way(tmp_path: Path, site: Callable[..., Site], transport: str) -> None:
    config = polite() if transport == "stdio" else site(transport).config()
    async with Fleet({"a": config}, log_dir=tmp_path) as fleet:
        (part,) = (await fleet.call("a", "big", {"megabytes": 5})).parts
        assert isinstance(part, TextPart)
        assert len(part.text) == 5_000_000
        await works(fleet)


@pytest.mark.parametrize(
    ("transport", "flags"), [("stdio", ()), ("http", ()), ("http", ("older",)), ("sse", ("older",))]
)
async def test_a_changed_list_is_noticed_in_either_era(
    tmp_path: Path, site: Callable[..., Site], transport: str, flags: tuple[str, ...]
) -> None:
    heard: list[Listing] = []
    config = polite() if transport == "stdio" else site(transport, *flags).config()
    async with Fleet({"a": config}, log_dir=tmp_path, on_listing=heard.append) as fleet:
        await fleet.listing("a")

        async def keep_growing() -> None:
            # The stream of changes is asked for after the handshake; what changes before it is there is not announced.
            number = 0
            while not heard:
                number += 1
                await fleet.call("a", "grow", {"name": f"grown{number}"})
                await asyncio.sleep(0.2)

        async with asyncio.timeout(15):
            await keep_growing()
        assert any(tool.name.startswith("grown") for tool in heard[0].tools)


async def test_changes_are_followed_again_after_a_stream_broke_and_was_refused(
    tmp_path: Path, site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FIRST_DELAY", 0.05)
    monkeypatch.setattr(server, "RELIST_SPACING", 0.05)
    heard: list[Listing] = []
    async with Fleet({"a": site("http", "flaky").config()}, log_dir=tmp_path, on_listing=heard.append) as fleet:
        await fleet.listing("a")
        await eventually(lambda: "changes cannot be followed" in fleet.log_file("a").read_text())
        number = 0
        async with asyncio.timeout(30):
            while not heard or not heard[-1].tools[-1].name.startswith("grown"):
                number += 1
                await fleet.call("a", "grow", {"name": f"grown{number}"})
                await asyncio.sleep(0.05)


async def test_arguments_travel_as_headers_where_the_newer_protocol_asks_for_it(
    tmp_path: Path, site: Callable[..., Site]
) -> None:
    async with Fleet({"a": site("http").config()}, log_dir=tmp_path) as fleet:
        # Not listed before: the refusal teaches the headers, and the call is sent once more.
        result = await fleet.call("a", "where", {"region": "north"})
        assert result.structured["region"] == "north"
        assert result.structured["mcp-param-region"] == "north"
        assert result.structured["mcp-name"] == "where"


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_missing_authorization_is_said_plainly_and_headers_are_sent(
    tmp_path: Path, site: Callable[..., Site], transport: str
) -> None:
    guarded = site(transport, "token")
    servers = {"out": guarded.config(), "in": guarded.config(headers={"Authorization": "Bearer sesame"})}
    async with Fleet(servers, log_dir=tmp_path) as fleet:
        with pytest.raises(UpstreamUnavailable, match=r"401.*authorization is needed.*was not sent.*Authorization"):
            await fleet.call("out", "add", {"a": 1, "b": 1})
        assert (await fleet.call("in", "add", {"a": 1, "b": 1})).structured == {"result": 2}


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_site_that_is_down_is_said_and_used_again_when_it_is_up(
    tmp_path: Path, site: Callable[..., Site], transport: str
) -> None:
    place = site(transport)
    async with Fleet({"a": place.config(call_timeout=10)}, log_dir=tmp_path) as fleet:
        await works(fleet)
        place.stop()
        with pytest.raises(UpstreamError):
            await fleet.call("a", "add", {"a": 1, "b": 1})
        await eventually(lambda: fleet.health()[0].state != "ready")
        with pytest.raises(UpstreamUnavailable, match="cannot be reached at http"):
            await fleet.call("a", "add", {"a": 1, "b": 1})
        place.start()
        await eventually(lambda: fleet.health()[0].state == "failed")
        await works(fleet)


async def test_a_lost_session_is_opened_anew_by_the_next_call(tmp_path: Path, site: Callable[..., Site]) -> None:
    async with Fleet({"a": site("http", "older", "forgetful").config()}, log_dir=tmp_path) as fleet:
        errors: list[str] = []
        for _ in range(12):
            try:
                await fleet.call("a", "add", {"a": 1, "b": 1})
            except UpstreamUnavailable as error:
                errors.append(str(error))
        assert 0 < len(errors) < 6
        assert all("session" in error and "it had no effect" in error for error in errors)


def connections() -> int:
    return sum(task.get_name() == "upstream a" for task in asyncio.all_tasks())


async def test_a_session_that_the_site_does_not_end_is_given_up(
    tmp_path: Path, site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLOSE_TIMEOUT", 0.2)
    place = site("http", "older", "forgetful", "clinging")
    async with Fleet({"a": place.config()}, log_dir=tmp_path) as fleet:

        async def use_until_it_forgets() -> None:
            for _ in range(12):
                await fleet.call("a", "add", {"a": 1, "b": 1})

        with pytest.raises(UpstreamUnavailable, match="ended the session"):
            await use_until_it_forgets()
        await eventually(lambda: not connections())
        # And not by the end of the fleet either, however long one connection would wait.
        monkeypatch.setattr(server, "CLOSE_TIMEOUT", 1000.0)
        monkeypatch.setattr("toolfold.upstream.fleet.CLOSE_TIMEOUT", 0.2)
        await fleet.ready("a")
        assert connections() == 1
    assert not connections()


async def test_a_call_over_sse_that_is_never_accepted_ends_when_its_time_does(
    tmp_path: Path, site: Callable[..., Site]
) -> None:
    async with Fleet({"a": site("sse", "mute").config(call_timeout=1)}, log_dir=tmp_path) as fleet, asyncio.timeout(20):
        with pytest.raises(UpstreamTimeout, match=r"`add` did not answer within 1 s.*was sent and may have"):
            await fleet.call("a", "add", {"a": 1, "b": 1})


async def test_a_call_that_is_cancelled_over_http_leaves_the_connection_usable(
    tmp_path: Path, site: Callable[..., Site]
) -> None:
    async with Fleet({"a": site("http").config()}, log_dir=tmp_path) as fleet:
        await works(fleet)
        calls = [asyncio.create_task(fleet.call("a", "big", {"megabytes": 2})) for _ in range(5)]
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await works(fleet)
        assert fleet.health()[0].restarts == 0


async def test_what_is_secret_in_an_address_is_not_in_an_error(tmp_path: Path, site: Callable[..., Site]) -> None:
    secret = f"http://me:secret1@127.0.0.1:{site('sse', 'token').port}/sse?key=secret2"
    servers = {
        "sse": ServerConfig(transport="sse", url=secret),
        "http": ServerConfig(transport="http", url=secret),
        "down": ServerConfig(transport="http", url="http://me:secret1@127.0.0.1:9/mcp?key=secret2"),
    }
    async with Fleet(servers, log_dir=tmp_path) as fleet:
        for name in servers:
            with pytest.raises(UpstreamUnavailable) as failed:
                await fleet.call(name, "add", {})
            assert "secret" not in str(failed.value)
            assert "127.0.0.1" in str(failed.value)
