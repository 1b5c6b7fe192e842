"""A process that scales one image: standard input → standard output. It is given nothing else, and may use little.

It decodes what a program made, so it has limits of its own, and its answer is looked at like the program's.
"""

# pyright: basic
import io
import resource
import sys

_MEMORY = 1_500_000_000
_SECONDS = 15
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def main() -> None:
    longest, most = int(sys.argv[1]), int(sys.argv[2])
    from PIL import Image, ImageOps  # pyright: ignore[reportMissingImports] - an extra; before the limits: it is read from files

    Image.preinit()
    Image.MAX_IMAGE_PIXELS = 50_000_000
    for limit, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    image = Image.open(io.BytesIO(sys.stdin.buffer.read()), formats=_FORMATS)
    image.draft("RGB", (longest, longest))
    image = ImageOps.exif_transpose(image)
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    image = image.convert("RGBA" if has_alpha else "RGB")
    while True:
        image.thumbnail((longest, longest))
        data = _encoded(image, has_alpha, most)
        if data is not None or longest < 64:
            sys.stdout.buffer.write(data or b"")
            return
        longest //= 2


def _encoded(image, has_alpha: bool, most: int) -> bytes | None:
    """PNG where that is small enough, since plots and screenshots stay sharp; JPEG otherwise."""
    for options in ({"format": "PNG", "optimize": True}, {"format": "JPEG", "quality": 85}):
        if options["format"] == "JPEG" and has_alpha:
            continue
        file = io.BytesIO()
        image.save(file, **options)
        if file.tell() <= most:
            return file.getvalue()
    return None


if __name__ == "__main__":
    main()
