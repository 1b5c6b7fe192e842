"""A library: signed packages and an index of them, in a folder or in a git repository.

    index.json                              every entry with the manifest, the package's hash and its own signature
    packages/my-skill-3.skill.zip

Nothing in it is believed. Every entry of the index is signed by its publisher, names the hash of its package and holds
its manifest; the package is signed by itself. So the place that keeps a library can lose packages, but not change one.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from toolfold.errors import PackageRefused, SkillError
from toolfold.locks import locked
from toolfold.skills.contained import ContainedFolder
from toolfold.skills.keys import verify
from toolfold.skills.package import LONGEST_ARCHIVE, SUFFIX, Manifest, Package, canonical, check_manifest, unpack

if TYPE_CHECKING:
    from toolfold.skills.keys import SigningKey

INDEX = "index.json"
FORMAT = 1
LONGEST_INDEX = 50_000_000
Edit = Callable[[bytes | None], Mapping[str, bytes]]
"""From the index as it is to the files that are to be written; nothing to write changes nothing."""


class Library(Protocol):
    location: str

    def read(self, path: str, limit: int) -> bytes | None:
        """A file of it; None where there is none."""
        ...

    def change(self, edit: Edit, message: str) -> None:
        """Write files all at once, with nobody else's change in between."""
        ...


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifest: Manifest
    sha256: str
    """Of the package."""
    signature: str
    """The publisher's, of the two, in base64."""

    @property
    def order(self) -> tuple[str, tuple[int, ...]]:
        return self.manifest.name, version_key(self.manifest.version)


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skills: tuple[Entry, ...]
    format: int = FORMAT


_decode = msgspec.json.Decoder(_Index)


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def read_index(library: Library) -> tuple[Entry, ...]:
    """All entries by name and version, each of them checked."""
    data = library.read(INDEX, LONGEST_INDEX)
    if data is None:
        raise SkillError(
            f"{library.location} is no library of skills: it has no {INDEX}.",
            hint="`toolfold skills publish NAME --library …` starts one.",
        )
    return _entries(data)


def find(library: Library, name: str, version: str = "", index: Sequence[Entry] | None = None) -> Entry:
    """The entry of a skill: its newest version unless one is asked for. `index` is the library's, if it is at hand."""
    there = read_index(library) if index is None else index
    entries = [entry for entry in there if entry.manifest.name == name]
    if not entries:
        raise SkillError(f"{library.location} has no skill {name!r}.")
    chosen = [entry for entry in entries if not version or entry.manifest.version == version]
    if not chosen:
        versions = ", ".join(entry.manifest.version for entry in entries)
        raise SkillError(f"{library.location} has no version {version!r} of {name}; there is {versions}.")
    return chosen[-1]


def fetch(library: Library, entry: Entry) -> Package:
    """The package of an entry: the very one that its publisher put there."""
    path = _path(entry.manifest)
    data = library.read(path, LONGEST_ARCHIVE)
    if data is None:
        raise PackageRefused(f"{path} is missing in {library.location}, although its index names it.")
    if sha256(data).hexdigest() != entry.sha256:
        raise PackageRefused(
            f"{path} in {library.location} was changed after it was published: its hash is not that of the index.",
            hint="Do not use it, and tell the publisher.",
        )
    package = unpack(data)
    if package.manifest != entry.manifest:
        raise PackageRefused(f"{path} in {library.location} is not the package that its index describes.")
    return package


def publish(library: Library, package: Package, key: SigningKey) -> bool:
    """Put a package into a library; False where it is there already."""
    manifest, added = package.manifest, True

    def edit(index: bytes | None) -> Mapping[str, bytes]:
        nonlocal added
        entries = list(_entries(index)) if index is not None else []
        for entry in entries:
            if entry.manifest.name == manifest.name and entry.manifest.publisher != manifest.publisher:
                raise SkillError(
                    f"{manifest.name} in {library.location} is another publisher's ({entry.manifest.publisher}).",
                    hint="Publish it under another name.",
                )
            if entry.order == (manifest.name, version_key(manifest.version)):
                if entry.sha256 != package.sha256:
                    raise SkillError(
                        f"Version {manifest.version} of {manifest.name} is in {library.location} already, and differs.",
                        hint="A version never changes. Save the skill again for a new version, then publish that.",
                    )
                added = False
                return {}
        signature = key.sign(_signed(manifest, package.sha256))
        entries.append(Entry(manifest, package.sha256, base64.b64encode(signature).decode()))
        added = True
        return {_path(manifest): package.data, INDEX: _encode(entries)}

    library.change(edit, f"Publish {manifest.name} {manifest.version}")
    return added


class FolderLibrary:
    """A library in a folder, which may be on a shared disk or the work tree of a repository."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder)
        self._folder = ContainedFolder(folder)

    def read(self, path: str, limit: int) -> bytes | None:
        return self._folder.read(path, limit)

    def change(self, edit: Edit, message: str) -> None:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self._folder.path / ".lock", mode=0o666))
            except OSError as error:
                raise SkillError(f"Cannot write into {self.location}: {error.strerror}.") from None
            for path, content in edit(self.read(INDEX, LONGEST_INDEX)).items():
                self._folder.write(path, content)  # the index comes last: what it names is there


def _path(manifest: Manifest) -> str:
    return f"packages/{manifest.name}-{manifest.version}{SUFFIX}"


def _signed(manifest: Manifest, package: str) -> bytes:
    return b"toolfold library entry\n" + canonical.encode([manifest, package])


def _encode(entries: list[Entry]) -> bytes:
    index = _Index(tuple(sorted(entries, key=lambda entry: entry.order)))
    return msgspec.json.format(canonical.encode(index), indent=1) + b"\n"


def _entries(data: bytes) -> tuple[Entry, ...]:
    try:
        index = _decode.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PackageRefused(f"The library's {INDEX} cannot be read: {error}.") from None
    if index.format != FORMAT:
        raise PackageRefused(f"The library has format {index.format}; this Toolfold reads {FORMAT}.")
    for entry in index.skills:
        check_manifest(entry.manifest)
        try:
            signature = base64.b64decode(entry.signature, validate=True)
        except (ValueError, binascii.Error):
            signature = b""
        if not verify(entry.manifest.publisher, _signed(entry.manifest, entry.sha256), signature):
            raise PackageRefused(
                f"The library's entry of {entry.manifest.name} {entry.manifest.version} was changed: its signature is "
                "wrong.",
                hint=f"Restore {INDEX} from a copy, or ask the publisher to publish the skill again.",
            )
    if _encode(list(index.skills)) != data or len({entry.order for entry in index.skills}) != len(index.skills):
        raise PackageRefused(f"The library's {INDEX} was changed by something else than Toolfold.")
    return index.skills
