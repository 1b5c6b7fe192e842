"""How one server's sign-in (OAuth) is set, in our words and in those of other clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from toolfold.config.model import Model

_ALIASES = {
    "scope": "scopes",
    "granttype": "grant",
    "signingalgorithm": "algorithm",
    "callbackport": "callback_port",
    "callbackurl": "redirect_uri",
    "authorizationserverissuer": "issuer",
}
"""Other clients' names for a setting, as `_plain` writes them."""


class OAuthSettings(Model):
    """How to sign in to a remote server. Nothing needs to be set for a server that lets clients register themselves."""

    enabled: bool = True
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    private_key: str = Field(default="", repr=False)
    """PEM. With it the client proves itself by a signed JWT."""
    algorithm: str = ""
    """How that JWT is signed; by default what the kind of key suggests."""
    client_metadata_url: str = ""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    redirect_uri: str = ""

    @model_validator(mode="after")
    def _usable(self) -> OAuthSettings:
        for name in ("issuer", "redirect_uri", "client_metadata_url"):
            value: str = getattr(self, name)
            if value and not _is_url(value):
                raise ValueError(f"expected `oauth.{name}` to be a URL that starts with http:// or https://")
        url = urlsplit(self.client_metadata_url)
        if self.client_metadata_url and (url.scheme != "https" or url.path in ("", "/")):
            raise ValueError("expected `oauth.client_metadata_url` to be an https URL with a path")
        if (self.client_secret or self.private_key) and not self.client_id:
            raise ValueError("expected `oauth.client_id` beside a secret or a key")
        if self.private_key and self.client_secret:
            raise ValueError("expected `oauth.private_key` or `oauth.client_secret`, not both")
        if self.private_key and not self.machine:
            raise ValueError('expected `oauth.grant = "client_credentials"` beside `oauth.private_key`')
        if self.machine and not (self.client_secret or self.private_key):
            raise ValueError("expected `oauth.client_secret` or `oauth.private_key` for client credentials")
        return self

    @property
    def machine(self) -> bool:
        """Whether a program signs in by itself, so that no person is needed."""
        return self.grant == "client_credentials"


NAMES = frozenset(OAuthSettings.model_fields)
_PORT = "callback_port"
"""The short form of a `redirect_uri`."""
_Text = Callable[[str, object], str]
_Bad = Callable[[str, str], Exception]


class Redirect(NamedTuple):
    """Where a client's sign-ins come back to: a client id that was registered for it is good for no other place."""

    uri: str = "http://localhost:{port}/callback"
    port: int | None = None
    """Where an entry with a client id names none; 0 is any."""


ANYWHERE = Redirect()


def oauth_of(fields: Mapping[str, Any], *, strict: bool) -> tuple[str, Any]:
    """What an entry says about OAuth, and under which key. Most clients have a table `oauth`, Cursor calls it `auth`,
    and Codex has `scopes` beside it; our own file (`strict`) has the first only."""
    key = next((key for key in ("oauth", "auth") if key in fields and not (strict and key == "auth")), "oauth")
    given: Any = fields.get(key, {})
    scopes = None if strict else fields.get("scopes")
    if scopes and isinstance(given, Mapping):
        given = {"scopes": scopes, **cast("Mapping[str, Any]", given)}
    return key, given


def read_oauth(
    value: object, text: _Text, unknown: Callable[[str], None], bad: _Bad, redirect: Redirect
) -> OAuthSettings:
    """What an entry says about OAuth: a table, `true`, `false`, or a word.

    `text` fills in the variables of a string, `unknown` is told of keys that mean nothing, and `bad` makes the error
    for a value that cannot be used.
    """
    if isinstance(value, bool):
        return OAuthSettings(enabled=value)
    if isinstance(value, str):
        return OAuthSettings()
    if not isinstance(value, Mapping):
        raise bad("", "expected a table of settings, true or false")
    found: dict[str, Any] = {}
    for written, given in cast("Mapping[object, Any]", value).items():
        key = str(written)
        name = _named(key)
        if name not in NAMES and name != _PORT:
            unknown(key)
        elif given is not None:
            found[name] = _value(name, key, given, text, bad)
    if found.get("private_key"):
        found.setdefault("grant", "client_credentials")
    is_person = found.get("client_id") and found.get("grant", "authorization_code") == "authorization_code"
    port = found.pop(_PORT, redirect.port if is_person else None)
    if port is not None and not found.get("redirect_uri"):
        found["redirect_uri"] = redirect.uri.format(port=port)
    return OAuthSettings(**found)


def _value(name: str, key: str, given: object, text: _Text, bad: _Bad) -> object:
    match name:
        case "enabled":
            if not isinstance(given, bool):
                raise bad(key, "expected true or false")
            return given
        case "callback_port":
            if isinstance(given, bool) or not isinstance(given, int) or not 0 < given < 65_536:
                raise bad(key, "expected a port")
            return given
        case "scopes":
            return _scopes(key, given, text, bad)
        case "grant":
            if (grant := text(key, given)) not in ("authorization_code", "client_credentials"):
                raise bad(key, 'expected "authorization_code" or "client_credentials"')
            return grant
        case _:
            return text(key, given)


def ours_of(value: object, redirect_uri: str) -> object:
    """The same settings as our own file has them: by their own names, without what means nothing here. `redirect_uri`
    is what they come to, which other clients may leave to a default of theirs."""
    if not isinstance(value, Mapping):
        return isinstance(value, str) or value
    pairs = cast("Mapping[object, Any]", value).items()
    named = {_named(str(key)): given for key, given in pairs if given is not None}
    ours = {name: given for name, given in named.items() if name in NAMES}
    return ours | ({"redirect_uri": redirect_uri} if redirect_uri and not ours.get("redirect_uri") else {})


def _scopes(key: str, given: object, text: _Text, bad: _Bad) -> tuple[str, ...]:
    listed = cast("list[object]", given) if isinstance(given, list) else [given]
    scopes = tuple(scope for each in listed for scope in text(key, each).split())
    # RFC 6749, section 3.3: a quote or a backslash would end the value in a header.
    if any(not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", scope) for scope in scopes):
        raise bad(key, "expected names of scopes")
    return scopes


def _named(key: str) -> str:
    """The setting that a key means: `clientId`, `CLIENT_ID` and `client_id` are one."""
    plain = _plain(key)
    return _ALIASES.get(plain) or next((name for name in NAMES if _plain(name) == plain), key)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not re.search(r"\s", text)
