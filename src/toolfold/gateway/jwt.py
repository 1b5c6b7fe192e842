"""Callers who show a JWT of the configured issuer: checked with its public keys, which are cached and may rotate."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jwt
from jwt import PyJWK

from toolfold.config.callers import JwtSettings
from toolfold.errors import ConfigError
from toolfold.guards.context import Caller

_log = logging.getLogger("toolfold")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""How an algorithm begins → the type of its keys."""
_LONGEST_TOKEN = 16 * 1024
_LONGEST_NAME = 200
_MOST_GROUPS = 200
_LARGEST_KEY_SET = 1024 * 1024
_FETCH_TIMEOUT = 10.0
_REFRESH_AFTER = 3600.0
"""Seconds after which keys are fetched again."""
_RETRY_AFTER = 30.0
"""Seconds between two fetches, whatever tokens ask for: a stranger can name any key."""
_FIRST_RETRY_AFTER = 1.0
_EXPIRE_AFTER = 24 * 3600.0
"""Seconds for which keys are used when the issuer cannot be reached."""


class JwtCallers:
    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._keys = _FileKeys(settings.jwks_file) if settings.jwks_file is not None else _UrlKeys(settings)

    async def of(self, token: bytes) -> Caller | None:
        """The caller that `token` proves, or None. Why a token is refused is for the log, not for its sender."""
        try:
            return self._caller(await self._claims(token))
        except Exception as error:
            # Whatever is wrong with a token, a stranger wrote it.
            _log.debug("A JWT was refused: %s", error)
            return None

    async def _claims(self, token: bytes) -> dict[str, Any]:
        if len(token) > _LONGEST_TOKEN:
            raise ValueError("too long")
        settings = self._settings
        header = jwt.get_unverified_header(token)
        algorithm = header["alg"]
        if algorithm not in settings.algorithms or header.get("crit"):
            raise ValueError("its algorithm is not allowed")
        return jwt.decode(
            token,
            await self._keys.key(header.get("kid"), algorithm),
            algorithms=[algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway,
            options={"require": ["exp", "iss", "aud", settings.caller]},
        )

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        name = claims[settings.caller]
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise ValueError("its caller is not a name")
        for claim, value in settings.required.items():
            held = claims.get(claim)
            if held != value and not (isinstance(held, list) and value in held):
                raise ValueError(f"the claim {claim!r} is not as required")
        groups: Any = claims.get(settings.groups, ()) if settings.groups else ()
        listed = groups.split() if isinstance(groups, str) else groups
        if not isinstance(listed, list | tuple):
            raise TypeError("its groups are not a list")
        named = frozenset(each for each in cast("list[Any]", listed)[:_MOST_GROUPS] if isinstance(each, str))
        return Caller(f"jwt:{name}", named, name in settings.hosts)


class _KeySet:
    """The public signing keys of a JWK set. What is no such key, as a shared secret, is left out."""

    def __init__(self, data: bytes = b'{"keys": []}') -> None:
        keys: Any = json.loads(data)["keys"]
        self._keys: list[dict[str, Any]] = [
            cast("dict[str, Any]", key)
            for key in keys
            if isinstance(key, dict) and key.get("kty") in _KEY_TYPES.values() and key.get("use", "sig") == "sig"  # pyright: ignore[reportUnknownMemberType]
        ]
        self._made: dict[tuple[Any, str], PyJWK] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def has(self, kid: str | None) -> bool:
        return bool(self._keys) if kid is None else any(key.get("kid") == kid for key in self._keys)

    def key(self, kid: str | None, algorithm: str) -> PyJWK:
        """The one key of that id (or without an id, the only one) that the algorithm fits."""
        made = self._made.get((kid, algorithm))
        if made is None:
            fitting = [
                key
                for key in self._keys
                if (kid is None or key.get("kid") == kid)
                and key["kty"] == _KEY_TYPES[algorithm[:2]]
                and key.get("alg", algorithm) == algorithm
            ]
            if len(fitting) != 1:
                raise ValueError("its key is not known")
            made = self._made[kid, algorithm] = PyJWK(fitting[0], algorithm)
        return made


class _FileKeys:
    """Keys in a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] = ()
        self._keys = _KeySet()
        try:
            self._read()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"jwt.jwks_file: {path} is not a readable JWK set ({error}).") from None

    async def key(self, kid: str | None, algorithm: str) -> PyJWK:
        self._read()
        return self._keys.key(kid, algorithm)

    def _read(self) -> None:
        found = self._path.stat()
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if version != self._version:
            self._keys, self._version = _KeySet(self._path.read_bytes()), version


class _UrlKeys:
    """Keys that the issuer publishes. One fetch at a time; keys that are known stay in use while it fails."""

    def __init__(self, settings: JwtSettings) -> None:
        assert settings.jwks_url is not None
        self._url = settings.jwks_url
        self._keys = _KeySet()
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._fetching = asyncio.Lock()

    async def key(self, kid: str | None, algorithm: str) -> PyJWK:
        if not self._is_fresh(kid):
            await self._refresh(kid)
        if time.monotonic() - self._fetched > _EXPIRE_AFTER:
            raise ValueError("the issuer's keys are too old")
        return self._keys.key(kid, algorithm)

    def _is_fresh(self, kid: str | None) -> bool:
        return time.monotonic() - self._fetched < _REFRESH_AFTER and self._keys.has(kid)

    async def _refresh(self, kid: str | None) -> None:
        async with self._fetching:
            pause = _RETRY_AFTER if self._keys else _FIRST_RETRY_AFTER
            if self._is_fresh(kid) or time.monotonic() - self._tried < pause:
                return
            self._tried = time.monotonic()
            try:
                self._keys = _KeySet(await self._fetch())
                self._fetched = time.monotonic()
            except Exception as error:
                _log.warning("The keys of the JWT issuer could not be fetched: %s", error)

    async def _fetch(self) -> bytes:
        import httpx2

        body = bytearray()
        async with (
            asyncio.timeout(_FETCH_TIMEOUT),
            httpx2.AsyncClient(timeout=_FETCH_TIMEOUT) as client,
            client.stream("GET", self._url, headers={"accept": "application/json"}) as response,
        ):
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _LARGEST_KEY_SET:
                    raise ValueError("the key set is too large")
        return bytes(body)
