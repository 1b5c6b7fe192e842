from __future__ import annotations

import pytest

from toolfold.config.itself import runs_toolfold

OURS = [
    "toolfold serve",
    "toolfold",
    "mcp-code-execution-server",
    "/opt/venv/bin/mcp-code-execution-server --config mcp.json",
    "uvx --from toolfold mcp-code-execution-server",
    "toolfold --config x.toml serve",
    "/home/me/.local/bin/toolfold serve --http 127.0.0.1:1",
    r"C:\Users\me\Scripts\toolfold.exe serve",
    "uvx toolfold serve",
    "uvx toolfold",
    "uvx toolfold@latest",
    "uvx toolfold[semantic]==0.1.0 serve",
    "uvx --python 3.12 toolfold",
    "uvx --from toolfold toolfold",
    "uvx --from git+https://example.org/me/toolfold.git@main toolfold",
    "uvx git+https://example.org/me/toolfold.git@main",
    "uv run toolfold",
    "uv run --directory /src/toolfold toolfold serve",
    "uv --directory /src/toolfold run toolfold",
    "uv tool run toolfold",
    "uv run -m toolfold",
    "uv run python -m toolfold",
    "pipx run toolfold",
    "pipx run --spec toolfold toolfold",
    "poetry run toolfold",
    "python -m toolfold",
    "python3.12 -m toolfold serve",
    "/opt/app/.venv/bin/python -u -X utf8 -m toolfold.cli serve",
    "py -3 -m toolfold",
    "python /venv/bin/toolfold",
    "python /src/toolfold/__main__.py",
    "env -u X DEBUG=1 toolfold",
    "nice toolfold",
    "op run -- toolfold",
    "docker run -i --rm ghcr.io/me/toolfold:latest serve",
    "mcp-proxy -- uvx toolfold",
]

OTHERS = [
    "npx -y @modelcontextprotocol/server-filesystem /src/toolfold",
    "uvx mcp-server-git --repository /src/toolfold",
    "uv run --directory /src/toolfold mcp-server-git",
    "uv --directory /src/toolfold run server.py",
    "uvx --with toolfold other-server",
    "python -m toolfold.demo serve github",
    "python -m toolfold.bench.upstream",
    "python -m toolfold.demo.servers.github",
    "toolfold demo serve github",
    "python -m toolfolder",
    "python /src/toolfold/server.py",
    "toolfold-extras serve",
    "node toolfold.js",
    "git clone toolfold",
    "python",
    "uvx",
    "",
]


@pytest.mark.parametrize("line", OURS)
def test_ourselves_are_recognised(line: str) -> None:
    command, *args = line.split()
    assert runs_toolfold(command, args)


@pytest.mark.parametrize("line", OTHERS)
def test_others_are_not_taken_for_us(line: str) -> None:
    command, *args = line.split() or [""]
    assert not runs_toolfold(command, args)


@pytest.mark.parametrize(
    "script",
    [
        "toolfold serve",
        "cd /x && exec toolfold",
        "export A=1; uvx toolfold",
        "A=1 toolfold",
        "true|toolfold",
        "'toolfold'",
    ],
)
@pytest.mark.parametrize("shell", [["bash", "-lc"], ["/bin/sh", "-c"], ["cmd", "/c"], ["pwsh", "-Command"]])
def test_shells_are_looked_into(shell: list[str], script: str) -> None:
    assert runs_toolfold(shell[0], [*shell[1:], script])


def test_a_shell_that_only_mentions_us_is_not_us() -> None:
    assert not runs_toolfold("bash", ["-c", "cd ~/toolfold && node server.js"])
    assert not runs_toolfold("bash", ["-c", "unclosed ' quote toolfoldish"])


def test_long_hostile_arguments_are_judged_quickly() -> None:
    assert not runs_toolfold("sh", ["-c", "[" * 1_000_000])
    assert not runs_toolfold("uvx", ["[" * 1_000_000 + "toolfold"])
    assert not runs_toolfold("env", ["env"] * 100_000)
