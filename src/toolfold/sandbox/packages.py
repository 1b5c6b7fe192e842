"""Python packages for agent code: installed once, by the host, into a folder that sandboxes mount read-only.

Only wheels are installed, because installing anything else runs its code on the host. What was installed is written
down with the hash of every archive, and installed again from exactly that when the folder is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from toolfold.errors import ConfigError
from toolfold.locks import locked
from toolfold.sandbox.anonymous import forget_paths, own_paths
from toolfold.sandbox.protocol import Log, no_log
from toolfold.sandbox.runtime import make_readable

_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])?\s*([<>=!~]=?[^;@\s]+(\s*,\s*[<>=!~]=?[^;@\s]+)*)?"
)
_REASON_CHARS = 600
_LOCK_SECONDS = 900.0


def install(packages: Sequence[str], data_dir: Path, log: Log = no_log) -> tuple[Path, ...]:
    """The folders to mount for `packages`; installs what is not there yet, telling `tell` how far it is.

    Raises ConfigError, with what to do, when they cannot be installed. May take minutes the first time.
    """
    if not packages:
        return ()
    wanted = sorted({package.strip() for package in packages})
    for package in wanted:
        if not _REQUIREMENT.fullmatch(package):
            raise ConfigError(
                f"`sandbox.packages`: {package!r} is not a package.", hint='Write names such as "pandas" or "numpy>=2".'
            )
    home = data_dir / "packages"
    home.mkdir(parents=True, exist_ok=True)
    folder = home / _key(wanted)
    if folder.is_dir():
        return (folder,)
    with _locked(home / "lock"):
        if not folder.is_dir():
            _install(wanted, folder, home / f"{folder.name}.lock.txt", log)
    return (folder,)


def _key(wanted: list[str]) -> str:
    """A folder for these packages on this Python: wheels differ by version, machine and C library."""
    parts = [*wanted, sys.version, platform.machine(), "-".join(platform.libc_ver())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Two processes that start at once install once. The second waits for the first, within a limit."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, seconds=_LOCK_SECONDS))
        except TimeoutError:
            message = f"another process has been installing `sandbox.packages` for {_LOCK_SECONDS / 60:.0f} min."
            raise ConfigError(message, hint="End it, and try again.") from None
        yield


def _install(wanted: list[str], folder: Path, lock: Path, log: Log) -> None:
    log(f"Installing {', '.join(wanted)} for programs (once).")
    work = Path(tempfile.mkdtemp(prefix="build-", dir=folder.parent))
    try:
        target = work / "target"
        if not lock.exists():
            _resolve(wanted, work, log)
            (work / "lock").rename(lock)
        _run(_install_command(lock, target), wanted, log)
        make_readable(target)
        forget_paths(target, [*own_paths(), str(target), tempfile.gettempdir()])
        target.chmod(0o755)
        shutil.copy(lock, target / "toolfold-packages.txt")
        target.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    log(f"Installed {', '.join(wanted)}.")


def _resolve(wanted: list[str], work: Path, log: Log) -> None:
    """Write `lock`: every package with its exact version and the hashes of its archives."""
    lock = work / "lock"
    pip = _pip()
    if pip is not None:
        report = work / "report.json"
        command = [*pip, "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--no-input"]
        _run([*command, "--report", str(report), "--", *wanted], wanted, log)
        lock.write_text("".join(f"{line}\n" for line in _locked_lines(json.loads(report.read_text()))))
        return
    (work / "wanted.txt").write_text("\n".join(wanted))
    command = [*_uv(), "pip", "compile", "--python", sys.executable, "--only-binary", ":all:", "--generate-hashes"]
    _run([*command, "--no-header", "--quiet", "--output-file", str(lock), str(work / "wanted.txt")], wanted, log)


def _locked_lines(report: Any) -> list[str]:
    lines: list[str] = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        lines.append(f"{name}=={version} --hash=sha256:{_digest(item['download_info'], name)}")
    return sorted(lines)


def _digest(download: Any, name: str) -> str:
    """As pip tells it; pip 23.0 and older do not tell it of files on this machine."""
    told = download["archive_info"].get("hashes", {}).get("sha256")
    if told is not None:
        return told
    address = urlsplit(str(download["url"]))
    if address.scheme != "file":
        raise ConfigError(
            f"`sandbox.packages`: this pip does not tell the hash of {name}.", hint="Run: pip install --upgrade pip"
        )
    return hashlib.sha256(Path(unquote(address.path)).read_bytes()).hexdigest()


def _install_command(lock: Path, target: Path) -> list[str]:
    pip = _pip()
    if pip is not None:
        command = [*pip, "install", "--no-deps", "--no-input", "--progress-bar", "off", "--no-warn-script-location"]
    else:
        command = [*_uv(), "pip", "install", "--python", sys.executable, "--no-deps", "--compile-bytecode"]
    command += ["--only-binary", ":all:", "--require-hashes", "--target", str(target), "-r", str(lock)]
    return command


def _pip() -> list[str] | None:
    """pip of this environment, else of the Python that it was made from, which is the same Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    base = getattr(sys, "_base_executable", sys.executable)
    asked = subprocess.run([base, "-c", "import pip"], capture_output=True, check=False, timeout=30, cwd=os.sep)
    return [base, "-m", "pip"] if asked.returncode == 0 else None


def _uv() -> list[str]:
    found = shutil.which("uv")
    if found is None:
        raise ConfigError(
            "`sandbox.packages` needs pip or uv to install from, and neither is here.", hint="Run: pip install uv"
        )
    return [found]


def _run(command: list[str], wanted: list[str], log: Log) -> None:
    lines: list[str] = []
    # Not in the current folder, which may be a stranger's: Python imports from there, and uv reads its config there.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=os.sep
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if text := line.strip():
                lines.append(text)
                log(text)
    if process.wait() != 0:
        raise ConfigError(
            f"`sandbox.packages` ({', '.join(wanted)}) could not be installed: {_reason(lines)}", hint=_hint(lines)
        )


def _reason(lines: list[str]) -> str:
    errors = [line for line in lines if re.match(r"(?i)\s*(error|×|╰|no )", line)]
    return "; ".join(errors or lines[-3:])[-_REASON_CHARS:] or "the installer gave no reason."


def _hint(lines: list[str]) -> str:
    text = " ".join(lines).lower()
    if "no matching distribution" in text or "no solution found" in text or "not found in the package registry" in text:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"Is the name right, and does it have a wheel for Python {version} on {platform.machine()}?"
    if "network" in text or "connection" in text or "resolve" in text:
        return "Is the package index reachable from this machine?"
    return ""
