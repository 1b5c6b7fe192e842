"""The settings of the audit log."""

from __future__ import annotations

from pathlib import Path

from toolfold.config.model import Model
from toolfold.config.units import Seconds


class AuditSettings(Model):
    """What is recorded of runs and calls, and where the log's head goes."""

    enabled: bool = False
    values: bool = False
    """Whether arguments are recorded as they are; otherwise their names and shapes."""
    fsync: bool = False
    """Whether a record is on the disk, and not only with the system, before its call goes on."""
    head_file: Path | None = None
    """A file elsewhere that the newest record's hash is appended to; without one it goes to the log."""
    head_interval: Seconds = 3600.0
    """Seconds between two heads."""
