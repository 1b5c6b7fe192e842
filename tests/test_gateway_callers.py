"""Callers over HTTP: by tokens and by JWTs of an issuer, each with sessions of its own, and context from hosts only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.lab import LAB, lab_fold
from tests.test_gateway_http import ACCEPT, INITIALIZE, Gateway, serving
from toolfold import Call, Proceed, RunContext, ToolResult
from toolfold.config.settings import Settings
from toolfold.errors import ConfigError
from toolfold.gateway import jwt as jwt_callers
from toolfold.gateway.callers import Callers
from toolfold.gateway.http import serve_http
from toolfold.telemetry.audit_reader import AuditReader, Filter, Run

pytestmark = pytest.mark.anyio

ISSUER, AUDIENCE = "https://issuer.example", "toolfold"


@dataclass
class Issuer:
    """Makes tokens, and the key set that proves them."""

    kid: str = "one"
    algorithm: str = "RS256"
    key: Any = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def jwk(self, **more: Any) -> dict[str, Any]:
        maker: Any = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}[self.algorithm[:2]]
        return {**json.loads(maker.to_jwk(self.key.public_key())), "kid": self.kid, **more}

    def token(
        self, sub: Any = "ada", *, key: Any = None, algorithm: str = "", headers: Any = None, **claims: Any
    ) -> str:
        moment = int(time.time())
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "iat": moment, "exp": moment + 600, **claims}
        body = {claim: value for claim, value in body.items() if value is not None}
        return jwt.encode(
            body, key or self.key, algorithm or self.algorithm, headers={"kid": self.kid, **(headers or {})}
        )

    def file(self, folder: Path, **more: Any) -> Path:
        path = folder / "jwks.json"
        path.write_text(json.dumps({"keys": [self.jwk(**more)]}))
        return path


ONE = Issuer()


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(ONE.file(folder)), **more}


def callers(folder: Path, **more: Any) -> Callers:
    return Callers(Settings.model_validate({"jwt": settings(folder, **more)}), "the owner's")


async def name(who: Callers, token: str | bytes) -> str | None:
    found = await who.of(b"Bearer " + (token.encode() if isinstance(token, str) else token))
    return found.name if found is not None else None


async def test_a_valid_token_names_its_caller_and_groups(tmp_path: Path) -> None:
    who = callers(tmp_path, groups="roles", hosts=["app"])
    found = await who.of(f"bearer {ONE.token('ada', roles=['dev', 'ops', 3])}".encode())
    assert found is not None
    assert (found.name, found.groups, found.host) == ("jwt:ada", {"dev", "ops"}, False)
    host = await who.of(f"Bearer {ONE.token('app', roles='dev ops')}".encode())
    assert host is not None
    assert (host.name, host.groups, host.host) == ("jwt:app", {"dev", "ops"}, True)


@pytest.mark.parametrize("taken", ["local", "ci", "token:0123abcd", "jwt:ada"])
async def test_the_name_of_a_jwt_caller_is_never_that_of_another_kind(taken: str, tmp_path: Path) -> None:
    assert await name(callers(tmp_path), ONE.token(taken)) == f"jwt:{taken}"


SECRET = "s" * 64


def unsigned(**claims: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600, **claims}
    return f"{part({'alg': 'none', 'kid': 'one'})}.{part(body)}."


def signed_with_the_public_key() -> str:
    """The well-known confusion: the public key, which everyone has, taken for a shared secret."""
    pem = ONE.key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = unsigned().split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    signature = hmac.new(pem, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


REFUSED = {
    "another issuer": lambda: ONE.token(iss="https://other.example"),
    "another audience": lambda: ONE.token(aud="other"),
    "no audience": lambda: ONE.token(aud=None),
    "expired": lambda: ONE.token(exp=int(time.time()) - 60),
    "no expiry": lambda: ONE.token(exp=None),
    "not yet valid": lambda: ONE.token(nbf=int(time.time()) + 600),
    "no caller": lambda: ONE.token(None),
    "an empty caller": lambda: ONE.token(""),
    "a caller that is a number": lambda: ONE.token(5),
    "a caller with a line break": lambda: ONE.token("ada\nlocal"),
    "a very long caller": lambda: ONE.token("x" * 201),
    "groups that are no list": lambda: ONE.token(groups={"a": 1}),
    "another key": lambda: Issuer().token(),
    "a key that is not in the set": lambda: Issuer(kid="two").token(),
    "no algorithm": unsigned,
    "the public key as a secret": signed_with_the_public_key,
    "a secret": lambda: ONE.token(key=SECRET, algorithm="HS256"),
    "an algorithm that is not allowed": lambda: ONE.token(algorithm="RS512"),
    "critical headers": lambda: ONE.token(headers={"crit": ["exp"]}),
    "a changed body": lambda: ".".join(
        [*ONE.token().split(".")[:1], unsigned().split(".")[1], ONE.token().split(".")[2]]
    ),
    "no JWT": lambda: "tf_nothing",
    "garbage": lambda: "a.b.c",
    "far too long": lambda: ONE.token(more="x" * 20_000),
    "bytes": lambda: b"\xff\xfe.\x00.\x00",
}


@pytest.mark.parametrize("reason", sorted(REFUSED))
async def test_a_token_is_refused(reason: str, tmp_path: Path) -> None:
    who = callers(tmp_path)
    assert await name(who, ONE.token()) == "jwt:ada"
    assert await name(who, REFUSED[reason]()) is None


async def test_a_shared_secret_in_the_key_set_is_no_key(tmp_path: Path) -> None:
    who = callers(tmp_path)
    secret = {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(SECRET.encode()).decode()}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [ONE.jwk(), secret]}))
    assert await name(who, ONE.token(key=SECRET, algorithm="HS256", headers={"kid": "shared"})) is None


async def test_clocks_may_differ_a_little(tmp_path: Path) -> None:
    late = ONE.token(exp=int(time.time()) - 10)
    assert await name(callers(tmp_path), late) == "jwt:ada"
    assert await name(callers(tmp_path, leeway=1), late) is None


async def test_required_claims_must_be_there(tmp_path: Path) -> None:
    who = callers(tmp_path, required={"tenant": "acme"})
    assert await name(who, ONE.token()) is None
    assert await name(who, ONE.token(tenant="other")) is None
    assert await name(who, ONE.token(tenant="acme")) == "jwt:ada"
    assert await name(who, ONE.token(tenant=["acme", "other"])) == "jwt:ada"


@pytest.mark.parametrize(
    "issuer",
    [
        Issuer(algorithm="PS256"),
        Issuer(algorithm="ES256", key=ec.generate_private_key(ec.SECP256R1())),
        Issuer(algorithm="EdDSA", key=Ed25519PrivateKey.generate()),
    ],
    ids=lambda issuer: issuer.algorithm,
)
async def test_other_kinds_of_keys_work_where_they_are_allowed(issuer: Issuer, tmp_path: Path) -> None:
    who = callers(tmp_path, algorithms=[issuer.algorithm])
    issuer.file(tmp_path)
    assert await name(who, issuer.token()) == "jwt:ada"
    assert await name(who, ONE.token()) is None


async def test_a_key_file_that_changes_is_read_again(tmp_path: Path) -> None:
    who, two = callers(tmp_path), Issuer(kid="two")
    assert await name(who, two.token()) is None
    two.file(tmp_path)
    assert await name(who, two.token()) == "jwt:ada"
    assert await name(who, ONE.token()) is None
    (tmp_path / "jwks.json").write_text("{")
    assert await name(who, two.token()) is None


@dataclass
class Published:
    """A real HTTP server with an issuer's keys."""

    keys: list[dict[str, Any]]
    url: str = ""
    fetches: int = 0
    down: bool = False


