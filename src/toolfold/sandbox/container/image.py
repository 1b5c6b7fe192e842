"""The container image: our runtime's root folder, imported once into the engine, or an image that a person names.

No registry is asked for anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.container.engine import ContainerEngine
from toolfold.sandbox.protocol import GUEST_HOME, Log, no_log
from toolfold.sandbox.runtime import Runtime

_IMPORT_SECONDS = 300.0
_FORMAT = 2
"""Goes up when the same folder is packed in another way."""
_LABEL = "toolfold.runtime"
_KEPT = 4
_GUEST = Path(__file__).parents[1] / "guest"
_FLAGS = ("-I", "-B", "-X", "utf8")


@dataclass(frozen=True)
class Image:
    """`id` is the image's own, which unlike its name cannot be moved to another image later."""

    id: str
    python: tuple[str, ...]
    """The interpreter inside, and its options."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    has_guest: bool = True

    def mounts(self, home: Path, *, shared: bool = False) -> list[tuple[Path, str]]:
        """What an image that is not ours lacks: the guest, and a home folder that shows the API."""
        if self.has_guest:
            return []
        folder = home / ("home-shared" if shared else "home")
        for name in ("skills", "workspace", *(["shared"] if shared else [])):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / "servers").is_symlink():
            (folder / "servers").symlink_to("/opt/api/servers")
        return [(_GUEST, "/opt/toolfold"), (folder, GUEST_HOME)]


async def import_runtime(engine: ContainerEngine, runtime: Runtime, log: Log = no_log) -> Image:
    """The image made from `runtime`, imported if the engine does not have it yet."""
    name = f"toolfold-runtime:{runtime.root.name}-{_FORMAT}"
    found = await _find_id(engine, name)
    if found is None:
        log(f"Making {engine.name}'s image from this Python (once).")
        found = await _import(engine, runtime.root, name)
    return Image(found, (runtime.python, "-S", *_FLAGS), {"LD_LIBRARY_PATH": runtime.library_path})


async def find_image(engine: ContainerEngine, name: str) -> Image | None:
    """An image with a Python of its own, and that Python's packages, as the engine has it."""
    found = await _find_id(engine, name)
    return Image(found, ("python3", *_FLAGS), has_guest=False) if found is not None else None


async def _import(engine: ContainerEngine, root: Path, name: str) -> str:
    read, write = os.pipe()
    packing = asyncio.create_task(asyncio.to_thread(_pack, root, write))
    change = ["--change", f"LABEL {_LABEL}={root.name}"]
    try:
        told = await engine.do("import", *change, "-", name, seconds=_IMPORT_SECONDS, source=read)
    finally:
        os.close(read)  # a packer whose reader is gone ends with a broken pipe
        await asyncio.wait([packing])
    if packing.exception() is not None:
        raise SandboxUnavailable(f"the image could not be packed: {packing.exception()}.")
    await _drop_old(engine)
    return await _find_id(engine, name) or told.split()[-1]


async def _drop_old(engine: ContainerEngine) -> None:
    """Other Pythons and versions of Toolfold have images of their own; of those only the newest are kept."""
    listed = (await engine.do("images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"label={_LABEL}")).split()
    for name in listed[_KEPT:]:
        with contextlib.suppress(SandboxUnavailable):  # one that is in use stays
            await engine.do("rmi", name)


async def _find_id(engine: ContainerEngine, name: str) -> str | None:
    try:
        return (await engine.do("image", "inspect", "--format", "{{.Id}}", name)).strip() or None
    except SandboxUnavailable:
        return None


def _pack(root: Path, target: int) -> None:
    """A tar of the folder, owned by no particular user and readable by every user inside."""

    def readable(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode |= 0o555 if member.isdir() else 0o444
        if member.name == "./tmp":  # engines give what is mounted there the rights of what was there before
            member.mode = 0o1777
        return member

    with os.fdopen(target, "wb") as file, tarfile.open(fileobj=file, mode="w|", bufsize=1 << 18) as archive:
        archive.add(root, arcname=".", filter=readable)
