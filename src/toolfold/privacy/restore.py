"""Tokens in arguments become values again, for servers that may be given them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from toolfold.errors import InvalidArguments
from toolfold.privacy.tokens import TokenSyntax, kind_of
from toolfold.privacy.vault import TEXT, Entry, Vault


class Restorer:
    """For one call to one server. `kept` are the tokens that the server is sent as they are."""

    def __init__(self, vault: Vault, syntax: TokenSyntax, rules: Mapping[str, tuple[str, ...]], server: str) -> None:
        self._vault = vault
        self._syntax = syntax
        self._own_rule = rules.get(server)
        self._allowed = {*(self._own_rule or ()), *rules.get("*", ())}
        self._server = server
        self.kept: dict[str, None] = {}

    def data(self, value: Any) -> Any:
        """A copy with values. Raises InvalidArguments for a text that is a token, but none of this session's."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.data(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {str(self.text(key)): self.data(item) for key, item in items}
        return value

    def text(self, text: str) -> Any:
        """The text with values; a text that is nothing but a token is its value, which may be a number."""
        if "_" not in text:
            return text
        pieces: list[tuple[str, str]] = []
        at = 0
        for found in self._syntax.pattern.finditer(text):
            name = found[0]
            entry = self._vault.get(name)
            if entry is None:
                continue
            if not self._may_have(kind_of(name), entry):
                self.kept[name] = None
                self._vault.note_sent(name, self._server)
            elif name == text:
                return entry.value
            else:
                pieces.append((text[at : found.start()], entry.text))
                at = found.end()
        if pieces:
            quoted = any(_quoted(value) != value for _, value in pieces) and _is_json(text)
            # JSON in a text: what is put in must not break it.
            return (
                "".join(part for before, value in pieces for part in (before, _quoted(value) if quoted else value))
                + text[at:]
            )
        if text not in self.kept and self._syntax.is_shaped(text) and not self._vault.is_literal(text):
            raise InvalidArguments(
                f"{text} stands for no private value of this session.",
                hint="A token is good only in the session in which a result had it: get the value from its tool again.",
            )
        return text

    def _may_have(self, kind: str, entry: Entry) -> bool:
        """By rule, or because the value came from there. An empty rule is for a server that is given nothing."""
        if kind == TEXT:
            return True
        if self._own_rule == ():
            return False
        return self._server in entry.servers or kind in self._allowed or "*" in self._allowed


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
