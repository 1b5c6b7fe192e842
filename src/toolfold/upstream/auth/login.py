"""A person's sign-in to one server, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from toolfold.config.secrets import Redactor
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing
from toolfold.errors import UpstreamError, UpstreamUnavailable
from toolfold.upstream.auth.authorization import Authorization
from toolfold.upstream.auth.flow import AuthError, Flow
from toolfold.upstream.auth.loopback import browser_here
from toolfold.upstream.auth.store import FOLDER, Challenge, Record, RecordFile
from toolfold.upstream.remote import open_remote
from toolfold.upstream.server import UpstreamServer
from toolfold.upstream.serverlog import ServerLog
from toolfold.upstream.starts import StartQueue
from toolfold.upstream.stdio import MESSAGE_LIMIT

_ANY_PORT = "http://127.0.0.1:0/callback"
_CLOSE_TIMEOUT = 5.0


class NoSignInError(Exception):
    """The server answers without a sign-in."""


class Login:
    """The sign-in to one server. `data_dir` is the gateway's: it sees the new tokens at once."""

    def __init__(
        self,
        server: str,
        config: ServerConfig,
        data_dir: Path,
        *,
        scopes: tuple[str, ...] = (),
        keyring: bool = False,
    ) -> None:
        if scopes:
            config = config.model_copy(update={"oauth": config.oauth.model_copy(update={"scopes": scopes})})
        self.server = server
        self.config = config
        self.file = RecordFile(data_dir / FOLDER, server, config.url, keyring=keyring)
        (data_dir / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = ServerLog(data_dir / "logs", server, Redactor(config))

    async def sign_in(
        self,
        show: Callable[[str], None],
        *,
        pasted: AsyncIterator[str] | None = None,
        on_wrong_paste: Callable[[], None] = lambda: None,
    ) -> Record:
        """Have a person sign in. `show` gets the address that they must open; their browser comes back to this machine,
        or its last address is in a line of `pasted`. Raises NoSignInError, UpstreamError or ConfigError (the
        keyring cannot be used). The time limit is the caller's."""
        self.file.check()
        challenge = await self._challenge()
        record = self.file.load()
        try:
            for redirect_uri in self._places(record):
                try:
                    async with browser_here(redirect_uri, show, pasted, on_wrong_paste) as browser:
                        if not self._is_registered(record, browser.redirect_uri):
                            record.client = None
                        await Flow(self.config, record, browser).obtain(challenge)
                        break
                except OSError as error:
                    if redirect_uri == _ANY_PORT or self.config.oauth.redirect_uri:
                        raise AuthError(f"cannot listen for the answer at {redirect_uri}: {error.strerror}") from None
        except AuthError as error:
            raise self._failure(error) from None
        self._log.redactor.also(record.secrets)
        async with self.file.locked():
            self.file.save(record)
        return record

    async def check(self) -> Listing:
        """What the server offers, asked with the tokens that are kept. Raises UpstreamError."""
        return await self._listing(Authorization(self.server, self.config, self.file, self._log))

    async def sign_out(self) -> bool:
        """Forget the sign-in, and have the tokens revoked where the issuer offers that; whether it did so."""
        async with self.file.locked():
            record = self.file.load()
            revoked = False
            if record.tokens:
                with contextlib.suppress(AuthError):
                    revoked = await Flow(self.config, record).revoke()
            self.file.delete()
        return revoked

    # What must be known before

    async def _challenge(self) -> Challenge:
        """How the server refuses a request without a sign-in, or the one that a gateway had no right to send."""
        kept = self.file.load().challenge
        if kept is not None and kept.step_up:
            return kept
        anonymous = Authorization(self.server, self.config, self.file, self._log, anonymous=True)
        try:
            await self._listing(anonymous)
        except UpstreamError:
            if anonymous.challenge is None:
                raise
        if anonymous.challenge is not None:
            return anonymous.challenge
        if kept is not None:
            return kept  # it lists its tools for everybody, and refused a call
        raise NoSignInError

    async def _listing(self, authorization: Authorization) -> Listing:
        opener = partial(open_remote, self.config, self._log, authorization, limit=MESSAGE_LIMIT)
        server = UpstreamServer(
            self.server, self.config, self._log, opener, StartQueue(), lambda _: None, authorization
        )
        try:
            with server.redacted():
                return await server.listing(now=True)
        finally:
            if tasks := server.stop():
                await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)

    def _places(self, record: Record) -> list[str]:
        """Where the answer may come to, the best first: a client is registered with the place that it once had."""
        if self.config.oauth.redirect_uri:
            return [self.config.oauth.redirect_uri]
        return [*(uri for uri in _registered(record) if urlsplit(uri).hostname == "127.0.0.1"), _ANY_PORT]

    def _is_registered(self, record: Record, redirect_uri: str) -> bool:
        return bool(self.config.oauth.client_id) or redirect_uri in _registered(record)

    def _failure(self, error: AuthError) -> UpstreamUnavailable:
        said = self._log.quoted(str(error), 400)
        hint = ""
        if error.registration and not self.config.oauth.client_id:
            hint = (
                "It may not let clients register themselves: get a client id from its operator, and set "
                "`oauth.client_id` of this server. If it has no sign-in at all, add an `Authorization` header instead."
            )
        return UpstreamUnavailable(self.server, f"the sign-in failed: {said}.", hint=hint)


def _registered(record: Record) -> list[str]:
    return [str(uri) for uri in cast("list[object]", (record.client or {}).get("redirect_uris") or [])]
