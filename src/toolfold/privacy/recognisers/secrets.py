"""API keys, tokens and passwords of well-known shapes."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from toolfold.privacy.matches import Match
from toolfold.privacy.recognisers.keywords import places

_WORD = r"[A-Za-z0-9_-]"
# Each is found from a character that is rare in prose: the last one of the prefix by which the issuer marks it.
_UNDERSCORE = re.compile(
    r"_(?:(?<=gh[pousr]_)[A-Za-z0-9]{20,255}|(?<=github_pat_)[A-Za-z0-9_]{22,255}"  # GitHub
    r"|(?<=[sr]k_live_|[sr]k_test_)[A-Za-z0-9]{16,128}|(?<=whsec_)[A-Za-z0-9+/=]{24,128}"  # Stripe
    r"|(?<=do[opr]_v1_)[0-9a-f]{64}"  # DigitalOcean
    r"|(?<=hf_)[A-Za-z0-9]{30,64}"  # Hugging Face
    r"|(?<=lin_api_)[A-Za-z0-9]{32,64}"  # Linear
    r"|(?<=npm_)[A-Za-z0-9]{36}"
    r"|(?<=ntn_)[A-Za-z0-9]{40,64}|(?<=secret_)[A-Za-z0-9]{43}"  # Notion
    r"|(?<=shp(?:at|ca|pa|ss)_)[0-9a-fA-F]{32})"  # Shopify
)
_DASH = re.compile(
    r"-(?:(?<=sk-)[A-Za-z0-9_-]{20,255}"
    r"|(?<=xox[abeoprs]-)[A-Za-z0-9-]{10,255}|(?<=xapp-)[0-9]-[A-Za-z0-9-]{10,255}"  # Slack
    r"|(?<=gl(?:pat|ptt)-)[A-Za-z0-9_-]{20,64}|(?<=gl[dr]t-)[A-Za-z0-9_-]{20,64}"  # GitLab
    r"|(?<=GOCSPX-)[A-Za-z0-9_-]{28}"  # Google
    r"|(?<=sq0(?:atp|csp)-)[A-Za-z0-9_-]{22,64}"  # Square
    r"|(?<=pypi-)[A-Za-z0-9_-]{50,255}"
    r"|(?<=AGE-SECRET-KEY-)1[A-Z0-9]{58})"
)
_DOT = re.compile(
    r"\.(?:(?<=SG\.)[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"  # SendGrid
    r"|(?<=ya29\.)[A-Za-z0-9_-]{20,512}"  # Google
    r"|(?<=hvs\.)[A-Za-z0-9_-]{24,128})"  # Vault
)
_CAPITAL = re.compile(
    r"[AS](?:(?<=A)(?:KIA|SIA|GPA|IDA|ROA|NPA)[A-Z0-9]{16}|(?<=A)Iza[A-Za-z0-9_-]{35}|(?<=A)C[0-9a-f]{32}"
    r"|(?<=S)K[0-9a-f]{32})(?![A-Za-z0-9])"  # AWS, Google, Twilio
)
_OTHERS = {
    "eyJ": re.compile(rf"eyJ{_WORD}{{10,1024}}\.eyJ{_WORD}{{4,4096}}\.{_WORD}{{8,1024}}"),  # JWT
    "dapi": re.compile(r"dapi[0-9a-f]{32}"),  # Databricks
    "-----BEGIN": re.compile(
        r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----[^\0]{0,7000}?-----END [A-Z ]{0,24}PRIVATE KEY-----"
    ),
    ":AA": re.compile(r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),  # Telegram
}
_MARKED = {"_": _UNDERSCORE, "-": _DASH, ".": _DOT}
_PREFIX = string.ascii_letters + string.digits + "_-"
_IN_URL = re.compile(r"://[^\s/:@\0\"']{1,128}:([^\s/@\0\"']{3,256})@[\w.-]{1,255}")
_NAMES = ("pass", "pwd", "secret", "key", "token", "contraseña")
_BEFORE_KEY = re.compile(r"(?:api|access|private|account|shared|secret|auth|encryption)[_ -]?$")
_NAMED = re.compile(
    r"(?:pass(?:word|wd|phrase|code|wort|e)?|pwd|secret(?:[_ -]?(?:key|access[_ -]?key))?|key|token|contraseña)"
    r"[\"']?(?: is)?[ \t]*[:=][ \t]*[\"']?([^\s\"',;&\0<>{}\[\]()]{6,512})",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?:earer|uthorization[\"']?:? [\"']?(?:[bB]asic|[tT]oken|[bB]earer)) +([A-Za-z0-9_~+/.=-]{20,4096})"
)


CAPITAL_START = r"(?:KIA|SIA|GPA|IDA|ROA|NPA)[A-Z0-9]{16}|Iza[A-Za-z0-9_-]{35}|[CK][0-9a-f]{32}"
"""What follows the first letter of a key that begins with a capital."""


def find_capital_at(text: str, start: int) -> Match | None:
    found = _CAPITAL.match(text, start)
    return None if found is None else Match(*found.span(), "secret")


def find(text: str, lower: str) -> Iterator[Match]:
    for mark, pattern in _MARKED.items():
        if mark in text:
            for found in pattern.finditer(text):
                before = text[max(0, found.start() - 16) : found.start()]
                yield Match(found.start() - len(before) + len(before.rstrip(_PREFIX)), found.end(), "secret")
    for mark, pattern in _OTHERS.items():
        if mark in text:
            for found in pattern.finditer(text):
                yield Match(*found.span(), "secret")
    yield from _find_named(text, lower)


def _find_named(text: str, lower: str) -> Iterator[Match]:
    """What only the words around it make a secret."""
    if "://" in text and "@" in text:
        for found in _IN_URL.finditer(text):
            yield Match(*found.span(1), "secret", needs_context=True)
    for at in places(text, ("earer ", "uthorization")):
        found = _BEARER.match(text, at)
        if found is not None and any(map(str.isdigit, found[1])):
            yield Match(*found.span(1), "secret", needs_context=True)
    for at in places(lower, _NAMES):
        found = _NAMED.match(text, at)
        if found is None or text[found.start() - 1 : found.start()].isalpha():
            continue
        is_name = lower[at : at + 3] in ("key", "tok") and not _BEFORE_KEY.search(lower[max(0, at - 12) : at])
        if not is_name and _may_be_secret(found[1]):
            yield Match(*found.span(1), "secret", needs_context=True)


def _may_be_secret(value: str) -> bool:
    """Not a variable, a placeholder, an address or a mere word."""
    plain = value.replace(".", "").replace("_", "").replace("-", "")
    return not value.startswith(("$", "*", "%", "http")) and not plain.isalpha() and bool(set(value) - set("*x.-_"))