@asynccontextmanager
async def published(*issuers: Issuer) -> AsyncGenerator[Published]:
    state = Published([issuer.jwk() for issuer in issuers])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        state.fetches += 1
        body = json.dumps({"keys": state.keys}).encode()
        status = b"503 Unavailable" if state.down else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
        yield state


async def test_published_keys_are_fetched_once_and_again_for_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Issuer(kid="two")
    async with published(ONE) as keys:
        who = callers(tmp_path, jwks_file=None, jwks_url=keys.url)
        found = await asyncio.gather(*(name(who, ONE.token(f"c{each}")) for each in range(5)))
        assert found == [f"jwt:c{each}" for each in range(5)]
        assert keys.fetches == 1
        # A stranger's made-up key does not make us ask again and again.
        await asyncio.gather(*(name(who, Issuer(kid=f"made up {each}", key=ONE.key).token()) for each in range(5)))
        assert keys.fetches == 1
        keys.keys = [two.jwk()]
        monkeypatch.setattr(jwt_callers, "_RETRY_AFTER", 0.0)
        assert await name(who, two.token()) == "jwt:ada"
        assert await name(who, ONE.token()) is None
        # What is known stays in use while the issuer is away.
        keys.down = True
        monkeypatch.setattr(jwt_callers, "_REFRESH_AFTER", 0.0)
        assert await name(who, two.token()) == "jwt:ada"
        monkeypatch.setattr(jwt_callers, "_EXPIRE_AFTER", 0.0)
        assert await name(who, two.token()) is None


