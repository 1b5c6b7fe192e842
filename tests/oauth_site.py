"""An MCP server with its own authorization server, on a port of this machine: the SDK's routes over tokens in memory.

Tests hold it in their own process, so that they can expire and revoke what it has given out, and count.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import httpx2
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfold.config.settings import ServerConfig

MACHINE = ("robot", "robot-secret-of-this-site")
"""Client credentials that the site knows beforehand."""


class Issuer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Tokens in memory. A refresh token can be used once; a second use revokes everything, as careful issuers do."""

    def __init__(self) -> None:
        self.lifetime = 3600
        self.count: Counter[str] = Counter()
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.used: set[str] = set()
        self.resource = ""
        self.down = False

    def expire(self) -> None:
        """What was given out is accepted no longer, as after its lifetime."""
        self.access.clear()

    def revoke(self) -> None:
        """As when the person removes the app in their account."""
        self.access.clear()
        self.refresh.clear()

    def give(self, client_id: str, scopes: list[str], *, refresh: bool = True) -> OAuthToken:
        token = AccessToken(
            token=f"at-{secrets.token_hex(16)}",
            client_id=client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.lifetime,
            resource=self.resource,
        )
        self.access[token.token] = token
        renewal = RefreshToken(token=f"rt-{secrets.token_hex(16)}", client_id=client_id, scopes=scopes)
        if refresh:
            self.refresh[renewal.token] = renewal
        return OAuthToken(
            access_token=token.token,
            expires_in=self.lifetime,
            scope=" ".join(scopes),
            refresh_token=renewal.token if refresh else None,
        )

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.count["registrations"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.count["authorizations"] += 1
        code = AuthorizationCode(
            code=f"code-{secrets.token_hex(16)}",
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.give(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self.used:
            self.count["reuses"] += 1
            self.revoke()
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.count["refreshes"] += 1
        self.used.add(refresh_token.token)
        del self.refresh[refresh_token.token]
        return self.give(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.count["revocations"] += 1
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)


class Gate:
    """Before the application: client credentials, a tool that needs another scope, and an issuer that is down."""

    def __init__(self, app: ASGIApp, issuer: Issuer) -> None:
        self.app = app
        self.issuer = issuer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        answer = self.answer(scope["path"], headers, body)
        if answer is not None:
            return await answer(scope, receive, send)
        sent = False

        async def again() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, again, send)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Response | None:
        if path == "/token":
            self.issuer.count["token requests"] += 1
            if self.issuer.down:
                return JSONResponse({"error": "temporarily_unavailable"}, 503)
            form = parse_qs(body.decode())
            if form.get("grant_type") == ["client_credentials"]:
                given = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
                if given != ":".join(MACHINE):
                    return JSONResponse({"error": "invalid_client"}, 401)
                scopes = form.get("scope", ["read"])[0].split()
                return JSONResponse(self.issuer.give(MACHINE[0], scopes, refresh=False).model_dump(exclude_none=True))
        if path == "/mcp" and json.loads(body).get("params", {}).get("name") == "erase":
            token = self.issuer.access.get(headers.get("authorization", "").removeprefix("Bearer "))
            if token is not None and "write" not in token.scopes:
                told = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'}
                return JSONResponse({"error": "insufficient_scope"}, 403, told)
        return None


class Site:
    def __init__(self, port: int, *, sse: bool) -> None:
        self.sse = sse
        self.issuer = Issuer()
        self.origin = f"http://127.0.0.1:{port}"
        self.url = self.issuer.resource = f"{self.origin}/{'sse' if sse else 'mcp'}"

    def app(self) -> ASGIApp:
        server = MCPServer(
            "site",
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(self.origin),
                resource_server_url=AnyHttpUrl(self.url),
                required_scopes=["read"],
                validate_token_resource=True,
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["read", "write"], default_scopes=["read", "write"]
                ),
                revocation_options=RevocationOptions(enabled=True),
            ),
            auth_server_provider=self.issuer,
        )

        @server.tool()
        def greet(name: str) -> str:
            """Greet a person."""
            return f"hello {name}"

        @server.tool()
        def erase() -> str:
            """Needs the scope `write`."""
            return "erased"

        return Gate(server.sse_app() if self.sse else server.streamable_http_app(), self.issuer)

    def config(self, **settings: Any) -> ServerConfig:
        return ServerConfig(transport="sse" if self.sse else "http", url=self.url, **settings)


@contextmanager
def running_site(*, sse: bool = False) -> Generator[Site]:
    listening = socket.create_server(("127.0.0.1", 0))
    site = Site(listening.getsockname()[1], sse=sse)
    server = uvicorn.Server(uvicorn.Config(site.app(), log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
        listening.close()


def browse(url: str) -> None:
    """What a browser does with an address: it goes there, and wherever it is sent. The site asks nothing."""

    def go() -> None:
        with httpx2.Client(follow_redirects=True, timeout=60) as browser:
            browser.get(url)

    threading.Thread(target=go, daemon=True).start()
