"""The state of one upstream's connection, for `doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

State = Literal["idle", "starting", "ready", "failed", "backoff"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream at one moment.

    `idle` has not been used; `failed` is started again by the next call; in `backoff`, calls fail until `retry_in`
    seconds have passed.
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
    """What was wrong with its last listing: tools that were left out or repaired, lists that were cut; and what it
    wants of its client that we do not offer."""