async def test_an_issuer_that_cannot_be_reached_lets_no_one_in(tmp_path: Path) -> None:
    who = callers(tmp_path, jwks_file=None, jwks_url="http://127.0.0.1:9/jwks")
    assert await name(who, ONE.token()) is None
    assert await name(who, "the owner's") is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithms": ["none"]},
        {"algorithms": ["HS256"]},
        {"algorithms": []},
        {"jwks_file": None},
        {"jwks_url": "https://issuer.example/jwks"},
        {"jwks_file": None, "jwks_url": "http://issuer.example/jwks"},
        {"audience": ""},
        {"issuer": ""},
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jwt"):
        Settings.model_validate({"jwt": settings(tmp_path, **wrong)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"local": {"token_sha256": "a" * 64}},
        {"jwt": {"token_sha256": "a" * 64}},
        {"jwt:ada": {"token_sha256": "a" * 64}},
        {"": {"token_sha256": "a" * 64}},
        {"a": {"token_sha256": "a" * 64}, "b": {"token_sha256": "a" * 64}},
        {"a": {"token_sha256": "A" * 64}},
    ],
)
def test_callers_that_cannot_be_told_apart_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="callers"):
        Settings.model_validate({"callers": wrong})


async def test_a_key_file_that_is_not_one_stops_the_start(tmp_path: Path) -> None:
    given = settings(tmp_path)
    (tmp_path / "jwks.json").write_text("[]")
    with pytest.raises(ConfigError, match="jwks_file"):
        Callers(Settings.model_validate({"jwt": given}), None)


async def test_without_an_own_token_a_token_that_is_shown_must_be_valid(tmp_path: Path) -> None:
    open_to_all = Callers(Settings(), None)
    assert (await open_to_all.of(None), await open_to_all.of(b"Bearer x")) == (await open_to_all.of(b""),) * 2
    who = Callers(Settings.model_validate({"jwt": settings(tmp_path)}), None)
    nobody = await who.of(None)
    assert nobody is not None
    assert nobody.name == "local"
    assert await who.of(b"Bearer x") is None
    assert await name(who, ONE.token()) == "jwt:ada"


# Through a real gateway

TOKENS = {"web": "web-app's token", "ci": "ci's token"}


