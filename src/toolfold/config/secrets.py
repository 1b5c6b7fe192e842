"""Keeping a server's secrets out of what people and models read: errors, reasons, notes in a log.

What counts as a secret is judged by its name and by its looks. `DEBUG=1`, `/usr/bin`, hosts, regions and plain words
stay readable, since an error without them would teach nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from toolfold.config.settings import ServerConfig

MASK = "•••"

_TELLING = re.compile(
    r"key|token|secret|passw|passphrase|pwd|credential|auth|bearer|cookie|session|dsn|signature|(?:^|[-_])p(?:at|in|ass)$",
    re.IGNORECASE,
)
"""Names of values that are secret."""
_NOT_TELLING = re.compile(
    r"(?:mode|type|method|limit|timeout|ttl|count|max|min|size|tokens|ur[li]|host|file|path|dir|name|prefix|scopes?)$",
    re.IGNORECASE,
)
_ORDINARY = frozenset({"true", "false", "none", "null", "basic", "bearer", "token", "oauth", "oauth2"}) | frozenset(
    {"root", "admin", "user", "guest", "test", "default", "password", "secret"}
)
"""Values that are no secret, whatever their name."""
_SHORTEST = 8
"""Characters of a value that is taken for a secret by its looks."""
_SHORTEST_NAMED = 4
"""Characters of a value that is taken for a secret by its name."""
_SHORTEST_CUT = 6
"""Characters of the end of a secret that are masked at the beginning of a text."""
_LONGEST_WORDS = 24
_LONGEST_SEGMENT = 40

_PATH = re.compile(r"(?:~|\.{1,2})?/|[A-Za-z]:[\\/]")
_HOST = re.compile(r"(?:[A-Za-z0-9-]{1,20}\.)+[A-Za-z]{2,12}(?::\d+)?|localhost(?::\d+)?|[\d.]+(?::\d+)?")
_NUMBER = re.compile(r"[\d.,:/ +-]+")
# Names, regions, versions, models, locales: short parts of letters, of digits, or `v1`, `4o`, `gpt4`.
_WORD = r"(?:[A-Za-z]{1,14}|\d{1,8}|[A-Za-z]{1,3}\d{1,3}|\d{1,3}[A-Za-z]{1,3})"
_WORDS = re.compile(rf"@?{_WORD}(?:[-_./,:;@+ ]{{1,2}}{_WORD})*")
_SECRET_WORD = re.compile(r"secret|passw|token", re.IGNORECASE)
# Tried only where a run of letters and digits begins: from every character of a long one it takes quadratic time.
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)

# Secrets that no config told us of, known by their form or by what stands before them.
_USERINFO = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_KNOWN_FORM = re.compile(
    r"\b(?:(?:sk|pk|rk)[-_][\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,1000}\.[\w-]{10,}(?:\.[\w-]*)?)"
)
_ANNOUNCED = re.compile(
    r"(\b(?:bearer|basic)\s+|\b[\w-]{0,40}(?:key|token|secret|passw(?:or)?d)[\"']?\s?[=:]\s?[\"']?)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
_LARGE = 64_000
"""Characters of a text in which only the configured secrets are looked for, so that it takes no time."""


class Redactor:
    """Masks the secrets of one server's config, and what is plainly a secret, in any text."""

    def __init__(self, config: ServerConfig) -> None:
        self.address = Path(config.command).name if config.transport == "stdio" else masked_url(config.url)
        """Where the server is, fit to be shown."""
        self._url = config.url
        found = sorted({form for secret in _secrets(config) for form in _forms(secret)}, key=len, reverse=True)
        self._long = [secret for secret in found if len(secret) >= _SHORTEST]
        self._configured = self._long
        short = [rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in found if len(secret) < _SHORTEST]
        self._short = re.compile("|".join(short)) if short else None

    def also(self, secrets: Iterable[str]) -> None:
        """Mask these as well, in place of those that were given here before: what a sign-in has brought."""
        added = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        self._long = sorted({*self._configured, *added}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._url:
            text = text.replace(self._url, self.address)
        for secret in self._long:
            text = text.replace(secret, MASK)
        if len(text) > _LARGE:
            return text
        text = self._without_cut_ones(text)
        if self._short is not None:
            text = self._short.sub(MASK, text)
        text = _KNOWN_FORM.sub(MASK, _USERINFO.sub(MASK, text))
        return _ANNOUNCED.sub(lambda found: found[0] if _is_plain(found[2]) else f"{found[1]}{MASK}", text)

    def _without_cut_ones(self, text: str) -> str:
        """The last words of a server are cut somewhere: what they begin with may be the end of a secret."""
        beginning = text[:_SHORTEST_CUT]
        for secret in self._long:
            start = secret.find(beginning, max(1, len(secret) - len(text)))
            while 0 <= start <= len(secret) - _SHORTEST_CUT:
                if text.startswith(secret[start:]):
                    return MASK + text[len(secret) - start :]
                start = secret.find(beginning, start + 1)
        return text


def masked_url(url: str) -> str:
    """Scheme, host and path of `url`; user, password, query and parts of the path that may be secret are masked."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    path = "/".join(MASK if _is_secret_segment(part) else part for part in parts.path.split("/"))
    return f"{parts.scheme}://{host}{path}"


def _secrets(config: ServerConfig) -> Iterator[str]:
    for name, value in (*config.env.items(), *config.headers.items()):
        yield from _in_value(name, value)
    yield from filter(None, (config.oauth.client_secret, config.oauth.private_key))
    yield from _in_url(config.url)
    yield from _in_arguments(config.args)


def _in_value(name: str, value: str) -> Iterator[str]:
    """The secrets in a value that is called `name`."""
    value = value.strip()
    if "://" in value:
        yield from _in_url(value)
        return
    if not (_TELLING.search(name) and not _NOT_TELLING.search(name)):
        if not _is_plain(value):
            yield value
        return
    for part in (value, *re.split(r"[\s;,]+", value), *(line for line in value.splitlines())):
        harmless = part.lower() in _ORDINARY or _is_plain_path(part)
        if len(part) >= _SHORTEST_NAMED and not harmless:
            yield part
    yield from _in_basic(value)


def _in_basic(value: str) -> Iterator[str]:
    """The password in the value of an `Authorization: Basic` header."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() == "basic":
        try:
            password = base64.b64decode(encoded).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return
        if len(password) >= _SHORTEST_NAMED:
            yield password


def _in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    for secret in (password, user if not password or not _is_plain(user) else ""):
        if len(secret) >= _SHORTEST_NAMED and secret.lower() not in _ORDINARY:
            yield secret
    for name, value in parse_qsl(parts.query):
        yield from _in_value(name, value)
    yield from filter(_is_secret_segment, (*parts.path.split("/"), parts.fragment))


def _in_arguments(args: Sequence[str]) -> Iterator[str]:
    before = ""
    for arg in args:
        assigned = re.match(r"(-{0,2}[\w.-]+)(?:=|:\s)", arg)
        if assigned is not None:
            yield from _in_value(assigned[1], arg[assigned.end() :])
        elif "://" in arg:
            yield from _in_url(arg)
        elif before.startswith("-") and _TELLING.search(before) and not arg.startswith("--"):
            yield from _in_value(before, arg)
        elif _RANDOM.search(arg) and not re.search(r"\s", arg) and not _PATH.match(arg):
            yield arg
        before = arg


def _is_secret_segment(segment: str) -> bool:
    return not _is_plain(unquote(segment), longest=_LONGEST_SEGMENT)


def _is_plain(value: str, longest: int = _LONGEST_WORDS) -> bool:
    """Whether `value` has the looks of something that is not secret."""
    if len(value) < _SHORTEST or _NUMBER.fullmatch(value) or value.lower() in _ORDINARY:
        return True
    if _RANDOM.search(value):
        return False
    if _PATH.match(value) or _HOST.fullmatch(value):
        return True
    return len(value) <= longest and bool(_WORDS.fullmatch(value)) and not _SECRET_WORD.search(value)


def _is_plain_path(value: str) -> bool:
    """A stricter look, since encoded secrets may begin with a slash."""
    return bool(_PATH.match(value)) and all(_is_plain(part) for part in re.split(r"[\\/]", value))


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may be written: in JSON, in a repr, in a URL, or one line of several."""
    yield secret
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    yield from (quote(secret), quote(secret, safe=""), unquote(secret))
    yield from (line for line in secret.splitlines() if len(line) >= _SHORTEST and not line.startswith("-----"))
