"""One server's entry, in whatever words its client uses, turned into a `ServerConfig`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from toolfold.config import documents, edge
from toolfold.config.documents import Problem, known_key, one_line
from toolfold.config.expand import UnsetError, Variables
from toolfold.config.itself import runs_toolfold
from toolfold.config.oauth import ANYWHERE, NAMES, OAuthSettings, Redirect, oauth_of, read_oauth
from toolfold.config.settings import ServerConfig

DISABLED = "disabled"
OURSELVES = "runs toolfold itself"
LEFT_OUT = "the server is left out"
_TRANSPORTS: dict[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "https": "http",
    "streamablehttp": "http",
    "streamable": "http",
    "remote": "http",
    "sse": "sse",
}
URL_KEYS = ("url", "serverUrl", "httpUrl")
HEADER_KEYS = ("headers", "http_headers")
_KNOWN = frozenset(
    {"type", "transport", "command", "args", "env", "envFile", "env_vars", "cwd", "disabled", "enabled", "timeout"}
    | {*URL_KEYS, *HEADER_KEYS, "env_http_headers", "bearer_token_env_var", "call_timeout", "start_timeout"}
    | {"tool_timeout_sec", "startup_timeout_sec", "startup_timeout_ms", "oauth"}
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_LONGEST_NAME = 128


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one client's entries differ from another's."""

    timeout: Literal["s", "ms", "guess"] = "guess"
    """The unit of `timeout`; a guess takes 1000 and more for milliseconds, since clients disagree."""
    remote: Literal["http", "sse"] = "http"
    """What a URL without a stated type speaks, when its path does not tell."""
    url_first: bool = False
    """Whether a URL wins over a command when an entry has both."""
    strict: bool = False
    """Whether an unknown key is a mistake; only in our own file."""
    redirect: Redirect = ANYWHERE


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is left out on purpose, with the reason to show."""

    reason: str


class _EntryError(Exception):
    """The entry cannot be used: `key` inside it, and what was expected there."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(expected)
        self.key = key
        self.expected = expected


def fields_of(entry: Mapping[object, Any]) -> dict[str, Any]:
    """What an entry holds by key, without empty values."""
    fields = {str(key): value for key, value in entry.items() if value is not None}
    command = fields.get("command")
    if isinstance(command, Mapping):
        # Zed's older form: one object with the path, its arguments and its environment.
        nested = fields_of(cast("Mapping[object, Any]", command))
        fields |= {key: nested[key] for key in ("args", "env") if key in nested}
        fields["command"] = nested.get("path", nested.get("command"))
    return fields


def is_toolfold(entry: object) -> bool:
    """Whether an entry starts Toolfold, judged as it is written: our own entry needs no variable to be set."""
    if not isinstance(entry, Mapping):
        return False
    try:
        written = _words(fields_of(cast("Mapping[object, Any]", entry)))
    except _EntryError:
        return False
    words = _split([word if isinstance(word, str) else "" for _, word in written])
    return runs_toolfold(words[0], words[1:])


