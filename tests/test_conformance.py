"""The MCP conformance suite on our HTTP endpoint and on our side of upstreams, for both revisions of the protocol.

`tests/conformance/scenarios.toml` says which scenarios apply and, for each that does not, why.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests import warm
from tests.conformance.client import ScenarioClient, listening
from tests.conformance.suite import REVISIONS, SCENARIOS, WIRE, Check, client_checks, scenarios, server_checks
from tests.lab import LAB
from tests.third_party import data_dir, serving_http
from toolfold import Toolfold
from toolfold.guards.events import Progress

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent / "conformance"
SERVER: dict[str, Any] = SCENARIOS["server"]
CLIENT: dict[str, Any] = SCENARIOS["client"]
Found = dict[str, dict[str, list[Check]]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture(scope="module")
def data(home: Path, shared_runtime: Path) -> Path:
    return data_dir(home, shared_runtime)


@pytest.fixture(scope="module")
async def url(data: Path) -> AsyncIterator[str]:
    async with serving_http(data, {"lab": LAB}) as address:
        yield address


@pytest.fixture(scope="module")
async def found(url: str, home: Path) -> Found:
    """Everything the suite requires of a server, run on our endpoint: revision → scenario → checks."""
    return {
        revision: await server_checks(url, home / f"server-{revision}", "--requirements", revision)
        for revision in REVISIONS
    }


def problems(checks: list[Check], allowed: dict[str, str] | None = None) -> list[Check]:
    """What did not pass, without what may fail with these words."""
    allowed = allowed or {}
    return [each for each in checks if not each.passed and not (each.id in allowed and allowed[each.id] in each.said)]


def stated_reason(scenario: str) -> str:
    """What every check that does not pass must say, as a pattern."""
    if scenario in SERVER["capability"]:
        return r"Method not found|-32601|not exercised|data\.uri is undefined"
    stated: str | dict[str, str] = SERVER["fixture_tool"][scenario]
    return re.escape(stated if isinstance(stated, str) else stated["said"])


def really_tested(checks: list[Check]) -> bool:
    return any(check.status == "SUCCESS" and check.id != WIRE for check in checks)


class TestServer:
    async def test_every_scenario_of_the_suite_is_in_exactly_one_list(self) -> None:
        passing = {name for names in SERVER["passes"].values() for name in names}
        listed = Counter([*passing, *SERVER["fixture_tool"], *SERVER["capability"], *SERVER["extension"]])
        assert [name for name, times in listed.items() if times > 1] == []
        assert sorted(await scenarios("server")) == sorted(listed)

    @pytest.mark.parametrize(
        ("revision", "scenario"), [(revision, name) for revision in REVISIONS for name in SERVER["passes"][revision]]
    )
    async def test_a_scenario_without_fixtures_passes(self, found: Found, revision: str, scenario: str) -> None:
        checks = found[revision][scenario]
        assert problems(checks, SERVER["untestable"].get(scenario)) == []
        assert really_tested(checks), "the pass is vacuous"

    @pytest.mark.parametrize("revision", REVISIONS)
    async def test_every_other_scenario_fails_for_the_stated_reason_only(self, found: Found, revision: str) -> None:
        rest = {name: checks for name, checks in found[revision].items() if name not in SERVER["passes"][revision]}
        surprises: list[tuple[str, Check]] = []
        for name, checks in rest.items():
            if name in SERVER["extension"]:
                continue
            reason = stated_reason(name)
            surprises += [(name, check) for check in problems(checks) if not re.search(reason, check.said)]
            wire = [check for check in checks if check.id == WIRE]
            surprises += [(name, check) for check in wire if not check.passed]
        assert surprises == []

    @pytest.mark.parametrize("mode", ["legacy", "auto"])
    async def test_what_is_not_offered_is_not_declared(self, url: str, mode: str) -> None:
        async with Client(url, mode=mode) as client:
            assert client.server_capabilities is not None
            declared = client.server_capabilities.model_dump(exclude_none=True)
        assert set(declared) == {"tools"}


@pytest.fixture(scope="module")
def fixture_url() -> Iterator[str]:
    """The suite's fixtures, on a port of this machine."""
    command = [warm.python(), str(HERE / "fixture_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        finally:
            process.kill()


@pytest.fixture(scope="module")
async def fixtures(
    fixture_url: str, tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path
) -> AsyncIterator[Toolfold]:
    config = {"servers": {"fixtures": {"url": fixture_url}}, "sandbox": {"pool": 1}}
    async with Toolfold.open(config, data_dir=data_dir(tmp_path_factory.mktemp("up"), shared_runtime)) as fold:
        yield fold


class TestUpstream:
    """The fixtures that the suite wants of a server, where we can have them: behind us."""

    @pytest.mark.parametrize("revision", REVISIONS)
    async def test_the_fixture_server_is_what_the_suite_asks_for(
        self, fixture_url: str, home: Path, revision: str
    ) -> None:
        checks = await server_checks(fixture_url, home / f"fixtures-{revision}", "--requirements", revision)
        for name in SCENARIOS["upstream"]["passes"]:
            assert problems(checks[name]) == []
            assert really_tested(checks[name])

    async def test_every_kind_of_content_arrives_in_a_program(self, fixtures: Toolfold) -> None:
        code = """
from servers.fixtures import (
    test_audio_content, test_embedded_resource, test_image_content, test_multiple_content_types, test_simple_text,
)
print(await test_simple_text())
for file in (await test_image_content(), await test_audio_content()):
    print(file.mime_type, open(file.path, "rb").read()[:4])
print(await test_embedded_resource())
words, image, data = await test_multiple_content_types()
print(words, image.mime_type, data["value"])
"""
        result = await fixtures.run(code)
        assert result.success, result.error
        assert result.output.splitlines() == [
            "This is a simple text response for testing.",
            "image/png b'\\x89PNG'",
            "audio/wav b'RIFF'",
            "This is an embedded resource content.",
            "Multiple content types test: image/png 123",
        ]

    async def test_an_error_of_a_tool_is_raised_with_its_words(self, fixtures: Toolfold) -> None:
        result = await fixtures.run("from servers.fixtures import test_error_handling\nawait test_error_handling()")
        assert not result.success
        assert "This tool intentionally returns an error for testing" in str(result.error)

    async def test_progress_is_heard(self, fixtures: Toolfold) -> None:
        code = "from servers.fixtures import test_tool_with_progress\nprint(await test_tool_with_progress())"
        heard = [event.fraction async for event in fixtures.stream(code) if isinstance(event, Progress)]
        assert heard == [0.0, 0.5, 1.0]

    async def test_resources_and_templates_are_read(self, fixtures: Toolfold) -> None:
        code = """
from toolfold import ToolError, read_resource
print(await read_resource("fixtures", "test://static-text"))
print((await read_resource("fixtures", "test://static-binary")).mime_type)
print((await read_resource("fixtures", "test://template/123/data"))["id"])
try:
    await read_resource("fixtures", "test://nothing")
except ToolError as error:
    print(error)
"""
        result = await fixtures.run(code)
        assert result.success, result.error
        lines = result.output.splitlines()
        assert lines[:3] == ["This is the content of the static text resource.", "image/png", "123"]
        assert "Resource not found" in lines[3]

    async def test_prompts_are_read(self, fixtures: Toolfold) -> None:
        code = """
from toolfold import get_prompt
print((await get_prompt("fixtures", "test_simple_prompt"))[0]["content"]["text"])
both = await get_prompt("fixtures", "test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
print(both[0]["content"]["text"])
for name, arguments in [("with_embedded_resource", {"resourceUri": "test://x"}), ("with_image", {})]:
    for message in await get_prompt("fixtures", "test_prompt_" + name, arguments):
        content = message["content"]
        print(content["type"] if isinstance(content, dict) else content.mime_type)
"""
        result = await fixtures.run(code)
        assert result.success, result.error
        assert result.output.splitlines() == [
            "This is a simple prompt for testing.",
            "Prompt with arguments: arg1='hello', arg2='world'",
            "resource",
            "text",
            "image/png",
            "text",
        ]


@pytest.fixture(scope="module")
async def played(home: Path, shared_runtime: Path) -> dict[str, tuple[dict[str, list[Check]], dict[str, str]]]:
    """Every scenario for clients: by revision, what the suite found and what we said in the end."""
    found: dict[str, tuple[dict[str, list[Check]], dict[str, str]]] = {}
    for revision in REVISIONS:
        client = ScenarioClient(revision, home / f"client-{revision}", shared_runtime)
        async with listening(client, home / "s") as command:
            found[revision] = await client_checks(command, revision, home / f"checks-{revision}"), client.outcomes
    return found


class TestClient:
    async def test_every_scenario_of_the_suite_is_run_or_has_a_reason(self) -> None:
        passing = {name for names in CLIENT["passes"].values() for name in names}
        reasons = tuple(CLIENT["not_run"])
        known = await scenarios("client")
        assert [name for name in known if name not in passing and not name.startswith(reasons)] == []
        assert passing <= set(known)
        assert [name for name in passing if name.startswith(reasons)] == []

    @pytest.mark.timeout(1300)
    @pytest.mark.parametrize(
        ("revision", "scenario"), [(revision, name) for revision in REVISIONS for name in CLIENT["passes"][revision]]
    )
    async def test_our_connector_is_a_client_that_the_suite_accepts(
        self,
        played: dict[str, tuple[dict[str, list[Check]], dict[str, str]]],
        revision: str,
        scenario: str,
    ) -> None:
        checks, outcomes = played[revision]
        # Skipped are checks of what is only sent by a client with more capabilities, or of the other era.
        assert [check for check in checks[scenario] if not check.passed and check.status != "SKIPPED"] == []
        assert really_tested(checks[scenario])
        refusal = CLIENT["refuses"].get(scenario, "")
        assert (refusal in outcomes[scenario]) if refusal else outcomes[scenario] == ""
