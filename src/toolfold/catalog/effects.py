"""What a tool does to the world, as far as its annotations and its name say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolfold.schema.look_alikes import folded

_DELETES = frozenset(
    {"delete", "deletes", "del", "remove", "removes", "rm", "rmdir", "drop", "drops", "destroy", "destroys", "erase"}
    | {"purge", "wipe", "truncate", "unlink", "uninstall", "terminate", "kill", "revoke", "shred", "prune", "trash"}
    | {"expunge", "discard", "nuke", "deprovision", "clear", "flush"}
)
_DELETES_WRITTEN_TOGETHER = ("delete", "remove", "destroy", "erase", "purge", "uninstall")
_PAYS = frozenset(
    {"pay", "pays", "payment", "payments", "payout", "payouts", "charge", "charges", "refund", "refunds", "purchase"}
    | {"purchases", "buy", "sell", "transfer", "transfers", "withdraw", "withdrawal", "donate", "donation"}
)
_ORDERS = (frozenset({"place", "create", "submit", "replace"}), frozenset({"order", "orders", "trade", "trades"}))
_READS = frozenset(
    {"get", "list", "search", "read", "find", "count", "describe", "show", "fetch", "query", "check", "view", "lookup"}
    | {"preview", "estimate", "is", "has", "can", "explain", "inspect", "retrieve", "browse", "calculate", "compute"}
    | {"validate", "verify", "watch", "monitor", "download", "export", "analyze", "analyse", "compare", "summarize"}
)
_JOINS = frozenset({"and", "or", "then"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


@dataclass(frozen=True)
class Effects:
    """None: the tool does not say."""

    read_only: bool
    destructive: bool | None
    open_world: bool | None
    reason: str = ""
    """Why it counts as destructive."""


READING = Effects(read_only=True, destructive=False, open_world=None)
"""What reading a resource or getting a prompt does."""


def effects_of(name: str, annotations: Mapping[str, Any]) -> Effects:
    """Only a plain true or false counts as a mark. An unmarked tool is destructive if its name says so."""
    read_only = annotations.get("readOnlyHint") is True
    marked = annotations.get("destructiveHint")
    open_world = annotations.get("openWorldHint")
    destructive = marked if isinstance(marked, bool) else None
    reason = "it is marked as destructive" if destructive else ""
    if read_only:
        # MCP gives `destructiveHint` a meaning only for tools that are not read-only.
        destructive, reason = False, ""
    elif destructive is None and (word := harmful_word(name)):
        destructive, reason = True, f"its name says {word!r} and it is not marked otherwise"
    return Effects(read_only, destructive, open_world if isinstance(open_world, bool) else None, reason)


@lru_cache(maxsize=8_192)
def harmful_word(name: str) -> str:
    """The word by which a name says that the tool deletes or pays; empty when it does not."""
    words = [folded(word) for word in _WORD.findall(name)]
    verbs = [word for word in words if word in _READS]
    if verbs and verbs[0] in words[:2] and _JOINS.isdisjoint(words) and words[0] not in _DELETES | _PAYS:
        # `get_payment`, `browser_list_deleted`: reads what was paid or deleted. The server's name may come first.
        return ""
    if all(not kind.isdisjoint(words) for kind in _ORDERS):
        return "order"
    for before, word in zip(["", *words], words, strict=False):
        if word in _PAYS or (word in _DELETES and before != "drag" and not (word == "drop" and before == "and")):
            return word
        if word not in {"deleted", "removed"} and word.startswith(_DELETES_WRITTEN_TOGETHER):
            return word
    return ""
