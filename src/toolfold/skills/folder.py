"""One skill on disk, in the open Agent Skills layout:

    sales-report/
        SKILL.md        front matter (name, description, metadata: version, tags, provenance), then Markdown
        skill.py        the function `sales_report`; skills of other tools may have none
        scripts/, references/, assets/, …   further files, kept as they are

Reading follows no links and opens nothing but regular files. Writing is all or nothing, and durable once it returns.
Fields of the front matter that we do not know are kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from toolfold.errors import SkillError
from toolfold.skills.names import check_folder_name, module_name

MAX_DESCRIPTION = 1024
MAX_TEXT = 256 * 1024
"""Bytes of SKILL.md, and of skill.py."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of all files of one skill."""
MAX_FILES = 500
MAX_DEPTH = 8
MAX_TAGS = 32
MAX_TAG = 64
TEMPORARY = ".tmp-"
"""How the name of a folder begins that is being written; one that a crash left behind may be deleted."""
_PROVENANCE = "toolfold-"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NOT_OURS = frozenset({".git", "__pycache__", ".DS_Store"})
"""What other programs leave in a folder; it is no part of the skill."""


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A saved function with its document. It is checked when made: an invalid one is a SkillError."""

    name: str
    """The Agent Skills name, with hyphens: that of the folder."""
    description: str
    source: str = ""
    """The text of skill.py; empty for a skill that has instructions only."""
    body: str = ""
    """The Markdown after the front matter: usage, inputs and outputs."""
    tags: tuple[str, ...] = ()
    version: int = 1
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where it comes from: `created`, `author`, `session`, `run`, …"""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All other front matter: `license`, `compatibility`, `allowed-tools`, `metadata` of others, …"""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Further files by their path with slashes: `references/forms.md`."""

    def __post_init__(self) -> None:
        check_folder_name(self.name)
        _check_description(self.description)
        _check_tags(self.tags)
        if self.version < 1:
            raise SkillError(f"invalid version {self.version}: versions count from 1")
        for what, text in (("skill.py", self.source), ("SKILL.md", self.body)):
            if "\x00" in text:
                raise SkillError(f"{what} has a NUL character")
            if len(text) > MAX_TEXT or len(_encoded(text, what)) > MAX_TEXT:
                raise SkillError(f"{what} is larger than the {MAX_TEXT:,} bytes that are allowed")
        if len(self.files) > MAX_FILES:
            raise SkillError(f"the skill has {len(self.files):,} files; at most {MAX_FILES} are allowed")
        if sum(map(len, self.files.values())) > MAX_BYTES:
            raise SkillError(f"the skill's files are larger than the {MAX_BYTES:,} bytes that are allowed")
        for path in self.files:
            _check_path(path)

    @property
    def module(self) -> str:
        """What programs import, and the name of the function."""
        return module_name(self.name)

    @property
    def digest(self) -> str:
        """SHA-256 over everything that a user of the skill gets: not its version, nor its provenance."""
        whole = hashlib.sha256()
        parts = [self.name, self.description, self.source, self.body, "\n".join(self.tags), repr(_stable(self.fields))]
        for part in parts + [text for path in sorted(self.files) for text in (path, _sha256(self.files[path]))]:
            whole.update(f"{len(part)}:{part}".encode())
        return whole.hexdigest()


def read_skill(folder: Path) -> Skill:
    """The skill in `folder`, whose name is the skill's. SkillError where it is none, or one that cannot be trusted."""
    try:
        files = dict(_files(folder))
    except OSError as error:
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        reason = "there is no such folder" if missing else error.strerror or str(error)
        raise SkillError(f"cannot read the skill {folder.name!r}: {reason}") from None
    except SkillError as error:
        raise SkillError(f"cannot read the skill {folder.name!r}: {error.message}") from None
    return skill_of_files(folder.name, files)


