"""Where the Logseq graph is that skills are kept in step with."""

from __future__ import annotations

from pathlib import Path

from toolfold.config.model import Model


class LogseqSettings(Model):
    graph: Path | None = None
    """The folder of the graph, which has `pages` and `journals`."""
