"""What outlives the process: by setting a session's values, sealed; always how many tokens it has given out.

Files in a workspace keep their tokens when the process ends. The values are gone then, unless they are kept; but no
such token may ever stand for another value, so the numbers go on where they ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolfold.errors import ConfigError
from toolfold.privacy.vault import Snapshot

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_NONCE_BYTES = 12
_log = logging.getLogger("toolfold")


class VaultStore:
    """A folder with one file for each session of each caller; `with_values` tells what is in them."""

    def __init__(self, data_dir: Path, *, with_values: bool) -> None:
        self._folder = data_dir / "privacy"
        self.with_values = with_values

    def load(self, caller: str, session: str) -> Snapshot:
        """What was kept; nothing where nothing was, or where it cannot be read any more."""
        name = _name(caller, session)
        for suffix in (".sealed", ".counts"):
            path = self._folder / (name + suffix)
            try:
                data = path.read_bytes()
                if suffix == ".sealed":
                    if not self.with_values:
                        continue
                    data = self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
                return msgspec.json.decode(data, type=Snapshot)
            except FileNotFoundError:
                continue
            except Exception as error:
                # Whatever is wrong with it, its text may hold values: only the kind of error is logged.
                _log.warning("private values of a session cannot be read (%s): %s", type(error).__name__, path.name)
        return Snapshot()

    def save(self, caller: str, session: str, kept: Snapshot) -> None:
        """Write it, readable for the owner alone. A failure is logged: the run has happened."""
        name = _name(caller, session)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(self._folder / f"{name}.counts", msgspec.json.encode(Snapshot(kept.counts)))
            if self.with_values:
                nonce = secrets.token_bytes(_NONCE_BYTES)
                sealed = self._cipher.encrypt(nonce, msgspec.json.encode(kept), name.encode())
                _write(self._folder / f"{name}.sealed", nonce + sealed)
        except (OSError, ConfigError) as error:
            _log.warning("private values of a session could not be kept: %s", error)

    def forget(self, caller: str, session: str) -> None:
        """Remove the values. What its tokens' numbers are stays known."""
        with contextlib.suppress(OSError):
            (self._folder / f"{_name(caller, session)}.sealed").unlink(missing_ok=True)

    @cached_property
    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        path = self._folder / "key"
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, secrets.token_bytes(_KEY_BYTES))
            finally:
                os.close(file)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES or path.stat().st_mode & 0o077:
            raise ConfigError(
                f"{path}: expected a key of {_KEY_BYTES} bytes that only its owner can read.",
                hint="Restore it, or remove it and every *.sealed beside it.",
            )
        return AESGCM(key)


def _name(caller: str, session: str) -> str:
    return hashlib.sha256(f"{caller}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing, whenever the machine stops."""
    temporary = path.with_suffix(f".{secrets.token_hex(4)}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
