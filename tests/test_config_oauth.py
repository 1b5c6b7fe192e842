"""How the sign-in to a server is set: in our own file, and in those of other clients."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.config_machine import Machine, texts
from toolfold.config.clients import FORMATS, RawEntry, Reading, Scope, Source
from toolfold.config.entries import Dialect
from toolfold.config.folding.translate import NotTheSameError, to_ours
from toolfold.config.oauth import OAuthSettings
from toolfold.config.secrets import Redactor
from toolfold.config.settings import ServerConfig

PAGE = (Path(__file__).parents[1] / "docs" / "authentication.md").read_text(encoding="utf-8")
URL = "https://mcp.example.com/mcp"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, env={"SECRET": "s3cret-of-the-client", "HOME": "/home/me"})


FOREIGN: list[tuple[str, dict[str, Any], OAuthSettings]] = [
    ("nothing", {}, OAuthSettings()),
    ("FastMCP", {"auth": "oauth"}, OAuthSettings()),
    ("opencode, off", {"oauth": False}, OAuthSettings(enabled=False)),
    (
        "opencode",
        {"oauth": {"clientId": "c", "clientSecret": "${SECRET}", "scope": "a b"}},
        OAuthSettings(client_id="c", client_secret="s3cret-of-the-client", scopes=("a", "b")),
    ),
    (
        "Cursor",
        {"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${env:SECRET}", "scopes": ["a", "b"]}},
        OAuthSettings(client_id="c", client_secret="s3cret-of-the-client", scopes=("a", "b")),
    ),
    (
        "Claude Code",
        {"oauth": {"clientId": "c", "callbackPort": 8080}},
        OAuthSettings(client_id="c", redirect_uri="http://localhost:8080/callback"),
    ),
    (
        "Gemini CLI",
        {
            "oauth": {
                "enabled": True,
                "clientId": "c",
                "scopes": ["a"],
                "redirectUri": "http://localhost:7777/oauth/callback",
                "authorizationUrl": "https://auth.example.com/authorize",
            }
        },
        OAuthSettings(client_id="c", scopes=("a",), redirect_uri="http://localhost:7777/oauth/callback"),
    ),
    ("Codex", {"scopes": ["a", "b"]}, OAuthSettings(scopes=("a", "b"))),
]


@pytest.mark.parametrize(("client", "entry", "meant"), FOREIGN, ids=[client for client, *_ in FOREIGN])
def test_other_clients_words_are_understood_and_can_be_moved(
    machine: Machine, client: str, entry: dict[str, Any], meant: OAuthSettings
) -> None:
    loaded = machine.load({"mcpServers": {"x": {"url": URL, **entry}}})
    assert not loaded.problems
    assert loaded.settings.servers["x"].oauth == meant
    moved = to_ours(RawEntry("x", {"url": URL, **entry}, "x", Scope.USER, Dialect()), Reading(), machine.host)
    ours = machine.load({"servers": {"x": moved}, "check": True})
    assert not ours.problems
    assert ours.settings.servers["x"].oauth == meant


def _toml(document: dict[str, Any]) -> str:
    """The document as TOML, whose inline values differ from JSON's by a sign."""
    (key, servers), *_ = document.items()
    lines = [f"{name} = {json.dumps(value).replace(': ', ' = ')}" for name, value in servers["x"].items()]
    return f"[{key}.x]\n" + "\n".join(line.replace("http = ", "http:") for line in lines)


CLIENT_FILES: list[tuple[str, str, dict[str, Any], str]] = [
    ("claude-code", ".claude.json", {"oauth": {"clientId": "c"}}, "http://localhost:0/callback"),
    ("claude-code", ".claude.json", {"oauth": {"clientId": "c", "callbackPort": 8}}, "http://localhost:8/callback"),
    ("opencode", ".config/opencode/opencode.json", {"oauth": {"scope": "a"}}, ""),
    (
        "opencode",
        ".config/opencode/opencode.json",
        {"oauth": {"clientId": "c"}},
        "http://127.0.0.1:19876/mcp/oauth/callback",
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        {"oauth": {"clientId": "c", "callbackPort": 8}},
        "http://127.0.0.1:8/mcp/oauth/callback",
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        {"oauth": {"clientId": "c", "callbackPort": 8, "redirectUri": "http://127.0.0.1:9/x"}},
        "http://127.0.0.1:9/x",
    ),
    ("gemini", ".gemini/settings.json", {"oauth": {"clientId": "c"}}, "http://localhost:0/oauth/callback"),
    ("vscode", ".config/Code/User/mcp.json", {"oauth": {"clientId": "c"}}, "http://127.0.0.1:33418/"),
    (
        "codex",
        ".codex/config.toml",
        {"oauth": {"client_id": "c", "callback_port": 8}},
        "http://127.0.0.1:8/callback",
    ),
    (
        "codex",
        ".codex/config.toml",
        {"auth": "oauth", "oauth": {"client_id": "c", "callback_url": "http://127.0.0.1:9/x"}},
        "http://127.0.0.1:9/x",
    ),
]


