"""One skill as one file that can be checked: the files of its folder, a manifest with their hashes, a signature.

    my-skill/.toolfold/manifest.json    name, version, hash of every file, tools and skills that it needs, publisher
    my-skill/.toolfold/signature        the publisher's Ed25519 signature of the manifest
    my-skill/SKILL.md                   the skill itself, as other agents read it too
    my-skill/skill.py

It is a zip archive without compression, so that it has exactly one form: the same skill gives the same bytes, and an
archive that is not in that form is refused. No byte of it can be changed without being noticed.
"""

from __future__ import annotations

import io
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from toolfold.errors import PackageRefused
from toolfold.skills.folder import MAX_BYTES, MAX_DEPTH, MAX_FILES, MAX_TEXT, Skill, files_of_skill, skill_of_files
from toolfold.skills.names import MAX_NAME
from toolfold.skills.needs import needs_of, requirements_of

if TYPE_CHECKING:
    from toolfold.skills.keys import SigningKey

FORMAT = 1
SUFFIX = ".skill.zip"
_OWN = ".toolfold"
_MANIFEST, _SIGNATURE = f"{_OWN}/manifest.json", f"{_OWN}/signature"
_LONGEST_MANIFEST = 200_000
_LONGEST = MAX_BYTES + 2 * MAX_TEXT
LONGEST_ARCHIVE = _LONGEST + 1_000_000
_MOST_FILES = MAX_FILES + 2
_LONGEST_PATH = 240
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,3}")
_BAD = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_EPOCH = (1980, 1, 1, 0, 0, 0)
_IS_LINK, _KIND = 0o120000, 0o170000
_UNPACKED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
canonical = msgspec.json.Encoder(order="sorted")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a publisher signs."""

    name: str
    """With hyphens, as the folder is called."""
    version: str
    description: str
    files: dict[str, str]
    """Path inside the folder → SHA-256 of the content."""
    publisher: str
    """The public key, as `ed25519:…`."""
    tags: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """What the code calls, as `server.tool` in the names of the typed API."""
    requires: dict[str, str] = {}
    """Version ranges of Toolfold, Python and other skills: `{"toolfold": ">=0.1", "other-skill": ">=2 <4"}`."""
    format: int = FORMAT


@dataclass(frozen=True)
class Package:
    manifest: Manifest
    files: dict[str, bytes]
    data: bytes
    """The archive itself."""

    @property
    def skill(self) -> Skill:
        return skill_of_files(self.manifest.name, self.files)

    @property
    def sha256(self) -> str:
        return sha256(self.data).hexdigest()


_decode = msgspec.json.Decoder(Manifest)


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: sha256(content).hexdigest() for path, content in sorted(files.items())}


def pack(skill: Skill, key: SigningKey, toolfold: str) -> Package:
    """The signed package of a skill. `toolfold` is the version of Toolfold that it was made with."""
    files = files_of_skill(skill)
    needs = needs_of(skill.source)
    requires = {"toolfold": f">={'.'.join(toolfold.split('.')[:2])}"}
    requires |= {module.replace("_", "-"): "" for module in needs.skills} | requirements_of(skill)
    manifest = Manifest(
        name=skill.name,
        version=str(skill.version),
        description=skill.description,
        tags=skill.tags,
        files=_hashes(files),
        publisher=key.public,
        tools=needs.tools,
        requires=requires,
    )
    check_files(files)
    check_manifest(manifest)
    signed = canonical.encode(manifest)
    return Package(manifest, files, _archive(manifest.name, signed, key.sign(_signed(signed)), files))


def unpack(data: bytes) -> Package:
    """A package whose signature, hashes and form are right. Whose key it is, is for the caller to judge."""
    from toolfold.skills.keys import verify

    contents = read_archive(data)
    root = next(iter(contents), "").partition("/")[0]
    if not contents or any(path.partition("/")[0] != root for path in contents):
        raise PackageRefused("The package does not hold one folder.")
    files = {path.partition("/")[2]: content for path, content in contents.items()}
    signed, signature = files.pop(_MANIFEST, b""), files.pop(_SIGNATURE, b"")
    if not signed or not signature:
        raise PackageRefused("The package is not signed.")
    if len(signed) > _LONGEST_MANIFEST:
        raise PackageRefused("The manifest of the package is too long.")
    manifest = _read_manifest(signed)
    if manifest.name != root:
        raise PackageRefused(f"The package's folder is {root!r}, but its manifest is of {manifest.name!r}.")
    if not verify(manifest.publisher, _signed(signed), signature):
        raise PackageRefused("The signature of the package is wrong: it was changed after it was signed.")
    check_files(files)
    check_manifest(manifest)
    _check_hashes(manifest, files)
    if _archive(root, signed, signature, files) != data:
        raise PackageRefused("The package was changed after it was made: it is not in the form that Toolfold writes.")
    return Package(manifest, files, data)


def is_signed(data: bytes) -> bool:
    """Whether an archive claims to be a package of ours; others are plain skill folders."""
    return any(path.endswith(f"/{_MANIFEST}") or path == _MANIFEST for path in read_archive(data))


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files of a zip archive by path. Names that lead elsewhere, links and bombs are refused."""
    if len(data) > LONGEST_ARCHIVE:
        raise PackageRefused(f"The archive has {len(data):,} bytes; at most {LONGEST_ARCHIVE:,} are allowed.")
    files: dict[str, bytes] = {}
    room = LONGEST_ARCHIVE
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > _MOST_FILES + 2:
                raise PackageRefused(f"The archive has {len(entries):,} files; at most {_MOST_FILES} are allowed.")
            for entry in entries:
                if entry.filename in files:
                    raise PackageRefused(f"The archive has {entry.filename!r} twice.")
                check_path(entry.filename)
                if entry.external_attr >> 16 & _KIND == _IS_LINK:
                    raise PackageRefused(f"{entry.filename!r} in the archive is a link.")
                if entry.flag_bits & 1 or entry.compress_type not in _UNPACKED:
                    raise PackageRefused(f"{entry.filename!r} in the archive is encrypted or compressed unusually.")
                with archive.open(entry) as file:
                    files[entry.filename] = content = file.read(room + 1)
                room -= len(content)
                if room < 0:
                    raise PackageRefused("The files in the archive are larger than is allowed.")
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError) as error:
        raise PackageRefused(f"This is no skill package, or it is damaged: {error}.") from None
    return files


