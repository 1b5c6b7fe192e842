"""Which backend holds programs here: the strongest that proves itself, or none. Never a weaker one silently."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.container import engine
from toolfold.sandbox.packages import install
from toolfold.sandbox.probe import prove
from toolfold.sandbox.protocol import Backend, Log, no_log

if TYPE_CHECKING:
    from toolfold.sandbox.runtime import Runtime

_PROOFS = Path("runtime", "proofs.json")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Candidate:
    """A backend that could be set up and has not proved anything yet."""

    backend: Backend
    title: Callable[[], Awaitable[str]]
    """For people, for example "bubblewrap 0.11.0". Takes a trial that raises SandboxUnavailable with the fix."""
    identity: str
    """Changes whenever an earlier proof would say nothing about this one."""
    program: str = ""
    """A probe of its own, for a backend whose language cannot hold the common one."""
    walls: Mapping[str, str] = field(default_factory=dict[str, str])
    """What holds what on this machine, in words."""


@dataclass(frozen=True)
class Choice:
    backend: Backend
    evidence: str
    """What was proved, in one line."""
    passed_over: tuple[SandboxUnavailable, ...] = ()
    """Why each backend that comes before it in the order was not taken."""
    walls: Mapping[str, str] = field(default_factory=dict[str, str])


Opener = Callable[[SandboxSettings, Path, Log], Awaitable[Candidate]]


async def choose(settings: SandboxSettings, data_dir: Path, *, live: bool = False, log: Log = no_log) -> Choice:
    """The configured backend, or for `auto` the strongest one here, proved by a hostile probe.

    A proof is remembered for this boot, kernel, backend and runtime; `live` probes whatever is remembered.
    `log` is given what takes long and is done once: packages that are installed, an image that is made.
    Raises SandboxUnavailable, with the command that would fix it, when none holds.
    """
    if settings.shared is not None:
        _make_shared(settings.shared, data_dir)
    known = backends()
    names = list(known) if settings.backend == "auto" else [settings.backend]
    refused: list[SandboxUnavailable] = []
    for opener in itertools.chain.from_iterable(known[name] for name in names):
        if opener is zygote and settings.isolation == "strict":
            continue
        try:
            candidate = await opener(settings, data_dir, log)
            evidence = await _proved(candidate, data_dir, live=live)
        except SandboxUnavailable as error:
            # What both ways to bubblewrap lack is told once.
            refused += [error] if error.message not in {other.message for other in refused} else []
            continue
        return Choice(candidate.backend, evidence, tuple(refused), candidate.walls)
    if len(refused) == 1:
        raise refused[0]
    reasons = " ".join(f"({number}) {error.message}" for number, error in enumerate(refused, start=1))
    fix = next((error.hint for error in refused if error.hint), "")
    raise SandboxUnavailable(f"No working sandbox was found, so no program will be run. {reasons}", hint=fix)


def backends() -> dict[str, list[Opener]]:
    """The ways to each backend by its name in the settings, in the order in which they are tried."""
    return {"bubblewrap": [zygote, bubblewrap], "container": [podman, docker], "monty": [monty]}


async def _proved(candidate: Candidate, data_dir: Path, *, live: bool) -> str:
    proofs = data_dir / _PROOFS
    key = _key(candidate)
    if not live and key:
        known = await asyncio.to_thread(_load, proofs)
        if key in known:
            return f"{known[key]} (proved earlier in this boot)"
    title = await candidate.title()
    proof = await prove(candidate.backend, data_dir, title=title, program=candidate.program)
    if key:
        await asyncio.to_thread(_remember, proofs, key, proof.evidence)
    return proof.evidence


def _key(candidate: Candidate) -> str:
    """What a proof depends on. Empty where a reboot cannot be recognised: then every start proves anew."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return ""
    parts = "\0".join((boot, platform.release(), str(os.geteuid()), candidate.identity))
    return f"{candidate.backend.name}-{hashlib.sha256(parts.encode()).hexdigest()[:24]}"


def _load(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}


def _remember(path: Path, key: str, evidence: str) -> None:
    """Proofs of the same backend that no longer apply are dropped; a lost write only costs a probe."""
    name = key.rsplit("-", 1)[0]
    kept = {old: text for old, text in _load(path).items() if not old.startswith(f"{name}-")}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(kept | {key: evidence}))
        temporary.replace(path)


