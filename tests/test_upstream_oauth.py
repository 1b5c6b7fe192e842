"""Signing in to a remote server: the flow, the tokens, what happens when they end, and what is never shown."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from tests.oauth_site import MACHINE, Site, browse, running_site
from tests.upstream_lab import eventually, text_of
from toolfold import Toolfold
from toolfold.config.oauth import OAuthSettings
from toolfold.config.settings import ServerConfig
from toolfold.errors import SignInNeeded, UpstreamUnavailable
from toolfold.upstream.auth.flow import AuthError, Flow
from toolfold.upstream.auth.login import Login, NoSignInError
from toolfold.upstream.auth.store import Record, RecordFile
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with running_site() as site:
        yield site


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def site(running: Site) -> Site:
    running.issuer.revoke()
    running.issuer.count.clear()
    running.issuer.lifetime, running.issuer.down = 3600, False
    return running


def fleet_of(site: Site, data: Path, **settings: Any) -> Fleet:
    """A gateway's connections: each has what a process of its own would have."""
    return Fleet({"site": site.config(**settings)}, log_dir=data / "logs", auth_dir=data / "auth")


async def greet(fleet: Fleet) -> str:
    return text_of(await fleet.call("site", "greet", {"name": "you"}))


async def sign_in(site: Site, data: Path, **settings: Any) -> Record:
    return await Login("site", site.config(**settings), data).sign_in(browse)


def kept(site: Site, data: Path) -> RecordFile:
    return RecordFile(data / "auth", "site", site.config().url)


def change(site: Site, data: Path, **fields: Any) -> None:
    """As if time had gone by since the record was written."""
    file = kept(site, data)
    file.save(msgspec.structs.replace(file.load(), **fields))


