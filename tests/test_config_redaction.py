"""Secrets of a server's config are masked in any text, and what is no secret stays readable."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.config.secrets import MASK, Redactor, masked_url
from toolfold.config.settings import ServerConfig

SECRET = "hunter2hunter2hunter2"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----"


def stdio(*args: str, **env: str) -> ServerConfig:
    return ServerConfig(command="x", args=args, env=env)


def remote(url: str = "https://a.example/mcp", **headers: str) -> ServerConfig:
    return ServerConfig(transport="http", url=url, headers={name.replace("_", "-"): v for name, v in headers.items()})


PLACES: list[tuple[ServerConfig, str]] = [
    (stdio(A=SECRET), SECRET),
    (stdio(API_KEY="abcd"), "abcd"),
    (stdio(DB_PASSWORD="letmein"), "letmein"),
    (stdio(GITHUB_TOKEN="ghp_x"), "ghp_x"),
    (stdio(SOMETHING="s3cr3t-value"), "s3cr3t-value"),
    (stdio(SOMETHING="my-secret-value"), "my-secret-value"),
    (stdio(SOMETHING="correct horse battery staple"), "correct horse battery staple"),
    (stdio(SOMETHING="Tr0ub4dor&3"), "Tr0ub4dor&3"),
    (stdio(DATABASE_URL=f"postgres://me:{SECRET}@db.example/x"), SECRET),
    (stdio(DATABASE_URL="postgres://me:pass@db.example/x"), "pass"),
    (stdio(AWS_SECRET_ACCESS_KEY="/wJalrXUtnFEMI/K7MDENG1"), "/wJalrXUtnFEMI/K7MDENG1"),
    (stdio(PRIVATE_KEY=PEM), "MIIEvQIBADANBgkqhkiG9w0"),
    (stdio("--api-key", "abcd1"), "abcd1"),
    (stdio("--token=abcd1"), "abcd1"),
    (stdio("--header", f"Authorization: Bearer {SECRET}"), SECRET),
    (stdio("run", "-e", "TOKEN=abcd1", "image"), "abcd1"),
    (stdio(f"postgres://me:{SECRET}@db/x"), SECRET),
    (stdio(f"--dsn=postgres://me:{SECRET}@db/x"), SECRET),
    (stdio(SECRET), SECRET),
    (remote(Authorization=f"Bearer {SECRET}"), SECRET),
    (remote(Authorization="Bearer abcd1"), "abcd1"),
    (remote(Authorization="Basic " + base64.b64encode(b"me:letmein").decode()), "letmein"),
    (remote(X_Api_Key="abcd1"), "abcd1"),
    (remote(X_Custom=SECRET), SECRET),
    (remote(Cookie="sid=abcdef; theme=dark"), "sid=abcdef"),
    (remote(f"https://a.example/x?api_key={SECRET}"), SECRET),
    (remote("https://a.example/x?apiKey=abcd1"), "abcd1"),
    (remote(f"https://a.example/x?q={SECRET}"), SECRET),
    (remote(f"https://me:{SECRET}@a.example/x"), SECRET),
    (remote("https://abcd1@a.example/x"), "abcd1"),
    (remote(f"https://a.example/{SECRET}/mcp"), SECRET),
    (remote("https://a.example/s/s3cr3t-path/mcp"), "s3cr3t-path"),
    (remote("https://a.example/0b9f6c1e-1d3c-4c55-9a7e-2f1f1c1f1c1f/mcp"), "0b9f6c1e-1d3c-4c55-9a7e-2f1f1c1f1c1f"),
]


@pytest.mark.parametrize(("config", "secret"), PLACES)
def test_a_secret_is_masked_wherever_the_config_has_it(config: ServerConfig, secret: str) -> None:
    said = Redactor(config).text(f"Error: '{secret}' was refused, {secret}!")
    assert secret not in said
    assert said == f"Error: '{MASK}' was refused, {MASK}!"


@pytest.mark.parametrize(("config", "secret"), PLACES)
def test_a_secret_is_masked_in_every_spelling(config: ServerConfig, secret: str) -> None:
    redactor = Redactor(config)
    for written in (json.dumps({"k": secret}), repr(secret), f"https://b.example/?k={quote(secret, safe='')}"):
        assert secret not in redactor.text(written)
        assert quote(secret, safe="") not in redactor.text(written)


def test_odd_characters_are_masked_in_json_and_repr() -> None:
    secret = "a\"b\\c'd é ü\n1234"
    redactor = Redactor(stdio(TOKEN=secret))
    for written in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret), quote(secret)):
        assert "1234" not in redactor.text(written)


@pytest.mark.parametrize(
    "config",
    [
        stdio(DEBUG="1", LOG_LEVEL="warning", NODE_ENV="production", REGION="eu-west-1", MODEL="gpt-4o-mini"),
        stdio(PATH="/usr/local/bin:/usr/bin", HOME="/home/somebody", KEY_FILE="/home/somebody/key.pem"),
        stdio(API_HOST="api.example.com", API_URL="https://api.example.com/v1/items", PORT="127.0.0.1:8080"),
        stdio(MAX_TOKENS="8192", AUTH_MODE="oauth", SESSION_TIMEOUT="3600", USE_TOKEN="true", LANG="en_US.UTF-8"),
        stdio("-y", "@modelcontextprotocol/server-filesystem", "/home/somebody/notes", "--port", "8080"),
        remote("https://mcp.example.com:8443/v1/mcp", Accept="application/json", X_Org="my-company"),
    ],
)
def test_what_helps_to_understand_an_error_stays(config: ServerConfig) -> None:
    values = [config.command, config.url, *config.args, *config.env.values(), *config.headers.values()]
    said = " | ".join(values) + " the error: debug production 1 token session"
    assert Redactor(config).text(said) == said


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ("GET https://me:pw@b.example/x failed", f"GET https://{MASK}@b.example/x failed"),
        ("Authorization: Bearer abcdef1234567890", f"Authorization: Bearer {MASK}"),
        ("OPENAI_API_KEY=sk-proj-abcdefghijklmnop1234", f"OPENAI_API_KEY={MASK}"),
        ("bad credentials: ghp_abcdefghijklmnopqrstuvwxyz0123456789", f"bad credentials: {MASK}"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc_def-123", f"jwt {MASK}"),
        ('{"password": "hunter2hunter2"}', f'{{"password": "{MASK}"}}'),
        ("missing required token: expected a string", "missing required token: expected a string"),
        ("API_KEY=missing", "API_KEY=missing"),
        ("no issue 0b9f6c1e-1d3c-4c55-9a7e-2f1f1c1f1c1f", "no issue 0b9f6c1e-1d3c-4c55-9a7e-2f1f1c1f1c1f"),
    ],
)
def test_what_is_plainly_a_secret_is_masked_without_being_configured(said: str, masked: str) -> None:
    assert Redactor(stdio()).text(said) == masked


def test_the_rest_of_a_secret_that_was_cut_is_masked() -> None:
    redactor = Redactor(stdio(TOKEN=SECRET))
    assert redactor.text(f"{SECRET[5:]} is wrong") == f"{MASK} is wrong"


@pytest.mark.parametrize("unit", ["x", "1", "a-", "a.", "a/", "x ", "eyJ-"])
@pytest.mark.timeout(30)
def test_long_values_and_texts_take_no_time(unit: str) -> None:
    """With quadratic work a megabyte takes many minutes."""
    long = unit * (1_000_000 // len(unit))
    redactor = Redactor(stdio(long, VALUE=long, TOKEN=long))
    redactor.text(long[:60_000])
    assert long not in redactor.text(f"failed: {long}")


def test_a_short_secret_is_masked_as_a_word_only() -> None:
    assert Redactor(stdio(PASSWORD="four")).text("four of fourteen, four") == f"{MASK} of fourteen, {MASK}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mcp.example.com:8443/v1/mcp", "https://mcp.example.com:8443/v1/mcp"),
        ("https://me:pw@a.example/x?key=1#f", "https://a.example/x"),
        (f"https://a.example/s/{SECRET}/mcp", f"https://a.example/s/{MASK}/mcp"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://[", MASK),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert masked_url(url) == shown


def test_a_url_in_a_message_becomes_its_address() -> None:
    url = "https://a.example/mcp?k=v"
    assert Redactor(remote(url)).text(f"POST {url}: 500") == "POST https://a.example/mcp: 500"


_ANY: Any = st.dictionaries(st.text(max_size=12), st.text(max_size=40), max_size=3)


@given(_ANY, _ANY, st.lists(st.text(max_size=30), max_size=4), st.text(max_size=60), st.text())
def test_any_config_and_any_text_is_taken(
    env: dict[str, str], headers: dict[str, str], args: list[str], url: str, text: str
) -> None:
    config = ServerConfig(command="x", env=env, headers=headers, args=tuple(args), url=url)
    redactor = Redactor(config)
    masked = redactor.text(text)
    assert isinstance(masked, str)
    for value in env.values():
        redactor.text(value)
