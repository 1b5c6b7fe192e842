"""What servers offered when they were last asked: one file per server, safe to read and write from many processes.

A file is named by a hash of the server's config, so another command, token or URL is another server. Only the hash is
stored, never the config. A file is replaced as a whole: a reader sees the old listing or the new one.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from hashlib import blake2b
from pathlib import Path

import msgspec

from toolfold.catalog.entries import Entry
from toolfold.config.settings import ServerConfig

_FORMAT = 1
_ABANDONED_AFTER = 3600.0
"""Seconds after which a half-written file is taken to be left by a process that died."""


class StoredListing(msgspec.Struct, frozen=True, array_like=True):
    """One server's listing, sorted. `digest` changes if and only if something in it does."""

    server: str
    instructions: str
    entries: list[Entry]
    digest: bytes
    settled: bool = False
    """Whether every tool in it is as it was accepted (see `pins`), so that this need not be looked up again."""


class _File(msgspec.Struct, frozen=True, array_like=True):
    format: int
    listing: StoredListing


_decode = msgspec.msgpack.Decoder(_File)


def stored_listing(server: str, instructions: str, entries: list[Entry]) -> StoredListing:
    """`entries` must be sorted."""
    whole = blake2b(msgspec.msgpack.encode([server, instructions, [one.digest for one in entries]]), digest_size=16)
    return StoredListing(server, instructions, entries, whole.digest())


class Store:
    """The folder of listings. Reading never fails: a file that cannot be read counts as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, server: str, config: ServerConfig) -> StoredListing | None:
        try:
            found = _decode.decode(self._path(server, config).read_bytes())
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        return found.listing if found.format == _FORMAT and found.listing.server == server else None

    def write(self, listing: StoredListing, config: ServerConfig) -> None:
        """Store `listing` for later processes. OSError where the folder cannot be written."""
        replace_file(self._path(listing.server, config), msgspec.msgpack.encode(_File(_FORMAT, listing)))

    def _path(self, server: str, config: ServerConfig) -> Path:
        readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-") or "server"
        return self._folder / f"{readable}-{_config_hash(server, config)}.listing"


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically: after a crash or a concurrent write the file is whole, old or new."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(path.parent)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _sweep(folder: Path) -> None:
    """Remove unfinished files that were abandoned."""
    with contextlib.suppress(OSError):
        for leftover in folder.glob(".*.tmp"):
            if time.time() - leftover.stat().st_mtime > _ABANDONED_AFTER:
                leftover.unlink(missing_ok=True)


def _config_hash(server: str, config: ServerConfig) -> str:
    # Where the config came from and how long we wait does not change what the server offers.
    identity = config.model_dump(mode="json", exclude={"source", "call_timeout", "start_timeout"})
    text = msgspec.json.encode([server, identity], order="sorted")
    return blake2b(text, digest_size=12).hexdigest()
