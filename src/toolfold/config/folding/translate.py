"""A server's entry in its client's words, turned into one of our own file that means the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from toolfold.config.clients import RawEntry, Reading
from toolfold.config.documents import Problem
from toolfold.config.edge import Host
from toolfold.config.entries import HEADER_KEYS, URL_KEYS, Dialect, EntryReader, Skipped, fields_of
from toolfold.config.expand import Variables
from toolfold.config.oauth import oauth_of, ours_of
from toolfold.config.settings import ServerConfig

OURS = Dialect(timeout="s", strict=True)
_KEPT = (
    *("command", "args", "env", "envFile", "env_vars", "cwd", *HEADER_KEYS, "env_http_headers"),
    *("bearer_token_env_var", "tool_timeout_sec", "call_timeout"),
    *("startup_timeout_ms", "startup_timeout_sec", "start_timeout"),
)
LIMITING = ("enabled_tools", "disabled_tools", "includeTools", "excludeTools", "disabledTools", "allowedTools")
"""Keys with which a client offers only some of a server's tools."""
_BARE = re.compile(r"\$\$?\{|\$([A-Za-z_][A-Za-z0-9_]*)")
_INPUT = re.compile(r"\$\{input:([^}]*)\}")


class NotTheSameError(Exception):
    """The entry cannot be one of ours. The text says why."""


class _EverySet(Mapping[str, str]):
    """An environment in which every variable has a value that tells which one it is."""

    def __getitem__(self, name: str) -> str:
        return f"https://variable.invalid/{name}"

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def to_ours(entry: RawEntry, reading: Reading, host: Host) -> dict[str, Any]:
    """The entry for our own file; `NotTheSameError` when there is none that means the same."""
    value: object = entry.value
    if not isinstance(value, Mapping):
        raise NotTheSameError("Toolfold cannot read it")
    fields = fields_of(cast("Mapping[object, Any]", value))
    limits = [key for key in LIMITING if fields.get(key)]
    if limits:
        raise NotTheSameError(f"its `{limits[0]}` limits what the client offers, and Toolfold would offer all of it")
    if foreign := _foreign_sign_in(fields):
        raise NotTheSameError(foreign)
    read = _read(entry, reading, host, _EverySet())
    if not isinstance(read, ServerConfig):
        unusable = "Toolfold cannot use it as it is written; `toolfold doctor` says why"
        raise NotTheSameError(read.reason if isinstance(read, Skipped) else unusable)
    ours = _fields(fields, entry.dialect, read, reading)
    moved = replace(entry, value=ours, dialect=OURS)
    nothing_set: dict[str, str] = {}
    for env in (_EverySet(), nothing_set):
        there = _read(entry, reading, host, env)
        if there != _read(moved, Reading(), host, env):
            raise NotTheSameError("it cannot be written in Toolfold's own words")
    return ours


def _foreign_sign_in(fields: Mapping[str, Any]) -> str:
    """How a server knows its client in a way that only that client has; empty for all others."""
    for key in ("headersHelper", "http_headers_helper"):
        if fields.get(key):
            return f"its `{key}` is a command that makes headers, which Toolfold does not run"
    if fields.get("auth") == "chatgpt":
        return "it takes the sign-in of ChatGPT, which Toolfold does not have"
    if fields.get("authProviderType") in ("google_credentials", "service_account_impersonation"):
        return "it takes the credentials of Google Cloud, which Toolfold does not have"
    return ""


def meant(entry: RawEntry, reading: Reading, host: Host) -> ServerConfig | None:
    """The server that an entry describes where all variables are set; None when it is unusable, disabled or ours."""
    found = _read(entry, reading, host, _EverySet())
    return found if isinstance(found, ServerConfig) else None


def inputs_of(value: Any) -> list[str]:
    """The ids of VS Code's inputs that an entry refers to."""
    return list(dict.fromkeys(found for text in _texts(value) for found in _INPUT.findall(text)))


def input_variable(name: str) -> str:
    """The environment variable in which we look for one of VS Code's inputs."""
    return "TOOLFOLD_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _read(entry: RawEntry, reading: Reading, host: Host, env: Mapping[str, str]) -> ServerConfig | Skipped | None:
    variables = Variables(replace(host, env=env), inputs=reading.inputs, bare=reading.bare_variables)
    problems: list[Problem] = []
    return EntryReader("", variables, problems).read(entry.name, entry.value, key=entry.key, dialect=entry.dialect)


def _fields(fields: dict[str, Any], dialect: Dialect, config: ServerConfig, reading: Reading) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    kept = [key for key in _KEPT if key in fields]
    if config.transport != "stdio":
        order = reversed(URL_KEYS) if dialect.url_first else URL_KEYS
        ours["type"] = config.transport
        ours["url"] = next(fields[key] for key in order if key in fields)
        kept = [key for key in kept if key not in {"command", "args", "env", "envFile", "env_vars", "cwd"}]
        _, oauth = oauth_of(fields, strict=False)
        if oauth != {}:
            ours["oauth"] = ours_of(oauth, config.oauth.redirect_uri)
    elif any(key in fields for key in URL_KEYS):
        ours["type"] = config.transport
    ours |= {key: fields[key] for key in kept}
    given = fields.get("timeout")
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if is_number and not {"tool_timeout_sec", "call_timeout"} & ours.keys():
        seconds = config.call_timeout
        ours["call_timeout"] = int(seconds) if seconds == int(seconds) else seconds
    return {key: _rewritten(value, reading) for key, value in ours.items()}


def _rewritten(value: Any, reading: Reading) -> Any:
    """`value` with variables as our own file has them."""
    if isinstance(value, list):
        return [_rewritten(each, reading) for each in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {key: _rewritten(each, reading) for key, each in pairs if each is not None}
    if not isinstance(value, str):
        return value
    if reading.bare_variables:
        value = _BARE.sub(lambda found: f"${{{found[1]}}}" if found[1] else found[0], value)
    return _INPUT.sub(lambda found: _input(found, reading), value)


def _input(found: re.Match[str], reading: Reading) -> str:
    default = reading.inputs.get(found[1], {}).get("default")
    plain = isinstance(default, str) and not re.search(r"[${}]", default)
    return f"${{input:{found[1]}:-{default}}}" if plain else found[0]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, Any]", value).values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _texts(each)
