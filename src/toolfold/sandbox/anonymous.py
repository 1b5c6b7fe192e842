"""Files made on this machine name its folders (byte code, build settings, built-in paths), and programs can read them.

Each such path is replaced by one of the same length that means `/usr`, so that no file changes its size or its layout.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_MEANS_USR = b"/usr"


def own_paths() -> list[str]:
    """The folders of this machine in which its Python lies and was built, and its user's."""
    settings = [sysconfig.get_config_var(name) for name in ("abs_builddir", "abs_srcdir", "prefix")]
    places = {sys.base_prefix, sys.base_exec_prefix, *(str(path) for path in settings if path)}
    places |= {os.path.realpath(place) for place in places}
    with contextlib.suppress(KeyError):  # a user id without a name
        places.add(f"{pwd.getpwuid(os.getuid()).pw_dir}/")
    return [*places]


def forget_paths(folder: Path, paths: Iterable[str]) -> None:
    """Replace `paths` in every file below `folder`. What is in `/usr` anyway stays, and so does `/one` folder: a text
    that short has other meanings."""
    wanted = {os.fsencode(path) for path in paths if not path.startswith("/usr") and path.strip("/").count("/") > 0}
    changes = [(path, _MEANS_USR.ljust(len(path), b"/")) for path in sorted(wanted, key=len, reverse=True)]
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place, name)
            if file.is_file() and not file.is_symlink():
                _change(file, changes)


def _change(file: Path, changes: list[tuple[bytes, bytes]]) -> None:
    before = after = file.read_bytes()
    for path, neutral in changes:
        after = after.replace(path, neutral)
    if after != before:
        # Byte code says for which age of its source it is good.
        status = file.stat()
        file.write_bytes(after)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
