"""Sharing skills: packages that nobody can change unnoticed, and libraries in folders and git repositories."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.errors import PackageRefused, SkillError
from toolfold.skills.folder import MAX_BYTES, Skill
from toolfold.skills.git_library import GitLibrary, open_library
from toolfold.skills.keys import Pin, Pins, SigningKey, verify
from toolfold.skills.library import INDEX, Library, fetch, find, publish, read_index
from toolfold.skills.needs import needs_of, requirements_of, satisfies
from toolfold.skills.package import Package, pack, read_archive, skill_in, unpack

SOURCE = '''
from servers.github import list_issues

async def open_issues(repo: str) -> list[str]:
    """Titles of a repository's open issues."""
    return [issue["title"] for issue in await list_issues(repo=repo)]
'''
SKILL = Skill(
    name="open-issues",
    description="Titles of a repository's open issues.",
    source=SOURCE,
    body="# Usage\n\nCall it.",
    tags=("github",),
    files={"references/notes.md": b"notes"},
)
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.of(tmp_path_factory.mktemp("alice"))


@pytest.fixture(scope="module")
def package(key: SigningKey) -> Package:
    return pack(SKILL, key, "0.1.0")


def version(number: int, name: str = "open-issues") -> Skill:
    return Skill(name=name, description="Some skill.", source=f"def f(): return {number}\n", version=number)


def bare(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True, env=ENV)
    return path


def opened(place: Path | str, cache: Path) -> Library:
    return open_library(str(place), Path("/"), cache, ENV)


# Packages


def test_a_package_has_one_form_and_gives_the_skill_back(key: SigningKey, package: Package) -> None:
    assert pack(SKILL, key, "0.1.0").data == package.data
    found = unpack(package.data)
    assert found.skill == SKILL
    assert found.manifest.tools == ("github.list_issues",)
    assert found.manifest.requires == {"toolfold": ">=0.1"}
    assert zipfile.ZipFile(io.BytesIO(package.data)).testzip() is None


def test_any_changed_byte_of_a_package_is_noticed(package: Package) -> None:
    random = Random(7)
    places = random.sample(range(len(package.data)), 400)
    for place in places:
        changed = bytearray(package.data)
        changed[place] ^= 1 << random.randrange(8)
        with pytest.raises(PackageRefused):
            unpack(bytes(changed))


@given(st.binary(max_size=60), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_put_in_or_cut_off_are_noticed(package: Package, extra: bytes, place: int) -> None:
    place %= len(package.data)
    changed = package.data[:place] + extra + package.data[place:]
    for each in {changed, package.data[:place], package.data + extra, extra + package.data} - {package.data}:
        with pytest.raises(PackageRefused):
            unpack(each)


def test_a_package_that_another_key_signed_is_not_ours(tmp_path: Path, package: Package) -> None:
    mallory = SigningKey.of(tmp_path)
    forged = package.data.replace(package.manifest.publisher.encode(), mallory.public.encode())
    with pytest.raises(PackageRefused):
        unpack(forged)


def archive(*entries: tuple[str, bytes], mode: int = 0o100644, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as file:
        for name, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            file.writestr(entry, content, method)
    return written.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "a/../../evil",
        "a//b",
        "./a",
        "a\\..\\b",
        "C:/evil",
        "a\nb",
        "nul\x1b[0m",
        "x" * 300,
        "a/" * 20 + "b",
        "e\u0301",
        "trailing ",
        "dots./a",
        "\u202egnp.exe",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(PackageRefused):
        read_archive(archive(("s/SKILL.md", b""), (f"s/{name}" if name[0] != "/" else name, b"")))


def test_archives_that_are_links_bombs_or_nothing_are_refused() -> None:
    for data in (
        archive(("s/SKILL.md", b"/etc/passwd"), mode=0o120777),
        archive(("s/SKILL.md", b""), ("s/zeros", bytes(50_000_000))),
        archive(*((f"s/{n}", b"") for n in range(600))),
        archive(("s/SKILL.md", b""), method=zipfile.ZIP_LZMA),
        b"PK",
        b"",
        bytes(6_000_000),
    ):
        with pytest.raises(PackageRefused):
            read_archive(data)
    with pytest.raises(PackageRefused, match=r"no SKILL\.md"):
        skill_in({"a/b": b""})
    with pytest.raises(PackageRefused, match="more than one"):
        skill_in({"a/SKILL.md": b"", "b/SKILL.md": b""})


def test_files_that_would_share_a_place_and_skills_that_are_too_large_are_not_packed(key: SigningKey) -> None:
    for files in ({"a": b"", "A": b""}, {"x/a": b"", "X/b": b""}, {".toolfold/manifest.json": b""}):
        with pytest.raises(SkillError):
            pack(Skill(name="s", description="d", files=files), key, "0.1.0")
    with pytest.raises(SkillError, match="larger"):
        pack(Skill(name="s", description="d", files={"a": bytes(MAX_BYTES + 1)}), key, "0.1.0")


# Keys and pins


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = {key.public for key in pool.map(SigningKey.of, [tmp_path / "data"] * 16)}
    assert len(keys) == 1
    [file] = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("nonsense")
    with pytest.raises(SkillError, match="holds no Ed25519 key"):
        SigningKey.of(tmp_path / "data")


def test_a_signature_is_of_one_text_by_one_key(key: SigningKey) -> None:
    signature = key.sign(b"text")
    assert verify(key.public, b"text", signature)
    assert not verify(key.public, b"other", signature)
    for publisher in ("", "ed25519:", "ed25519:AAAA", key.public.removeprefix("ed25519:"), key.public + "\n"):
        assert not verify(publisher, b"text", signature)


def test_another_key_or_another_content_of_a_version_is_refused(tmp_path: Path, key: SigningKey) -> None:
    pins = Pins(tmp_path)
    first = pack(version(1), key, "0.1.0")
    assert pins.check(first) is None
    pins.put("open-issues", Pin(first.manifest.publisher, "1", first.sha256, first.skill.digest))
    assert pins.check(first) is not None
    assert pins.check(pack(version(2), key, "0.1.0")) is not None
    with pytest.raises(PackageRefused, match="pinned with the hash"):
        pins.check(pack(SKILL, key, "0.1.0"))
    with pytest.raises(PackageRefused, match=r"unpin open-issues"):
        pins.check(pack(version(1), SigningKey.of(tmp_path / "mallory"), "0.1.0"))
    assert pins.forget("open-issues")
    assert not pins.forget("open-issues")
    (tmp_path / "pins.json").write_text("{")
    with pytest.raises(SkillError, match="Cannot read"):
        pins.check(first)


# Needs


def test_the_tools_and_skills_of_a_program_are_read_from_its_code() -> None:
    found = needs_of(
        "import servers.slack as s, skills.one\n"
        "from servers import github, jira\n"
        "from servers.drive.get_sheet import get_sheet\n"
        "from skills import two\n"
        "async def f():\n"
        "    await s.post(); await github.create_issue(); get_sheet\n"
        "    await call_mcp_tool('mcp__crm__find_contact', {})\n"
        "    await client.call_mcp_tool(server='crm', tool='update')\n"
    )
    assert found.tools == (
        "crm.find_contact",
        "crm.update",
        "drive.get_sheet",
        "github.create_issue",
        "jira.*",
        "slack.post",
    )
    assert found.skills == ("one", "two")
    assert needs_of("def (") == needs_of("")


def test_ranges_of_versions() -> None:
    assert satisfies("2", ">=2 <4")
    assert satisfies("0.1.0", ">=0.1")
    assert not satisfies("4", ">=2,<4")
    assert not satisfies("3", "about three")
    skill = Skill(name="s", description="d", fields={"metadata": {"requires": "python>=3.12, other_skill >=2 <4"}})
    assert requirements_of(skill) == {"python": ">=3.12", "other-skill": ">=2 <4"}
    with pytest.raises(SkillError, match="Invalid requirement"):
        requirements_of(Skill(name="s", description="d", fields={"metadata": {"requires": "python ~ 3"}}))


# Libraries


@pytest.fixture(params=["folder", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "library"
    if request.param == "git":
        return bare(path)
    path.mkdir()
    return path


def test_one_user_publishes_and_another_installs(place: Path, tmp_path: Path, key: SigningKey) -> None:
    alice, first = opened(place, tmp_path / "a"), pack(version(1), key, "0.1.0")
    assert publish(alice, first, key)
    assert not publish(alice, first, key)
    assert publish(opened(place, tmp_path / "a"), pack(version(10), key, "0.1.0"), key)
    assert publish(alice, pack(version(2), key, "0.1.0"), key)
    bob = opened(place, tmp_path / "b")
    assert [entry.manifest.version for entry in read_index(bob)] == ["1", "2", "10"]
    assert fetch(bob, find(bob, "open-issues")).manifest.version == "10"
    assert fetch(bob, find(bob, "open-issues", "1")) == first
    with pytest.raises(SkillError, match="no version '3'"):
        find(bob, "open-issues", "3")
    with pytest.raises(SkillError, match="no skill 'other'"):
        find(bob, "other")
    with pytest.raises(SkillError, match="already, and differs"):
        publish(alice, pack(SKILL, key, "0.1.0"), key)
    mallory = SigningKey.of(tmp_path / "mallory")
    with pytest.raises(SkillError, match="another publisher's"):
        publish(alice, pack(version(11), mallory, "0.1.0"), mallory)


def test_what_many_publish_at_once_is_all_there(place: Path, tmp_path: Path, key: SigningKey) -> None:
    def one(number: int) -> bool:
        library = opened(place, tmp_path / f"cache{number}")
        return publish(library, pack(version(1, f"skill-{number}"), key, "0.1.0"), key)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(4)))
    library = opened(place, tmp_path / "reader")
    entries = read_index(library)
    assert [entry.manifest.name for entry in entries] == [f"skill-{number}" for number in range(4)]
    for entry in entries:
        fetch(library, entry)


def test_a_commit_that_came_second_is_made_again_on_top(tmp_path: Path, key: SigningKey, package: Package) -> None:
    place = bare(tmp_path / "library")
    seen: list[bytes | None] = []

    def edit(index: bytes | None) -> dict[str, bytes]:
        if not seen:
            publish(opened(place, tmp_path / "faster"), package, key)
        seen.append(index)
        return {"note.txt": b"mine"}

    opened(place, tmp_path / "slower").change(edit, "Add a note")
    assert [index is None for index in seen] == [True, False]
    reader = opened(place, tmp_path / "reader")
    assert reader.read("note.txt", 100) == b"mine"
    assert fetch(reader, find(reader, "open-issues")) == package


def test_any_changed_byte_of_a_library_is_noticed(tmp_path: Path, key: SigningKey, package: Package) -> None:
    library = opened(tmp_path, tmp_path)
    publish(library, package, key)
    publish(library, pack(version(1, "other"), key, "0.1.0"), key)
    random = Random(3)
    for path in (INDEX, "packages/open-issues-1.skill.zip"):
        whole = (tmp_path / path).read_bytes()
        for at in random.sample(range(len(whole)), 120):
            changed = bytearray(whole)
            changed[at] ^= 1 << random.randrange(8)
            (tmp_path / path).write_bytes(changed)
            with pytest.raises(PackageRefused):
                fetch(library, find(library, "open-issues"))
        (tmp_path / path).write_bytes(whole)
    fetch(library, find(library, "open-issues"))
    (tmp_path / "packages/open-issues-1.skill.zip").unlink()
    with pytest.raises(PackageRefused, match="is missing"):
        fetch(library, find(library, "open-issues"))


def test_a_tampered_git_library_is_noticed(tmp_path: Path, key: SigningKey, package: Package) -> None:
    place = bare(tmp_path / "library")
    publish(opened(place, tmp_path / "a"), package, key)
    work = tmp_path / "work"
    subprocess.run(["git", "clone", "-q", str(place), str(work)], check=True, env=ENV)
    file = work / "packages/open-issues-1.skill.zip"
    file.write_bytes(file.read_bytes().replace(b"Titles of", b"Stolen by"))
    mallory = ["git", "-C", str(work), "-c", "user.name=m", "-c", "user.email=m@m"]
    subprocess.run([*mallory, "commit", "-qam", "x"], check=True, env=ENV)
    subprocess.run([*mallory, "push", "-q"], check=True, env=ENV)
    bob = opened(place, tmp_path / "b")
    with pytest.raises(PackageRefused, match="was changed after it was published"):
        fetch(bob, find(bob, "open-issues"))


def test_nothing_of_a_repository_is_executed(tmp_path: Path, key: SigningKey, package: Package) -> None:
    place = bare(tmp_path / "library")
    publish(opened(place, tmp_path / "a"), package, key)
    flag = tmp_path / "executed"
    for hook in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "post-checkout"):
        (place / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {flag}\n")
        (place / "hooks" / hook).chmod(0o755)
    for setting in ("core.fsmonitor", "core.alternateRefsCommand", "core.sshCommand", "uploadpack.packObjectsHook"):
        subprocess.run(["git", "-C", str(place), "config", setting, f"touch {flag}"], check=True, env=ENV)
    subprocess.run(["git", "-C", str(place), "config", "core.hooksPath", str(place / "hooks")], check=True, env=ENV)
    (place / "objects/info/alternates").write_text(f"{bare(tmp_path / 'alternate')}/objects\n")
    publish(opened(place, tmp_path / "a"), pack(version(2), key, "0.1.0"), key)
    bob = opened(place, tmp_path / "b")
    fetch(bob, find(bob, "open-issues"))
    assert not flag.exists()


def test_only_folders_and_plain_addresses_are_libraries(tmp_path: Path) -> None:
    for location in (
        "ext::sh -c touch% /tmp/x",
        "--upload-pack=touch x",
        "fd::17",
        "http://example.org/x",
        "git://example.org/x",
        "https://me:secret@example.org/x",
        "-",
        "",
        "a\x1bb",
        str(tmp_path / "nothing"),
    ):
        with pytest.raises(SkillError):
            opened(location, tmp_path)
    for location in ("https://example.org/team/skills.git", "ssh://git@example.org/x", "git@example.org:team/x.git"):
        assert isinstance(opened(location, tmp_path), GitLibrary)


def test_a_repository_out_of_reach_is_read_from_the_last_copy(
    tmp_path: Path, key: SigningKey, package: Package
) -> None:
    place = bare(tmp_path / "library")
    publish(opened(place, tmp_path / "a"), package, key)
    bob = opened(place, tmp_path / "b")
    find(bob, "open-issues")
    again = opened(place, tmp_path / "b")
    place.rename(tmp_path / "away")
    assert isinstance(again, GitLibrary)
    assert fetch(again, find(again, "open-issues")) == package
    assert again.stale
    with pytest.raises(SkillError, match="Cannot use the library"):
        find(GitLibrary(str(place), tmp_path / "c", ENV), "open-issues")


def test_links_in_a_library_are_not_followed(tmp_path: Path, key: SigningKey, package: Package) -> None:
    outside, place = tmp_path / "outside", tmp_path / "library"
    outside.mkdir()
    place.mkdir()
    (place / "packages").symlink_to(outside)
    with pytest.raises(SkillError, match="links are not followed"):
        publish(opened(place, tmp_path), package, key)
    assert not any(outside.iterdir())
    assert not (place / INDEX).exists()
