"""The bearer token of HTTP clients that Toolfold makes itself, so that other users of the machine stay out."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from toolfold.errors import ConfigError

_FILE = "http-token"


def own_token(data_dir: Path) -> str:
    """The token of this data folder: made once, kept in a file that only its owner can read."""
    path = data_dir / _FILE
    try:
        return _read(path) or _make(path)
    except OSError as error:
        raise ConfigError(
            f"Cannot keep a token in {path}: {error.strerror}.",
            hint="Set TOOLFOLD_TOKEN to a token of your own, or pass --no-token to let every user of this machine in.",
        ) from None


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        os.fchmod(descriptor, 0o600)
        return file.read().strip()


def _make(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
    try:
        # Of several gateways that start at once on a new folder, one makes the token and the others read it.
        os.link(draft, path)
    except FileExistsError:
        if not _read(path):
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return _read(path)
