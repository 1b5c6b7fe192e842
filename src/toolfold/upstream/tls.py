"""One TLS context for all servers. To read the machine's certificates takes tens of milliseconds, in which nothing else
of the gateway goes on."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_RENEWED_AFTER = 3600.0
"""Seconds. A gateway that runs for months hears of new and withdrawn certificates."""


def context() -> ssl.SSLContext:
    return _read(int(time.monotonic() / _RENEWED_AFTER))


@functools.lru_cache(maxsize=1)
def _read(_hour: int) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
