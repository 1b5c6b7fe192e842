"""Tokens in the system's keyring: never in a file, and never lost without a word."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import msgspec
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from tests.oauth_site import Site, browse, running_site
from tests.test_cli import toolfold
from tests.upstream_lab import text_of
from toolfold import Toolfold
from toolfold.errors import ConfigError, SignInNeeded, UpstreamUnavailable
from toolfold.upstream.auth import keyring as entries
from toolfold.upstream.auth.login import Login
from toolfold.upstream.auth.store import Challenge, Record, RecordFile, records
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio

URL = "https://site.example.com/mcp"


class Memory(KeyringBackend):
    """A keyring for one test."""

    priority = 1  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.error: Exception | None = None
        self.forgetful = False

    def get_password(self, service: str, username: str) -> str | None:
        self._fail()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._fail()
        if not self.forgetful:
            self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._fail()
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("there is none")

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def memory() -> Iterator[Memory]:
    before = keyring.get_keyring()
    backend = Memory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with running_site() as site:
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    running.issuer.revoke()
    running.issuer.count.clear()
    return running


def file_of(folder: Path, *, keyring: bool = True) -> RecordFile:
    return RecordFile(folder, "site", URL, keyring=keyring)


def signed_in(token: str = "access-1") -> Record:
    return Record(
        server="site",
        url=URL,
        tokens={"access_token": token, "refresh_token": "refresh-1"},
        expires_at=4e9,
        client={"client_id": "me", "client_secret": "hush-hush"},
        issuer="https://login.example.com",
    )


def on_disk(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


class TestRecords:
    def test_the_secrets_are_in_the_keyring_and_the_rest_is_in_the_file(self, memory: Memory, tmp_path: Path) -> None:
        file = file_of(tmp_path)
        file.save(signed_in())
        assert not re.search("access-1|refresh-1|hush-hush", on_disk(tmp_path))
        assert "https://login.example.com" in on_disk(tmp_path)
        ((place, text),) = memory.kept.items()
        assert place == ("toolfold", str(file.path.resolve()))
        assert json.loads(text)["tokens"]["access_token"] == "access-1"

    def test_a_restart_and_the_list_of_all_find_them(self, memory: Memory, tmp_path: Path) -> None:
        file_of(tmp_path).save(signed_in())
        assert file_of(tmp_path).load() == signed_in()
        assert records(tmp_path, keyring=True) == [signed_in()]
        assert records(tmp_path, keyring=True)[0].secrets == ["access-1", "refresh-1", "hush-hush"]

    async def test_another_process_sees_a_change(self, memory: Memory, tmp_path: Path) -> None:
        mine, other = file_of(tmp_path), file_of(tmp_path)
        mine.save(signed_in())
        await other.catch_up()
        assert other.load().access_token == "access-1"
        mine.save(signed_in("access-2"))
        await other.catch_up()
        memory.error = KeyringLocked("not needed any more")
        assert other.load().access_token == "access-2"

    async def test_what_could_not_be_written_while_the_keyring_was_asked_is_not_lost(
        self, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine = file_of(tmp_path)
        asking = asyncio.create_task(mine.catch_up())
        await asyncio.sleep(0)  # it asks in a thread now, and goes on when we wait

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("toolfold.upstream.auth.store.os.fsync", full)
            with pytest.raises(OSError, match="No space left"):
                mine.save(signed_in())
        await asking
        assert mine.load().access_token == "access-1"

    def test_two_data_folders_have_a_sign_in_each(self, memory: Memory, tmp_path: Path) -> None:
        file_of(tmp_path / "a").save(signed_in())
        file_of(tmp_path / "b").save(signed_in("access-2"))
        assert file_of(tmp_path / "a").load().access_token == "access-1"

    def test_tokens_in_a_file_move_with_the_next_save(self, memory: Memory, tmp_path: Path) -> None:
        file_of(tmp_path, keyring=False).save(signed_in())
        assert "access-1" in on_disk(tmp_path)
        file = file_of(tmp_path)
        assert file.load() == signed_in()
        file.save(file.load())
        assert not re.search("access-1|refresh-1|hush-hush", on_disk(tmp_path))
        assert file_of(tmp_path).load() == signed_in()

    def test_without_the_setting_the_keyring_is_left_alone(self, memory: Memory, tmp_path: Path) -> None:
        file_of(tmp_path).save(signed_in())
        memory.error = KeyringLocked("locked")
        record = file_of(tmp_path, keyring=False).load()
        assert (record.secrets, record.ended) == ([], True)

    @pytest.mark.parametrize("left", [None, "not JSON"])
    def test_an_entry_that_is_gone_or_damaged_is_a_sign_in_that_ended(
        self, memory: Memory, tmp_path: Path, left: str | None
    ) -> None:
        file_of(tmp_path).save(signed_in())
        memory.kept = {place: left for place in memory.kept if left is not None}
        record = file_of(tmp_path).load()
        assert (record.secrets, record.ended, record.expired) == ([], True, False)

    def test_what_has_no_secrets_needs_no_keyring(self, memory: Memory, tmp_path: Path) -> None:
        memory.error = KeyringLocked("locked")
        refused = Record(server="site", url=URL, challenge=Challenge(401, "Bearer"))
        file_of(tmp_path).save(refused)
        assert file_of(tmp_path).load() == refused

    def test_secrets_that_are_no_longer_in_the_record_are_deleted(self, memory: Memory, tmp_path: Path) -> None:
        file_of(tmp_path).save(signed_in())
        file_of(tmp_path).save(Record(server="site", url=URL, ended=True))
        assert memory.kept == {}

    def test_deleting_a_record_deletes_both(self, memory: Memory, tmp_path: Path) -> None:
        file = file_of(tmp_path)
        file.save(signed_in())
        file.delete()
        file.delete()
        assert (memory.kept, file.signature) == ({}, None)


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (KeyringLocked("the collection is locked"), r"KeyringLocked: the collection is locked\)"),
            (RuntimeError("cannot store access-1"), r"cannot be used \(RuntimeError\)"),
        ],
    )
    def test_a_failing_keyring_is_said_and_no_token_is_written(
        self, memory: Memory, tmp_path: Path, error: Exception, said: str
    ) -> None:
        memory.error = error
        file = file_of(tmp_path)
        with pytest.raises(ConfigError, match=f'{said}.*Unlock.*or set `token_store = "file"`'):
            file.save(signed_in())
        assert "access-1" not in on_disk(tmp_path)
        assert file.load() == signed_in()  # in memory

    def test_a_keyring_that_keeps_nothing_is_noticed(self, memory: Memory, tmp_path: Path) -> None:
        memory.forgetful = True
        with pytest.raises(ConfigError, match="did not keep"):
            file_of(tmp_path).save(signed_in())
        assert on_disk(tmp_path) == ""

    def test_a_keyring_that_does_not_answer_is_given_up(
        self, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(entries, "_TIMEOUT", 0.05)
        asked = threading.Event()
        monkeypatch.setattr(memory, "_fail", asked.wait)
        with pytest.raises(ConfigError, match="did not answer within"):
            file_of(tmp_path).check()
        asked.set()

    def test_no_keyring_at_all(self, memory: Memory, tmp_path: Path) -> None:
        from keyring.backends.fail import Keyring

        keyring.set_keyring(Keyring())
        with pytest.raises(ConfigError, match="has no keyring"):
            file_of(tmp_path).check()

    def test_a_missing_package_says_what_to_install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "keyring", None)
        with pytest.raises(ConfigError, match=r"pip install 'toolfold\[keyring\]', or set `token_store = \"file\"`"):
            file_of(tmp_path).save(signed_in())
        assert on_disk(tmp_path) == ""


class TestSigningIn:
    def login(self, site: Site, data: Path) -> Login:
        return Login("site", site.config(), data, keyring=True)

    async def greet(self, site: Site, data: Path) -> str:
        fleet = Fleet({"site": site.config()}, log_dir=data / "logs", auth_dir=data / "auth", keyring=True)
        async with fleet:
            return text_of(await fleet.call("site", "greet", {"name": "you"}))

    async def test_from_its_beginning_to_its_end(self, site: Site, memory: Memory, tmp_path: Path) -> None:
        with pytest.raises(SignInNeeded):
            await self.greet(site, tmp_path)
        secrets = (await self.login(site, tmp_path).sign_in(browse)).secrets
        assert secrets
        assert await self.greet(site, tmp_path) == "hello you"
        assert not any(secret in on_disk(tmp_path) for secret in secrets)
        assert await self.login(site, tmp_path).sign_out()
        assert memory.kept == {}

    async def test_tokens_that_are_refreshed_go_to_the_keyring(
        self, site: Site, memory: Memory, tmp_path: Path
    ) -> None:
        login = self.login(site, tmp_path)
        before = await login.sign_in(browse)
        login.file.save(msgspec.structs.replace(before, expires_at=1.0))
        assert await self.greet(site, tmp_path) == "hello you"
        after = self.login(site, tmp_path).file.load()
        assert after.access_token not in ("", before.access_token)
        assert not any(secret in on_disk(tmp_path) for secret in after.secrets)

    async def test_a_keyring_that_waits_for_its_password_holds_up_nothing_else(
        self, site: Site, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = self.login(site, tmp_path)
        login.file.save(msgspec.structs.replace(await login.sign_in(browse), expires_at=1.0))
        asked, unlocked, in_time = threading.Event(), threading.Event(), list[bool]()
        write: Any = memory.set_password  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

        def waiting(service: str, username: str, password: str) -> None:
            asked.set()
            in_time.append(unlocked.wait(5))
            write(service, username, password)

        monkeypatch.setattr(memory, "set_password", waiting)
        greeting = asyncio.create_task(self.greet(site, tmp_path))
        await asyncio.to_thread(asked.wait, 20)
        unlocked.set()
        assert await greeting == "hello you"
        assert in_time == [True]

    async def test_a_locked_keyring_is_the_error_of_a_call_until_it_is_unlocked(
        self, site: Site, memory: Memory, tmp_path: Path
    ) -> None:
        await self.login(site, tmp_path).sign_in(browse)
        memory.error = KeyringLocked("locked")
        with pytest.raises(UpstreamUnavailable, match=r"sign-in cannot be read\. The keyring cannot.*Unlock") as raised:
            await self.greet(site, tmp_path)
        assert not isinstance(raised.value, SignInNeeded)
        memory.error = None
        assert await self.greet(site, tmp_path) == "hello you"

    async def test_nobody_signs_in_for_nothing(self, site: Site, memory: Memory, tmp_path: Path) -> None:
        memory.error = KeyringLocked("locked")
        shown: list[str] = []
        with pytest.raises(ConfigError, match="Unlock the keyring"):
            await self.login(site, tmp_path).sign_in(shown.append)
        assert shown == []

    async def test_the_setting_reaches_the_gateway(self, site: Site, memory: Memory, tmp_path: Path) -> None:
        config: dict[str, Any] = {"servers": {"site": {"url": site.config().url}}, "token_store": "keyring"}
        await self.login(site, tmp_path).sign_in(browse)
        async with Toolfold.open(config, data_dir=tmp_path) as fold:
            assert "site.greet" in (await fold.search("greet")).text

    def test_the_setting_reaches_the_command(self, site: Site, tmp_path: Path) -> None:
        config = tmp_path / "toolfold.toml"
        config.write_text(f'token_store = "keyring"\n[servers.site]\nurl = "{site.config().url}"\n')
        env = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        done = toolfold("auth", "login", "site", "--no-browser", config=config, env=env)
        assert done.returncode != 0
        assert "This system has no keyring that can be used." in done.stderr
        assert "Traceback" not in done.stderr
        assert site.issuer.count["registrations"] == 0
