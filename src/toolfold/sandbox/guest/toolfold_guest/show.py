"""`show(...)`: an image for the model to see."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, cast

from .channel import ToolError, channel

_MOST_BYTES = 10_000_000


class Shown:
    """What became of it. May be awaited or not."""

    def __init__(self, mime_type: str, width: int, height: int) -> None:
        self.mime_type, self.width, self.height = mime_type, width, height

    def __await__(self) -> Any:
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"<{self.mime_type}, {self.width} × {self.height}>"


def show(image: Any, name: str = "") -> Shown:
    """Let the model see an image (PNG, JPEG, GIF, WebP): a path, a File, bytes, or a matplotlib or Pillow image."""
    data, found = _bytes_of(image)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"show(): {len(data):,} bytes; at most {_MOST_BYTES:,}. Make the image smaller first")
    frame = {"t": "show", "data": base64.b64encode(data).decode(), "name": (str(name) or found)[:100]}
    try:
        reply = channel().request_now(frame)
    except ToolError as error:
        if error.code != "value_refused":
            raise
        raise ValueError(f"show(): {error}") from None
    return Shown(reply["mime_type"], reply["width"], reply["height"])


def _bytes_of(image: Any) -> tuple[bytes, str]:
    """The bytes, and a name for them."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(cast("Any", image)), ""
    if isinstance(image, str | os.PathLike):
        path = Path(os.fspath(image))  # pyright: ignore[reportUnknownArgumentType]
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"show(): {path} is larger than {_MOST_BYTES:,} bytes. Make the image smaller first")
        return path.read_bytes(), path.name
    if hasattr(image, "getvalue"):  # io.BytesIO
        return bytes(image.getvalue()), ""
    # Of matplotlib: a figure, pyplot, or what is drawn on a figure.
    figure = image if hasattr(image, "savefig") else getattr(image, "figure", None)
    if hasattr(figure, "savefig"):
        return _saved(cast("Any", figure).savefig, format="png", bbox_inches="tight"), ""
    if hasattr(image, "save") and hasattr(image, "size"):  # of Pillow
        return _saved(image.save, format="PNG"), ""
    raise TypeError(f"show() takes a path, a File, bytes, a figure or an image, not {type(image).__name__}")


def _saved(save: Any, **options: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    save(file, **options)
    return file.getvalue()