class TestSigningIn:
    async def test_a_call_says_what_to_run_and_works_after_the_sign_in(self, site: Site, tmp_path: Path) -> None:
        async with fleet_of(site, tmp_path) as fleet:
            for _ in range(2):
                with pytest.raises(SignInNeeded, match=r"needs a sign-in: run `toolfold auth login site`.*not sent"):
                    await greet(fleet)
            await sign_in(site, tmp_path)
            assert await greet(fleet) == "hello you"
        assert site.issuer.count["registrations"] == 1

    async def test_a_search_says_it_too_and_a_running_gateway_lists_the_server_when_it_is_done(
        self, site: Site, tmp_path: Path
    ) -> None:
        config = {"servers": {"site": {"url": site.config().url}}}
        async with Toolfold.open(config, data_dir=tmp_path) as fold:
            told = (await fold.search("greet")).text
            assert "site: failed: needs a sign-in: run `toolfold auth login site`" in told
            assert "Next try" not in told
            await sign_in(site, tmp_path)
            await eventually(lambda: fold.catalog.tool("site", "greet"))

    async def test_a_second_sign_in_uses_the_same_registration(self, site: Site, tmp_path: Path) -> None:
        first = await sign_in(site, tmp_path)
        second = await sign_in(site, tmp_path)
        assert {oct(path.stat().st_mode & 0o7777) for path in (tmp_path / "auth").iterdir()} == {"0o600"}
        assert first.client == second.client
        assert first.access_token != second.access_token
        assert site.issuer.count["registrations"] == 1

    async def test_another_address_under_the_same_name_gets_no_token(self, site: Site, tmp_path: Path) -> None:
        await sign_in(site, tmp_path)
        other = ServerConfig(transport="http", url=f"{site.origin}/mcp?elsewhere")
        async with Fleet({"site": other}, log_dir=tmp_path, auth_dir=tmp_path / "auth") as fleet:
            with pytest.raises(SignInNeeded):
                await greet(fleet)

    async def test_answers_that_are_not_to_our_question_are_turned_away(self, site: Site, tmp_path: Path) -> None:
        seen: list[int] = []

        def show(url: str) -> None:
            async def browser() -> None:
                async with httpx2.AsyncClient(timeout=60) as client:
                    last = (await client.get(url)).headers["location"]
                    place = last.partition("?")[0]
                    wrong = [f"{place}?code=x&state=y", f"{place}?error=no", f"{place}x", place]
                    seen.extend([(await client.get(each)).status_code for each in [*wrong, last]])

            browsing.append(asyncio.create_task(browser()))

        browsing: list[asyncio.Task[None]] = []
        async with asyncio.timeout(30):
            await Login("site", site.config(), tmp_path).sign_in(show)
            await asyncio.gather(*browsing)
        assert seen == [400, 400, 404, 400, 200]

    @pytest.mark.parametrize("whole", [True, False])
    async def test_the_last_address_or_what_follows_in_it_can_be_pasted(
        self, site: Site, tmp_path: Path, whole: bool
    ) -> None:
        shown: asyncio.Queue[str] = asyncio.Queue()
        wrong: list[str] = []

        async def lines() -> AsyncIterator[str]:
            async with httpx2.AsyncClient(timeout=60) as elsewhere:
                last = (await elsewhere.get(await shown.get())).headers["location"]
            for line in ("", "  ", "what?", last.replace("state=", "state=x"), last):
                yield f" {line if whole else line.partition('?')[2] or line}\n"

        login = Login("site", site.config(), tmp_path)
        async with asyncio.timeout(30):
            record = await login.sign_in(
                shown.put_nowait, pasted=lines(), on_wrong_paste=lambda: wrong.append("not this one")
            )
        assert record.access_token
        assert len(wrong) == 2, "empty lines are none"

    async def test_a_person_who_says_no_is_told_so(self, site: Site, tmp_path: Path) -> None:
        def refuse(url: str) -> None:
            fields = dict(httpx2.URL(url).params)
            browse(f"{fields['redirect_uri']}?error=access_denied&error_description=no&state={fields['state']}")

        with pytest.raises(UpstreamUnavailable, match=r"refused the sign-in \(access_denied: no\)"):
            await Login("site", site.config(), tmp_path).sign_in(refuse)

    async def test_a_server_without_a_sign_in_is_said(self, site: Site, tmp_path: Path) -> None:
        token = (await sign_in(site, tmp_path / "other")).access_token
        open_to_all = site.config(headers={"Authorization": f"Bearer {token}"})
        with pytest.raises(NoSignInError):
            await Login("site", open_to_all, tmp_path).sign_in(browse)

    async def test_the_configured_scopes_are_asked_for(self, site: Site, tmp_path: Path) -> None:
        record = await sign_in(site, tmp_path, oauth=OAuthSettings(scopes=("read",)))
        assert record.scope == "read"

    async def test_the_older_transport_is_signed_in_to_alike(self, tmp_path: Path) -> None:
        with running_site(sse=True) as site:
            async with fleet_of(site, tmp_path) as fleet:
                with pytest.raises(SignInNeeded, match="needs a sign-in: run `toolfold auth login site`"):
                    await greet(fleet)
                await sign_in(site, tmp_path)
                assert await greet(fleet) == "hello you"


