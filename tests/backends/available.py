"""The backends that exist on this machine, for tests that run over all of them.

A backend that is not here is skipped with the reason. `TOOLFOLD_REQUIRED_BACKENDS=zygote,docker` (CI sets it)
makes a missing one a failure instead.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.choose import Candidate, bubblewrap, docker, monty, podman, zygote
from toolfold.sandbox.probe import prove

WAYS = {"zygote": zygote, "bubblewrap": bubblewrap, "docker": docker, "podman": podman, "monty": monty}
ENGINES = ("docker", "podman")
FULL = ("zygote", "bubblewrap", *ENGINES)
"""Backends that run all of Python."""
ALL = (*FULL, "monty")

_known: dict[str, str] = {}


def required() -> set[str]:
    return set(filter(None, os.environ.get("TOOLFOLD_REQUIRED_BACKENDS", "").split(",")))


async def candidate(name: str, data_dir: Path, settings: SandboxSettings | None = None) -> Candidate:
    """The backend, once proved to run here; otherwise the test is skipped, or fails where the backend is required."""
    settings = settings or SandboxSettings()
    problem = _known.get(name)
    if problem is None:
        try:
            found = await WAYS[name](settings, data_dir)
            await prove(found.backend, data_dir, title=await found.title(), program=found.program)
            _known[name] = ""
            return found
        except SandboxUnavailable as error:
            problem = str(error)
            if name not in required():  # one that is here is tried again: on a busy machine it may have been late
                _known[name] = problem
    if problem:
        if name in required():
            pytest.fail(f"{name} is required here (TOOLFOLD_REQUIRED_BACKENDS) and does not run: {problem}")
        pytest.skip(f"{name} does not run here: {problem}")
    return await WAYS[name](settings, data_dir)


def candidate_now(name: str, data_dir: Path, settings: SandboxSettings | None = None) -> Candidate:
    """The same for tests that run no loop of their own."""
    return asyncio.run(candidate(name, data_dir, settings))
