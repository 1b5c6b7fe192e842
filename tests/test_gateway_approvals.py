"""Questions through real MCP clients, over stdio and HTTP, in both protocol eras."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
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
from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called, choices, config
from tests.test_gateway_http import ACCEPT, INITIALIZE, Gateway, started

pytestmark = pytest.mark.anyio

TRANSPORTS = ["stdio", "http"]
ERAS = ["legacy", "2026-07-28"]
TOKENS = {"ada": "the token of ada", "bob": "the token of bob"}
ONE = "from servers.ledger import note\nprint(await note(text='hello'))"

Answer = Callable[[types.ElicitRequestFormParams], Awaitable[Any]]


def write_config(folder: Path, **approval: Any) -> list[str]:
    """The words that serve a gateway whose calls must be asked for."""
    callers = {name: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()} for name, token in TOKENS.items()}
    file = folder / "config.json"
    file.write_text(json.dumps({**config(folder, **approval), "callers": callers}))
    return ["-m", "toolfold", "serve", "--config", str(file), "--data", str(folder)]


@asynccontextmanager
async def serving(folder: Path, **approval: Any) -> AsyncGenerator[Gateway]:
    async with started([*write_config(folder, **approval), "--http", "127.0.0.1:0"]) as gateway:
        yield gateway


@asynccontextmanager
async def http_client(gateway: Gateway, mode: str, answer: Answer | None, who: str = "ada") -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(gateway.url, http_client=http), mode=mode, elicitation_callback=callback(answer)
        ) as client,
    ):
        yield client


@asynccontextmanager
async def connected(
    transport: str, mode: str, folder: Path, answer: Answer | None, **approval: Any
) -> AsyncGenerator[Client]:
    if transport == "stdio":
        parameters = StdioServerParameters(command=warm.python(), args=write_config(folder, **approval))
        async with Client(parameters, mode=mode, elicitation_callback=callback(answer)) as client:
            yield client
    else:
        async with serving(folder, **approval) as gateway, http_client(gateway, mode, answer) as client:
            yield client


def callback(answer: Answer | None) -> Any:
    if answer is None:
        return None

    async def elicited(_context: Any, params: Any) -> Any:
        return await answer(params)

    return elicited


def choosing(reply: str) -> tuple[Answer, list[types.ElicitRequestFormParams]]:
    asked: list[types.ElicitRequestFormParams] = []

    async def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"answer": reply})

    return answer, asked


async def text(client: Client, code: str, **arguments: Any) -> str:
    result = await client.call_tool("run_code", {"code": code, **arguments})
    content: Any = result.content[0]
    return content.text


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_loop_of_fifty_is_approved_once(runtime_dir: Path, transport: str, mode: str) -> None:
    answer, asked = choosing("run")
    async with connected(transport, mode, runtime_dir, answer) as client:
        assert await text(client, GATHERED) == f"{SOME_CALLS} ['noted']"
        [params] = asked
        assert f"{SOME_CALLS} times" in params.message
        assert 'text="call 0"' in params.message
        # On stdio the connection is a session; over HTTP a run without a name has none.
        session = ["session"] if transport == "stdio" else []
        assert choices(params) == ["once", "run", *session, "no"]
        # The answer was for that run.
        assert await text(client, ONE_BY_ONE) == f"{SOME_CALLS} 0"
        assert len(asked) == 2
    assert len(called(runtime_dir)) == 2 * SOME_CALLS


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_loop_of_fifty_is_denied_once(runtime_dir: Path, transport: str, mode: str) -> None:
    answer, asked = choosing("no")
    async with connected(transport, mode, runtime_dir, answer) as client:
        assert await text(client, ONE_BY_ONE) == f"0 {SOME_CALLS}"
        assert "the person who was asked said no" in await text(client, GATHERED)
        assert len(asked) == 2
        shown = await text(client, ONE)
        assert "ApprovalDenied: ledger.note was not allowed" in shown
    assert called(runtime_dir) == []


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_for_the_session_holds_for_later_runs_of_it(runtime_dir: Path, mode: str) -> None:
    answer, asked = choosing("session")
    async with connected("http", mode, runtime_dir, answer) as client:
        for _ in range(2):
            assert await text(client, ONE, session="s") == "noted"
        assert len(asked) == 1
        assert await text(client, ONE, session="t") == "noted"
        assert len(asked) == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_that_comes_too_late_counts_for_nothing(runtime_dir: Path, transport: str, mode: str) -> None:
    """The program has gone on without it; the client still gets what the program printed."""
    late = asyncio.Event()

    async def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        # In the older era the client is told that the question was withdrawn, which cancels this.
        await asyncio.sleep(2)
        late.set()
        return types.ElicitResult(action="accept", content={"answer": "run"})

    async with connected(transport, mode, runtime_dir, answer, timeout=0.5) as client:
        assert await text(client, ONE_BY_ONE) == f"0 {SOME_CALLS}"
        if mode != "legacy":
            assert late.is_set()
    assert called(runtime_dir) == []


async def test_everything_but_a_clear_yes_is_a_no(runtime_dir: Path) -> None:
    answers = [
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="accept"),
        types.ElicitResult(action="accept", content={"answer": "yes please"}),
        types.ElicitResult(action="accept", content={"answer": ["run"]}),
        types.ElicitResult(action="accept", content={"other": "run"}),
        types.ElicitResult(action="decline", content={"answer": "run"}),
    ]

    def giving(answer: types.ElicitResult) -> Answer:
        async def give(params: types.ElicitRequestFormParams) -> types.ElicitResult:
            return answer

        return give

    async with serving(runtime_dir) as gateway:
        for mode, answer in itertools.product(ERAS, answers):
            async with http_client(gateway, mode, giving(answer)) as client:
                told = await text(client, ONE)
            assert "ApprovalDenied" in told, (mode, answer)
            # Clients that nobody watches answer like this: the way to allow it is told.
            assert "the client" in told, (mode, answer)
            assert "toolfold policy allow 'ledger.note'" in told, (mode, answer)
    assert called(runtime_dir) == []


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_progress_is_sent_while_a_person_decides(runtime_dir: Path, transport: str) -> None:
    """In the other era no request is open meanwhile."""
    told = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if message and "waiting for a person" in message:
            told.set()

    async def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        await told.wait()
        return types.ElicitResult(action="accept", content={"answer": "once"})

    async with connected(transport, "legacy", runtime_dir, answer) as client, asyncio.timeout(60):
        result: Any = await client.call_tool("run_code", {"code": ONE}, progress_callback=on_progress)
        assert result.content[0].text == "noted"


class TestStrangers:
    """Over HTTP, with two callers. Nothing but the asked client's own answer, once, lets a call through."""

    async def test_a_state_is_good_for_its_caller_its_call_and_one_time(self, runtime_dir: Path) -> None:
        refused = "Invalid or expired requestState"
        answer, _ = choosing("run")
        async with (
            serving(runtime_dir) as gateway,
            http_client(gateway, "2026-07-28", answer) as ada,
            http_client(gateway, "2026-07-28", answer, "bob") as bob,
        ):

            async def call(client: Client, code: str, **more: Any) -> Any:
                arguments = {"code": code}
                return await client.session.call_tool("run_code", arguments, allow_input_required=True, **more)

            asked = await call(ada, ONE)
            assert isinstance(asked, types.InputRequiredResult)
            state = asked.request_state
            assert state is not None
            assert asked.input_requests is not None
            yes = types.ElicitResult(action="accept", content={"answer": "run"})
            responses = dict.fromkeys(asked.input_requests, yes)
            for client, code, forged in (
                (bob, ONE, state),  # foreign
                (ada, f"{ONE}\n", state),  # for another call
                (ada, ONE, state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]),  # tampered with
                (ada, ONE, "no state at all"),
            ):
                with pytest.raises(MCPError, match=refused):
                    await call(client, code, input_responses=responses, request_state=forged)
            assert called(runtime_dir) == []

            # An answer to a question that was not asked is none, and the question is put again.
            again = await call(ada, ONE, input_responses={"guessed": yes}, request_state=state)
            assert isinstance(again, types.InputRequiredResult)
            assert again.input_requests is not None
            with pytest.raises(MCPError, match=refused):  # repeated
                await call(ada, ONE, input_responses=responses, request_state=state)
            assert called(runtime_dir) == []

            responses = dict.fromkeys(again.input_requests, yes)
            result = await call(ada, ONE, input_responses=responses, request_state=again.request_state)
            assert result.content[0].text == "noted"
            with pytest.raises(MCPError, match=refused):  # repeated after the end
                await call(ada, ONE, input_responses=responses, request_state=again.request_state)
        assert len(called(runtime_dir)) == 1

    async def test_answers_without_a_state_begin_a_new_run(self, runtime_dir: Path) -> None:
        answer, asked = choosing("no")
        async with serving(runtime_dir) as gateway, http_client(gateway, "2026-07-28", answer) as client:
            yes = types.ElicitResult(action="accept", content={"answer": "run"})
            result: Any = await client.session.call_tool(
                "run_code", {"code": ONE}, input_responses={"1": yes}, allow_input_required=True
            )
            assert isinstance(result, types.InputRequiredResult)
        assert asked == []
        assert called(runtime_dir) == []

    async def test_another_caller_cannot_answer_a_request_of_ours(self, runtime_dir: Path) -> None:
        """In the older era an answer is a POST, and request ids are numbers that are easy to guess."""
        async with serving(runtime_dir) as gateway, httpx2.AsyncClient(timeout=60) as http:
            session = await Older.connect(http, gateway, "ada")
            stranger = await Older.connect(http, gateway, "bob")
            async with session.calling(ONE) as events:
                question = await anext(events)
                assert question["method"] == "elicitation/create"
                yes = {"action": "accept", "content": {"answer": "run"}}
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": yes}
                # By a stranger in our session, in its own session, without one; and with an id that was not asked.
                assert await stranger.post(answer, session=session.name) == 404
                assert await stranger.post(answer) == 202
                assert await stranger.post(answer, session="") == 400
                assert await session.post({**answer, "id": 999}) == 202
                assert called(runtime_dir) == []
                no = {**answer, "result": {"action": "decline"}}
                assert await session.post(no) == 202
                assert await session.post(answer) == 202  # the second one is too late
                result = await anext(events)
            assert "ApprovalDenied" in result["result"]["content"][0]["text"]
        assert called(runtime_dir) == []

    async def test_a_malformed_answer_is_a_no(self, runtime_dir: Path) -> None:
        results: list[object] = [{}, {"action": "yes"}, {"action": "accept", "content": 5}, {"answer": "run"}]
        async with serving(runtime_dir) as gateway, httpx2.AsyncClient(timeout=60) as http:
            for result in results:
                session = await Older.connect(http, gateway, "ada")
                async with session.calling(ONE) as events:
                    question = await anext(events)
                    assert await session.post({"jsonrpc": "2.0", "id": question["id"], "result": result}) == 202
                    ended = await anext(events)
                assert "ApprovalDenied" in ended["result"]["content"][0]["text"], result
        assert called(runtime_dir) == []


