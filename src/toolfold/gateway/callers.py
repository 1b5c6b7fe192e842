"""Who a request over HTTP is from, by the bearer token that it shows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from toolfold.errors import InvalidRequest
from toolfold.guards.context import LOCAL_CALLER, Caller

if TYPE_CHECKING:
    from toolfold.config.settings import Settings
    from toolfold.gateway.jwt import JwtCallers


CONTEXT_HEADER = b"toolfold-context"
_MOST_VALUES = 64


class Callers:
    """The owner by the gateway's own token, callers by theirs, and those of a configured issuer by their JWTs.

    Names of the three kinds never meet: `token:…`, a plain name, `jwt:…`. Where the gateway has no token of its own,
    requests that show none are the owner's; a token that is shown has to be valid wherever any are configured.
    """

    def __init__(self, settings: Settings | None, token: str | None) -> None:
        self._open = token is None
        self._by_digest: dict[str, Caller] = {}
        if token is not None:
            digest = _digest(token.encode())
            self._by_digest[digest] = Caller(f"token:{digest[:8]}", owner=True)
        if settings is not None:
            self._by_digest |= {
                each.token_sha256: Caller(name, frozenset(each.groups), each.host, scraper=each.scraper)
                for name, each in settings.callers.items()
            }
        self._jwt: JwtCallers | None = None
        if settings is not None and settings.jwt is not None:
            # PyJWT and cryptography are imported only where they are needed.
            from toolfold.gateway.jwt import JwtCallers

            self._jwt = JwtCallers(settings.jwt)

    async def of(self, authorization: bytes | None) -> Caller | None:
        """The caller, or None: the request is refused."""
        if self._open and (authorization is None or not (self._by_digest or self._jwt)):
            return Caller(LOCAL_CALLER, owner=True)
        scheme, _, given = (authorization or b"").partition(b" ")
        token = given.strip()
        if scheme.lower() != b"bearer" or not token:
            return None
        # Comparing digests tells nothing about the token by the time it takes.
        found = self._by_digest.get(_digest(token))
        if found is None and self._jwt is not None:
            return await self._jwt.of(token)
        return found


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def context_values(header: bytes | None, caller: Caller) -> dict[str, str]:
    """The values in a `Toolfold-Context` header: a JSON object of strings, from a host application only."""
    if header is None:
        return {}
    if not caller.host:
        raise InvalidRequest(
            "Toolfold-Context is accepted only from callers that are marked `host = true` in the settings."
        )
    try:
        values = msgspec.json.decode(header, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidRequest('Toolfold-Context must be a JSON object of strings, such as {"user_id": "7"}.') from None
    if len(values) > _MOST_VALUES:
        raise InvalidRequest(f"Toolfold-Context holds more than {_MOST_VALUES} values.")
    return values
