"""The coding agents that are driven: where each has its servers, how it is started, and how it names tools.

They are the packages of tests/clients/package.json, installed by scripts/test-clients. Each talks to the scripted model
by the API of its maker, as its own user would point it at a proxy: telemetry and updates are off by its own settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clients.wires import Asked, Json
from tests.third_party import node, npm_program, python_program, server

HOME = Path(sys.prefix) / "clients"
PROMPT = "Look at the project and tell me the answer."
SECONDS = 150
"""The longest that a client may take, from its start to its end, on a busy machine."""

Servers = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Agent:
    name: str
    """As `toolfold fold` calls it."""
    title: str
    program: str
    config: str
    """The person's file, below the home folder."""
    write: Callable[[str, Servers], str]
    """From the model's address and the servers, the file's text."""
    arguments: tuple[str, ...]
    """Before the prompt, so that it answers once and ends."""
    prefix: str
    """Before a tool's name, with SERVER for its server."""
    env: Callable[[str], dict[str, str]] = lambda address: {}
    direct_arguments: tuple[str, ...] = ()
    """So that it offers all tools of all servers, when they are not folded."""
    direct_env: dict[str, str] = field(default_factory=dict[str, str])
    direct_entry: dict[str, Any] = field(default_factory=dict[str, Any])


def _claude(_address: str, servers: Servers) -> str:
    return json.dumps({"numStartups": 3, "mcpServers": servers}, indent=2) + "\n"


def _claude_env(address: str) -> dict[str, str]:
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "scripted", **quiet}


def _codex(address: str, servers: Servers) -> str:
    lines = [
        '# My models\nmodel = "scripted"\nmodel_provider = "scripted"\ncheck_for_update_on_startup = false\n',
        f'[model_providers.scripted]\nname = "Scripted"\nbase_url = "{address}/v1"\nwire_api = "responses"\n',
        "[analytics]\nenabled = false\n",
    ]
    for name, entry in servers.items():
        lines.append(f"[mcp_servers.{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in entry.items()]
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs: list[str] = [f"{key} = {json.dumps(text)}" for key, text in value.items()]  # pyright: ignore[reportUnknownVariableType]
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)


def _gemini(_address: str, servers: Servers) -> str:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "mcpServers": servers,
    }
    # Gemini CLI takes comments in its settings.
    return "// Gemini CLI\n" + json.dumps(settings, indent=2) + "\n"


def _gemini_env(address: str) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": "scripted", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def _opencode(address: str, servers: Servers) -> str:
    options = {"baseURL": f"{address}/v1", "apiKey": "scripted"}
    models = {"scripted": {"name": "Scripted"}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": models}
    mcp = {
        name: {"type": "local", "command": [entry["command"], *entry["args"]]}
        | ({"environment": entry["env"]} if "env" in entry else {})
        for name, entry in servers.items()
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": provider},
        "mcp": mcp,
    }
    return json.dumps(config, indent=2) + "\n"


AGENTS = (
    Agent(
        "claude-code",
        "Claude Code",
        "claude",
        ".claude.json",
        _claude,
        ("--print",),
        "mcp__SERVER__",
        _claude_env,
        # Its own tool search would leave the definitions out, and it would not wait for servers.
        direct_env={
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_CONNECTION_NONBLOCKING": "false",
            "MCP_CONNECT_TIMEOUT_MS": "60000",
        },
    ),
    Agent(
        "codex",
        "Codex",
        "codex",
        ".codex/config.toml",
        _codex,
        ("exec", "--skip-git-repo-check"),
        "mcp__SERVER/",
        direct_entry={"required": True, "startup_timeout_sec": 60},
    ),
    Agent(
        "gemini",
        "Gemini CLI",
        "gemini",
        ".gemini/settings.json",
        _gemini,
        # Without a model it first asks one which model to use.
        ("--model", "gemini-2.5-pro", "--prompt"),
        "mcp_SERVER_",
        _gemini_env,
        direct_arguments=("--approval-mode", "yolo"),
    ),
    Agent(
        "opencode",
        "opencode",
        "opencode",
        ".config/opencode/opencode.json",
        _opencode,
        ("run",),
        "SERVER_",
        lambda address: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"},
    ),
)


def real_servers(project: Path) -> dict[str, dict[str, Any]]:
    """Four servers that people use, which look at this project. They offer the same tools to every client."""
    memory = {"MEMORY_FILE_PATH": str(project.parent / "memory.json")}
    return {
        "filesystem": server(npm_program("mcp-server-filesystem"), str(project)),
        "memory": server(npm_program("mcp-server-memory"), env=memory),
        "git": server(python_program("mcp-server-git")),
        "time": server(python_program("mcp-server-time"), "--local-timezone", "UTC"),
    }


class Desk:
    """A person's home folder with one client, its servers, and a project."""

    def __init__(self, agent: Agent, home: Path, address: str, more: Mapping[str, Any] | None = None) -> None:
        """`more` is added to the entry of each server."""
        program = HOME / "node_modules" / ".bin" / agent.program
        if not program.exists():
            pytest.skip(f"{agent.title} is not installed: run scripts/test-clients")
        self.agent = agent
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        (self.project / "notes.txt").write_text("six by seven\n")
        subprocess.run(["git", "init", "-q", self.project], check=True)
        self.servers = {name: {**entry, **(more or {})} for name, entry in real_servers(self.project).items()}
        self.file = home / agent.config
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(agent.write(address, self.servers))
        self._program = str(program)
        self._env = {
            "HOME": str(home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(Path(node()).parent), "/usr/bin", "/bin"]),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TMPDIR": str(home),
            **agent.env(address),
        }

    def toolfold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "toolfold", *arguments], self._env)

    def ask(self, *more: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Start the client with the prompt, and wait until it has answered."""
        return self._run([self._program, *more, *self.agent.arguments, PROMPT], {**self._env, **(env or {})})

    def _run(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def owned(self, asked: Asked, *servers: str) -> list[Json]:
        """The definitions of tools that come from these servers, and what was sent around them."""
        starts = tuple(self.agent.prefix.replace("SERVER", name) for name in servers)
        groups = [group for name, group in asked.groups.items() if f"{name}/" in starts]
        return [definition for name, definition in asked.tools.items() if name.startswith(starts)] + groups