def skill_of_files(name: str, files: Mapping[str, bytes]) -> Skill:
    """A skill from its files by their paths in the folder `name`, as `read_skill` and packages have them."""
    from toolfold.skills import front_matter  # with YAML: only where one is read

    files = dict(files)
    if "SKILL.md" not in files:
        raise SkillError(f"the skill {name!r} has no SKILL.md")
    try:
        fields, body = front_matter.split(_text(files.pop("SKILL.md"), "SKILL.md"))
        source = _text(files.pop("skill.py", b""), "skill.py").removeprefix("\ufeff")
        if (own := fields.pop("name", None)) != name:
            raise SkillError(f"its SKILL.md has the name {own!r}; it must be that of the folder")
        others = {str(key): value for key, value in _mapping(fields.pop("metadata", None)).items()}
        tags = _tags(others.pop("tags", None)) or _tags(fields.pop("tags", None))
        version = str(others.pop("version", "1"))
        provenance = {key: str(others.pop(key)) for key in list(others) if key.startswith(_PROVENANCE)}
        if not version.isdecimal() or not 0 < len(version) < 10 or int(version) < 1:
            others["version"], version = version, "1"  # "1.0" is a version of its author's counting
        if others:
            fields["metadata"] = others
        description = fields.pop("description", "")
        return Skill(
            name=name,
            description=" ".join(description.split()) if isinstance(description, str) else "",
            source=source,
            body=body,
            tags=tags,
            version=int(version),
            provenance={key.removeprefix(_PROVENANCE): value for key, value in provenance.items()},
            fields=fields,
            files=files,
        )
    except SkillError as error:
        raise SkillError(f"cannot read the skill {name!r}: {error.message}", hint=error.hint) from None


def files_of_skill(skill: Skill) -> dict[str, bytes]:
    """The files of a skill's folder, by path: the same skill gives the same bytes."""
    from toolfold.skills import front_matter

    fields = dict(skill.fields)
    metadata = dict(_mapping(fields.pop("metadata", None)))
    if "version" not in metadata:
        metadata["version"] = str(skill.version)
    if skill.tags:
        metadata["tags"] = ", ".join(skill.tags)
    metadata |= {f"{_PROVENANCE}{key}": value for key, value in skill.provenance.items()}
    text = front_matter.join(
        {"name": skill.name, "description": skill.description, **fields, "metadata": metadata}, skill.body
    )
    files = {"SKILL.md": _encoded(text, "SKILL.md")}
    if skill.source:
        files["skill.py"] = _encoded(skill.source, "skill.py")
    return files | dict(skill.files)