@pytest.mark.parametrize(("client", "file", "entry", "comes_back"), CLIENT_FILES)
def test_a_registered_client_comes_back_to_where_its_own_client_would(
    machine: Machine, client: str, file: str, entry: dict[str, Any], comes_back: str
) -> None:
    key = {"opencode": "mcp", "vscode": "servers", "codex": "mcp_servers"}.get(client, "mcpServers")
    kind = {"opencode": {"type": "remote"}, "gemini": {"type": "http"}}.get(client, {})
    document = {key: {"x": {"url": URL, **kind, **entry}}}
    path = machine.user(file, _toml(document) if client == "codex" else document)
    loaded = machine.load()
    assert not loaded.problems
    oauth = loaded.settings.servers["x"].oauth
    assert oauth.redirect_uri == comes_back
    form = next(each for each in FORMATS if each.name == client)
    reading = form.reader(document, Source(file, path, Scope.USER, machine.cwd))
    ours = machine.load({"servers": {"x": to_ours(reading.entries[0], reading, machine.host)}, "check": True})
    assert not ours.problems
    assert ours.settings.servers["x"].oauth == oauth


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"headersHelper": "./token.sh"}, "`headersHelper` is a command that makes headers"),
        ({"http_headers_helper": "./token.sh"}, "`http_headers_helper` is a command that makes headers"),
        ({"auth": "chatgpt"}, "the sign-in of ChatGPT"),
        ({"authProviderType": "google_credentials"}, "the credentials of Google Cloud"),
    ],
)
def test_a_server_that_knows_its_client_in_another_way_is_left_to_that_client(
    machine: Machine, entry: dict[str, Any], why: str
) -> None:
    with pytest.raises(NotTheSameError, match=why):
        to_ours(RawEntry("x", {"url": URL, **entry}, "x", Scope.USER, Dialect()), Reading(), machine.host)


@pytest.mark.parametrize(
    ("oauth", "said"),
    [
        (3, "servers.x.oauth: expected a table of settings, true or false"),
        ({"grant": "password"}, 'servers.x.oauth.grant: expected "authorization_code" or "client_credentials"'),
        ({"grant": "client_credentials", "client_id": "c"}, "expected `oauth.client_secret` or `oauth.private_key`"),
        ({"client_secret": "s"}, "expected `oauth.client_id` beside a secret or a key"),
        ({"client_id": "c", "client_secret": "s", "private_key": "k"}, "not both"),
        ({"issuer": "auth.example.com"}, "expected `oauth.issuer` to be a URL"),
        ({"client_metadata_url": "https://example.com"}, "an https URL with a path"),
        ({"scopes": ['a"b']}, "servers.x.oauth.scopes: expected names of scopes"),
        ({"enabled": "yes"}, "servers.x.oauth.enabled: expected true or false"),
        ({"callback_port": 0}, "servers.x.oauth.callback_port: expected a port"),
        ({"client_id": "${NO_SUCH}"}, "NO_SUCH"),
    ],
)
def test_a_mistake_costs_its_server_and_is_said(machine: Machine, oauth: object, said: str) -> None:
    loaded = machine.load({"servers": {"x": {"url": URL, "oauth": oauth}, "y": {"url": URL}}, "check": True})
    assert set(loaded.settings.servers) == {"y"}
    assert said in " ".join(texts(loaded.problems))


def test_an_unknown_key_is_named_in_our_own_file(machine: Machine) -> None:
    loaded = machine.load({"servers": {"x": {"url": URL, "oauth": {"client": "c"}}}, "check": True})
    assert "servers.x.oauth.client: expected `client_id`" in " ".join(texts(loaded.problems))


def test_a_private_key_means_client_credentials_and_is_never_shown(machine: Machine) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----\n"
    path = machine.project("key.pem", key)
    entry = {"url": URL, "oauth": {"client_id": "c", "private_key": f"${{file:{path}}}"}}
    server = machine.load({"servers": {"x": entry}, "check": True}).settings.servers["x"]
    assert server.oauth.machine
    assert "MIGHAgEAMBMG" not in repr(server)
    assert "MIGHAgEAMBMG" not in Redactor(server).text(f"the key was {server.oauth.private_key}")


def test_the_examples_on_the_page_load_without_a_problem(machine: Machine) -> None:
    machine.user(".config/metrics.pem", "a key")
    here = replace(machine, env={"TRACKER_SECRET": "t", "METRICS_SECRET": "m"})
    examples = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    for number, text in enumerate(examples):
        loaded = here.load(here.project(f"{number}/toolfold.toml", text))
        assert not loaded.problems
        assert [server.oauth.client_id for server in loaded.settings.servers.values()] in (["my-client"], ["ci"])


def test_a_header_of_its_own_takes_the_place_of_a_sign_in() -> None:
    assert ServerConfig(transport="http", url=URL).may_sign_in
    assert not ServerConfig(transport="http", url=URL, headers={"authorization": "Bearer x"}).may_sign_in
    assert not ServerConfig(transport="http", url=URL, oauth=OAuthSettings(enabled=False)).may_sign_in
    assert not ServerConfig(command="x").may_sign_in


def test_what_a_sign_in_brought_is_masked_until_there_is_other() -> None:
    redactor = Redactor(ServerConfig(transport="http", url=URL, oauth=OAuthSettings()))
    redactor.also(["first-token-0001"])
    assert "first-token" not in redactor.text("you sent first-token-0001, which is bad")
    redactor.also(["second-token-02"])
    assert "second-token" not in redactor.text("you sent second-token-02")