@asynccontextmanager
async def gateway(runtime_dir: Path, folder: Path) -> AsyncGenerator[Gateway]:
    config = folder / "toolfold.json"
    known = {each: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()} for each, token in TOKENS.items()}
    document = {
        "servers": {"lab": LAB},
        "callers": {**known, "web": {**known["web"], "host": True}},
        "jwt": settings(folder),
        "audit": True,
        "sandbox": {"pool": 1},
    }
    config.write_text(json.dumps(document))
    async with serving(runtime_dir, "--config", str(config), "--token", "owner") as running:
        yield running


async def run(url: str, token: str, code: str, session: str = "", mode: str = "auto", **headers: str) -> str:
    client = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}", **headers}, timeout=60)
    async with client, Client(streamable_http_client(url, http_client=client), mode=mode) as speaking:
        result: Any = await speaking.call_tool("run_code", {"code": code, "session": session})
        return result.content[0].text


async def test_callers_of_all_kinds_have_sessions_of_their_own(runtime_dir: Path, tmp_path: Path) -> None:
    async with gateway(runtime_dir, tmp_path) as running:
        everyone = ["owner", TOKENS["web"], TOKENS["ci"], ONE.token("ada"), ONE.token("ci")]
        for number, token in enumerate(everyone):
            code = f"import os\nprint(os.listdir('workspace'))\n_ = open('workspace/{number}', 'w').write('x')"
            assert await run(running.url, token, code, "same") == "[]"
        assert await run(running.url, everyone[3], "import os\nprint(os.listdir('workspace'))", "same") == "['3']"
        async with httpx2.AsyncClient(timeout=60) as client:
            for wrong in ("x", ONE.token(aud="other"), Issuer().token()):
                answer = await client.post(
                    running.url, json=INITIALIZE, headers={**ACCEPT, "authorization": f"Bearer {wrong}"}
                )
                assert answer.status_code == 401
                assert "jwt" not in answer.text.lower()
    with AuditReader.open(runtime_dir) as reader:
        seen = {item.caller for item in reader.history(Filter()) if isinstance(item, Run)}
    owner = f"token:{hashlib.sha256(b'owner').hexdigest()[:8]}"
    assert seen == {owner, "web", "ci", "jwt:ada", "jwt:ci"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_context_is_taken_from_host_applications_only(runtime_dir: Path, mode: str) -> None:
    values = json.dumps({"user_id": "7", "org": "Zoë"})
    code = "from servers.lab import nothing\nawait nothing()"
    runs: list[RunContext] = []

    async def watch(call: Call, proceed: Proceed) -> ToolResult:
        runs.append(call.run)
        return await proceed(call)

    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    known = {each: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()} for each, token in TOKENS.items()}
    known = {"ci": known["ci"], "web": {**known["web"], "host": True, "groups": ["apps"]}}
    async with lab_fold(runtime_dir, guards=[watch], callers=known) as fold:
        serving = asyncio.create_task(serve_http(fold, "127.0.0.1", 0, token="owner", started=listening.set_result))
        url = await listening
        given = {"toolfold-context": values}
        await run(url, TOKENS["web"], code, mode=mode, **given)
        await run(url, TOKENS["web"], code, mode=mode)
        await run(url, TOKENS["ci"], code, mode=mode)
        async with httpx2.AsyncClient(timeout=60) as client:
            for token, header, status in (
                (TOKENS["ci"], values, 403),
                ("owner", values, 403),
                (TOKENS["web"], "user_id=7", 400),
                (TOKENS["web"], '{"user_id": 7}', 400),
                (TOKENS["web"], json.dumps({str(each): "x" for each in range(65)}), 400),
            ):
                headers = {**ACCEPT, "authorization": f"Bearer {token}", "toolfold-context": header}
                answer = await client.post(url, json=INITIALIZE, headers=headers)
                assert answer.status_code == status
        serving.cancel()
        await asyncio.wait([serving])
    assert [(each.caller, dict(each.values), each.groups) for each in runs] == [
        ("web", {"user_id": "7", "org": "Zoë"}, {"apps"}),
        ("web", {}, {"apps"}),
        ("ci", {}, frozenset()),
    ]
