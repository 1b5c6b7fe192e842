"""A slow disk: while the file named by TOOLFOLD_SLOW_DISK exists, what changes files takes up to a fifth of a second.

Loaded by the gateway of the fault test, through PYTHONPATH.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_flag = Path(os.environ.get("TOOLFOLD_SLOW_DISK", "/nonexistent"))


def _slowed(work: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*given: Any, **more: Any) -> Any:
        if _flag.exists():
            time.sleep(random.uniform(0, 0.2))
        return work(*given, **more)

    return slow


for _name in ("mkdir", "rename", "replace", "rmdir", "unlink", "chmod"):
    setattr(os, _name, _slowed(getattr(os, _name)))
