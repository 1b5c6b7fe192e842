"""The next text of one file, by edits that are checked against what they mean and can be undone."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import msgspec

from toolfold.config import documents
from toolfold.config.documents import UnreadableError
from toolfold.config.entries import is_toolfold
from toolfold.config.folding import jsonc, tomltext
from toolfold.config.folding.jsonc import EditError
from toolfold.errors import ConfigError

BLOCK_BEGINS = "<!-- toolfold: begin"
BLOCK_ENDS = "<!-- toolfold: end -->"


class Removed(msgspec.Struct, frozen=True, tag=True):
    """An entry that was taken out of the object or table at `path`."""

    path: tuple[str, ...]
    name: str
    text: str
    """As it was written."""
    value: Any
    after: str | None
    """The entry before it."""


class Added(msgspec.Struct, frozen=True, tag=True):
    """An entry that was put into the object or table at `path`."""

    path: tuple[str, ...]
    name: str
    text: str
    """As it was written; empty in JSON."""
    value: Any
    made: int = 0
    """How many objects at the end of `path` were made for it."""


class Listed(msgspec.Struct, frozen=True, tag=True):
    """An element that was added to the array at `path`."""

    path: tuple[str, ...]
    value: str
    made: int = 0
    """How many objects at the end of `path` were made for it, the array included."""


class Block(msgspec.Struct, frozen=True, tag=True):
    """A part between our marks in a text for agents."""

    text: str
    """All that was added."""
    replaced: str = ""
    """The older one that was there."""


Op = Removed | Added | Listed | Block


class Draft:
    """One file that is being edited. Nothing is written here.

    Raises `ConfigError` when the file cannot be read or edited; its message names the file and none of its content.
    """

    def __init__(self, path: Path, data: bytes | None) -> None:
        self.path = path
        self.before = data
        self.ops: list[Op] = []
        self.notes: list[str] = []
        self._encoding = "utf-8"
        if data is not None and data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            self._encoding = "utf-16-le" if data[0] == 0xFF else "utf-16-be"
        self._kind = path.suffix.lower() if path.suffix.lower() in {".toml", ".md"} else ".json"
        try:
            self.text = (data or b"").decode(self._encoding)
            self.content = copy.deepcopy(self._parsed())
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: expected UTF-8 text.", hint="Correct the file first.") from None
        except UnreadableError as error:
            raise ConfigError(f"{path}: {error}.", hint="Correct the file first; nothing was changed.") from None

    def after(self) -> bytes:
        """The bytes to write, once it is certain that they say what was meant."""
        if not self._says(self.text):
            raise self._refused()
        return self.text.encode(self._encoding)

    # ---- edits

    def take(self, path: tuple[str, ...], name: str) -> Removed:
        """Take an entry out; `EditError` when it is not written as one piece."""
        names = [*self._object(path)]
        value = self._object(path)[name]
        if self._kind == ".toml":
            self.text, text = tomltext.remove(self.text, path, name)
        else:
            text = jsonc.raw(self.text, path, name)
            self.text = jsonc.remove(self.text, path, name)
        at = names.index(name)
        done = Removed(path, name, text, _plain(value), names[at - 1] if at else None)
        del self._object(path)[name]
        self.ops.append(done)
        return done

    def add(self, path: tuple[str, ...], name: str, value: dict[str, Any], comments: list[str] | None = None) -> None:
        """Put an entry in, which must not be there."""
        made = sum(self._get(path[: depth + 1]) is None for depth in range(len(path)))
        try:
            text = ""
            if self._kind == ".toml":
                self.text, text = tomltext.put(self.text, path, name, value, comments or ())
            else:
                self.text = jsonc.put(self.text, path, name, value)
        except EditError:
            raise self._refused() from None
        self._object(path)[name] = value
        self.ops.append(Added(path, name, text, value, made))

    def enlist(self, path: tuple[str, ...], value: str) -> None:
        """Add an element to an array, when it is not there."""
        found = self._get(path)
        if isinstance(found, list) and value in cast("list[Any]", found):
            return
        made = sum(self._get(path[: depth + 1]) is None for depth in range(len(path)))
        try:
            self.text = jsonc.append(self.text, path, value)
        except EditError:
            raise self._refused() from None
        self._object(path[:-1]).setdefault(path[-1], []).append(value)
        self.ops.append(Listed(path, value, made))

    def block(self, text: str) -> None:
        """Write the part between our marks, in place of an older one."""
        begin, end = _block_of(self.text)
        if self.text[begin:end] == text:
            return
        if begin < end:
            self.ops.append(Block(text, self.text[begin:end]))
            self.text = self.text[:begin] + text + self.text[end:]
            return
        gap = "" if not self.text else "\n" if self.text.endswith("\n") else "\n\n"
        self.text += f"{gap}{text}\n"
        self.ops.append(Block(f"{gap}{text}\n"))

    # ---- undoing

    def undo(self, op: Op) -> bool:
        """Take one edit back, whatever else has changed since. False, with a note, when it was left as it is."""
        try:
            match op:
                case Removed():
                    return self._undo_removed(op)
                case Added():
                    return self._undo_added(op)
                case Listed():
                    if op.value in (self._get(op.path) or []):
                        self.text = jsonc.drop(self.text, op.path, op.value)
                        self._get(op.path).remove(op.value)
                    self._prune(op.path, op.made)
                    return True
                case Block():
                    return self._undo_block(op)
        except EditError:
            raise self._refused() from None

    def _undo_removed(self, op: Removed) -> bool:
        if op.name in (self._get(op.path) or {}):
            self.notes.append(f"{op.name}: there is one again in {self.path}; it was left as it is")
            return False
        if self._kind == ".toml":
            self._object(op.path)[op.name] = op.value
            text = tomltext.put_back(self.text, op.text)[0]
            # Lines that stood in another table cannot stand at the end of the file: there they become a table.
            self.text = text if self._says(text) else tomltext.put(self.text, op.path, op.name, op.value)[0]
        else:
            self.text = jsonc.put_back(self.text, op.path, op.name, op.text, after=op.after)
            self._object(op.path)[op.name] = op.value
        return True

    def _undo_added(self, op: Added) -> bool:
        found = self._get((*op.path, op.name))
        if found is not None:
            unchanged = _canonical(found) == _canonical(op.value)
            if not unchanged and not is_toolfold(found):
                self.notes.append(f"{op.name}: changed since in {self.path}; it was left as it is")
                return False
            if self._kind != ".toml":
                self.text = jsonc.remove(self.text, op.path, op.name)
            elif unchanged and self.text.count(op.text) == 1:
                self.text = self.text.replace(op.text, "")
            else:
                self.text = tomltext.remove(self.text, op.path, op.name)[0]
            del self._object(op.path)[op.name]
        if self._kind != ".toml":
            self._prune(op.path, op.made)
        return True

    def _undo_block(self, op: Block) -> bool:
        if self.text.count(op.text) == 1:
            self.text = self.text.replace(op.text, op.replaced)
        else:
            begin, end = _block_of(self.text)
            self.text = self.text[:begin] + op.replaced + self.text[end:]
        return True

    def _prune(self, path: tuple[str, ...], made: int) -> None:
        """Take out the objects that were made for an entry, when nothing is in them now."""
        for depth in range(len(path), len(path) - made, -1):
            if self._get(path[:depth]) not in ({}, []):
                return
            self.text = jsonc.remove(self.text, path[: depth - 1], path[depth - 1])
            del self._object(path[: depth - 1])[path[depth - 1]]

    # ---- reading

    def _parsed(self) -> dict[str, Any]:
        if self._kind == ".md":
            return {}
        return documents.parse(self.text.lstrip("\ufeff"), toml=self._kind == ".toml").content

    def _says(self, text: str) -> bool:
        """Whether `text` means what the content should be. In TOML an empty table needs no line."""
        if self._kind == ".md":
            return True
        toml = self._kind == ".toml"
        try:
            found = documents.parse(text.lstrip("\ufeff"), toml=toml).content
        except UnreadableError:
            return False
        return (
            _canonical(_filled(found)) == _canonical(_filled(self.content))
            if toml
            else (_canonical(found) == _canonical(self.content))
        )

    def _get(self, path: tuple[str, ...]) -> Any:
        found: Any = self.content
        for name in path:
            found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
        return found

    def _object(self, path: tuple[str, ...]) -> dict[str, Any]:
        here = self.content
        for name in path:
            inner = here.setdefault(name, {})
            if not isinstance(inner, dict):
                raise self._refused()
            here = cast("dict[str, Any]", inner)
        return here

    def _refused(self) -> ConfigError:
        return ConfigError(
            f"{self.path}: cannot be edited without a risk to what is in it. Nothing was changed.",
            hint="Move the servers by hand: docs/clients.md has the entry for every client.",
        )


def _block_of(text: str) -> tuple[int, int]:
    """Where the part between our marks is; nothing at the end of the text when there is none."""
    begin = text.find(BLOCK_BEGINS)
    end = text.find(BLOCK_ENDS, begin)
    return (begin, end + len(BLOCK_ENDS)) if 0 <= begin < end else (len(text), len(text))


def _filled(value: Any) -> Any:
    """`value` without empty objects."""
    if not isinstance(value, dict):
        return value
    inner = {name: _filled(given) for name, given in cast("dict[str, Any]", value).items()}
    return {name: given for name, given in inner.items() if given != {}}


def _plain(value: Any) -> Any:
    """`value` as JSON can keep it."""
    return json.loads(json.dumps(value, default=str))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
