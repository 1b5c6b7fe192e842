"""Servers behind TLS: who is who they say is spoken to, nobody else."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mcp.server.mcpserver import MCPServer

from toolfold.config.settings import ServerConfig
from toolfold.errors import UpstreamError
from toolfold.gateway.http import listen
from toolfold.upstream import tls
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """No test has the certificates of another."""
    tls._read.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield
    tls._read.cache_clear()  # pyright: ignore[reportPrivateUsage]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that it has signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir()
    shown, secret = folder / "cert.pem", folder / "key.pem"
    shown.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(pem, pkcs8, plain))
    return shown, secret


@asynccontextmanager
async def site(shown: Path, secret: Path) -> AsyncGenerator[ServerConfig]:
    """A server written with the SDK, that shows this certificate."""
    server = MCPServer("site")
    server.add_tool(lambda: "hello", name="greet")
    sock = listen("127.0.0.1", 0)
    app = server.streamable_http_app()
    options = uvicorn.Config(app, ssl_certfile=str(shown), ssl_keyfile=str(secret), log_level="error")
    running = uvicorn.Server(options)
    task = asyncio.create_task(running.serve([sock]))
    try:
        yield ServerConfig(transport="http", url=f"https://127.0.0.1:{sock.getsockname()[1]}/mcp")
    finally:
        running.should_exit = True
        async with asyncio.timeout(60):
            await task


async def test_a_server_with_a_certificate_that_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, secret = certificate(tmp_path / "ours")
    monkeypatch.setenv("SSL_CERT_FILE", str(shown))
    async with site(shown, secret) as config, Fleet({"a": config, "b": config}, log_dir=tmp_path) as fleet:
        assert [tool.name for tool in (await fleet.listing("a")).tools] == ["greet"]
        assert "hello" in str(await fleet.call("b", "greet", {}))


async def test_a_server_with_another_certificate_is_not_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, secret = certificate(tmp_path / "theirs")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path / "ours")[0]))
    async with site(shown, secret) as config, Fleet({"a": config}, log_dir=tmp_path) as fleet:
        with pytest.raises(UpstreamError, match="certificate"):
            await fleet.listing("a")


def test_certificates_are_read_once_and_again_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 36_000.0
    monkeypatch.setattr(tls.time, "monotonic", lambda: now)
    first = tls.context()
    now += 3599
    assert tls.context() is first
    now += 1
    assert tls.context() is not first
