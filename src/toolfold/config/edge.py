"""The one place that reads the process's own surroundings; everything else is given them."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import ConfigError

_SPACE_NEEDED = 256 * 1024
"""Bytes that must fit into the data folder for it to be of use."""


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


def prepare_data_dir(folder: Path) -> tuple[Path, str]:
    """`folder`, made and checked: only its owner can enter it, and it can be written.

    Where that is not so: a temporary folder that ends with this process, and a line that says why. Raises
    `ConfigError` when there is no place for that either.
    """
    try:
        _make_private(folder)
        _check_writable(folder)
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
    else:
        return folder, ""
    try:
        stand_in = Path(tempfile.mkdtemp(prefix="toolfold-"))
        atexit.register(shutil.rmtree, stand_in, ignore_errors=True)
        _check_writable(stand_in)
    except OSError as error:
        other = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"The data folder {folder} cannot be used ({reason}), and neither can a temporary one ({other}).",
            hint="Make room, or name a writable folder with --data or TOOLFOLD_DATA.",
        ) from None
    lost = "A temporary folder is used instead: caches, logs and sessions end with this process."
    return stand_in, f"The data folder {folder} cannot be used ({reason}). {lost}"


def _make_private(folder: Path) -> None:
    """Mode 0700, whatever the umask or an earlier version made of it; raises OSError where that must not be done."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() != 0:
        raise PermissionError(None, "it belongs to another user")
    if stat.S_IMODE(found.st_mode) == 0o700:
        return
    names = {path.name for path in folder.iterdir()} - {"lost+found"}
    at_the_top = len(folder.resolve().parts) <= 2
    if (found.st_mode & stat.S_ISVTX or at_the_top) and names and not names >= {"catalog", "logs"}:
        # To take away others' rights to /tmp, /var or the root would break the machine.
        raise PermissionError(None, "it holds files of other programs")
    folder.chmod(0o700)


def _check_writable(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_SPACE_NEEDED))
