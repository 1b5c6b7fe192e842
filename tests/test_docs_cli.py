"""docs/cli.md is what the commands say of themselves, and every command in the docs is one that we have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests import cli_reference

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"^[A-Z_]+…?$|…|\|")
"""What stands for a word of the reader's in a command that is named in a sentence: `toolfold auth login NAME`."""


@cache
def root() -> Any:
    return cli_reference.root()


def test_the_reference_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == cli_reference.page(), "write it again: scripts/figures reference"


def test_every_command_and_option_has_words() -> None:
    missing = [
        f"{path} {option.opts[-1]}"
        for path, command in cli_reference.commands(root())
        for option in command.params
        if not option.help
    ]
    missing += [path for path, command in cli_reference.commands(root()) if not command.help]
    assert not missing


def shell_lines(page: Path) -> Iterator[str]:
    """Every line of the page's shell blocks, with continuations joined; of a console only what is typed."""
    for language, body in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language in {"bash", "sh", "shell", "console"}:
            for line in re.sub(r"\\\n\s*", " ", body).splitlines():
                if language != "console" or line.startswith("$ "):
                    yield line.removeprefix("$ ")


def commands_in(line: str) -> Iterator[list[str]]:
    """The words after `toolfold` of each of our commands in a shell line."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    ours: list[str] | None = None
    for word in words:
        if re.fullmatch(r"[();<>|&]+", word):
            if ours is not None:
                yield ours
            ours = None
        elif ours is not None:
            ours.append(word)
        elif Path(word).name in {"toolfold", "mcp-code-execution-server"}:
            ours = ["serve"] if word.startswith("mcp-") else []
    if ours is not None:
        yield ours


def parse(words: list[str]) -> None:
    """Parse as the command line does, and start nothing. A wrong word raises typer's usage error."""
    command, context = root(), None
    rest = words
    while True:
        context = command.make_context(command.name, list(rest), parent=context)
        if not hasattr(command, "commands"):
            return
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_shell_block_can_be_typed(page: Path) -> None:
    wrong: list[str] = []
    for line in shell_lines(page):
        # `claude mcp add toolfold -- toolfold serve`: the first one is a name.
        _, divider, after = line.partition(" -- ")
        for words in commands_in(after if divider else line):
            try:
                if words not in ([], ["--version"], ["--help"]):
                    parse(words)
            except typer.Exit:
                pass
            except Exception as error:
                if "does not exist" not in str(error):  # a file of the reader's
                    wrong.append(f"{line}: {error}")
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_sentence_exists_with_its_options(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    wrong: list[str] = []
    for line in re.findall(r"`toolfold ([^`\n]+)`", text):
        command, known = root(), True
        words = re.split(r"\s+", line)
        while words and hasattr(command, "commands") and not _PLACEHOLDER.search(words[0]):
            word = words.pop(0)
            if word.startswith("-"):
                words.insert(0, word)
                break
            command = command.commands.get(word)
            if command is None:
                known = False
                break
        options = {name for option in getattr(command, "params", ()) for name in (*option.opts, *option.secondary_opts)}
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} - {"--help"}
        if not known or not given <= options:
            wrong.append(line)
    assert not wrong