async def zygote(settings: SandboxSettings, data_dir: Path, log: Log = no_log) -> Candidate:
    """bubblewrap around a zygote: sandboxes are cloned, so they share what SECURITY.md says."""
    return await asyncio.to_thread(_find_zygote, settings, data_dir, log)


async def bubblewrap(settings: SandboxSettings, data_dir: Path, log: Log = no_log) -> Candidate:
    """One bubblewrap for each sandbox."""
    return await asyncio.to_thread(_find_bubblewrap, settings, data_dir, log)


async def podman(settings: SandboxSettings, data_dir: Path, log: Log = no_log) -> Candidate:
    return await _container("podman", settings, data_dir, log)


async def docker(settings: SandboxSettings, data_dir: Path, log: Log = no_log) -> Candidate:
    return await _container("docker", settings, data_dir, log)


async def _container(name: engine.Name, settings: SandboxSettings, data_dir: Path, log: Log) -> Candidate:
    from toolfold.sandbox.container.backend import open_container

    if settings.image and settings.packages:
        message = "`sandbox.packages` are for this Python, and `sandbox.image` brings another one."
        raise SandboxUnavailable(message, hint="Put the packages into the image, or leave one of the two out.")
    found = await engine.find_engine(name)
    packages = await asyncio.to_thread(install, settings.packages, data_dir, log)
    backend = await open_container(settings, found, data_dir, packages, log)

    async def title() -> str:
        return found.title

    limits = "the engine's cgroup" if found.holds_limits else "measured from outside"
    walls = {"system calls": "the engine's filter and ours", "memory and cpu": limits}
    return Candidate(backend, title, backend.identity, walls=walls)


async def monty(settings: SandboxSettings, data_dir: Path, log: Log = no_log) -> Candidate:
    from toolfold.sandbox.monty.backend import PROBE, Monty, find_monty

    binary, version = find_monty()

    async def title() -> str:
        return f"Monty {version}, a subset of Python whose interpreter is the only wall"

    return Candidate(Monty(settings, binary), title, f"{binary} {version}", PROBE)


def _find_zygote(settings: SandboxSettings, data_dir: Path, log: Log) -> Candidate:
    from toolfold.sandbox.zygote.backend import Zygotes

    runtime, bwrap, packages, title, identity = _parts(settings, data_dir, log)
    backend = Zygotes(settings, runtime, bwrap, packages)

    async def named() -> str:
        return f"{await title()}, cloned from a zygote"

    return Candidate(backend, named, identity, walls=backend.walls)


def _find_bubblewrap(settings: SandboxSettings, data_dir: Path, log: Log) -> Candidate:
    from toolfold.sandbox.bubblewrap.backend import Bubblewrap

    runtime, bwrap, packages, title, identity = _parts(settings, data_dir, log)
    backend = Bubblewrap(settings, runtime, bwrap, packages)
    return Candidate(backend, title, identity, walls=backend.walls)


def _make_shared(folder: Path, data_dir: Path) -> None:
    """Make the folder that all programs share. Sessions and secrets of others must not be in it."""
    own, shared = data_dir.resolve(), folder.resolve()
    if own.is_relative_to(shared) or shared.is_relative_to(own):
        raise SandboxUnavailable(f"`sandbox.shared` ({folder}) and Toolfold's data folder must be apart.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxUnavailable(f"`sandbox.shared` ({folder}) cannot be made: {error.strerror}.") from None


def _parts(
    settings: SandboxSettings, data_dir: Path, log: Log
) -> tuple[Runtime, Path, tuple[Path, ...], Callable[[], Awaitable[str]], str]:
    """What bubblewrap needs, its title and its identity."""
    from toolfold.sandbox.bubblewrap.launcher import find_bwrap
    from toolfold.sandbox.bubblewrap.obstacles import bubblewrap_version
    from toolfold.sandbox.runtime import prepare

    if platform.system() != "Linux":
        raise SandboxUnavailable(f"bubblewrap exists on Linux only; this is {platform.system()}.")
    bwrap = find_bwrap()
    runtime = prepare(data_dir, shared=settings.shared is not None)
    packages = install(settings.packages, data_dir, log)
    stat = bwrap.stat()

    async def title() -> str:
        return f"bubblewrap {await asyncio.to_thread(bubblewrap_version, bwrap)}"

    return runtime, bwrap, packages, title, f"{bwrap} {stat.st_size} {stat.st_mtime_ns} {runtime.root.resolve()}"
