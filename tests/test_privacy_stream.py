"""Text that comes in chunks, and what outlives the process."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.private import Room, value_texts

pytestmark = pytest.mark.anyio


@given(
    st.lists(
        st.tuples(value_texts(), st.sampled_from(["\n", " ", ", ", "\t", " and then some more words "])), max_size=8
    ),
    st.data(),
)
def test_no_chunk_shows_half_a_value(parts: list[tuple[str, str]], data: st.DataObject) -> None:
    text = "".join(value + after for value, after in parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    room = Room()
    stream = room.stream()
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = [stream.feed(chunk) for chunk in chunks] + [stream.end()]
    assert "".join(shown) == Room().shown(text)
    assert not any(mark in "".join(shown) for mark in ("@", "415", "4111", "DE89", "192."))


def test_a_line_without_end_is_shown_in_time_and_its_values_are_not() -> None:
    room = Room()
    stream = room.stream()
    text = "".join(f"word{number} user{number}@example.com;" for number in range(20_000))
    shown = ""
    for start in range(0, len(text), 1000):
        shown += stream.feed(text[start : start + 1000])
        assert text[: start + 1000].count(";") - shown.count(";") < 300, "a few thousand characters are held back"
    shown += stream.end()
    assert "@" not in shown
    assert shown.count("EMAIL_") == shown.count(";") == len(room.vault) == 20_000


def test_a_private_key_is_held_back_until_its_end() -> None:
    stream = Room().stream()
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 30 + "-----END PRIVATE KEY-----"
    shown = [stream.feed(line + "\n") for line in f"before\n{key}\nafter".split("\n")] + [stream.end()]
    assert "".join(shown) == "before\nSECRET_1\nafter\n"


def test_a_key_without_end_does_not_hold_everything_back() -> None:
    stream = Room().stream()
    shown = stream.feed("-----BEGIN PRIVATE KEY-----\n")
    for _ in range(2000):
        shown += stream.feed("just a line\n")
    assert shown.count("just a line") > 1000


# What outlives the process


async def _session(room: Room, name: str) -> Room:
    room.run = await room.privacy.for_run("ada", name)
    room.vault = room.run.vault
    return room


async def test_values_are_kept_sealed_when_asked_for_and_by_their_owner_alone(tmp_path: Path) -> None:
    first = await _session(Room(data_dir=tmp_path, persist=True), "s")
    row = {"email": "ada@example.com", "full_name": "Ada Lovelace", "ssn": 123456789}
    shown = first.data(row)
    await first.privacy.ended(first.run, None)
    files = [path for path in (tmp_path / "privacy").iterdir() if path.is_file()]
    assert len(files) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert not any(b"ada" in path.read_bytes().lower() or b"123456789" in path.read_bytes() for path in files)

    second = await _session(Room(data_dir=tmp_path, persist=True), "s")
    assert second.restore(shown) == row
    assert second.shown("Ada Lovelace") == "PERSON_1"
    assert second.text("bob@example.com") == "EMAIL_2"
    other = await _session(Room(data_dir=tmp_path, persist=True), "t")
    assert len(other.vault) == 0
    sealed = next(path for path in files if path.suffix == ".sealed")
    theirs = (tmp_path / "privacy").joinpath(sealed.name)
    data = bytearray(theirs.read_bytes())
    data[-1] ^= 1
    theirs.write_bytes(bytes(data))
    assert len((await _session(Room(data_dir=tmp_path, persist=True), "s")).vault) == 0, "altered, so not trusted"


async def test_without_persist_no_value_is_written_and_no_token_is_given_out_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    first = await _session(Room(data_dir=tmp_path), "s")
    assert first.text("ada@example.com") == "EMAIL_1"
    await first.privacy.ended(first.run, None)
    assert not any(b"ada" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    second = await _session(Room(data_dir=tmp_path), "s")
    assert second.text("eve@example.com") == "EMAIL_2", "a file of the first run still says EMAIL_1"
    assert "ada@" not in caplog.text


async def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "privacy"
    folder.mkdir()
    (folder / "key").write_bytes(os.urandom(32))
    (folder / "key").chmod(0o644)
    room = await _session(Room(data_dir=tmp_path, persist=True), "s")
    room.text("ada@example.com")
    await room.privacy.ended(room.run, None)
    assert not list(folder.glob("*.sealed"))
    assert "only its owner" in caplog.text


async def test_the_vaults_that_were_not_used_for_longest_make_space(tmp_path: Path) -> None:
    room = Room(data_dir=tmp_path, memory=5000)
    for name in ("@a", "@b", "@c", "@d", "@e", "@f"):
        await _session(room, name)
        room.text(" ".join(f"{name[1]}{number}@example.com" for number in range(11)))
        await room.privacy.ended(room.run, None)
    await _session(room, "@f")
    assert len(room.vault) == 11
    await _session(room, "@a")
    assert len(room.vault) == 0
    assert room.text("new@example.com") not in {f"EMAIL_{number}" for number in range(1, 9)}
