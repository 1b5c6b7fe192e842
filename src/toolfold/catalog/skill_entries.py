"""The skills that one caller may use, as search sees them beside tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from toolfold.catalog.entries import Entry, ServerInfo, entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SERVER = "skills"
"""What stands where a tool has its server."""


class SkillBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hit shows of a skill beside its description."""

    signature: str = ""
    doc: str = ""
    input_schema: dict[str, Any] = {}


@dataclass(frozen=True)
class SkillEntries:
    """`version` changes when an entry does; `scope` stays that of the caller."""

    scope: str
    version: str
    entries: Sequence[Entry]
    worth: Sequence[float]
    """Of each entry, from -1 to 1, how well it has worked so far; 0 where that is not known."""

    @cached_property
    def bonus(self) -> NDArray[np.float32] | None:
        """`worth`, ready to be added to scores; None where nothing was used yet."""
        import numpy as np

        return np.array(self.worth, np.float32) if any(self.worth) else None

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """By every way to write a skill's name."""
        found: dict[str, Entry] = {}
        for one in self.entries:
            found |= {one.name: one, one.name.replace("_", "-"): one, f"{SERVER}.{one.name}": one}
        return found

    @property
    def info(self) -> ServerInfo:
        return ServerInfo(name=SERVER, tools=len(self.entries))


def skill_entry(module: str, description: str, tags: Sequence[str], body: SkillBody) -> Entry:
    """An entry that ranks by its name, its tags, its description and its parameters."""
    return entry(
        "skill",
        SERVER,
        module,
        title=" ".join(tags),
        description=description,
        body=msgspec.json.encode(body),
    )
