"""Variables in a config's strings: `${VAR}`, `${VAR:-default}` and the forms other clients have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolfold.config import documents
from toolfold.config.edge import Host

_MARK = re.compile(r"\$\$\{|\$\{|\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEXT = re.compile(r"\$\$?\{")
_NEXT_BARE = re.compile(r"\$\$?\{|\$([A-Za-z_][A-Za-z0-9_]*)")
_NESTING = 8
_SECRET_FILE_LIMIT = 64_000
# Prefixes that some client gives a meaning to. What follows any other word and a colon is not ours to read
# (a shell's `${name:offset}` in an argument, say) and stays as it is.
_FOREIGN = frozenset({"command", "config", "extensionInstallFolder", "secret", "op", "vault", "keychain"})


class UnsetError(Exception):
    """A variable has no value. `wanted` says what would give it one."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class Variables:
    """What strings may refer to."""

    host: Host
    """Its folder is the project that `${workspaceFolder}` speaks of."""
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """VS Code's `inputs` by id. No person can be asked here, so the environment or the input's default answers."""
    bare: bool = False
    """Whether `$VAR` without braces is a variable too (Gemini CLI)."""

    def expand(self, text: str) -> str:
        """`text` with every variable replaced; raises `UnsetError`.

        `$${VAR}` gives a literal `${VAR}`. A value is inserted as it is: variables inside it are not looked at.
        """
        if "$" not in text:
            return text
        return self._span(text, 0, len(text), _pairs(text), _NESTING)

    def _span(self, text: str, at: int, end: int, pairs: Mapping[int, int], depth: int) -> str:
        """The expansion of `text[at:end]`; `pairs` maps each `${` to its `}`."""
        done: list[str] = []
        wanted = _NEXT_BARE if self.bare else _NEXT
        while found := wanted.search(text, at, end):
            done.append(text[at : found.start()])
            close = pairs.get(found.start())
            if found[0] == "$${":
                done.append("${")
                at = found.end()
            elif found[0] != "${":
                done.append(self._env(found[0][1:], None))
                at = found.end()
            elif close is not None and close < end and depth:
                done.append(self._value(text, found.end(), close, pairs, depth - 1))
                at = close + 1
            else:
                done.append("${")
                at = found.end()
        done.append(text[at:end])
        return "".join(done)

    def _value(self, text: str, at: int, end: int, pairs: Mapping[int, int], depth: int) -> str:
        """The value of the reference whose inside is `text[at:end]`."""
        split = text.find(":-", at, end)
        head = text[at : end if split < 0 else split]
        # Asked for only when it is needed: a default may refer to a variable that is not set.
        default = None if split < 0 else lambda: self._span(text, split + 2, end, pairs, depth)
        if _NAME.fullmatch(head):
            place = None if head in self.host.env else self._place(head)
            return place if place is not None else self._env(head, default)
        prefix, colon, rest = head.partition(":")
        if head == "/":
            return "\\" if self.host.platform == "win32" else "/"
        if colon and prefix == "env" and rest:
            return self._env(rest, default)
        if colon and prefix == "input" and rest:
            return self._input(rest, default)
        if colon and prefix == "file" and rest:
            return self._file(rest)
        if colon and prefix in _FOREIGN:
            raise UnsetError(f"a variable that exists outside its own client (${{{prefix}:…}} does not)")
        return f"${{{self._span(text, at, end, pairs, depth)}}}"

    def _place(self, name: str) -> str | None:
        match name:
            case "workspaceFolder" | "workspaceRoot" | "CLAUDE_PROJECT_DIR":
                return str(self.host.cwd)
            case "workspaceFolderBasename":
                return self.host.cwd.name
            case "userHome":
                return str(self.host.home)
            case "pathSeparator":
                return "\\" if self.host.platform == "win32" else "/"
            case _:
                return None

    def _env(self, name: str, default: Callable[[], str] | None) -> str:
        value = self.host.env.get(name)
        if value is None and self.host.platform == "win32":
            value = self.host.env.get(name.upper())
        if value or (value is not None and default is None):
            return value
        if default is None:
            raise UnsetError(f"the environment variable {name} to be set")
        return default()

    def _input(self, name: str, default: Callable[[], str] | None) -> str:
        variable = "TOOLFOLD_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        if (value := self.host.env.get(variable)) is not None:
            return value
        declared = self.inputs.get(name, {}).get("default")
        if isinstance(declared, str):
            return declared
        if default is not None:
            return default()
        raise UnsetError(f"the environment variable {variable} to hold the input `{name}`")

    def _file(self, name: str) -> str:
        path = self.host.absolute(name)
        try:
            return documents.read_text(path, limit=_SECRET_FILE_LIMIT).strip()
        except (documents.UnreadableError, FileNotFoundError):
            raise UnsetError("the file that it names to be readable") from None


def _pairs(text: str) -> dict[int, int]:
    """Where each `${` that is closed is closed, found in one pass."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for mark in _MARK.finditer(text):
        if mark[0] == "}":
            if opened:
                start = opened.pop()
                if start >= 0:
                    found[start] = mark.start()
        else:
            # An escaped `$${` opens nothing, but its own `}` must not close another.
            opened.append(mark.start() if mark[0] == "${" else -1)
    return found
