"""What a sign-in leaves behind: one private file for each server and address.

The SDK keeps neither the expiry of a token nor the metadata of its issuer; without both, nothing can be refreshed after
a restart. So all of it is here, and several gateways may share it. Where the keyring holds the secrets, the file
has the rest, and still tells when something has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from toolfold.locks import lock_now
from toolfold.upstream.auth.keyring import KeyringEntry

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that refreshes the same tokens."""
_POLL = 0.02
_EARLY = 30.0
"""Seconds before its expiry from which a token is refreshed; less where it lives only shortly."""
_ABANDONED_AFTER = 3600.0
"""Seconds after which a half-written file is taken to be left by a process that died."""
_LARGEST = 1_000_000

FOLDER = "auth"
"""In the data folder."""


class Challenge(msgspec.Struct, frozen=True):
    """How a server refused a request: what it asks for is in the header."""

    status: int
    header: str = ""
    """Its `WWW-Authenticate`."""
    version: str = ""
    """The protocol version of the request."""

    @property
    def names_oauth(self) -> bool:
        return bool(re.match(r"\s*bearer\b", self.header, re.IGNORECASE))

    @property
    def step_up(self) -> bool:
        """Whether the token is good, but does not reach far enough."""
        return self.status == 403 and self.field("error") == "insufficient_scope"

    def field(self, name: str) -> str:
        found = re.search(rf'\b{name}=(?:"([^"]*)"|([^\s,]+))', self.header)
        return (found[1] or found[2] or "") if found else ""


class Record(msgspec.Struct, kw_only=True):
    """What is known of one sign-in. The parts are as the SDK's models write them."""

    server: str
    url: str
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    """The client's registration at the issuer."""
    metadata: dict[str, Any] | None = None
    """The issuer's."""
    resource: dict[str, Any] | None = None
    """The server's own metadata, which names its issuer."""
    issuer: str = ""
    challenge: Challenge | None = None
    """A refusal that only a person's sign-in can answer."""
    ended: bool = False
    """Whether there was a sign-in that is no longer accepted."""
    stamp: str = ""
    """In a file whose `tokens` and `client` are in the keyring: another one with every save."""

    @property
    def access_token(self) -> str:
        return str((self.tokens or {}).get("access_token") or "")

    @property
    def refresh_token(self) -> str:
        return str((self.tokens or {}).get("refresh_token") or "")

    @property
    def scope(self) -> str:
        return str((self.tokens or {}).get("scope") or "")

    @property
    def expired(self) -> bool:
        """Whether the token has expired, or is about to."""
        if self.expires_at is None:
            return False
        lifetime = (self.tokens or {}).get("expires_in") or 0
        return time.time() >= self.expires_at - min(_EARLY, lifetime / 10)

    @property
    def secrets(self) -> list[str]:
        """What must never be shown."""
        client_secret = str((self.client or {}).get("client_secret") or "")
        return [secret for secret in (self.access_token, self.refresh_token, client_secret) if secret]


class _Secrets(msgspec.Struct):
    """What is in the keyring."""

    tokens: dict[str, Any] | None = None
    client: dict[str, Any] | None = None


def records(folder: Path, *, keyring: bool = False) -> list[Record]:
    """Every record that can be read. Raises ConfigError where the keyring cannot be."""
    found = (_read(path, keyring=keyring) for path in sorted(folder.glob("*.json")))
    return [record for record in found if record is not None]


def _read(path: Path, *, keyring: bool) -> Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes()[:_LARGEST], type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    if record.stamp:
        text = KeyringEntry(path).read() if keyring else None
        kept = None
        with contextlib.suppress(msgspec.DecodeError):
            kept = msgspec.json.decode(text, type=_Secrets) if text is not None else None
        if kept is None:
            record.expires_at, record.ended, kept = None, True, _Secrets()
        record.tokens, record.client, record.stamp = kept.tokens, kept.client, ""
    return record


