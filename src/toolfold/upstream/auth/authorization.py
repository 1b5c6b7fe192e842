"""The token on every request to one server: refreshed in time, renewed once when it is refused, never in a loop.

A person is never asked from here. Where only they can help, the request stays refused and `problem` says what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.config.settings import ServerConfig
from toolfold.errors import ConfigError
from toolfold.upstream.auth.store import Challenge, Record, RecordFile
from toolfold.upstream.serverlog import ServerLog

if TYPE_CHECKING:
    import httpx2

_QUOTED = 300
_FORBIDDEN = "refused the account that is signed in with HTTP 403: it may not have the rights."


@dataclass(frozen=True, slots=True)
class AuthProblem:
    """Why requests are refused, in words for a model or a person."""

    text: str
    needs_person: bool = True
    """Whether a sign-in would help."""
    hint: str = ""


class Authorization:
    """One server's sign-in, as its connections use it. `anonymous` sends no token and only notes the refusal."""

    def __init__(
        self, server: str, config: ServerConfig, file: RecordFile, log: ServerLog, *, anonymous: bool = False
    ) -> None:
        self.server = server
        self.config = config
        self.file = file
        self.problem: AuthProblem | None = None
        self.challenge: Challenge | None = None
        """The last refusal that was not overcome."""
        self._log = log
        self._anonymous = anonymous
        self._lock = asyncio.Lock()
        self._failed_at: tuple[int, ...] | None = None

    def http_auth(self) -> httpx2.Auth:
        """For a client of `httpx2`."""
        import httpx2

        outer = self

        class Auth(httpx2.Auth):
            async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                token, tried = await outer.token()
                _set_token(request, token)
                response = yield request
                challenge = _challenge(response)
                if challenge is not None and await outer.renewed(challenge, token, tried=tried):
                    _set_token(request, outer.file.load().access_token)
                    response = yield request
                    challenge = _challenge(response)
                    if challenge is not None:
                        await outer.give_up(challenge)
                if response.status_code < 400:
                    outer.problem = outer.challenge = None
                elif response.status_code == 403 and challenge is None and "authorization" in request.headers:
                    outer.problem = AuthProblem(_FORBIDDEN, needs_person=False)

        return Auth()

    @property
    def changed(self) -> bool:
        """Whether the record has changed since a refusal that only a person can help with: they may have done so."""
        return self.waits_for_person and self.file.signature != self._failed_at

    @property
    def waits_for_person(self) -> bool:
        return self.problem is not None and self.problem.needs_person

    async def token(self) -> tuple[str, bool]:
        """The token to send (empty: none), and whether a new one was asked for in vain just now."""
        if self._anonymous:
            return "", False
        try:
            return await self._token()
        except ConfigError as error:
            self._no_keyring(error)
            return "", True

    async def _token(self) -> tuple[str, bool]:
        await self.file.catch_up()
        record = self._record()
        if not record.access_token:
            return "", False
        if not record.expired:
            return record.access_token, False
        if not self._may_refresh(record):
            return "", False
        async with self._alone() as record:
            if record.access_token and not record.expired:
                return record.access_token, False
            if not self._may_refresh(record) or not await self._refresh(record):
                return "", True
            return self._record().access_token, False

    async def renewed(self, challenge: Challenge, used: str, *, tried: bool) -> bool:
        """Whether there is a better token now than `used`, which the server refused."""
        if self._anonymous:
            self.challenge = challenge
            return False
        try:
            return await self._renewed(challenge, used, tried=tried)
        except ConfigError as error:
            self._no_keyring(error)
            return False

    async def _renewed(self, challenge: Challenge, used: str, *, tried: bool) -> bool:
        async with self._alone() as record:
            if record.access_token and record.access_token != used and not record.expired:
                return True  # another call, another gateway or the person was faster
            if self.config.oauth.machine:
                return await self._obtain(record, challenge)
            may_refresh = challenge.status == 401 and not tried and bool(used) and self._may_refresh(record)
            if may_refresh and await self._refresh(record):
                return True
            if (tried or may_refresh) and self.problem is not None:
                return False  # the issuer is out of reach, and the sign-in may still be good
            await self._needs_person(challenge, self._record())
        return False

    async def give_up(self, challenge: Challenge) -> None:
        """A new token was refused as well."""
        if self.config.oauth.machine:
            what = f"refused a new token with HTTP {challenge.status}{_scopes(challenge)}"
            self._fail(AuthProblem(f"the server {what}. Check `oauth.client_id` and `oauth.scopes`.", False), challenge)
        else:
            await self._needs_person(challenge, self._record(), save=False)

    def _no_keyring(self, error: ConfigError) -> None:
        self.problem = AuthProblem(f"its sign-in cannot be read. {error.message}", needs_person=False, hint=error.hint)

    # Changing the record

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[Record]:
        """The record as it is now, with nobody else changing it."""
        async with self._lock, contextlib.AsyncExitStack() as stack:
            with contextlib.suppress(TimeoutError):
                await stack.enter_async_context(self.file.locked())
            await self.file.catch_up()
            yield self._record()

    def _record(self) -> Record:
        record = self.file.load()
        configured = self.config.oauth.client_id
        if configured and record.client and record.client.get("client_id") != configured:
            # Tokens of another client than the one that is configured now.
            record = Record(server=record.server, url=record.url)
        self._log.redactor.also(record.secrets)
        return record

    def _may_refresh(self, record: Record) -> bool:
        known_client = bool(record.client or self.config.oauth.client_id)
        return bool(record.refresh_token) and known_client and not self.config.oauth.machine

    async def _refresh(self, record: Record) -> bool:
        from toolfold.upstream.auth.flow import AuthError, Flow

        self.problem = None
        try:
            await Flow(self.config, record).refresh()
        except AuthError as error:
            said = self._log.quoted(str(error), _QUOTED)
            self._log.note(f"the tokens were not refreshed: {said}")
            if error.temporary:
                self.problem = AuthProblem(f"its sign-in could not be refreshed: {said}.", needs_person=False)
                return False
            record = self._record()
            record.tokens, record.expires_at, record.ended = None, None, True
            if error.code in ("invalid_client", "unauthorized_client"):
                record.client = None
            await self._save(record)
            return False
        await self._save(record)
        self._log.note("the tokens were refreshed")
        return True

    async def _obtain(self, record: Record, challenge: Challenge) -> bool:
        from toolfold.upstream.auth.flow import AuthError, Flow

        try:
            await Flow(self.config, record).obtain(challenge)
        except AuthError as error:
            said = self._log.quoted(str(error), _QUOTED)
            self._log.note(f"signing in with client credentials failed: {said}")
            self._fail(
                AuthProblem(f"signing in with client credentials failed: {said}.", needs_person=False), challenge
            )
            return False
        # A refresh token is of no use: the credentials themselves bring the next token.
        if record.tokens is not None:
            record.tokens.pop("refresh_token", None)
        await self._save(record)
        return True

    async def _needs_person(self, challenge: Challenge, record: Record, *, save: bool = True) -> None:
        hint = ""
        command = f"run `toolfold auth login {shlex.quote(self.server)}`"
        if challenge.step_up:
            text = f"needs a sign-in with more rights{_scopes(challenge)}: {command}."
        elif record.ended or record.tokens:
            text = f"its sign-in has expired or was revoked: {command}."
        elif challenge.names_oauth:
            text = f"needs a sign-in: {command}."
        else:
            text = f"{self._log.redactor.address} answered with HTTP {challenge.status}: authorization is needed."
            hint = f"If it has a sign-in, {command}; else add an `Authorization` header to this server."
        if save and record.challenge != challenge and (challenge.names_oauth or record.ended):
            record.challenge = challenge
            await self._save(record)
        self._fail(AuthProblem(text, hint=hint), challenge)

    def _fail(self, problem: AuthProblem, challenge: Challenge) -> None:
        self.problem, self.challenge = problem, challenge
        self._failed_at = self.file.signature

    async def _save(self, record: Record) -> None:
        self._log.redactor.also(record.secrets)
        try:
            await self.file.keep(record)
        except (OSError, ConfigError) as error:
            why = str(error) if isinstance(error, ConfigError) else error.strerror
            self._log.note(f"the sign-in could not be saved: {why}")


def authorization_of(
    server: str, config: ServerConfig, folder: Path, log: ServerLog, *, keyring: bool = False
) -> Authorization | None:
    """None for a server that has no sign-in of this kind."""
    if not config.may_sign_in:
        return None
    return Authorization(server, config, RecordFile(folder, server, config.url, keyring=keyring), log)


def _set_token(request: httpx2.Request, token: str) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"


def _challenge(response: httpx2.Response) -> Challenge | None:
    """How the server refused the request, if it wants another token."""
    challenge = Challenge(
        response.status_code,
        # Values of several headers of this name are joined by commas.
        response.headers.get("www-authenticate", "")[:4_000],
        response.request.headers.get("mcp-protocol-version", "")[:40],
    )
    return challenge if challenge.status == 401 or challenge.step_up else None


def _scopes(challenge: Challenge) -> str:
    scope = challenge.field("scope")
    return f" ({scope[:200]})" if scope else ""
