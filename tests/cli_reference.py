"""docs/cli.md, made from the command line itself: `scripts/figures reference` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, cast, get_args

import typer.main

from toolfold.cli import options
from toolfold.cli.main import COMMANDS, build

_HEAD = """\
# Command line

Written by `scripts/figures reference` from the commands themselves; a test compares the two. `toolfold COMMAND --help`
says the same. The exit code is 0 only on success. `mcp-code-execution-server` is another name of `toolfold serve`.

"""
_ALIASES: tuple[Any, ...] = (options.Config, options.CatalogDirs, options.DataDir, options.Json)
_SHARED: set[str] = {alias.__metadata__[0].help for alias in _ALIASES}
_WORDS: dict[Any, str] = {Path: "PATH", str: "TEXT", int: "NUMBER", float: "NUMBER"}


def root() -> Any:
    """The command line with all commands, as typer parses it."""
    return typer.main.get_command(build(COMMANDS))


def commands(command: Any, path: str = "toolfold") -> Iterator[tuple[str, Any]]:
    """Every command and subcommand that is shown, with the words that reach it."""
    yield path, command
    subs = getattr(command, "commands", {})
    for name in COMMANDS if path == "toolfold" else subs:
        if not subs[name].hidden:
            yield from commands(subs[name], f"{path} {name}")


def page() -> str:
    """The whole page."""
    everything = list(commands(root()))
    parts = [_HEAD, *_index(everything[0][1]), *_shared(everything)]
    for path, command in everything[1:]:
        level = "#" * (len(path.split()))
        parts.append(f"{level} `{path}`\n\n{_text(command.help)}{_table(command)}")
    return "".join(parts).rstrip() + "\n"


def _index(command: Any) -> Iterator[str]:
    yield "| command | what it does |\n|---|---|\n"
    for name in COMMANDS:
        yield f"| [`{name}`](#toolfold-{name}) | {COMMANDS[name]} |\n"
    for option in command.params:
        yield f"| `{'`, `'.join(option.opts)}` | {option.help} |\n"
    yield "\n"


def _shared(everything: list[tuple[str, Any]]) -> Iterator[str]:
    """The options that mean the same in every command that has them, explained once."""
    yield "Options that many commands share:\n\n| option | meaning |\n|---|---|\n"
    found = {option.opts[0]: option for _, command in everything for option in command.params if _is_shared(option)}
    for name in sorted(found):
        yield _row(found[name])
    yield "| `--help` | Show the command's options and examples. |\n\n"


def _is_shared(option: Any) -> bool:
    return option.help in _SHARED


def _text(text: str) -> str:
    """A command's help, with its examples as a block."""
    words, _, examples = re.sub(r"\nExamples?: ", "\n\0", text).partition("\0")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    block = "```bash\n" + "\n".join(lines) + "\n```\n\n" if lines else ""
    return f"{words.strip()}\n\n{block}"


def _table(command: Any) -> str:
    own = [option for option in command.params if not _is_shared(option) and not option.hidden]
    shared = [f"`{option.opts[0]}`" for option in command.params if _is_shared(option)]
    rows = "".join(_row(option) for option in own)
    table = f"| | |\n|---|---|\n{rows}\n" if rows else ""
    return table + (f"Also {', '.join(shared)}.\n\n" if shared else "")


def _row(option: Any) -> str:
    kind = option.type_descriptor.annotation
    kind = (get_args(kind) or (kind,))[0]
    if option.param_type_name == "argument":
        names = option.name.upper() + ("…" if option.nargs != 1 else "")
        names = names if option.required else f"[{names}]"
    else:
        names = ", ".join([*option.opts, *option.secondary_opts])
        if not option.is_flag:
            choices = isinstance(kind, type) and issubclass(kind, Enum)
            value = "|".join(str(item.value) for item in cast("type[Enum]", kind)) if choices else _WORDS[kind]
            names += f" {option.metavar or value}"
    meaning = [option.help or ""]
    if option.multiple and not re.search("repeat|several times", meaning[0]):
        meaning.append("Repeatable.")
    if option.default and not getattr(option, "is_flag", False) and "default:" not in meaning[0]:
        default = f"{option.default:g}" if isinstance(option.default, float) else option.default
        meaning.append(f"Default: `{default}`.")
    return f"| `{names.replace('|', chr(92) + '|')}` | {' '.join(meaning).strip()} |\n"


if __name__ == "__main__":
    print(page(), end="")
