"""Keys of publishers: our own, which signs what we publish, and those that a person has met.

Trust on first use: the first package of a skill shows its publisher's key and pins it together with the package's hash.
From then on that name comes from that key, and a version stays as it was.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolfold.catalog.store import replace_file
from toolfold.errors import PackageRefused, SkillError
from toolfold.locks import locked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from toolfold.skills.package import Package

_PREFIX = "ed25519:"
_KEY_FILE = "publisher.key"
_PINS_FILE = "pins.json"
_RAW = 32


class SigningKey:
    """The key that signs what is published from this data folder."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def of(cls, folder: Path) -> SigningKey:
        """The key in `folder`; made the first time, in a file that only its owner can read."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        path = folder / _KEY_FILE
        try:
            raw = _read_key(path) or _make_key(path)
            return cls(Ed25519PrivateKey.from_private_bytes(base64.b64decode(raw, validate=True)))
        except OSError as error:
            raise SkillError(f"Cannot keep a signing key in {path}: {error.strerror or error}.") from None
        except (ValueError, binascii.Error):
            raise SkillError(
                f"{path} holds no Ed25519 key.", hint="Put your key back, or remove the file to get a new key."
            ) from None

    @property
    def public(self) -> str:
        return _PREFIX + base64.b64encode(self._private.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def verify(publisher: str, data: bytes, signature: bytes) -> bool:
    """Whether `signature` is of `data`, by the key `publisher`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(publisher.removeprefix(_PREFIX), validate=True)
        if (
            not publisher.startswith(_PREFIX)
            or len(raw) != _RAW
            or _PREFIX + base64.b64encode(raw).decode() != publisher
        ):
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)
    except (ValueError, binascii.Error, InvalidSignature):
        return False
    return True


class Pin(msgspec.Struct, frozen=True):
    """What was installed under a name."""

    publisher: str
    version: str
    sha256: str
    """Of the package."""
    digest: str
    """Of the skill that was in it, as it is here after that."""
    library: str = ""


class Pins:
    """The pins of one data folder, by the skill's name, in one file that is changed under a lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _PINS_FILE

    def all(self) -> dict[str, Pin]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Pin])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Without pins a changed key would look like a first meeting.
            raise SkillError(
                f"Cannot read {self._path}: {error}.", hint="Restore it, or remove it to pin skills afresh."
            ) from None

    def check(self, package: Package) -> Pin | None:
        """The pin of the package's name. Another key, or another content of the same version, is refused."""
        name, manifest = package.manifest.name, package.manifest
        pin = self.all().get(name)
        if pin is None:
            return None
        if pin.publisher != manifest.publisher:
            raise PackageRefused(
                f"{name} was first installed from the publisher {pin.publisher}, but this package is signed by "
                f"{manifest.publisher}.",
                hint="Ask the publisher whether the key is theirs. "
                f"If it is, `toolfold skills unpin {name}` forgets the old one.",
            )
        if pin.version == manifest.version and pin.sha256 != package.sha256:
            raise PackageRefused(
                f"Version {pin.version} of {name} is pinned with the hash {pin.sha256[:16]}…, but this package has "
                f"{package.sha256[:16]}….",
                hint=f"A version never changes: ask the publisher. `toolfold skills unpin {name}` forgets the hash.",
            )
        return pin

    def met(self, publisher: str) -> list[str]:
        """The names that are pinned to this key."""
        return sorted(name for name, pin in self.all().items() if pin.publisher == publisher)

    def put(self, name: str, pin: Pin) -> None:
        with self._changed() as pins:
            pins[name] = pin

    def forget(self, name: str) -> bool:
        """Whether there was a pin."""
        with self._changed() as pins:
            return pins.pop(name, None) is not None

    @contextlib.contextmanager
    def _changed(self) -> Generator[dict[str, Pin]]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._path.parent / f".{_PINS_FILE}.lock"):
                pins = self.all()
                yield pins
                replace_file(self._path, msgspec.json.format(msgspec.json.encode(pins, order="sorted"), indent=2))
        except OSError as error:
            raise SkillError(f"Cannot write {self._path}: {error.strerror or error}.") from None


def _read_key(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        os.fchmod(descriptor, 0o600)
        return file.read(1000).strip()


def _make_key(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(_RAW)) + b"\n")
            file.flush()
            os.fsync(descriptor)
        # Of several commands that publish first at once, one makes the key and the others read it.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return _read_key(path)
