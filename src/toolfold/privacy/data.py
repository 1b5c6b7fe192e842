"""Values in structured data become tokens, by what they are and by what their fields are called."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from toolfold.privacy.fields import PLAIN, Fields, is_worth
from toolfold.privacy.tokeniser import Tokeniser, joined

_BYTES = 64 * 1024
"""JSON that is decoded at a time, and characters of small strings that are scanned together."""
_LONG = 4 * 1024
"""Characters from which a string is scanned by itself."""
_IN_DIGITS = frozenset({"phone", "card", "national_id", "date_of_birth", "address", "ip"})
"""What a field that holds mere numbers cannot hold."""
_AS_NUMBER = frozenset({"phone", "national_id", "card", "iban", "secret"})
"""Kinds that some servers write as JSON numbers."""
_SCANNED = frozenset({"", PLAIN, "email", "phone", "card", "iban"})
"""What is looked for in the field's text; of other meanings the whole text is the value."""
_WHOLE = {
    "email": re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    "phone": re.compile(r"\+?[0-9() ./-]{5,30}"),
}
"""What is nothing but such a value at first sight."""
_DEEPEST = 5
"""How often JSON is looked for in a string of JSON."""
_RECORDS = 1000
_LAID_OUT = 1_000_000
"""Characters up to which JSON in a text keeps its layout."""


