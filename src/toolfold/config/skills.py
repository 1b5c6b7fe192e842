"""Where skills are kept, and who must agree before they spread."""

from __future__ import annotations

from pathlib import Path

from toolfold.config.model import Model


class SkillSettings(Model):
    approval: bool = False
    """Whether what a program saves waits for a person's yes before other sessions can use it."""
    project: Path | None = None
    """A folder of skills for one project: the person at this machine uses them beside their own."""
