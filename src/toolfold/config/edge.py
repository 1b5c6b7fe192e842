"""The one place that reads the process's own surroundings; everything else is given them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """Where this process stands: its folder, its person's home, its environment, its kind of system."""

    cwd: Path
    home: Path
    env: Mapping[str, str]
    platform: str

    @property
    def config_dir(self) -> Path:
        """`$XDG_CONFIG_HOME`, else `~/.config`."""
        return self._xdg("XDG_CONFIG_HOME", ".config")

    @property
    def data_dir(self) -> Path:
        """Where state lives: `$TOOLFOLD_DATA`, else `$XDG_DATA_HOME/toolfold`, else `~/.local/share/toolfold`."""
        if chosen := self.env.get("TOOLFOLD_DATA"):
            return self.absolute(chosen)
        return self._xdg("XDG_DATA_HOME", ".local/share") / "toolfold"

    def _xdg(self, variable: str, usual: str) -> Path:
        # The XDG specification says that a relative path there is to be ignored.
        chosen = Path(self.env.get(variable, ""))
        return chosen if chosen.is_absolute() else self.home / usual

    def absolute(self, text: str | Path, base: Path | None = None) -> Path:
        """A path as people write it: `~` is `home`, and a relative one starts at `base`, or else at `cwd`."""
        return (base or self.cwd) / with_home(str(text), self.home)


def host() -> Host:
    """The surroundings of this process, read once at the edge (the CLI, `Toolfold.open`)."""
    return Host(cwd=Path.cwd(), home=Path.home(), env=dict(os.environ), platform=sys.platform)


def with_home(text: str, home: Path) -> str:
    """`text` with a leading `~/` replaced by `home`, as no shell will do it."""
    return str(home / text[2:]) if text == "~" or text.startswith(("~/", "~\\")) else text