def skill_in(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Of an archive's files, those of the one skill folder: what lies beside or below its SKILL.md."""
    found = [path for path in files if path.rpartition("/")[2] == "SKILL.md"]
    if not found:
        raise PackageRefused("There is no SKILL.md in the archive.", hint="A skill is a folder with a SKILL.md.")
    top = min(found, key=lambda path: path.count("/"))
    if sum(path.count("/") == top.count("/") for path in found) > 1:
        raise PackageRefused("There is more than one skill in the archive.", hint="Import one skill at a time.")
    folder = top.removesuffix("SKILL.md")
    return {path.removeprefix(folder): content for path, content in files.items() if path.startswith(folder)}


def check_path(path: str) -> None:
    """That a path stays inside the folder that it is meant for, on any system."""
    parts = path.split("/")
    wrong = (
        not path
        or len(path.encode("utf-8", "surrogatepass")) > _LONGEST_PATH
        or len(parts) > MAX_DEPTH + 1
        or _BAD.search(path) is not None
        or not path.isprintable()
        or unicodedata.normalize("NFC", path) != path
        or any(part in {"", ".", ".."} or part != part.strip() or part.endswith(".") for part in parts)
    )
    if wrong:
        shown = path if len(path) < 80 else f"{path[:77]}…"
        raise PackageRefused(f"{shown!r} cannot be the path of a file in a skill.")


def check_files(files: Mapping[str, bytes]) -> None:
    """That these can be the files of one skill, on systems that do not tell `a` from `A` too."""
    if "SKILL.md" not in files:
        raise PackageRefused("There is no SKILL.md.", hint="A skill is a folder with a SKILL.md.")
    if len(files) > _MOST_FILES:
        raise PackageRefused(f"The skill has {len(files):,} files; at most {_MOST_FILES} are allowed.")
    size = sum(map(len, files.values()))
    if size > _LONGEST:
        raise PackageRefused(f"The skill has {size:,} bytes; at most {_LONGEST:,} are allowed.")
    spelled: dict[str, str] = {}
    for path in files:
        check_path(path)
        if path.partition("/")[0].casefold() == _OWN:
            raise PackageRefused(f"{path!r} is where a package keeps its manifest.")
        for end in [at for at, c in enumerate(path) if c == "/"] + [len(path)]:
            # A folder is spelled with its slash: it differs from a file of its name.
            spelling = path[: end + 1]
            if spelled.setdefault(path[:end].casefold(), spelling) != spelling:
                raise PackageRefused(f"{path!r} and another file of the skill would have one place on some systems.")


def check_manifest(manifest: Manifest) -> None:
    if manifest.format != FORMAT:
        raise PackageRefused(
            f"The package has format {manifest.format}; this Toolfold reads format {FORMAT}.",
            hint="Install a newer Toolfold.",
        )
    if len(manifest.name) > MAX_NAME or not _NAME.fullmatch(manifest.name):
        raise PackageRefused(f"{manifest.name[:80]!r} cannot be the name of a skill.")
    if not _VERSION.fullmatch(manifest.version):
        raise PackageRefused(f"{manifest.version[:80]!r} is no version.")


def _check_hashes(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    actual = _hashes(files)
    if manifest.files != actual:
        wrong = sorted(path for path in {*manifest.files, *actual} if manifest.files.get(path) != actual.get(path))
        raise PackageRefused(f"The package's files are not those that were signed: {', '.join(wrong[:5])}.")


def _read_manifest(signed: bytes) -> Manifest:
    try:
        manifest = _decode.decode(signed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PackageRefused(f"The manifest of the package cannot be read: {error}.") from None
    if canonical.encode(manifest) != signed:
        raise PackageRefused("The manifest of the package is not in the form that Toolfold writes.")
    return manifest


def _signed(manifest: bytes) -> bytes:
    """What the signature is of: nothing else that the key ever signs begins like this."""
    return b"toolfold skill package\n" + manifest


def _archive(name: str, manifest: bytes, signature: bytes, files: Mapping[str, bytes]) -> bytes:
    contents = {**files, _MANIFEST: manifest, _SIGNATURE: signature}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(contents):
            entry = zipfile.ZipInfo(f"{name}/{path}", _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, contents[path])
    return written.getvalue()