class TestTokens:
    async def test_an_expired_token_is_refreshed_after_a_restart(self, site: Site, tmp_path: Path) -> None:
        before = await sign_in(site, tmp_path)
        site.issuer.expire()
        change(site, tmp_path, expires_at=time.time() - 5)
        async with fleet_of(site, tmp_path) as fleet:
            assert await greet(fleet) == "hello you"
            assert await greet(fleet) == "hello you"
        after = kept(site, tmp_path).load()
        assert after.access_token != before.access_token
        assert after.expires_at is not None
        assert after.expires_at > time.time()
        assert (site.issuer.count["refreshes"], site.issuer.count["authorizations"]) == (1, 1)

    async def test_a_token_that_ends_early_is_refreshed_once_for_many_calls(self, site: Site, tmp_path: Path) -> None:
        await sign_in(site, tmp_path)
        async with fleet_of(site, tmp_path) as fleet:
            await greet(fleet)
            site.issuer.expire()
            assert set(await asyncio.gather(*(greet(fleet) for _ in range(8)))) == {"hello you"}
        assert site.issuer.count["refreshes"] == 1

    async def test_two_gateways_never_use_one_refresh_token_twice(self, site: Site, tmp_path: Path) -> None:
        await sign_in(site, tmp_path)
        async with fleet_of(site, tmp_path) as one, fleet_of(site, tmp_path) as two:
            await asyncio.gather(greet(one), greet(two))
            for _ in range(3):
                site.issuer.expire()
                assert await asyncio.gather(greet(one), greet(two)) == ["hello you"] * 2
        assert site.issuer.count["refreshes"] == 3
        assert site.issuer.count["reuses"] == 0

    async def test_a_revoked_sign_in_is_said_once_and_ends_in_a_new_one(self, site: Site, tmp_path: Path) -> None:
        await sign_in(site, tmp_path)
        async with fleet_of(site, tmp_path) as fleet:
            await greet(fleet)
            site.issuer.revoke()
            asked = site.issuer.count["token requests"]
            for _ in range(3):
                with pytest.raises(SignInNeeded, match="expired or was revoked: run `toolfold auth login site`"):
                    await greet(fleet)
            assert site.issuer.count["token requests"] == asked + 1
            await sign_in(site, tmp_path)
            assert await greet(fleet) == "hello you"

    async def test_a_token_that_cannot_be_refreshed_is_said_to_be_over(self, site: Site, tmp_path: Path) -> None:
        tokens = (await sign_in(site, tmp_path)).tokens or {}
        change(site, tmp_path, tokens={**tokens, "refresh_token": None})
        site.issuer.expire()
        async with fleet_of(site, tmp_path) as fleet:
            with pytest.raises(SignInNeeded, match="expired or was revoked"):
                await greet(fleet)
        assert site.issuer.count["refreshes"] == 0

    async def test_an_issuer_that_is_down_costs_no_sign_in(self, site: Site, tmp_path: Path) -> None:
        await sign_in(site, tmp_path)
        async with fleet_of(site, tmp_path) as fleet:
            await greet(fleet)
            site.issuer.expire()
            change(site, tmp_path, expires_at=time.time() - 5)
            site.issuer.down = True
            with pytest.raises(UpstreamUnavailable, match=r"could not be refreshed: .*HTTP 503") as raised:
                await greet(fleet)
            assert not isinstance(raised.value, SignInNeeded)
            site.issuer.down = False
            assert await greet(fleet) == "hello you"

    async def test_a_call_beyond_the_scopes_says_which_are_missing_and_the_next_sign_in_asks_for_them(
        self, site: Site, tmp_path: Path
    ) -> None:
        await sign_in(site, tmp_path, oauth=OAuthSettings(scopes=("read",)))
        async with fleet_of(site, tmp_path) as fleet:
            await greet(fleet)
            with pytest.raises(SignInNeeded, match=r"more rights \(write\): run `toolfold auth login site`"):
                await fleet.call("site", "erase", {})
            assert await greet(fleet) == "hello you"
            record = await sign_in(site, tmp_path)
            assert set(record.scope.split()) == {"read", "write"}
            assert text_of(await fleet.call("site", "erase", {})) == "erased"

    async def test_a_record_that_is_broken_or_cannot_be_written_is_no_reason_to_fail(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await sign_in(site, tmp_path)
        file = kept(site, tmp_path)
        good = file.path.read_bytes()
        for bad in (b"", b"{", b"[]", b'{"server": 3}', b"\xff" * 100):
            file.path.write_bytes(bad)
            async with fleet_of(site, tmp_path) as fleet:
                with pytest.raises(SignInNeeded):
                    await greet(fleet)
        file.path.write_bytes(good)
        site.issuer.expire()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        async with fleet_of(site, tmp_path) as fleet:
            monkeypatch.setattr("toolfold.upstream.auth.store.os.fsync", full)
            for _ in range(2):
                assert await greet(fleet) == "hello you"
        assert [path.suffix for path in file.path.parent.iterdir() if path.name.startswith(".")] == []


class TestRegisteredByHand:
    """The operator of a server gave out a client id, and says where the browser may come back to."""

    @pytest.mark.parametrize("secret", ["", "the-secret-of-the-client-4711"])
    async def test_it_signs_in_refreshes_and_signs_out_under_its_own_name(
        self, site: Site, tmp_path: Path, free_port: int, secret: str
    ) -> None:
        place = f"http://127.0.0.1:{free_port}/back"
        ours = OAuthSettings(client_id="by-hand", client_secret=secret, redirect_uri=place)
        site.issuer.clients["by-hand"] = OAuthClientInformationFull(
            client_id="by-hand",
            client_secret=secret or None,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            redirect_uris=[AnyUrl(place)],
            scope="read write",
        )
        record = await sign_in(site, tmp_path, oauth=ours)
        assert record.client == {"client_id": "by-hand"}, "what is in the config is not kept a second time"
        site.issuer.expire()
        async with fleet_of(site, tmp_path, oauth=ours) as fleet:
            assert await greet(fleet) == "hello you"
        assert {token.client_id for token in site.issuer.access.values()} == {"by-hand"}
        assert (site.issuer.count["registrations"], site.issuer.count["refreshes"]) == (0, 1)
        login = Login("site", site.config(oauth=ours), tmp_path)
        assert not await login.sign_out(), "this issuer wants the secret in the form, and refuses"
        assert not login.file.path.exists(), "it is forgotten here all the same"


class TestClientCredentials:
    SETTINGS = OAuthSettings(grant="client_credentials", client_id=MACHINE[0], client_secret=MACHINE[1])

    async def test_no_person_is_needed_at_the_first_call_nor_after_the_end_of_a_token(
        self, site: Site, tmp_path: Path
    ) -> None:
        for _ in range(2):
            async with fleet_of(site, tmp_path, oauth=self.SETTINGS) as fleet:
                assert await greet(fleet) == "hello you"
        assert site.issuer.count["token requests"] == 1  # kept over the restart
        async with fleet_of(site, tmp_path, oauth=self.SETTINGS) as fleet:
            site.issuer.expire()
            assert await greet(fleet) == "hello you"
            change(site, tmp_path, expires_at=time.time() - 5)
            assert await greet(fleet) == "hello you"
        assert site.issuer.count["token requests"] == 3

    async def test_wrong_credentials_are_said_without_the_secret(self, site: Site, tmp_path: Path) -> None:
        secret = "not-the-secret-4711"
        wrong = self.SETTINGS.model_copy(update={"client_secret": secret})
        async with fleet_of(site, tmp_path, oauth=wrong) as fleet:
            with pytest.raises(
                UpstreamUnavailable, match=r"client credentials failed: .*refused with HTTP 401 \(invalid_client\)"
            ) as raised:
                await greet(fleet)
        assert secret not in str(raised.value)
        assert secret not in "".join(path.read_text() for path in (tmp_path / "logs").iterdir())

    @pytest.mark.parametrize("machine", [True, False])
    async def test_a_server_that_refuses_new_tokens_too_is_not_asked_for_ever(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: bool
    ) -> None:
        if not machine:
            await sign_in(site, tmp_path)

        async def unknown(_: str) -> None:
            return None

        monkeypatch.setattr(site.issuer, "load_access_token", unknown)
        async with fleet_of(site, tmp_path, oauth=self.SETTINGS if machine else OAuthSettings()) as fleet:
            words = "refused a new token with HTTP 401.*Check `oauth.client_id`" if machine else "toolfold auth login"
            with pytest.raises(UpstreamUnavailable, match=words):
                await greet(fleet)
        assert site.issuer.count["token requests"] <= 3

    async def test_the_issuer_that_is_configured_is_the_only_one_that_gets_the_secret(
        self, site: Site, tmp_path: Path
    ) -> None:
        elsewhere = self.SETTINGS.model_copy(update={"issuer": "https://elsewhere.example"})
        async with fleet_of(site, tmp_path, oauth=elsewhere) as fleet:
            with pytest.raises(UpstreamUnavailable, match="issuer mismatch"):
                await greet(fleet)
        assert site.issuer.count["token requests"] == 0

    async def test_a_key_that_is_none_is_said(self, site: Site, tmp_path: Path) -> None:
        keyed = OAuthSettings(grant="client_credentials", client_id="robot", private_key="no key at all")
        async with fleet_of(site, tmp_path, oauth=keyed) as fleet:
            with pytest.raises(UpstreamUnavailable, match="is no private key in PEM form"):
                await greet(fleet)


@pytest.mark.parametrize("body", ["x" * 2_000_000, "[]", '{"token_endpoint": 3}', '{"resource": "file:///etc/passwd"}'])
async def test_metadata_that_makes_no_sense_is_refused(tmp_path: Path, body: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(found[1]) if found else 0)
        status = "200 OK" if head.startswith(b"GET /.well-known") else "401 Unauthorized"
        headers = f"Content-Length: {len(body)}\r\nWWW-Authenticate: Bearer\r\nConnection: close"
        writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        config = ServerConfig(transport="http", url=url)
        with pytest.raises(UpstreamUnavailable, match=r"the sign-in failed: the (registration|authorization server)"):
            await Login("site", config, tmp_path).sign_in(browse)
    assert not list((tmp_path / "auth").glob("*.json"))


def test_a_record_says_when_it_is_about_to_expire() -> None:
    def expires_in(seconds: float, lifetime: int) -> bool:
        tokens = {"access_token": "x", "expires_in": lifetime}
        return Record(server="s", url="u", tokens=tokens, expires_at=time.time() + seconds).expired

    assert expires_in(20, 3600)
    assert not expires_in(60, 3600)
    assert not expires_in(20, 60)
    assert expires_in(-1, 60)
    assert not Record(server="s", url="u", tokens={"access_token": "x"}).expired


def test_what_a_killed_writer_left_is_removed_in_time_and_with_the_sign_in(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, "site", "https://site")
    other = RecordFile(tmp_path, "site", "https://other")
    drafts = [tmp_path / f".{name}" for name in (f"{file.path.name}.1", f"{file.path.name}.2", f"{other.path.name}.3")]
    for draft in drafts:
        draft.write_text("a token")
    os.utime(drafts[0], (0, time.time() - 3700))
    file.save(Record(server="site", url="https://site", tokens={"access_token": "new"}))
    assert [draft.exists() for draft in drafts] == [False, True, True], "the second may be another gateway's"
    file.delete()
    assert [draft.exists() for draft in drafts] == [False, False, True]


async def test_secrets_go_to_other_machines_by_https_only() -> None:
    config = ServerConfig(transport="http", url="https://site.example/mcp", oauth=OAuthSettings(client_id="me"))
    issuer = "https://issuer.example"
    metadata = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "revocation_endpoint": "http://issuer.example/revoke",
    }
    tokens = {"access_token": "x", "token_type": "Bearer"}
    record = Record(server="site", url=config.url, tokens=tokens, metadata=metadata)
    with pytest.raises(AuthError, match=r"the authorization server's address http://issuer\.example is not https"):
        await Flow(config, record).revoke()


async def test_a_record_that_another_process_never_lets_go_of_is_waited_for_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.upstream.auth.store.LOCK_TIMEOUT", 0.05)
    mine, other = (RecordFile(tmp_path, "site", "https://site") for _ in range(2))

    async def wait() -> None:
        async with mine.locked():
            pass

    async with asyncio.timeout(60), other.locked():
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await wait()
    await wait()