def _words(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The command and its arguments as they are written, each with its key."""
    command, args = fields.get("command"), fields.get("args", [])
    if isinstance(command, str):
        found: list[tuple[str, Any]] = [("command", command)]
    elif isinstance(command, Sequence):
        found = [(f"command[{at}]", word) for at, word in enumerate(cast("Sequence[Any]", command))]
    else:
        raise _EntryError("command", "expected the program to start, as a string")
    if not found:
        raise _EntryError("command", "expected a program")
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise _EntryError("args", "expected a list of strings")
    return found + [(f"args[{at}]", word) for at, word in enumerate(cast("Sequence[Any]", args))]


def _split(words: list[str]) -> list[str]:
    """`npx -y server` in one string is three words: no program has such a name, several clients run it by a shell."""
    return words[0].split() if len(words) == 1 and re.match(r"[^\s/\\]+\s", words[0]) else words


@dataclass(slots=True)
class EntryReader:
    """Reads the entries of one file. Problems are collected, so that one bad entry costs only itself."""

    file: str
    variables: Variables
    problems: list[Problem]

    def read(self, name: str, entry: object, *, key: str, dialect: Dialect) -> ServerConfig | Skipped | None:
        """The server that `entry` describes; `None` when it is unusable, with the reason among the problems."""
        try:
            _check_name(name)
            if isinstance(entry, ServerConfig):
                return Skipped(OURSELVES) if runs_toolfold(entry.command, entry.args) else entry
            if not isinstance(entry, Mapping):
                raise _EntryError("", "expected an object with `command` or `url`")
            fields = fields_of(cast("Mapping[object, Any]", entry))
            return _Entry(self, name, key, fields, dialect).server()
        except _EntryError as bad:
            place = ".".join(part for part in (key, bad.key) if part)
            self.problems.append(Problem(self.file, place, f"{bad.expected}; {LEFT_OUT}", name))
            return None


@dataclass(slots=True)
class _Entry:
    reader: EntryReader
    name: str
    key: str
    fields: dict[str, Any]
    dialect: Dialect

    def server(self) -> ServerConfig | Skipped:
        if self._flag("disabled", default=False) or not self._flag("enabled", default=True):
            return Skipped(DISABLED)
        if self.dialect.strict:
            self._note_unknown_keys()
        if is_toolfold(self.fields):
            return Skipped(OURSELVES)
        transport = self._transport()
        try:
            server = self._local() if transport == "stdio" else self._remote(transport)
        except ValidationError as error:
            raise _EntryError("", error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        if runs_toolfold(server.command, server.args):
            return Skipped(OURSELVES)
        return server

    def _local(self) -> ServerConfig:
        command, args = self._command_line()
        cwd = self.fields.get("cwd", "")
        folder = self._text("cwd", cwd) if cwd else ""
        host = self.reader.variables.host
        return ServerConfig(
            transport="stdio",
            command=edge.with_home(command, host.home),
            args=tuple(args),
            env=self._env(),
            cwd=str(host.absolute(folder)) if folder else "",
            source=self.reader.file,
            **self._timeouts(),
        )

    def _remote(self, transport: Literal["http", "sse"]) -> ServerConfig:
        key = self._url_key()
        if not key:
            raise _EntryError("url", f"expected the URL of a server of type {transport}")
        url = self._text(key, self.fields[key]).strip()
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and not re.search(r"\s", url)
            _ = parts.port
        except ValueError:
            usable = False
        if not usable:
            raise _EntryError(key, "expected a URL that starts with http:// or https://")
        return ServerConfig(
            transport=transport,
            url=url,
            headers=self._headers(),
            oauth=self._oauth(),
            source=self.reader.file,
            **self._timeouts(),
        )

    def _oauth(self) -> OAuthSettings:
        key, given = oauth_of(self.fields, strict=self.dialect.strict)

        def text(name: str, value: object) -> str:
            return self._text(f"{key}.{name}", value)

        def unknown(name: str) -> None:
            if self.dialect.strict:
                place = f"{self.key}.{key}.{name}"
                self.reader.problems.append(Problem(self.reader.file, place, known_key(name, NAMES), self.name))

        def bad(name: str, expected: str) -> _EntryError:
            return _EntryError(f"{key}.{name}".rstrip("."), expected)

        return read_oauth(given, text, unknown, bad, self.dialect.redirect)

    def _transport(self) -> Literal["stdio", "http", "sse"]:
        stated = self.fields.get("type", self.fields.get("transport"))
        if isinstance(stated, str):
            known = _TRANSPORTS.get(re.sub(r"[^a-z]", "", stated.lower()))
            if known is None:
                raise _EntryError("type", 'expected "stdio", "http" or "sse"')
            return known
        if stated is not None:
            raise _EntryError("type", 'expected "stdio", "http" or "sse"')
        key = self._url_key()
        if "command" in self.fields and not (key and self.dialect.url_first):
            return "stdio"
        if not key:
            raise _EntryError("", "expected `command` or `url`")
        if key == "httpUrl":
            return "http"
        path = self._text(key, self.fields[key]).strip().partition("?")[0].rstrip("/")
        return "sse" if path.endswith("/sse") else "http" if path.endswith("/mcp") else self.dialect.remote

    def _url_key(self) -> str:
        order = reversed(URL_KEYS) if self.dialect.url_first else URL_KEYS
        return next((key for key in order if key in self.fields), "")

    def _command_line(self) -> tuple[str, list[str]]:
        words = _split([self._text(key, word) for key, word in _words(self.fields)])
        if not words[0].strip():
            raise _EntryError("command", "expected a program")
        return words[0], words[1:]

    def _env(self) -> dict[str, str]:
        env: dict[str, str] = {}
        given = self.reader.variables.host.env
        for listed in self._list("env_vars"):
            variable = cast("Mapping[str, Any]", listed).get("name") if isinstance(listed, Mapping) else listed
            if isinstance(variable, str) and variable in given:
                env[variable] = given[variable]
        if "envFile" in self.fields:
            env |= self._env_file()
        for variable, value in self._table("env"):
            if not variable or "=" in variable or "\0" in variable:
                raise _EntryError("env", "expected names of environment variables")
            env[variable] = value
        return env

    def _env_file(self) -> dict[str, str]:
        name = self._text("envFile", self.fields["envFile"])
        try:
            found = documents.parse_dotenv(documents.read_text(self.reader.variables.host.absolute(name)))
        except (documents.UnreadableError, FileNotFoundError):
            raise _EntryError("envFile", "expected a readable file of NAME=value lines") from None
        return {variable: _sound("envFile", value) for variable, value in found.items()}

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for key in HEADER_KEYS:
            headers |= dict(self._table(key))
        for header, variable in self._table("env_http_headers"):
            headers[header] = self._from_env("env_http_headers", variable)
        if "bearer_token_env_var" in self.fields:
            variable = self._text("bearer_token_env_var", self.fields["bearer_token_env_var"])
            headers["Authorization"] = f"Bearer {self._from_env('bearer_token_env_var', variable)}"
        for header, value in headers.items():
            if not _HEADER_NAME.fullmatch(header):
                raise _EntryError("headers", "expected names of HTTP headers")
            if not value.isascii() or re.search(r"[\r\n\0]", value):
                raise _EntryError(f"headers.{header}", "expected one line of ASCII text")
        return headers

    def _from_env(self, key: str, variable: str) -> str:
        value = self.reader.variables.host.env.get(variable)
        if value is None:
            raise _EntryError(key, f"expected the environment variable {one_line(variable)} to be set")
        return value

    def _timeouts(self) -> dict[str, Any]:
        """Seconds from whichever key the client has; a bad one is reported and the default stands."""
        found: dict[str, Any] = {}
        sources = (
            ("call_timeout", "timeout", self.dialect.timeout),
            ("call_timeout", "tool_timeout_sec", "s"),
            ("call_timeout", "call_timeout", "s"),
            ("start_timeout", "startup_timeout_ms", "ms"),
            ("start_timeout", "startup_timeout_sec", "s"),
            ("start_timeout", "start_timeout", "s"),
        )
        for field, key, unit in sources:
            value = self.fields.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e12:
                text = "expected a number above 0; the default is used"
                self.reader.problems.append(Problem(self.reader.file, f"{self.key}.{key}", text, self.name))
                continue
            in_ms = unit == "ms" or (unit == "guess" and value >= 1000)
            found[field] = value / 1000 if in_ms else float(value)
        return found

    def _flag(self, key: str, *, default: bool) -> bool:
        value = self.fields.get(key, default)
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise _EntryError(key, "expected true or false")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self.fields.get(key, [])
        if not isinstance(value, list):
            raise _EntryError(key, "expected a list")
        return cast("list[Any]", value)

    def _table(self, key: str) -> list[tuple[str, str]]:
        value = self.fields.get(key, {})
        if not isinstance(value, Mapping):
            raise _EntryError(key, "expected an object of names and strings")
        items = cast("Mapping[object, Any]", value).items()
        return [(_sound(key, str(n)), self._text(f"{key}.{n}", v)) for n, v in items if v is not None]

    def _text(self, key: str, value: object) -> str:
        """A string with its variables filled in; numbers and booleans are taken as JSON writes them."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            try:
                return str(value)
            except ValueError:
                raise _EntryError(key, "expected a string") from None
        if not isinstance(value, str):
            raise _EntryError(key, "expected a string")
        try:
            return _sound(key, self.reader.variables.expand(value))
        except UnsetError as unset:
            raise _EntryError(key, f"expected {one_line(unset.wanted)}") from None

    def _note_unknown_keys(self) -> None:
        for key in sorted(self.fields.keys() - _KNOWN):
            text = known_key(key, _KNOWN)
            self.reader.problems.append(Problem(self.reader.file, f"{self.key}.{key}", text, self.name))


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _LONGEST_NAME or one_line(name) != name:
        raise _EntryError("", f"expected a name of 1 to {_LONGEST_NAME} visible characters")


def _sound(key: str, text: str) -> str:
    """`text`, when a process or a header can carry it."""
    if "\0" in text:
        raise _EntryError(key, "expected text without NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _EntryError(key, "expected valid Unicode text") from None
    return text
