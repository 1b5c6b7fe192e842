"""What is written into each client: the entry that starts Toolfold, and the lines that let the client use it.

Adding a client is adding a line to `TARGETS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolfold.config.clients import FORMATS, Format, app_config
from toolfold.config.edge import Host
from toolfold.config.folding.drafts import Draft

NAME = "toolfold"
"""What Toolfold is called in a client."""
CALL_SECONDS = 600
"""How long a client waits for one call: a run, and a person who is asked in the middle of it."""
START_SECONDS = 30
TOOLS = ("search_tools", "run_code")

Command = Sequence[str]
Entry = Callable[[Command, bool], dict[str, Any]]
"""From the command and whether Toolfold may be called without asking, the entry."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A line outside the entry, by which the client calls Toolfold without asking each time."""

    file: Callable[[Host], Path]
    path: Callable[[str], tuple[str, ...]]
    """From the name of the entry."""
    value: Callable[[str], str | dict[str, Any]]
    """A text is added to an array, an object is put at the path."""
    only_if_listed: bool = False
    """Whether it is only added to an array that is there: making one would replace what was chosen elsewhere."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    title: str
    key: tuple[str, ...]
    """Where servers are, in a file that has none yet."""
    entry: Entry
    grants: tuple[Grant, ...] = ()
    window: bool = False
    """Whether it is a program with a window, which mostly has another PATH than a terminal."""
    instructions: str = "AGENTS.md"
    """The file of a project that its agents read."""
    asks: str = ""
    """What the person is asked by the client, where no line of a file can answer."""

    @property
    def format(self) -> Format:
        return next(known for known in FORMATS if known.name == self.name)


def _plain(command: Command, _granted: bool) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _gemini(command: Command, granted: bool) -> dict[str, Any]:
    return {**_plain(command, granted), "timeout": CALL_SECONDS * 1000} | ({"trust": True} if granted else {})


def _codex(command: Command, granted: bool) -> dict[str, Any]:
    limits = {"startup_timeout_sec": START_SECONDS, "tool_timeout_sec": CALL_SECONDS}
    approval = {"default_tools_approval_mode": "approve"} if granted else {}
    return {**_plain(command, granted), "required": True, **limits, **approval}


def _opencode(command: Command, _granted: bool) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True, "timeout": CALL_SECONDS * 1000}


def opencode_2(command: Command, _granted: bool) -> dict[str, Any]:
    """The entry under `mcp.servers`, as version 2 of opencode has it."""
    limits = {"startup": START_SECONDS * 1000, "request": CALL_SECONDS * 1000}
    return {"type": "local", "command": list(command), "timeout": limits}


def _claude_settings(host: Host) -> Path:
    moved = host.env.get("CLAUDE_CONFIG_DIR")
    return (Path(moved) if moved else host.home / ".claude") / "settings.json"


def _zed_grant(tool: str) -> Grant:
    return Grant(
        file=lambda host: next(iter(_format("zed").user(host))),
        path=lambda name: ("agent", "tool_permissions", "tools", f"mcp:{name}:{tool}"),
        value=lambda name: {"default": "allow"},
    )


def _format(name: str) -> Format:
    return next(known for known in FORMATS if known.name == name)


TARGETS: tuple[Target, ...] = (
    Target(
        "claude-code",
        "Claude Code",
        ("mcpServers",),
        # Claude Code does not wait for servers before its first request, unless their tools are always loaded.
        lambda command, granted: {"type": "stdio", **_plain(command, granted), "alwaysLoad": True},
        grants=(
            Grant(
                file=_claude_settings,
                path=lambda name: ("permissions", "allow"),
                value=lambda name: "mcp__" + re.sub(r"[^A-Za-z0-9_-]", "_", name),
            ),
        ),
        instructions="CLAUDE.md",
        asks="Claude Code asks once before it starts a server of a project's .mcp.json.",
    ),
    Target(
        "claude-desktop",
        "Claude Desktop",
        ("mcpServers",),
        _plain,
        window=True,
        instructions="",
        asks="Restart Claude Desktop. It asks once for each tool; choose to allow it always.",
    ),
    Target(
        "cursor",
        "Cursor",
        ("mcpServers",),
        _plain,
        grants=(
            Grant(
                file=lambda host: host.home / ".cursor" / "permissions.json",
                path=lambda name: ("mcpAllowlist",),
                value=lambda name: f"{name}:*",
                only_if_listed=True,
            ),
        ),
        window=True,
        asks="Cursor asks before a call, unless its settings or ~/.cursor/permissions.json allow it.",
    ),
    Target(
        "windsurf",
        "Windsurf",
        ("mcpServers",),
        _plain,
        window=True,
        asks="Refresh the servers in Windsurf's MCP panel.",
    ),
    Target(
        "gemini",
        "Gemini CLI",
        ("mcpServers",),
        _gemini,
        instructions="GEMINI.md",
    ),
    Target(
        "vscode",
        "VS Code",
        ("servers",),
        lambda command, granted: {"type": "stdio", **_plain(command, granted)},
        window=True,
        instructions=".github/copilot-instructions.md",
        asks="VS Code asks before it starts a new server, and before run_code; both answers can be kept.",
    ),
    Target("codex", "Codex", ("mcp_servers",), _codex),
    Target(
        "zed",
        "Zed",
        ("context_servers",),
        _plain,
        grants=tuple(_zed_grant(tool) for tool in TOOLS),
        window=True,
    ),
    Target("opencode", "opencode", ("mcp",), _opencode),
)


def target(name: str) -> Target | None:
    """The client called `name`, by our name for it or its own."""
    wanted = re.sub(r"[^a-z]", "", name.lower().removesuffix("-cli").removesuffix(" cli"))
    return next((each for each in TARGETS if wanted in {_letters(each.name), _letters(each.title)}), None)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def grant(draft: Draft, wanted: Grant, name: str) -> None:
    """Write one grant for the entry called `name`, unless it is there."""
    path, value = wanted.path(name), wanted.value(name)
    if isinstance(value, str):
        if not wanted.only_if_listed or isinstance(found(draft.content, path), list):
            draft.enlist(path, value)
    elif found(draft.content, path) is None:
        draft.add(path[:-1], path[-1], value)


def found(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What is at `path`; None when there is nothing."""
    here: Any = document
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return here  # pyright: ignore[reportUnknownVariableType]


def toolset_file(host: Host, edition: str) -> Path:
    """Where VS Code looks for tool sets of the person."""
    return app_config(host) / edition / "User" / "prompts" / "toolfold.toolsets.jsonc"
