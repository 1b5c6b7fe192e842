"""The SDK's OAuth flow, run for one server: discovery, registration, authorization, tokens, refresh.

The SDK holds its lock while it sends a request, so that calls to one server would wait for each other. Here its flow is
only given the refusal and asked what to do about it; the calls themselves are sent by `authorization.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from toolfold import __version__
from toolfold.config.settings import ServerConfig
from toolfold.upstream import tls
from toolfold.upstream.auth.store import Challenge, Record

TIMEOUT = 30.0
"""Seconds for one request to an authorization server."""
_LARGEST = 1_000_000
"""Bytes of an answer of an authorization server."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NO_LISTENER = "http://127.0.0.1/callback"

# The SDK logs errors of the flow with what the authorization server sent, tokens included.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class AuthError(Exception):
    """The flow failed. The text names no secret of ours, but quotes the authorization server."""

    def __init__(self, text: str, *, temporary: bool = False, code: str = "", registration: bool = False) -> None:
        super().__init__(text)
        self.temporary = temporary
        """Whether the same may succeed later, without anybody's help."""
        self.code = code
        """OAuth's own, such as `invalid_grant`."""
        self.registration = registration
        """Whether it was the registration of the client that failed."""


class Browser:
    """A person with a browser: `show` gives them an address to open, `answer` waits for what comes back."""

    def __init__(
        self,
        redirect_uri: str,
        show: Callable[[str], Awaitable[None]],
        answer: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> None:
        self.redirect_uri = redirect_uri
        self.show = show
        self.answer = answer


class Flow:
    """One run of the flow on `record`, which is changed to what was learned. The caller saves it."""

    def __init__(self, config: ServerConfig, record: Record, browser: Browser | None = None) -> None:
        self._config = config
        self._settings = config.oauth
        self._browser = browser
        self._last: httpx2.Response | None = None
        self.record = record

    async def refresh(self) -> None:
        """New tokens for the refresh token. Raises AuthError."""
        provider = self._provider(_tokens(self.record))
        provider.context.token_expiry_time = 1.0
        before = self.record.access_token
        await self._drive(provider, None)
        if self._last is None or self._last.status_code != 200 or self.record.access_token == before:
            raise self._refused("the refresh of the tokens")

    async def obtain(self, challenge: Challenge) -> None:
        """Tokens that answer `challenge`; a person is asked unless the client has credentials of its own. Raises
        AuthError."""
        held: OAuthToken | None = None
        if challenge.step_up and self.record.access_token:
            # Without its refresh token: the SDK asks for the scopes of this one and the new ones together.
            held = OAuthToken(access_token=self.record.access_token, scope=self.record.scope or None)
        if not self._suffices(challenge):
            self.record.client = None
        provider = self._provider(held)
        self.record.tokens = None
        await self._drive(provider, challenge)
        if not self.record.access_token:
            raise AuthError("the authorization server gave no token")
        self.record.challenge = None
        self.record.ended = False

    def _suffices(self, challenge: Challenge) -> bool:
        """Whether the client was registered for the scopes that are wanted; if not, it must be registered anew."""
        registered = str((self.record.client or {}).get("scope") or "").split()
        wanted = {*self._settings.scopes, *challenge.field("scope").split()}
        return not registered or wanted.issubset(registered)

    async def revoke(self) -> bool:
        """Have the tokens revoked; whether the authorization server did so. Raises AuthError."""
        endpoint = str((self.record.metadata or {}).get("revocation_endpoint") or "")
        if not endpoint:
            return False
        provider = self._provider(None)
        client = self._configured_client() or await provider.context.storage.get_client_info()
        provider.context.client_info = client
        done = True
        for token, kind in ((self.record.refresh_token, "refresh_token"), (self.record.access_token, "access_token")):
            if token and client is not None:
                form = {"token": token, "token_type_hint": kind, "client_id": client.client_id}
                form, headers = provider.context.prepare_token_auth(form, {})
                try:
                    answer = await self._send(httpx2.Request("POST", endpoint, data=form, headers=headers))
                except (httpx2.HTTPError, TimeoutError) as error:
                    raise _unreachable(error) from None
                done = done and answer.status_code == 200
        return done and client is not None

    # The SDK's side

    def _provider(self, held: OAuthToken | None) -> OAuthClientProvider:
        settings, record = self._settings, self.record
        storage = _Storage(record, held, self._configured_client())
        with warnings.catch_warnings():
            # Without `issuer` the first one is used, and kept to from then on.
            warnings.simplefilter("ignore")
            if settings.private_key:
                provider: OAuthClientProvider = _KeyProvider(
                    self._config.url,
                    storage,
                    settings.client_id,
                    _signer(settings.client_id, settings.private_key, settings.algorithm),
                    issuer=settings.issuer or record.issuer or None,
                )
            elif settings.machine:
                provider = _SecretProvider(
                    self._config.url,
                    storage,
                    settings.client_id,
                    settings.client_secret,
                    issuer=settings.issuer or record.issuer or None,
                )
            else:
                provider = _PersonProvider(
                    self._config.url,
                    OAuthClientMetadata(
                        client_name="Toolfold",
                        software_id="toolfold",
                        software_version=__version__,
                        redirect_uris=[AnyUrl(self._browser.redirect_uri if self._browser else _NO_LISTENER)],
                    ),
                    storage,
                    self._browser.show if self._browser else None,
                    self._browser.answer if self._browser else None,
                    client_metadata_url=settings.client_metadata_url or None,
                )
        context = provider.context
        if record.metadata:
            context.oauth_metadata = OAuthMetadata.model_validate(record.metadata)
        if record.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(record.resource)
        context.auth_server_url = record.issuer or None
        return provider

    def _configured_client(self) -> OAuthClientInformationFull | None:
        settings = self._settings
        if not settings.client_id or settings.machine:
            return None
        return OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret or None,
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
            issuer=settings.issuer or None,
        )

    async def _drive(self, provider: OAuthClientProvider, challenge: Challenge | None) -> None:
        headers = {"mcp-protocol-version": challenge.version} if challenge and challenge.version else {}
        request = httpx2.Request("POST", self._config.url, headers=headers)
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                outgoing = await flow.asend(await self._send(outgoing))
            if challenge is not None:
                outgoing = await flow.asend(self._refusal(challenge, request))
                while outgoing is not request:
                    outgoing = await flow.asend(await self._send(outgoing))
        except AuthError:
            raise
        except (httpx2.HTTPError, TimeoutError) as error:
            raise _unreachable(error) from None
        except OAuthFlowError as error:
            raise self._explained(error) from None
        except ValidationError:
            raise AuthError("the authorization server sent an invalid response") from None
        finally:
            await flow.aclose()
        self._remember(provider)

    def _remember(self, provider: OAuthClientProvider) -> None:
        context, record = provider.context, self.record
        if context.oauth_metadata is not None:
            record.metadata = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        if context.protected_resource_metadata is not None:
            record.resource = context.protected_resource_metadata.model_dump(mode="json", exclude_none=True)
        record.issuer = context.auth_server_url or record.issuer
        if self._settings.client_id:
            # Tokens belong to the client that they were given to, and only its id is kept here.
            record.client = {"client_id": self._settings.client_id}

    def _refusal(self, challenge: Challenge, request: httpx2.Request) -> httpx2.Response:
        """The server's refusal as the SDK reads it. Scopes that are configured take the place of those asked for."""
        fields = {name: challenge.field(name) for name in ("resource_metadata", "error", "scope")}
        if self._settings.scopes:
            more = fields["scope"].split() if challenge.step_up else []
            fields["scope"] = " ".join(dict.fromkeys((*self._settings.scopes, *more)))
        header = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        return httpx2.Response(
            403 if challenge.step_up else 401, headers={"WWW-Authenticate": f"Bearer {header}"}, request=request
        )

    # The network

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        self._check(str(request.url))
        request.headers.setdefault("Accept", "application/json")
        request.headers.setdefault("User-Agent", f"toolfold/{__version__}")
        async with asyncio.timeout(TIMEOUT), httpx2.AsyncClient(timeout=TIMEOUT, verify=tls.context()) as client:
            answer = await client.send(request, stream=True)
            content = b""
            async for chunk in answer.aiter_bytes():
                content += chunk
                if len(content) > _LARGEST:
                    raise AuthError(f"the authorization server sent more than {_LARGEST // 1_000_000} MB")
            await answer.aclose()
        headers = [
            pair for pair in answer.headers.multi_items() if pair[0] not in ("content-encoding", "content-length")
        ]
        response = httpx2.Response(answer.status_code, headers=headers, content=content, request=request)
        response.next_request = answer.next_request
        self._last = response
        if request.method == "POST" and (response.status_code >= 500 or response.status_code == 429):
            raise AuthError(f"the authorization server answered with HTTP {response.status_code}", temporary=True)
        return response

    def _check(self, url: str) -> None:
        """Secrets go over TLS, unless the server itself is reached without, or all of it is on this machine."""
        place = urlsplit(url)
        if place.scheme != "https" and place.hostname not in _LOOPBACK and urlsplit(self._config.url).scheme == "https":
            raise AuthError(f"the authorization server's address {place.scheme}://{place.hostname} is not https")

    # What went wrong

    def _explained(self, error: OAuthFlowError) -> AuthError:
        registration = isinstance(error, OAuthRegistrationError)
        by_status = registration or isinstance(error, OAuthTokenError)
        if by_status and self._last is not None and self._last.status_code >= 300:
            refused = self._refused("the registration of a client" if registration else "the request")
            refused.registration = registration
            return refused
        if "Invalid" in str(error):  # followed by what was invalid, which may be a token
            return AuthError("the authorization server sent an invalid response", registration=registration)
        return AuthError(str(error), registration=registration)

    def _refused(self, what: str) -> AuthError:
        """The authorization server's own words, where it has any."""
        status = self._last.status_code if self._last is not None else 0
        code = said = ""
        if self._last is not None:
            try:
                body: Any = json.loads(self._last.content)
                code, said = str(body.get("error") or ""), str(body.get("error_description") or "")
            except (ValueError, AttributeError):
                pass
        if status == 200:
            return AuthError(f"{what} got an invalid response")
        words = ": ".join(filter(None, (code[:60], said[:200])))
        return AuthError(f"{what} was refused with HTTP {status}{f' ({words})' if words else ''}", code=code)


