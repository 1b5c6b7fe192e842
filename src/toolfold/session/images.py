"""Images that a program shows to the model: looked at here, never believed, and scaled where they are too large.

What an image is follows from its first bytes. It is decoded only to scale it, in a process of its own with limits.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

from toolfold.errors import ValueRefused
from toolfold.guards.events import Image

LONGEST_SIDE = 1568
"""Pixels beyond which models scale an image down themselves: more cost time and show nothing."""
_LONGEST_SIDE_UNSCALED = 4096
_MOST_BYTES_UNSCALED = 3_000_000
_MOST_BYTES = 1_000_000
_MOST_BYTES_OF_RUN = 8_000_000
_MOST_PIXELS = 50_000_000
_SCALING_SECONDS = 20.0
_SCALER = Path(__file__).with_name("scaler.py")
_INSTALL = "Make it smaller, or install `toolfold[images]` where Toolfold runs: then it is scaled."


class Kind(NamedTuple):
    mime_type: str
    width: int
    height: int


class Images:
    """Those of one run."""

    def __init__(self, most: int, refusal: str = "") -> None:
        """`refusal` says why there may be none, where that is so."""
        self._most = most
        self._refusal = refusal
        self._adding = asyncio.Lock()
        self.shown: list[Image] = []

    async def add(self, data: str, name: str) -> dict[str, Any]:
        """Take an image, in base64, or raise ValueRefused."""
        async with self._adding:
            if self._refusal:
                raise ValueRefused(self._refusal)
            if len(self.shown) >= self._most:
                message = f"One run shows at most {self._most} images (`sandbox.images` in the settings)."
                raise ValueRefused(message, hint="Put several plots on one figure, or show the rest in the next run.")
            image = await self._checked(data, name)
            if sum(len(each.data) for each in self.shown) + len(image.data) > _MOST_BYTES_OF_RUN:
                raise ValueRefused(f"The images of one run take at most {_MOST_BYTES_OF_RUN:,} bytes.")
            self.shown.append(image)
            return {"mime_type": image.mime_type, "width": image.width, "height": image.height}

    async def _checked(self, text: str, name: str) -> Image:
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueRefused("The bytes did not arrive as base64.") from None
        kind = look_at(data)
        if kind is None:
            raise ValueRefused("This is no PNG, JPEG, GIF or WebP image.", hint="Save it as PNG first.")
        if kind.width * kind.height > _MOST_PIXELS:
            message = f"The image has {kind.width} × {kind.height} pixels; at most {_MOST_PIXELS:,}."
            raise ValueRefused(message, hint="Make it smaller.")
        is_large = max(kind.width, kind.height) > LONGEST_SIDE or len(data) > _MOST_BYTES
        if is_large and importlib.util.find_spec("PIL") is not None:
            data = await _scaled(data)
            kind = look_at(data)
            if kind is None:
                raise ValueRefused("The image could not be scaled.", hint="Save it as PNG, and smaller.")
        if len(data) > _MOST_BYTES_UNSCALED or max(kind.width, kind.height) > _LONGEST_SIDE_UNSCALED:
            size = f"{kind.width} × {kind.height} pixels and {len(data):,} bytes"
            most = f"{_LONGEST_SIDE_UNSCALED} pixels a side and {_MOST_BYTES_UNSCALED:,} bytes"
            raise ValueRefused(f"The image has {size}; at most {most}.", hint=_INSTALL)
        return Image(data=data, mime_type=kind.mime_type, width=kind.width, height=kind.height, name=name)


async def _scaled(data: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_SCALER),
        str(LONGEST_SIDE),
        str(_MOST_BYTES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(_SCALING_SECONDS):
            scaled, _ = await process.communicate(data)
    except TimeoutError:
        raise ValueRefused(f"The image could not be scaled within {_SCALING_SECONDS:.0f} s.", hint="") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return scaled if process.returncode == 0 else b""


def look_at(data: bytes) -> Kind | None:
    """What the bytes say that they are; None for anything but a PNG, JPEG, GIF or WebP image with a plausible size."""
    try:
        kind = _kind(data)
    except (struct.error, IndexError):
        return None
    return kind if kind is not None and kind.width > 0 and kind.height > 0 else None


def _kind(data: bytes) -> Kind | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return Kind("image/png", *struct.unpack_from(">II", data, 16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return Kind("image/gif", *struct.unpack_from("<HH", data, 6))
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _jpeg(data: bytes) -> Kind | None:
    """The frame header is behind any number of segments."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Kind("image/jpeg", width, height)
        else:
            length = int(struct.unpack_from(">H", data, at + 2)[0])
            if length < 2 or marker in (0xD9, 0xDA):
                return None
            at += 2 + length
    return None


def _webp(data: bytes) -> Kind | None:
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return Kind("image/webp", width & 0x3FFF, height & 0x3FFF)
        case b"VP8L" if data[20] == 0x2F:
            bits = int(struct.unpack_from("<I", data, 21)[0])
            return Kind("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X" if len(data) >= 30:
            width = int.from_bytes(data[24:27], "little") + 1
            return Kind("image/webp", width, int.from_bytes(data[27:30], "little") + 1)
        case _:
            return None