class RecordFile:
    """One server's record. Reading it again costs one `stat` as long as it has not changed. Where the keyring is used
    and cannot be, what reads or writes secrets raises ConfigError."""

    def __init__(self, folder: Path, server: str, url: str, *, keyring: bool = False) -> None:
        self.server = server
        self.url = url
        readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-") or "server"
        identity = msgspec.json.encode([server, url])
        self.path = folder / f"{readable}-{sha256(identity).hexdigest()[:24]}.json"
        self._keyring = keyring
        self._catching_up = asyncio.Lock()
        self._signature: tuple[int, ...] | None = None
        self._record: Record | None = None
        self._unsaved = False

    @property
    def signature(self) -> tuple[int, ...] | None:
        """Differs when the file does; None when there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def load(self) -> Record:
        """The record as it is on disk; an empty one where there is none, or none that can be read."""
        signature = self.signature
        if self._record is None or self._is_stale(signature):
            self._record = self._read()
            self._signature = signature
            self._unsaved = False
        return msgspec.structs.replace(self._record)

    async def catch_up(self) -> None:
        """Have the next `load` not wait for the keyring, which may ask the person for its password."""
        if not self._keyring:
            return
        async with self._catching_up:
            signature = self.signature
            if self._record is None or self._is_stale(signature):
                record = await asyncio.to_thread(self._read)
                if self._record is None or self._is_stale(signature):  # nothing was saved meanwhile
                    self._record, self._signature, self._unsaved = record, signature, False

    def check(self) -> None:
        """Whether secrets can be kept at all: better known before a person signs in than after."""
        if self._keyring:
            KeyringEntry(self.path).read()

    def _is_stale(self, signature: tuple[int, ...] | None) -> bool:
        return signature != self._signature and not (self._unsaved and signature is None)

    def _read(self) -> Record:
        record = _read(self.path, keyring=self._keyring)
        if record is not None and (record.server, record.url) == (self.server, self.url):
            return record
        return Record(server=self.server, url=self.url)

    def save(self, record: Record) -> None:
        """Replace the file in one step, readable by its owner only. Raises OSError or ConfigError; this process then
        goes on with the record in memory."""
        self._record, self._unsaved = msgspec.structs.replace(record), True
        self._write(self._without_secrets(record) if self._keyring else record)

    async def keep(self, record: Record) -> None:
        """`save`, where others go on while the keyring asks the person for its password. Once begun it is completed."""
        self._record, self._unsaved = msgspec.structs.replace(record), True
        await asyncio.shield(asyncio.ensure_future(self._keep(record)))

    async def _keep(self, record: Record) -> None:
        self._write(await asyncio.to_thread(self._without_secrets, record) if self._keyring else record)

    def _write(self, record: Record) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._drop_drafts(_ABANDONED_AFTER)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(record))
                file.flush()
                # A refresh token that was used up must not come back after a power cut.
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        self._signature, self._unsaved = self.signature, False

    def _without_secrets(self, record: Record) -> Record:
        """As it is written to the file, with its secrets in the keyring."""
        if record.tokens is None and record.client is None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                if msgspec.json.decode(self.path.read_bytes()[:_LARGEST], type=Record).stamp:
                    KeyringEntry(self.path).delete()
            return record
        KeyringEntry(self.path).write(msgspec.json.encode(_Secrets(record.tokens, record.client)).decode())
        return msgspec.structs.replace(record, tokens=None, client=None, stamp=secrets.token_hex(8))

    def delete(self) -> None:
        if self._keyring:
            KeyringEntry(self.path).delete()
        self.path.unlink(missing_ok=True)
        self._drop_drafts(0.0)
        self._record = None

    def _drop_drafts(self, age: float) -> None:
        """Remove what writers left that were killed: there are tokens in it."""
        with contextlib.suppress(OSError):
            for draft in self.path.parent.glob(f".{self.path.name}.*"):
                if time.time() - draft.stat().st_mtime >= age:
                    draft.unlink(missing_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Alone among all processes that use this record. Raises TimeoutError; where no lock can be had because the
        folder cannot be written, there is nothing to share."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            async with asyncio.timeout(LOCK_TIMEOUT):
                while not lock_now(descriptor):  # noqa: ASYNC110 (other processes have no event for us)
                    await asyncio.sleep(_POLL)
            yield
        finally:
            os.close(descriptor)