class _Storage:
    """The SDK's view of a record. `configured` is a client that was registered beforehand."""

    def __init__(self, record: Record, held: OAuthToken | None, configured: OAuthClientInformationFull | None) -> None:
        self._record = record
        self._held = held
        self._configured = configured

    async def get_tokens(self) -> OAuthToken | None:
        return self._held

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._record.tokens = tokens.model_dump(mode="json", exclude_none=True)
        self._record.expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._configured is not None:
            return self._configured
        return OAuthClientInformationFull.model_validate(self._record.client) if self._record.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._record.client = client_info.model_dump(mode="json", exclude_none=True)


class _FittingAuthMethod(OAuthClientProvider):
    """Sends a client's secret in the way that the authorization server supports."""

    async def _perform_authorization(self) -> httpx2.Request:
        client, metadata = self.context.client_info, self.context.oauth_metadata
        supported = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
        if client is not None and client.client_secret and supported:
            method = client.token_endpoint_auth_method
            if method == "client_secret_basic" and method not in supported and "client_secret_post" in supported:
                client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105
        return await super()._perform_authorization()


class _PersonProvider(_FittingAuthMethod):
    pass


class _SecretProvider(_FittingAuthMethod, ClientCredentialsOAuthProvider):
    pass


class _KeyProvider(PrivateKeyJWTOAuthProvider):
    pass


def _unreachable(error: Exception) -> AuthError:
    return AuthError(f"the authorization server could not be reached ({type(error).__name__})", temporary=True)


def _tokens(record: Record) -> OAuthToken | None:
    return OAuthToken.model_validate(record.tokens) if record.tokens else None


def _signer(client_id: str, key: str, algorithm: str) -> Callable[[str], Awaitable[str]]:
    async def sign(audience: str) -> str:
        try:
            signed = SignedJWTParameters(
                issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=algorithm or _suggested(key)
            )
            return await signed.create_assertion_provider()(audience)
        except Exception:  # of two libraries, for keys that are none, and for algorithms that do not fit
            raise AuthError("`oauth.private_key` is no private key in PEM form, or not for this algorithm") from None

    return sign


def _suggested(key: str) -> str:
    """The usual algorithm for this kind of key."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded = load_pem_private_key(key.encode(), password=None)
    if isinstance(loaded, ec.EllipticCurvePrivateKey):
        return {384: "ES384", 521: "ES512"}.get(loaded.curve.key_size, "ES256")
    return "EdDSA" if isinstance(loaded, ed25519.Ed25519PrivateKey) else "RS256"
