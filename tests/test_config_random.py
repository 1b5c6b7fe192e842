"""Whatever the files hold, loading ends with settings and problems, never with a crash."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.config_machine import Machine
from toolfold.config import documents, entries, overlay
from toolfold.config.settings import ServerConfig, Settings
from toolfold.errors import ConfigError

_TOP = ["mcpServers", "servers", "mcp_servers", "context_servers", "projects", "inputs", "mcp", overlay.BLOCK]
_ENTRY = sorted(entries._KNOWN)  # pyright: ignore[reportPrivateUsage]
_BLOCK = ["enabled", "sandboxMode", "securityLevel", "maxExecutionTime", "resourceLimits", "memory", "cpu", "disk"]
_WORDS = [
    "${A}",
    "${B:-x}",
    "${input:i}",
    "$A",
    "https://h/sse",
    "~/x",
    "toolfold",
    "serve",
    "npx",
    "stdio",
    "sse",
    "512MB",
]
_KEYS = st.sampled_from([*_TOP, *_ENTRY, *_BLOCK, *Settings.model_fields, "id", "default"]) | st.text(max_size=5)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_WORDS) | st.text(max_size=10)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_SERVERS = st.dictionaries(
    st.text(max_size=6), st.dictionaries(st.sampled_from(_ENTRY), _VALUES, max_size=5), max_size=3
)
_DOCUMENTS = st.dictionaries(st.sampled_from([*_TOP, *Settings.model_fields]), _SERVERS | _VALUES, max_size=4)
_FILES = [
    ".mcp.json",
    "toolfold.toml",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".gemini/settings.json",
    ".zed/settings.json",
]
_RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(servers: dict[str, ServerConfig]) -> None:
    """What every loaded server can be relied on for, by those who will start it."""
    for name, server in servers.items():
        assert name.isprintable()
        assert server.command if server.transport == "stdio" else server.url.startswith(("http://", "https://"))
        for text in (server.command, *server.args, *server.env, *server.env.values(), *server.headers.values()):
            assert "\0" not in text
            text.encode()
        assert 0 < server.call_timeout < float("inf")


def refused(error: ConfigError) -> None:
    """Of what can be parsed, only errors in strict settings stop the start."""
    assert "meant to be closed" in error.hint


@_RELAXED
@given(_DOCUMENTS)
@example({"servers": {"a": {"command": "x", "timeout": 10**400}}, "session_idle": 10**400})
def test_any_document_in_memory_is_survived(document: dict[str, Any]) -> None:
    machine = Machine(Path("/nowhere"), env={"A": "a"})
    try:
        loaded = machine.load(document)
    except ConfigError as error:
        refused(error)
        return
    check(loaded.settings.servers)
    for problem in loaded.problems:
        assert "\n" not in str(problem)
        assert len(str(problem)) < 2000


@_RELAXED
@given(_DOCUMENTS, st.sampled_from(_FILES))
def test_any_document_in_a_file_is_survived(document: dict[str, Any], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), env={"A": "a"})
        path = machine.project(name, json.dumps(document))
        with contextlib.suppress(ConfigError):
            check(machine.load().settings.servers)
        assert not Machine(Path(folder), trusting=False).load().settings.servers
        try:
            check(machine.load(path).settings.servers)
        except ConfigError as error:
            if not name.endswith(".toml"):
                refused(error)


@_RELAXED
@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]",:=#\n/*. ax1\\', max_size=60).map(str.encode),
    st.sampled_from(_FILES),
)
def test_any_bytes_in_a_file_are_survived(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        machine.project(name, content)
        check(machine.load().settings.servers)


@given(st.text())
def test_any_text_is_a_document_or_unreadable(text: str) -> None:
    for toml in (True, False, None):
        with contextlib.suppress(documents.UnreadableError):
            assert isinstance(documents.parse(text, toml=toml).content, dict)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(alphabet="ab \\\"'#=$\t", max_size=12)
    )
)
def test_quoted_values_of_a_dotenv_file_come_back(values: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "# comment\n\n" + "".join(f"export {name} = {quoted(value)} # note\n" for name, value in values.items())
    assert documents.parse_dotenv(text) == values


@given(st.text())
def test_any_dotenv_file_is_survived(text: str) -> None:
    assert all("=" not in name for name in documents.parse_dotenv(text))