class TestClientsThatLeave:
    async def test_the_run_ends_with_its_connection(self, runtime_dir: Path) -> None:
        """The session is free again at once, long before the question would have been given up."""
        async with serving(runtime_dir) as gateway, httpx2.AsyncClient(timeout=60) as http:
            session = await Older.connect(http, gateway, "ada")
            async with session.calling(ONE, session="s") as events:
                question = await anext(events)
            assert (await session.run("print('free')", session="s")).splitlines()[-1] == "free"
            answer = {"action": "accept", "content": {"answer": "run"}}
            assert await session.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}) == 202
            assert await session.run("print('still free')", session="s") == "still free"
        assert called(runtime_dir) == []

    async def test_a_cancelled_request_ends_the_run_and_withdraws_the_question(self, runtime_dir: Path) -> None:
        async with serving(runtime_dir) as gateway, httpx2.AsyncClient(timeout=60) as http:
            session = await Older.connect(http, gateway, "ada")
            async with session.calling(ONE, session="s") as events:
                question = await anext(events)
                cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
                assert await session.post(cancel) == 202
                withdrawn = await anext(events)
                assert withdrawn["method"] == "notifications/cancelled"
                assert withdrawn["params"]["requestId"] == question["id"]
            assert (await session.run("print('free')", session="s")).splitlines()[-1] == "free"
        assert called(runtime_dir) == []

    async def test_a_client_that_never_comes_back_leaves_nothing(self, runtime_dir: Path) -> None:
        answer, _ = choosing("run")
        async with (
            serving(runtime_dir, timeout=0.5) as gateway,
            http_client(gateway, "2026-07-28", answer) as client,
        ):
            arguments = {"code": f"x = 1\n{ONE}", "session": "s"}
            asked = await client.session.call_tool("run_code", arguments, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            # The next run of the session begins when the abandoned one has been told that nobody answered.
            async with asyncio.timeout(20):
                assert await text(client, "print(x)", session="s") == "1"
        assert called(runtime_dir) == []

    async def test_stdio_ends_with_a_question_open(self, runtime_dir: Path) -> None:
        """Closing the client ends the gateway, whatever is being asked."""
        asked = asyncio.Event()

        async def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
            asked.set()
            return await asyncio.get_running_loop().create_future()

        async with asyncio.timeout(60):
            async with connected("stdio", "legacy", runtime_dir, answer) as client:
                call = asyncio.create_task(client.call_tool("run_code", {"code": ONE}))
                await asked.wait()
            with pytest.raises(MCPError):
                await call
        assert called(runtime_dir) == []


@dataclass
class Older:
    """A client of 2025-11-25 that shows every message and can be told to misbehave."""

    http: httpx2.AsyncClient
    url: str
    headers: dict[str, str]
    name: str

    @classmethod
    async def connect(cls, http: httpx2.AsyncClient, gateway: Gateway, who: str) -> Older:
        headers = {**ACCEPT, "authorization": f"Bearer {TOKENS[who]}"}
        hello: dict[str, Any] = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": {"elicitation": {}}}}
        answer = await http.post(gateway.url, json=hello, headers=headers)
        assert answer.status_code == 200
        made = cls(http, gateway.url, headers, answer.headers["mcp-session-id"])
        assert await made.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        return made

    async def post(self, message: dict[str, Any], session: str | None = None) -> int:
        name = self.name if session is None else session
        headers = self.headers | ({"mcp-session-id": name} if name else {})
        return (await self.http.post(self.url, json=message, headers=headers)).status_code

    @asynccontextmanager
    async def calling(self, code: str, **arguments: str) -> AsyncGenerator[AsyncGenerator[dict[str, Any]]]:
        """`run_code`, and what the gateway sends; leaving closes the connection."""
        params = {"name": "run_code", "arguments": {"code": code, **arguments}}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        headers = {**self.headers, "mcp-session-id": self.name}
        async with self.http.stream("POST", self.url, json=message, headers=headers) as response:

            async def events() -> AsyncGenerator[dict[str, Any]]:
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])

            yield events()

    async def run(self, code: str, **arguments: str) -> str:
        params = {"name": "run_code", "arguments": {"code": code, **arguments}}
        message = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}
        headers = {**self.headers, "mcp-session-id": self.name}
        return (await self.http.post(self.url, json=message, headers=headers)).json()["result"]["content"][0]["text"]
