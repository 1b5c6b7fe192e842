"""Changes to a person's own toolfold.toml that leave everything else in it as it was written, comments included.

A change is made in the text, then the result is parsed and compared with what was meant. A file that is written in a
way that the text edit does not understand (an inline table, say) is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from toolfold.errors import ConfigError

_HEADER = re.compile(r"\s*\[")


class TomlFile:
    """One file, read once; `write` replaces it as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}.") from None
        try:
            self.content: dict[str, Any] = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}.", hint="Correct it first.") from None

    def add_table(self, outer: str, name: str, values: Mapping[str, Any]) -> None:
        """Append `[outer.name]` with these values: strings, booleans, and lists of strings."""
        lines = table(outer, name, values)
        text = f"{self._text.rstrip()}\n\n{lines}".lstrip("\n")
        self._replace(text, outer, {**self._tables(outer), name: dict(values)})

    def put_first(self, outer: str, inner: str, values: Mapping[str, str], decides: str) -> None:
        """Make `[[outer.inner]]` with these values the first of its list.

        Where the first one differs in the value of `decides` alone, that value is changed instead. A comment that
        stands above the first one stays with it.
        """
        header = re.compile(rf"^[ \t]*\[\[\s*{re.escape(outer)}\s*\.\s*{re.escape(inner)}\s*\]\][^\n]*\n", re.MULTILINE)
        found = header.search(self._text)
        listed: Any = self._tables(outer).get(inner, [])
        old = cast("list[Any]", listed) if isinstance(listed, list) else []
        if found is None:
            text, new = f"{self._text.rstrip()}\n\n{entry(outer, inner, values)}".lstrip("\n"), [dict(values), *old]
        elif old and old[0] | {decides: values[decides]} == values:
            line = re.compile(rf"^([ \t]*{re.escape(decides)}[ \t]*=[ \t]*)(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
            at = found.end()
            changed = line.sub(lambda each: f"{each[1]}{_string(values[decides])}", self._text[at:], count=1)
            text, new = self._text[:at] + changed, [dict(values), *old[1:]]
        else:
            before = self._text[: found.start()].splitlines(keepends=True)
            above: list[str] = []
            while before and before[-1].lstrip().startswith("#"):
                above.insert(0, before.pop())
            rest = "".join(above) + self._text[found.start() :]
            text, new = f"{''.join(before)}{entry(outer, inner, values)}\n{rest}", [dict(values), *old]
        self._replace(text, outer, {**self._tables(outer), inner: new})

    def remove_table(self, outer: str, name: str) -> None:
        """Remove `[outer.name]` and its keys. Comments that stand before the next table stay."""
        header = re.compile(rf"\s*\[\s*{re.escape(outer)}\s*\.\s*(['\"]?){re.escape(name)}\1\s*\]\s*(?:#.*)?")
        kept: list[str] = []
        pending: list[str] = []
        inside = False
        for line in self._text.splitlines(keepends=True):
            if _HEADER.match(line):
                inside = header.fullmatch(line.rstrip("\n")) is not None
                kept += pending
                pending = []
            if not inside:
                kept.append(line)
            elif not line.strip() or line.lstrip().startswith("#"):
                pending.append(line)
            else:
                pending = []
        kept += pending
        left = {key: value for key, value in self._tables(outer).items() if key != name}
        self._replace("".join(kept), outer, left)

    def _tables(self, outer: str) -> dict[str, Any]:
        found = self.content.get(outer, {})
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def _replace(self, text: str, outer: str, tables: dict[str, Any]) -> None:
        """Write `text` if it says what was meant: `tables` in place of what `outer` held, and all else as it was."""
        meant = {**self.content, outer: tables}
        try:
            read = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            read = {}
        if read | {outer: read.get(outer, {})} != meant:
            raise ConfigError(
                f"{self.path} is written in a way that cannot be changed here.",
                hint=f"Edit `{outer}` in it by hand; `--print` shows the lines.",
            )
        replace_private_file(self.path, text)
        self._text, self.content = text, read


def table(outer: str, name: str, values: Mapping[str, Any]) -> str:
    """`[outer.name]` with these values, as TOML."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)
    return "".join([f"[{outer}.{key}]\n", *(f"{each} = {_value(value)}\n" for each, value in values.items())])


def entry(outer: str, inner: str, values: Mapping[str, Any]) -> str:
    """One `[[outer.inner]]` of a list, as TOML."""
    return "".join([f"[[{outer}.{inner}]]\n", *(f"{each} = {_value(value)}\n" for each, value in values.items())])


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case _:
            return f"[{', '.join(map(_string, value))}]"


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'


def replace_private_file(path: Path, text: str) -> None:
    """Write `path` as a whole; a new one can be read by its owner alone, an existing one keeps its mode."""
    path = Path(os.path.realpath(path))
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
