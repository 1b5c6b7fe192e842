"""`show`: images for the model, checked by the host, whatever the program says that they are."""

from __future__ import annotations

import base64
import importlib.util
import io
import random
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import ValueRefused
from toolfold.gateway.server import make_server
from toolfold.session.images import Images, look_at

pytestmark = pytest.mark.anyio

HAS_PILLOW = importlib.util.find_spec("PIL") is not None


def png(width: int, height: int, *, data: bytes | None = None) -> bytes:
    """A grey image; `data` in place of its pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    pixels = zlib.compress((b"\0" + b"\x80" * width) * height) if data is None else data
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


GIF = b"GIF89a" + struct.pack("<HH", 3, 2) + b"\x80\0\0" + b"\0" * 6 + b"\x3b"
JPEG = b"\xff\xd8\xff\xe0\0\x04\0\0\xff\xff\xc2\0\x0b\x08" + struct.pack(">HH", 2, 3) + b"\x01\x01\x11\0"
JPEG_LATE = b"\xff\xd8\xff\xe1\0\x04\xff\xd9" + b"\xff\x01\xff\xd0\xff\xd7\xff" + JPEG[8:]
"""Its frame is behind a segment, marks without a length, and a fill byte."""
WEBP_LOSSY = b"RIFF\x1a\0\0\0WEBPVP8 \x0d\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 1 << 14 | 3, 2)
WEBP_EXTENDED = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + bytes([2, 0, 0, 1, 0, 0])
WEBP = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f" + struct.pack("<I", 2 | 1 << 14) + b"\0" * 8


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(3, 2), "image/png"),
        (GIF, "image/gif"),
        (GIF.replace(b"89a", b"87a"), "image/gif"),
        (JPEG, "image/jpeg"),
        (JPEG_LATE, "image/jpeg"),
        (WEBP, "image/webp"),
        (WEBP_LOSSY, "image/webp"),
        (WEBP_EXTENDED, "image/webp"),
    ],
)
def test_what_an_image_is_follows_from_its_bytes(data: bytes, kind: str) -> None:
    found = look_at(data)
    assert found is not None
    assert (found.mime_type, found.width, found.height) == (kind, 3, 2)
    for length in range(len(data)):
        look_at(data[:length])  # a cut one is one or none, and never an error


@pytest.mark.parametrize(
    "data",
    [b"", b"GIF", b"\x89PNG\r\n\x1a\n", b"<svg/>", b"\xff\xd8\xff" * 9, png(0, 5), png(5, 0), b"RIFFxxxxWEBPVP8X"],
)
def test_what_is_no_image_is_none(data: bytes) -> None:
    assert look_at(data) is None


async def test_a_program_shows_bytes_paths_and_files_of_tools(lab: Toolfold) -> None:
    code = f"""
from toolfold import File, show
import io
data = {png(3, 2)!r}
open("workspace/plot.png", "wb").write(data)
show(data); show("workspace/plot.png"); show(io.BytesIO(data), name="third")
await show(File("workspace/plot.png", "image/png", 1))
class Figure:
    def savefig(self, file, format, **more): file.write(data)
