"""The sandbox's root directory: the running Python, the libraries it links to, and our guest. Nothing else.

Built once per interpreter and Toolfold version, into the data directory, then only ever mounted read-only. Container
images are made from the same folder.
"""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.anonymous import forget_paths, own_paths

_GUEST = Path(__file__).parent / "guest"
# Parts of the standard library that no program in a sandbox without screen, network and installer can use.
_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
}
_LEFT_OUT_FILES = re.compile(r"(_test\w*|_tkinter|_ctypes_test|xxlimited\w*)\..*so|turtle\.py|.*\.opt-\d\.pyc|.*\.a")
_MOUNT_POINTS = ("proc", "dev/shm", "tmp", "agent/skills", "agent/workspace", "opt/api", "opt/packages/0")
_SHARED = "agent/shared"
DEVICES = ("null", "zero", "full", "random", "urandom")
"""Device nodes of the host that a sandbox gets, each mounted over an empty file in the root."""
_ZONEINFO = Path("/usr/share/zoneinfo")
_FORMAT = "8"
# Inside, everything has the usual place: where it is outside may name a person, or lie under a folder that is hidden.
_PREFIX = Path("usr")
_LIBRARIES = _PREFIX / "lib" / "toolfold"
_MARK = "opt/toolfold/library_path"
_KEPT_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class Runtime:
    root: Path
    python: str
    """The interpreter's path inside the root."""
    library_path: str
    """For LD_LIBRARY_PATH: where the copied libraries are, when that is no default place."""


def prepare(data_dir: Path, *, shared: bool = False) -> Runtime:
    """The runtime for this interpreter, built if it is not there yet (about a second, once).

    `shared` says that a folder is to be mounted at `shared/`.
    """
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix})).resolve()
    final = data_dir / "runtime" / (_key(python, stdlib) + ("-shared" if shared else ""))
    listing = final / _MARK
    if not listing.exists():
        _build(final, python, stdlib, (*_MOUNT_POINTS, _SHARED) if shared else _MOUNT_POINTS)
        _sweep(final.parent)
    with contextlib.suppress(OSError):
        # Says when it was last wanted.
        os.utime(final / _MARK)
    return Runtime(final, f"/{_PREFIX}/bin/{python.name}", listing.read_text())


def _sweep(runtimes: Path) -> None:
    """Remove those of other versions that have not been used for a long time, and what broken builds left."""
    before = time.time() - _KEPT_SECONDS
    for folder in runtimes.iterdir():
        with contextlib.suppress(OSError):
            mark = folder / _MARK
            if (mark if mark.exists() else folder).stat().st_mtime < before:
                shutil.rmtree(folder)


def _key(python: Path, stdlib: Path) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {sys.version} {python} {python.stat().st_mtime_ns} {stdlib}".encode())
    for path in sorted(_GUEST.rglob("*.py")):
        digest.update(path.relative_to(_GUEST).as_posix().encode() + b"\0" + path.read_bytes())
    return f"python{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()[:16]}"


