"""Telling whether a server's command is Toolfold: a gateway that starts itself would never stop starting."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

_SELF = "toolfold"
_COMMANDS = frozenset({_SELF, "mcp-code-execution-server"})
_LONGEST_LINE = 4_000
_LONGEST_NAME = 100
_PYTHON = re.compile(r"(?:python|pypy)w?[\d.]*|pyw?")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh"})
_SHELL_FLAG = re.compile(r"-[a-z]*c|/[ck]|-command", re.IGNORECASE)
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

# Programs that run the program they are given, and the words of theirs that come before it.
_LAUNCHERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("uvx", "npx", "bunx", "env", "exec", "command", "sudo", "nice", "nohup", "setsid"), ()),
    **dict.fromkeys(("time", "stdbuf", "xvfb-run", "winpty", "caffeinate"), ()),
    **dict.fromkeys(("pipx", "poetry", "pdm", "rye", "hatch", "pipenv", "pixi", "conda", "mamba"), ("run",)),
    "uv": ("run", "tool", "x"),
    "mise": ("exec", "x"),
}
# Their options that take the next word with them. Without this list a folder that happens to be called
# `toolfold` (`uv run --directory ~/src/toolfold other-server`) would be taken for the program.
_TAKES_VALUE = frozenset(
    {"--from", "--with", "--with-editable", "--with-requirements", "--python", "-p", "--directory", "--project"}
    | {"--index", "--index-url", "-i", "--extra-index-url", "--default-index", "--find-links", "-f", "--env-file"}
    | {"--cache-dir", "--config-file", "--extra", "--group", "--only-group", "--no-group", "--no-extra", "--package"}
    | {"--constraints", "-c", "--overrides", "--build-constraints", "-w", "--color", "--link-mode", "--resolution"}
    | {
        "--prerelease",
        "--exclude-newer",
        "--index-strategy",
        "--keyring-provider",
        "-P",
        "--upgrade-package",
        "--refresh-package",
        "--reinstall-package",
    }
    | {"--allow-insecure-host", "--config-setting", "-C", "--python-platform", "--spec", "--pip-args", "--name", "-n"}
    | {"-u", "-S", "--chdir", "--user", "-e", "-o", "--manifest-path"}
)


def runs_toolfold(command: str, args: Sequence[str]) -> bool:
    """Whether `command args` starts Toolfold, directly or through launchers, shells and interpreters.

    The servers in `toolfold.demo` and `benchmarks` are ordinary servers, and so is a program with a path named
    toolfold among its arguments.
    """
    words = [*_split(command), *args] if " " in command and not args else [command, *args]
    return _runs(words[:200], depth=6)


def _runs(words: Sequence[str], depth: int) -> bool:
    if not words or depth == 0:
        return False
    if any(_is_self(word) and after == "serve" for word, after in itertools.pairwise(words)):
        return True
    program, rest = _stem(words[0]), list(words[1:])
    if _is_self(words[0]):
        return rest[:1] != ["demo"]
    if "--" in rest and _runs(rest[rest.index("--") + 1 :], depth - 1):
        return True
    if _PYTHON.fullmatch(program):
        return _python_runs(rest)
    if program in _SHELLS:
        return _shell_runs(rest, depth)
    if program in _LAUNCHERS:
        return _launcher_runs(rest, _LAUNCHERS[program], depth)
    return _ASSIGNMENT.fullmatch(words[0]) is not None and _runs(rest, depth - 1)


def _launcher_runs(rest: Sequence[str], own_words: tuple[str, ...], depth: int) -> bool:
    at = 0
    while at < len(rest):
        word = rest[at]
        if word in {"-m", "--module"}:
            return _is_module(rest[at + 1 : at + 2])
        if word.startswith("-"):
            at += 2 if word in _TAKES_VALUE else 1
        elif word in own_words or _ASSIGNMENT.fullmatch(word):
            at += 1
        else:
            return _runs(rest[at:], depth - 1)
    return False


def _python_runs(rest: Sequence[str]) -> bool:
    words = iter(enumerate(rest))
    for at, word in words:
        if word in {"-X", "-W"}:
            next(words, None)
            continue
        if word == "-m":
            return _is_module(rest[at + 1 : at + 2])
        if word.startswith("-m") and len(word) > 2:
            return _is_module([word[2:]])
        if word == "-c":
            return any(re.search(r"(?:import|from)\s+toolfold\b", code) is not None for code in rest[at + 1 : at + 2])
        if not word.startswith("-"):
            folder = re.split(r"[\\/]", word)[-2:-1]
            return _is_self(word) or (_stem(word) == "__main__" and folder == [_SELF])
    return False


def _shell_runs(rest: Sequence[str], depth: int) -> bool:
    for at, word in enumerate(rest):
        if _SHELL_FLAG.fullmatch(word):
            line: list[str] = []
            for part in _split(" ".join(rest[at + 1 :])[:_LONGEST_LINE]):
                if part in _SEPARATORS:
                    if _runs(line, depth - 1):
                        return True
                    line = []
                else:
                    line.append(part)
            return _runs(line, depth - 1)
    return False


def _split(text: str) -> list[str]:
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:
        return text.split()


def _is_module(name: Sequence[str]) -> bool:
    top, _, inner = (name[0] if name else "").partition(".")
    return top == _SELF and inner.partition(".")[0] not in ("demo", "bench")


def _stem(word: str) -> str:
    """A program's name: no folder, no extension."""
    name = re.split(r"[\\/]", word)[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1|py|pyz|sh)$", "", name)


def _is_self(word: str) -> bool:
    """Whether `word` names our program or package: with a folder, an extension, extras or a version."""
    name = _stem(word[-_LONGEST_LINE:])
    return len(name) <= _LONGEST_NAME and re.sub(r"(\.git)?(\[.*\])?([@:=<>~!].*)?$", "", name) in _COMMANDS
