"""The container image: our runtime's root folder, imported once into the engine. No registry is asked for anything."""

from __future__ import annotations

import asyncio
import os
import tarfile
from pathlib import Path

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.engine import Engine
from toolfold.sandbox.runtime import Runtime

_IMPORT_SECONDS = 300.0
_LABEL = "toolfold.runtime"


async def import_runtime(engine: Engine, runtime: Runtime) -> str:
    """The id of the image made from `runtime`, imported if the engine does not have it yet."""
    name = f"toolfold-runtime:{runtime.root.name}"
    known = await find_image(engine, name)
    if known is not None:
        return known
    read, write = os.pipe()
    packing = asyncio.create_task(asyncio.to_thread(_pack, runtime.root, write))
    change = ["--change", f"LABEL {_LABEL}={runtime.root.name}"]
    try:
        told = await engine.do("import", *change, "-", name, seconds=_IMPORT_SECONDS, source=read)
    finally:
        os.close(read)  # a packer whose reader is gone ends with a broken pipe
        await asyncio.wait([packing])
    if packing.exception() is not None:
        raise SandboxUnavailable(f"the image could not be packed: {packing.exception()}.")
    return await find_image(engine, name) or told.split()[-1]


async def find_image(engine: Engine, name: str) -> str | None:
    """An image's id, which unlike its name nobody can point elsewhere later."""
    try:
        return (await engine.do("image", "inspect", "--format", "{{.Id}}", name)).strip() or None
    except SandboxUnavailable:
        return None


def _pack(root: Path, target: int) -> None:
    """A tar of the folder, owned by nobody in particular and readable by whoever runs inside."""

    def readable(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode |= 0o555 if member.isdir() else 0o444
        return member

    with os.fdopen(target, "wb") as file, tarfile.open(fileobj=file, mode="w|", bufsize=1 << 18) as archive:
        archive.add(root, arcname=".", filter=readable)