def _build(final: Path, python: Path, stdlib: Path, mount_points: tuple[str, ...]) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="build-", dir=final.parent))
    root.chmod(0o755)
    try:
        for point in mount_points:
            (root / point).mkdir(parents=True)
        for name in DEVICES:
            (root / "dev" / name).touch()
        (root / "dev/fd").symlink_to("/proc/self/fd")
        # The mounted folder holds the tree by name, so a tree replaced outside is a tree replaced inside.
        (root / "agent/servers").symlink_to("/opt/api/servers")
        library = root / _PREFIX / _relative(stdlib)
        _copy_stdlib(stdlib, library, root)
        _copy_file(python, root / _PREFIX / "bin" / python.name)
        kept = [stdlib / "lib-dynload" / path.name for path in sorted((library / "lib-dynload").glob("*.so"))]
        needed = _libraries([python, *kept])
        for name, path in (_common_libraries() | needed).items():
            # The loader's own place is written into every program; it finds the others where it is told to look.
            _copy_file(path, root / (name.relative_to("/") if name.name.startswith("ld-") else _LIBRARIES / name.name))
        _copy_etc(root)
        _copy_guest(root)
        if _ZONEINFO.is_dir():
            shutil.copytree(_ZONEINFO, root / _ZONEINFO.relative_to("/"), symlinks=True)
        (root / _MARK).write_text(f"/{_LIBRARIES}")
        make_readable(root)
        forget_paths(root, [*own_paths(), str(root)])
        try:
            root.rename(final)
        except OSError:
            # Another process built the same one first.
            if not final.exists():
                raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _relative(stdlib: Path) -> Path:
    """Python finds its library by where it is from the program, so that must stay as it is."""
    prefix = Path(sys.base_prefix).resolve()
    return stdlib.relative_to(prefix) if stdlib.is_relative_to(prefix) else Path("lib") / stdlib.name


def make_readable(root: Path) -> None:
    """For any user that the sandbox may have, whatever this process's umask is."""
    for folder, folders, files in os.walk(root):
        for path in (f"{folder}/{name}" for name in (*folders, *files)):
            if not os.path.islink(path):  # noqa: PTH114 - there are thousands of them
                os.chmod(path, 0o755 if os.access(path, os.X_OK) else 0o644)  # noqa: PTH101


def _copy_stdlib(stdlib: Path, target: Path, root: Path) -> None:
    def ignore(folder: str, names: list[str]) -> set[str]:
        inside_config = Path(folder) == stdlib
        return {
            name
            for name in names
            if name in _LEFT_OUT or _LEFT_OUT_FILES.fullmatch(name) or (inside_config and name.startswith("config-"))
        }

    shutil.copytree(stdlib, target, symlinks=False, ignore=ignore, ignore_dangling_symlinks=True)
    # Byte code made here is used by every sandbox; inside, nothing can be written.
    compileall.compile_dir(str(target), quiet=2, workers=1, stripdir=str(root))


# What wheels may expect of every system, beyond what Python itself links to.
_COMMON = (
    *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6", "libresolv.so.2"),
    *("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libexpat.so.1", "libatomic.so.1"),
)


def _common_libraries() -> dict[Path, Path]:
    ldconfig = shutil.which("ldconfig", path=f"{os.defpath}:/sbin:/usr/sbin")
    if ldconfig is None:
        return {}
    done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
    found = (re.match(r"\s+(\S+) \((.*)\) => (/\S+)", line) for line in done.stdout.splitlines())
    matches = [match for match in found if match is not None and match[1] in _COMMON]
    # A 64-bit system lists its 32-bit libraries as well, without the architecture in the brackets.
    wide = sys.maxsize > 2**32
    return {Path(match[3]): Path(match[3]).resolve() for match in matches if ("64" in match[2]) == wide}


def _libraries(binaries: list[Path]) -> dict[Path, Path]:
    """Every shared library the binaries need: the path the loader looks for → the real file."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise SandboxUnavailable("ldd is missing, so the Python runtime's libraries cannot be found.")
    found: dict[Path, Path] = {}
    done = subprocess.run([ldd, *map(str, binaries)], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        match = re.match(r"\s+(?:\S+ => )?(/\S+) \(0x", line)
        if match:
            found[Path(os.path.normpath(match[1]))] = Path(match[1]).resolve()
    return found


def _copy_file(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(path, target)


def _copy_etc(root: Path) -> None:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("agent:x:1000:1000:agent:/agent:/bin/false\n")
    (root / "etc/group").write_text("agent:x:1000:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")


def _copy_guest(root: Path) -> None:
    target = root / "opt/toolfold"
    shutil.copytree(_GUEST, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in target.rglob("*.py"):
        py_compile.compile(
            str(path),
            dfile="/" + path.relative_to(root).as_posix(),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
