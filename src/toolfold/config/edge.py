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


def host() -> Host:
    """The surroundings of this process, read once by whoever stands at the edge (the CLI, `Toolfold.open`)."""
    return Host(cwd=Path.cwd(), home=Path.home(), env=dict(os.environ), platform=sys.platform)


def data_dir(*, cwd: Path, home: Path, env: Mapping[str, str]) -> Path:
    """Where state lives: `$TOOLFOLD_DATA`, else `$XDG_DATA_HOME/toolfold`, else `~/.local/share/toolfold`."""
    if chosen := env.get("TOOLFOLD_DATA"):
        return absolute(chosen, home=home, base=cwd)
    shared = env.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative path there is to be ignored.
    root = Path(shared) if Path(shared).is_absolute() else home / ".local" / "share"
    return root / "toolfold"


def own_data_dir() -> Path:
    """`data_dir` for this process: the default of a `Settings` that nobody loaded from files."""
    here = host()
    return data_dir(cwd=here.cwd, home=here.home, env=here.env)


def with_home(text: str, home: Path) -> str:
    """`text` with a leading `~/` replaced by `home`, as no shell will do it."""
    return str(home / text[2:]) if text == "~" or text.startswith(("~/", "~\\")) else text


def absolute(text: str, *, home: Path, base: Path) -> Path:
    """A path as people write it: `~` is `home`, and a relative one starts at `base`."""
    return base / with_home(text, home)
