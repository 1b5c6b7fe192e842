"""How long what Toolfold writes is kept. What is in use is kept in any case."""

from __future__ import annotations

from toolfold.config.model import Model
from toolfold.config.units import Age, Size

_DAY = 86_400.0


class RetentionSettings(Model):
    """An age counts from the last use. Where there is a size as well, the oldest go first."""

    sessions: Age = None
    """Named sessions with all their files. Kept until somebody removes them, unless this says otherwise."""
    runs: Age = 7 * _DAY
    """Long outputs of runs without a session."""
    runs_size: Size = 1000**3
    """Bytes that these take, for each caller."""
    outputs: Age = 30 * _DAY
    """Long outputs in the workspace of a named session."""
    outputs_size: Size = 200 * 1000**2
    """Bytes that these take, for each session."""
    logs: Age = 30 * _DAY
    """Logs of servers."""
    logs_size: Size = 100 * 1000**2
    """Bytes that all logs take."""
    audit: Age = 365 * _DAY
    """Records of the audit log."""
    audit_size: Size = 1000**3
    """Bytes that the audit log takes."""
    ledger: Age = 2 * 365 * _DAY
    """Days of the ledger of tokens."""
