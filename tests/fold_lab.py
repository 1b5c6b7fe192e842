"""Configs as people and clients write them: generated, with comments, spaces and line breaks anywhere."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from tests.config_machine import Machine
from toolfold.config.folding import undo
from toolfold.config.folding.journal import Journal
from toolfold.config.folding.plan import Launch, Options, Plan, plan_fold
from toolfold.config.folding.targets import Target, target
from toolfold.config.folding.tomltext import dumped

LAUNCH = Launch(("toolfold", "serve"), ("/opt/toolfold/bin/toolfold", "serve"))
JSON_FILES = {
    "claude-code": (".claude.json", ("mcpServers",)),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", ("mcpServers",)),
    "cursor": (".cursor/mcp.json", ("mcpServers",)),
    "windsurf": (".codeium/windsurf/mcp_config.json", ("mcpServers",)),
    "vscode": (".config/Code/User/mcp.json", ("servers",)),
    "gemini": (".gemini/settings.json", ("mcpServers",)),
    "zed": (".config/zed/settings.json", ("context_servers",)),
    "opencode": (".config/opencode/opencode.jsonc", ("mcp",)),
}
"""Of each client, a file in the home folder and where its servers are."""
CODEX = ".codex/config.toml"


def known(name: str) -> Target:
    found = target(name)
    assert found is not None
    return found


def fold(machine: Machine, client: str, **options: Any) -> Plan:
    """Fold as the command does, without asking."""
    plan = plan_fold(known(client), machine.host, LAUNCH, Options(**options))
    undo.fold(plan, Journal.of(machine.host))
    return plan


def unfold(machine: Machine, client: str | None = None) -> list[str]:
    """Unfold as the command does, without asking; the notes."""
    journal = Journal.of(machine.host)
    records = [record for record in journal.records if client is None or record.client == client]
    undoing = undo.plan_unfold(records, journal)
    undo.unfold(undoing, journal)
    return undoing.notes


def everything(machine: Machine) -> dict[str, tuple[bytes, int]]:
    """All files with their content and permissions."""
    files = [path for path in machine.root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(machine.root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in files
    }


# ---- entries

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_WORD = st.text("abcXYZ0-9_.@/ ", min_size=1, max_size=10).filter(lambda text: bool(text.strip()))
_VALUE = st.one_of(
    _WORD, st.sampled_from(["${HOME}/x", "${A:-b}", "$${A}", 'say "hi" // no comment', "/* no */", "é☃"])
)
NAMES = st.text("abcdefgh-_ .é", min_size=1, max_size=8).filter(
    lambda text: text == text.strip() and text != "toolfold"
)


def stdio_entries() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"command": st.sampled_from(["npx", "/usr/bin/python3", "uvx", "~/bin/server"])},
        optional={
            "args": st.lists(_VALUE, max_size=3),
            "env": st.dictionaries(st.sampled_from(["TOKEN", "LEVEL", "A"]), _VALUE, max_size=2),
            "description": _TEXT,
            "autoApprove": st.just(["x"]),
        },
    )


def remote_entries() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"url": st.sampled_from(["https://a.example/mcp", "https://${HOST}/sse", "http://127.0.0.1:1/x"])},
        optional={
            "headers": st.dictionaries(st.just("Authorization"), st.sampled_from(["Bearer ${T}", "x"]), max_size=1),
            "timeout": st.integers(1, 100_000),
        },
    )


def entries(client: str) -> st.SearchStrategy[dict[str, Any]]:
    if client != "opencode":
        return st.one_of(stdio_entries(), remote_entries())
    command = st.lists(_VALUE, min_size=1, max_size=3).map(lambda words: ["npx", *words])
    local = st.fixed_dictionaries({"type": st.just("local"), "command": command})
    remote = st.fixed_dictionaries({"type": st.just("remote"), "url": st.just("https://a.example/mcp")})
    return st.one_of(local, remote)


def servers(client: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, entries(client), max_size=4)


OTHERS = st.dictionaries(
    st.text('uvwxyz"\\ ', min_size=1, max_size=6),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _TEXT),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_TEXT, inner, max_size=2)),
        max_leaves=4,
    ),
    max_size=3,
)
"""What else is in a file."""


# ---- JSON with comments

_GAPS = ["", " ", "\n", "\n  ", "\n\t", " /* , } */ ", ' // "a": 1,\n', "\n  // {\n  ", "\r\n    "]


@st.composite
def jsonc(draw: st.DrawFn, value: Any, *, plain: bool = False) -> str:
    """`value` as text, with comments and trailing commas unless it is to be plain."""
    gaps = st.sampled_from([gap for gap in _GAPS if not plain or not gap.strip()])

    def gap() -> str:
        return draw(gaps)

    def written(part: Any) -> str:
        if isinstance(part, dict):
            pairs = cast("dict[str, Any]", part).items()
            members = [f"{gap()}{json.dumps(name)}{gap()}:{gap()}{written(each)}{gap()}" for name, each in pairs]
            return "{" + ",".join(members) + ending(members) + "}"
        if isinstance(part, list):
            elements = [f"{gap()}{written(each)}{gap()}" for each in cast("list[Any]", part)]
            return "[" + ",".join(elements) + ending(elements) + "]"
        return json.dumps(part, ensure_ascii=draw(st.booleans()))

    def ending(parts: list[str]) -> str:
        return f",{gap()}" if parts and not plain and draw(st.booleans()) else "" if parts else gap()

    style = draw(st.sampled_from(["lines", "line", "wild"]))
    text = json.dumps(value, indent={"lines": 2, "line": None}.get(style)) if style != "wild" else written(value)
    return f"{draw(st.sampled_from(['', chr(0xFEFF)]))}{gap()}{text}{gap()}"


# ---- TOML


@st.composite
def codex_config(draw: st.DrawFn, entries_by_name: dict[str, dict[str, Any]]) -> str:
    """A config.toml with these servers, as tables, tables below tables, dotted keys or inline tables."""
    comment = st.sampled_from(["", "# [mcp_servers.x]\n", "\n", "\n# about the next one\n", "  # indented\n"])
    head = draw(
        st.sampled_from(["", 'model = "o"\n', 'text = """\n[mcp_servers.no]\n"""\n', "list = [\n  1, # ]\n]\n"])
    )
    tables: list[str] = []
    for name, entry in entries_by_name.items():
        key = f"mcp_servers.{dumped(name)}"
        style = draw(st.sampled_from(["table", "below", "dotted"]))
        if style == "dotted":
            head += "".join(f"{key}.{field} = {dumped(value)}\n{draw(comment)}" for field, value in entry.items())
            continue
        plain = {field: value for field, value in entry.items() if style == "table" or not isinstance(value, dict)}
        below = {field: value for field, value in entry.items() if field not in plain}
        lines = "".join(f"{field} = {dumped(value)} # {field}\n{draw(comment)}" for field, value in plain.items())
        text = f"{draw(comment)}[{key}]\n{lines}"
        for field, value in below.items():
            text += f"{draw(comment)}[{key}.{field}]\n" + "".join(f"{k} = {dumped(v)}\n" for k, v in value.items())
        tables.append(text)
    tail = draw(st.sampled_from(["", "\n[profiles.fast]\nmodel = 'x'\n", "\n[[notes]]\ntext = '[mcp_servers.y]'"]))
    text = draw(comment) + head + "".join(tables) + tail
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
