"""How an upstream is doing, for `doctor` and for errors."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

State = Literal["idle", "starting", "ready", "failed", "backoff"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream at one moment.

    `idle` was never asked for, or left in peace; `failed` will be tried again by the next call; `backoff` not
    before `retry_in` seconds have passed.
    """

    server: str
    state: State
    log_file: Path
    protocol_version: str = ""
    pid: int | None = None
    restarts: int = 0
    last_error: str = ""
    retry_in: float = 0.0
    problems: tuple[str, ...] = ()
    """What was wrong with its last listing: tools left out or repaired, pages cut off."""
