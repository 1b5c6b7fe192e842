"""A folder that homes are in, as a zygote has it in its view."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shelf:
    """The open handle keeps the folder's inode from being used for another one while this is compared with."""

    path: Path
    handle: int

    @classmethod
    def open(cls, path: Path) -> Shelf:
        return cls(path, os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def is_current(self) -> bool:
        """Whether the path still leads to the folder that was mounted, not to one that was made in its place."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self.handle))
        except OSError:
            return False

    def close(self) -> None:
        os.close(self.handle)