class Axes: figure = Figure()
show(Figure()); show(Axes())
"""
    result = await lab.run(code, session="images")
    assert result.success, result.error
    assert [image.name for image in result.images][:3] == ["", "plot.png", "third"]
    assert len(result.images) == 6
    assert result.images[0].data == png(3, 2)
    assert result.output.strip() == "<image/png, 3 × 2>"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("show(b'<svg/>')", "no PNG, JPEG, GIF or WebP"),
        ("show(7)", "takes a path, a File, bytes, a figure or an image, not int"),
        ("show('workspace/none.png')", "No such file"),
        ("show(b'x' * 11_000_000)", "Make the image smaller"),
        (f"for _ in range(9): show({png(3, 2)!r})", "at most 8 images (`sandbox.images`"),
    ],
)
async def test_what_cannot_be_shown_is_told(lab: Toolfold, code: str, told: str) -> None:
    result = await lab.run(f"from toolfold import show\n{code}", session="refused images")
    assert told in str(result.error)
    assert len(result.images) <= 8


async def _added(data: bytes) -> Any:
    images = Images(8)
    await images.add(base64.b64encode(data).decode(), "x")
    return images.shown[0]


async def test_a_bomb_is_never_decoded() -> None:
    with pytest.raises(ValueRefused, match="100000 × 100000 pixels"):
        await _added(png(100_000, 100_000, data=zlib.compress(b"\0" * 10_000_000)))
    with pytest.raises(ValueRefused, match="base64"):
        await Images(8).add("not base64!", "x")


async def test_a_large_image_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    with pytest.raises(ValueRefused, match=r"toolfold\[images\]"):
        await _added(png(5000, 100))
    assert (await _added(png(1920, 1080))).width == 1920


def padded(image: bytes, size: int) -> bytes:
    return image + b"\0" * (size - len(image))


async def test_an_image_may_be_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    for fits in (png(4096, 1), png(1, 4096), padded(png(3, 2), 3_000_000)):
        assert (await _added(fits)).data == fits
    with pytest.raises(
        ValueRefused, match=r"has 4097 × 1 pixels and \d+ bytes; at most 4096 pixels a side and 3,000,000"
    ):
        await _added(png(4097, 1))
    with pytest.raises(ValueRefused, match="has 3 × 2 pixels and 3,000,001 bytes"):
        await _added(padded(png(3, 2), 3_000_001))
    with pytest.raises(ValueRefused, match="toolfold"):
        await _added(png(10_000, 5000, data=b""))  # as many pixels as an image may have, were it scaled
    with pytest.raises(ValueRefused, match="has 10000 × 5001 pixels; at most 50,000,000"):
        await _added(png(10_000, 5001, data=b""))


async def test_the_images_of_a_run_may_be_so_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    images = Images(8)

    async def add(size: int) -> dict[str, Any]:
        return await images.add(base64.b64encode(padded(png(3, 2), size)).decode(), "x")

    for size in (3_000_000, 3_000_000, 1_999_000):
        assert await add(size) == {"mime_type": "image/png", "width": 3, "height": 2}
    with pytest.raises(ValueRefused, match="at most 8,000,000 bytes"):
        await add(1001)
    await add(1000)
    assert len(images.shown) == 4


@pytest.mark.skipif(not HAS_PILLOW, reason="Pillow is not installed: pip install 'toolfold[images]'")
async def test_a_large_image_is_scaled() -> None:
    scaled = await _added(png(5000, 1000))
    assert (scaled.width, scaled.height, scaled.mime_type) == (1568, 314, "image/png")
    with pytest.raises(ValueRefused, match="could not be scaled"):
        await _added(png(3000, 3000, data=b"no pixels"))
    with pytest.raises(ValueRefused, match="could not be scaled"):
        await _added(JPEG + b"\0" * 2_000_000)


@pytest.mark.skipif(not HAS_PILLOW, reason="Pillow is not installed: pip install 'toolfold[images]'")
async def test_a_scaled_image_looks_like_the_one_that_it_was_made_of() -> None:
    from PIL import Image

    def encoded(image: Any, **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, **options)
        return file.getvalue()

    def opened(image: Any) -> Any:
        return Image.open(io.BytesIO(image.data))

    just = encoded(Image.new("RGB", (1568, 1568), "red"), format="PNG")
    assert (await _added(just)).data == just, "it is small enough as it is"
    clear = await _added(encoded(Image.new("RGBA", (2000, 1000), (255, 0, 0, 0)), format="PNG"))
    assert opened(clear).getpixel((0, 0))[3] == 0
    # More than a megabyte of noise stays none as PNG; what is see-through gets smaller until it fits.
    noise = Image.frombytes("RGB", (1000, 1000), random.Random(1).randbytes(3_000_000))
    scaled = await _added(encoded(noise, format="PNG"))
    assert (scaled.mime_type, scaled.width, len(scaled.data) <= 1_000_000) == ("image/jpeg", 1000, True)
    noise.putalpha(128)
    scaled = await _added(encoded(noise, format="PNG"))
    assert (scaled.mime_type, scaled.width) == ("image/png", 784 // 2)
    turned = Image.new("RGB", (2000, 1000))
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright
    scaled = await _added(encoded(turned, format="JPEG", exif=exif))
    assert (scaled.width, scaled.height) == (784, 1568)


async def test_a_model_gets_images_beside_the_text(lab: Toolfold) -> None:
    code = f"from toolfold import show\nprint('look')\nshow({png(3, 2)!r}) and None"
    async with Client(make_server(lab)) as client:
        result = await client.call_tool("run_code", {"code": code})
        text, image = result.content
        alone = await client.call_tool("run_code", {"code": f"from toolfold import show\nx = show({png(3, 2)!r})"})
    assert (text.type, image.type) == ("text", "image")
    assert base64.b64decode(getattr(image, "data", "")) == png(3, 2)
    assert getattr(image, "mime_type", "") == "image/png"
    assert [getattr(part, "text", "") for part in alone.content] == ["(finished)", ""]


async def test_images_are_not_shown_where_values_are_private(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, privacy={"enabled": True, "images": True}) as fold:
        result = await fold.run(f"from toolfold import show\nshow({png(3, 2)!r}, 'ada@example.org')")
        assert [image.name for image in result.images] == ["EMAIL_1"]
