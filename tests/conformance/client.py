"""Our connector as the conformance suite's client under test.

The suite starts a command for every scenario. Ours is `relay.py`, which hands the scenario to this process and waits
for the outcome, so that nothing is imported thirty times. What an agent would do in a scenario is a program for
`fold.run`; where a person must sign in, they do it as `toolfold auth login` has them do it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.suite import SCENARIOS
from tests.oauth_site import browse
from tests.third_party import data_dir
from toolfold import Toolfold
from toolfold.config.load import load_here
from toolfold.config.settings import ServerConfig
from toolfold.errors import SignInNeeded, ToolfoldError
from toolfold.upstream.asking import Answer, Asked
from toolfold.upstream.auth.login import Login
from toolfold.upstream.fleet import Fleet

AT_ONCE = 4
"""The suite starts all scenarios at once; so many are worked on."""
PATIENCE = {"2025-11-25": 30.0, "2026-07-28": 300.0}
"""Seconds that a server has for its start. Those of the older revision may be silent; those of the newer one are slow
on a busy machine, which must not look as if they were older."""
SIGN_INS = 2
"""How often a person signs in before they give up."""
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"


ASKING = ("elicitation-sep1034-client-defaults", "sep-2322-client-request-state")


class Agreeable:
    """A person who sends off every form as it is shown."""

    run = "scenario"
    caller = "local"

    async def answer(self, asked: Asked) -> Answer:
        return Answer("accept", asked.form.check({}))


class ScenarioClient:
    """Plays the scenarios that are relayed to it. `outcomes` has what became of each: "" or the error."""

    def __init__(self, revision: str, homes: Path, shared_runtime: Path) -> None:
        self._patience = PATIENCE[revision]
        self._homes = homes
        self._runtime = shared_runtime
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.outcomes: dict[str, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: dict[str, Any] = json.loads(await reader.readline())
        scenario: str = asked["scenario"]
        try:
            async with self._slots:
                home = self._homes / scenario
                home.mkdir(parents=True)
                await self.play(scenario, asked["url"], asked["context"], data_dir(home, self._runtime))
            outcome = ""
        except ToolfoldError as error:
            outcome = str(error)
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        self.outcomes[scenario] = outcome
        writer.write(outcome.encode())
        writer.close()

    async def play(self, scenario: str, url: str, context: dict[str, Any], data: Path) -> None:
        if scenario.startswith(tuple(SCENARIOS["client"]["not_run"])):
            return
        if scenario.startswith("auth/"):
            entry = {"url": url, "start_timeout": self._patience, "oauth": oauth(scenario, context)}
            await self._with_sign_in(entry, data)
            return
        if scenario in ASKING:
            site = ServerConfig(transport="http", url=url, start_timeout=self._patience)
            async with Fleet({"site": site}, log_dir=data / "logs") as fleet:
                await self._call_all(fleet)
            return
        config = {"servers": {"site": {"url": url, "start_timeout": self._patience}}, "sandbox": {"pool": 1}}
        async with Toolfold.open(config, data_dir=data) as fold:
            await fold.refresh(["site"])
            if fold.unlisted:
                raise fold.unlisted["site"]
            result = await fold.run(program(fold, scenario, context))
            if not result.success:
                raise RuntimeError(result.text)

    async def _with_sign_in(self, entry: dict[str, Any], data: Path) -> None:
        """Call every tool, and sign in when that is asked for."""
        config = load_here({"servers": {"site": entry}}, data_dir=data).settings.servers["site"]
        async with Fleet({"site": config}, log_dir=data / "logs", auth_dir=data / "auth") as fleet:
            for _ in range(SIGN_INS):
                try:
                    await self._call_all(fleet)
                    break
                except SignInNeeded:
                    await Login("site", config, data).sign_in(browse)
        # A restart: what was signed in to before still is.
        async with Fleet({"site": config}, log_dir=data / "logs", auth_dir=data / "auth") as fleet:
            await self._call_all(fleet)

    async def _call_all(self, fleet: Fleet) -> None:
        for tool in (await fleet.listing("site")).tools:
            await fleet.call("site", tool.name, {}, person=Agreeable())


def oauth(scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """What an operator sets for this scenario."""
    match scenario:
        case "auth/basic-cimd":
            return {"client_metadata_url": CLIENT_METADATA}
        case "auth/pre-registration":
            return {name: context[name] for name in ("client_id", "client_secret", "issuer")}
        case "auth/client-credentials-basic":
            names = ("client_id", "client_secret")
            return {"grant": "client_credentials"} | {name: context[name] for name in names}
        case "auth/client-credentials-jwt":
            return {"client_id": context["client_id"], "private_key": context["private_key_pem"]}
        case _:
            return {}


def program(fold: Toolfold, scenario: str, context: dict[str, Any]) -> str:
    match scenario:
        case "tools_call":
            return "from servers.site import add_numbers\nprint(await add_numbers(a=2, b=3))"
        case "sse-retry":
            return "from servers.site import test_reconnection\nprint(await test_reconnection())"
        case "http-invalid-tool-headers":
            return "import servers.site\n" + calls({tool.name: {"region": "north"} for tool in fold.catalog.tools})
        case "http-custom-headers":
            # The schemas allow no null, and a fold would refuse it: what has no value is left out.
            given = {call["name"]: call["arguments"] for call in context["toolCalls"]}
            return calls({name: {k: v for k, v in each.items() if v is not None} for name, each in given.items()})
        case "json-schema-2020-12-preservation":
            focal = fold.catalog.tool("site", "json_schema_2020_12_tool")
            assert focal is not None
            return calls({"json_schema_echo": {"schema": focal.input_schema}})
        case "http-standard-headers":
            reads = [f"await read_resource('site', {resource.uri!r})" for resource in fold.catalog.resources]
            prompts = [f"await get_prompt('site', {prompt.name!r})" for prompt in fold.catalog.prompts]
            lines = ["from toolfold import get_prompt, read_resource", *reads, *prompts]
            return calls({tool.name: {} for tool in fold.catalog.tools}) + "\n".join(lines)
        case _:
            return "print('connected')"


def calls(arguments: dict[str, Any]) -> str:
    return f"""
from toolfold import call_mcp_tool
for name, arguments in {arguments!r}.items():
    print(await call_mcp_tool("site." + name, arguments))
"""


@asynccontextmanager
async def listening(client: ScenarioClient, place: Path) -> AsyncGenerator[str]:
    """Have scenarios relayed to `client`; yields the command for the suite."""
    server = await asyncio.start_unix_server(client.serve, place, limit=1_000_000)
    try:
        yield f"{sys.executable} -I -S {Path(__file__).with_name('relay.py')} {place}"
    finally:
        server.close()