def write_skill(skill: Skill, folder: Path) -> None:
    """Write the skill as `folder`, whose name must be the skill's, in place of what is there.

    Another process sees the old skill or the new one, never a mixture; after a crash it is one of the two. SkillError
    where the disk is full or the folder cannot be written; then nothing has changed.
    """
    if folder.name != skill.name:
        raise SkillError(f"the skill {skill.name!r} cannot be written as {folder.name!r}")
    files = files_of_skill(skill)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        _write_files(aside, files)
        replace_folder(aside, folder)
    except OSError as error:
        raise SkillError(f"cannot write the skill {skill.name!r}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def replace_folder(new: Path, folder: Path) -> None:
    """Rename `new` to `folder` durably; what was there is then at `new`, if anything was.

    Where the system cannot exchange two folders at once, a crash in between leaves the old one at `new`'s side as
    `.old-NAME`, and `restore_folders` puts it back.
    """
    if not os.path.lexists(folder):
        new.rename(folder)
    elif not _exchange(new, folder):
        old = folder.parent / f".old-{folder.name}"
        folder.rename(old)
        new.rename(folder)
        old.rename(new)
    sync_folder(folder.parent)


def restore_folders(parent: Path) -> None:
    """Undo what a crash left half done among the skills in `parent`. Nobody else may be writing there."""
    for path in list(parent.iterdir()):
        if path.name.startswith(TEMPORARY):
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(".old-"):
            folder = parent / path.name.removeprefix(".old-")
            if folder.exists():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.rename(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    folders = {folder}
    for path, data in files.items():
        target = folder.joinpath(*path.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        folders |= {parent for parent in target.parents if parent.is_relative_to(folder)}
        with target.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    for each in folders:
        sync_folder(each)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once (Linux's renameat2). False where that is not to be had."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    at_here, exchange = -100, 2
    if rename(at_here, os.fsencode(first), at_here, os.fsencode(second), exchange) == 0:
        return True
    if (code := ctypes.get_errno()) in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}:
        return False
    raise OSError(code, os.strerror(code), str(second))


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file by its path, read by descriptors so that no link put there meanwhile leads out."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    left = MAX_BYTES + 2 * MAX_TEXT
    count = 0

    def walk(here: int, prefix: str, depth: int) -> Iterator[tuple[str, bytes]]:
        nonlocal left, count
        if depth > MAX_DEPTH:
            raise SkillError(f"its folders are nested deeper than {MAX_DEPTH}")
        with os.scandir(here) as found:
            names = [entry.name for _, entry in zip(range(MAX_FILES + 1), found, strict=False)]
        for name in sorted(set(names) - _NOT_OURS):
            path = f"{prefix}{name}"
            _check_path(path)
            try:
                descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=here)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.EMLINK, errno.ENXIO}:
                    raise SkillError(f"{path!r} is not a regular file; links are not followed") from None
                raise
            try:
                mode = os.fstat(descriptor).st_mode
                if stat.S_ISDIR(mode):
                    yield from walk(descriptor, f"{path}/", depth + 1)
                    continue
                if not stat.S_ISREG(mode):
                    raise SkillError(f"{path!r} is not a regular file")
                count += 1
                if count > MAX_FILES:
                    raise SkillError(f"it has more than the {MAX_FILES} files that are allowed")
                allowed = min(left, MAX_TEXT if path in {"SKILL.md", "skill.py"} else MAX_BYTES)
                data = _read(descriptor, allowed + 1)
                if len(data) > allowed:
                    raise SkillError(f"{path!r} is larger than is allowed ({allowed:,} bytes)")
                left -= len(data)
                yield path, data
            finally:
                os.close(descriptor)

    top = os.open(folder, flags | os.O_DIRECTORY)
    try:
        yield from walk(top, "", 0)
    finally:
        os.close(top)


def _read(descriptor: int, size: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(size)


def _text(data: bytes, what: str) -> str:
    if len(data) > MAX_TEXT:
        raise SkillError(f"{what} is larger than the {MAX_TEXT:,} bytes that are allowed")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SkillError(f"{what} is not UTF-8 (at byte {error.start})") from None


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SkillError(f"{what} has a character that cannot be written (half of a surrogate pair)") from None


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(parts) > MAX_DEPTH + 1 or len(path) > 512 or str(PurePosixPath(path)) != path or path.startswith("/"):
        raise SkillError(f"invalid path {path[:80]!r} in the skill")
    if any(part in {"", ".", ".."} or _CONTROL.search(part) or "\\" in part for part in parts):
        raise SkillError(f"invalid path {path[:80]!r} in the skill")
    _encoded(path, "a path")


def _check_description(text: str) -> None:
    if not text.strip():
        raise SkillError("the skill has no description: one line that says what it does and when to use it")
    if len(text) > MAX_DESCRIPTION:
        raise SkillError(f"the description has {len(text):,} characters; at most {MAX_DESCRIPTION:,} are allowed")
    if "\n" in text or _CONTROL.search(text):
        raise SkillError("the description must be one line of text")
    _encoded(text, "the description")


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > MAX_TAGS:
        raise SkillError(f"the skill has {len(tags):,} tags; at most {MAX_TAGS} are allowed")
    for tag in tags:
        if not tag.strip() or len(tag) > MAX_TAG or "," in tag or "\n" in tag or _CONTROL.search(tag):
            raise SkillError(f"invalid tag {tag[:80]!r}: a tag is up to {MAX_TAG} characters without commas")
        _encoded(tag, "a tag")


def _tags(value: Any) -> tuple[str, ...]:
    """Tags as others write them: a list, or one text with commas or spaces."""
    if isinstance(value, str):
        value = value.strip().strip("[]")
        value = value.split(",") if "," in value else value.split()
    if not isinstance(value, list | tuple):
        return ()
    words = [str(item).strip() for item in cast(list[Any], value)]
    return tuple(dict.fromkeys(word for word in words if word))


def _mapping(value: Any) -> Mapping[Any, Any]:
    return cast(Mapping[Any, Any], value) if isinstance(value, Mapping) else {}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stable(value: Any) -> Any:
    """The same data in one order."""
    if isinstance(value, Mapping):
        return sorted((str(key), _stable(item)) for key, item in _mapping(value).items())
    return value