class DataTokeniser:
    """Walks over data from one server (or, without one, over a value for the model)."""

    def __init__(self, tokeniser: Tokeniser, fields: Fields, hints: Mapping[str, str], server: str = "") -> None:
        self._tokeniser = tokeniser
        self._fields = fields
        self._hints = hints
        self._server = server
        self._records: dict[tuple[str, ...], tuple[dict[str, str], dict[str, str]]] = {}
        """The names of a record's fields → what they mean, and the names that hold values themselves."""
        self._strings: list[_String] = []
        self._size = 0
        self._depth = 0
        self._has_numbers = tokeniser.vault.has_numbers

    def data(self, value: Any) -> Any:
        """A copy with tokens. Numbers are replaced only where their field's name says what they are."""
        top: list[Any] = [value]
        pending: list[tuple[Any, Any, str]] = [(top, 0, "")]
        while pending:
            holder, key, meaning = pending.pop()
            value = holder[key]
            if isinstance(value, dict):
                self._record(holder, key, cast("dict[Any, Any]", value), pending)
            elif isinstance(value, list):
                holder[key] = items = list(cast("list[Any]", value))
                inner: list[tuple[Any, Any, str]] = []
                for index, item in enumerate(items):
                    if isinstance(item, str):
                        self._string(items, index, item, meaning)
                    elif isinstance(item, dict | list) or (item is not None and self._is_wanted(meaning)):
                        inner.append((items, index, meaning))
                pending += reversed(inner)
            elif isinstance(value, str):
                self._string(holder, key, value, meaning)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self._number(holder, key, value, meaning)
        self._flush()
        return top[0]

    def json_text(self, text: str) -> str:
        """A text with tokens; where it is JSON, the names of its fields count."""
        if text.lstrip()[:1] not in ("{", "[") or self._depth >= _DEEPEST:
            return self._tokeniser.text(text, self._server)
        before = self._tokeniser.replaced
        inner = DataTokeniser(self._tokeniser, self._fields, self._hints, self._server)
        inner._depth = self._depth + 1
        try:
            done = inner.raw(text.encode())
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return self._tokeniser.text(text, self._server)
        return _in_layout_of(text, done) if self._tokeniser.replaced > before else text

    def raw_data(self, raw: msgspec.Raw) -> msgspec.Raw:
        """JSON that stays as it is where nothing is found in it."""
        before = self._tokeniser.replaced
        done = self.raw(bytes(raw))
        return msgspec.Raw(done) if self._tokeniser.replaced > before else raw

    def raw(self, raw: bytes) -> bytes:
        """JSON with tokens, decoded piece by piece. Raises what msgspec raises for what is no JSON."""
        self._tokeniser.check()
        first = raw.lstrip()[:1]
        if len(raw) <= _BYTES or first not in (b"{", b"["):
            return msgspec.json.encode(self.data(msgspec.json.decode(raw)))
        if first == b"[":
            return b"[" + b",".join(self._rows(msgspec.json.decode(raw, type=list[msgspec.Raw]))) + b"]"
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        large = {name: bytes(value) for name, value in members.items() if len(memoryview(value)) > _BYTES}
        # What is small is seen as one record, whose names are judged together.
        small = {name: None if name in large else msgspec.json.decode(value) for name, value in members.items()}
        meanings = self._fields.of_record(tuple(members), self._hints)
        parts: list[bytes] = []
        for name, (shown, value) in zip(members, self.data(small).items(), strict=True):
            if name not in large:
                body = msgspec.json.encode(value)
            elif meanings.get(name):
                body = msgspec.json.encode(self.data({name: msgspec.json.decode(large[name])})[shown])
            else:
                body = self.raw(large[name])
            parts.append(msgspec.json.encode(shown) + b":" + body)
        return b"{" + b",".join(parts) + b"}"

    def _rows(self, rows: list[msgspec.Raw]) -> list[bytes]:
        done: list[bytes] = []
        batch: list[bytes] = []
        size = 0
        for row in [*map(bytes, rows), b""]:
            if batch and (not row or size + len(row) > _BYTES):
                self._tokeniser.check()
                shown = self.data(msgspec.json.decode(b"[" + b",".join(batch) + b"]"))
                done.append(msgspec.json.encode(shown)[1:-1])
                batch, size = [], 0
            if len(row) > _BYTES:
                done.append(self.raw(row))
            elif row:
                batch.append(row)
                size += len(row)
        return done

    def _record(self, holder: Any, key: Any, value: dict[Any, Any], pending: list[tuple[Any, Any, str]]) -> None:
        names = tuple(map(str, value))
        known = self._records.get(names)
        if known is None:
            renamed = {name: shown for name in names if (shown := self._tokeniser.text(name, self._server)) != name}
            known = self._fields.of_record(names, self._hints), renamed
            if len(self._records) < _RECORDS:
                self._records[names] = known
        meanings, renamed = known
        holder[key] = copy = {renamed.get(name, name): item for name, item in zip(names, value.values(), strict=True)}
        is_media = isinstance(value.get("mimeType"), str) and not value["mimeType"].startswith("text/")
        inner: list[tuple[Any, Any, str]] = []
        for name, item in zip(names, value.values(), strict=True):
            meaning = meanings.get(name, "")
            if isinstance(item, str):
                if not (is_media and name in ("data", "blob")):
                    self._string(copy, renamed.get(name, name), item, meaning)
            elif isinstance(item, dict | list) or (item is not None and self._is_wanted(meaning)):
                inner.append((copy, renamed.get(name, name), meaning))
        pending += reversed(inner)  # taken from the end: tokens are numbered in the order of the data

    def _string(self, holder: Any, key: Any, text: str, meaning: str) -> None:
        whole = _WHOLE.get(meaning)
        if meaning not in _SCANNED or (whole is not None and whole.fullmatch(text)):
            if is_worth(meaning, text) and not self._tokeniser.has_tokens(text):
                holder[key] = self._token(meaning, text)
                return
            meaning = ""
        if len(text) > _LONG or text[:1] in ("{", "["):
            holder[key] = self.json_text(text)
        elif text:
            self._strings.append(_String(holder, key, text, meaning))
            self._size += len(text)
            if self._size > _BYTES:
                self._flush()

    def _is_sure(self, value: str) -> bool:
        """Whether it is a value even in a field of mere numbers."""
        return any(map(str.isalpha, value)) or self._tokeniser.vault.knows(value)

    def _is_wanted(self, meaning: str) -> bool:
        """Whether a number in a field of this meaning may be a value."""
        return meaning in _AS_NUMBER or (self._has_numbers and meaning != PLAIN)

    def _number(self, holder: Any, key: Any, value: float, meaning: str) -> None:
        text = msgspec.json.encode(value).decode()
        name = self._tokeniser.vault.number(text)
        if name:
            self._tokeniser.replaced += 1
            holder[key] = name
        elif meaning in _AS_NUMBER and is_worth(meaning, text):
            holder[key] = self._token(meaning, text, is_number=True)

    def _token(self, kind: str, text: str, *, is_number: bool = False) -> str:
        self._tokeniser.replaced += 1
        return self._tokeniser.vault.token_for(kind, text, self._server, is_number=is_number, known=True)

    def _flush(self) -> None:
        """Scan the strings that were collected, as one text, and put tokens in their places."""
        strings, self._strings, self._size = self._strings, [], 0
        if not strings:
            return
        self._tokeniser.check()
        found = iter(self._tokeniser.find(joined([string.text for string in strings]), self._server))
        one = next(found, None)
        begin = 0
        for holder, key, text, meaning in strings:
            pieces: list[str] = []
            written = 0
            has_kind = False
            while one is not None and one.start < begin + len(text):
                start, end = one.start - begin, one.end - begin
                value = text[start:end]
                if meaning != PLAIN or one.kind not in _IN_DIGITS or self._is_sure(value):
                    pieces += (text[written:start], self._tokeniser.token(one, value, self._server))
                    written = end
                    has_kind = has_kind or one.kind == meaning
                one = next(found, None)
            is_value = meaning and meaning != PLAIN and not has_kind and is_worth(meaning, text)
            if is_value and not self._tokeniser.has_tokens(text):
                holder[key] = self._token(meaning, text)
            elif pieces:
                holder[key] = "".join((*pieces, text[written:]))
            begin += len(text) + 1


def _in_layout_of(text: str, done: bytes) -> str:
    """JSON with the spaces and lines that the original has, where it is written in a usual way."""
    compact = done.decode()
    if len(text) > _LAID_OUT:
        return compact
    second = text.partition("\n")[2]
    indent = second[: len(second) - len(second.lstrip(" \t"))] if second else None
    for ascii_only in (False, True):
        write = partial(json.dumps, ensure_ascii=ascii_only, indent=indent)
        if write(json.loads(text)) == text.rstrip("\n"):
            return write(json.loads(compact)) + text[len(text.rstrip("\n")) :]
    return compact


class _String(NamedTuple):
    """A string in the data: where it is, and what its field's name says."""

    holder: Any
    key: Any
    text: str
    meaning: str
