"""The machine that figures were measured on, and the versions of what was measured."""

from __future__ import annotations

import datetime as dt
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("toolfold", "mcp")


def machine() -> dict[str, Any]:
    """Cores, memory, processor and system, without anything that names a person or a place."""
    return {
        "cores": _cores(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def versions(*more: str) -> dict[str, str]:
    """Of Python, of what every benchmark uses and of these packages; what is not installed is left out.

    A package of another environment is given with its version, as `name==version`.
    """
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *more):
        if "==" in package:
            name, _, number = package.partition("==")
            found[name.partition("[")[0]] = number
            continue
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def described(*more: str) -> str:
    """Both in one line, for the end of a table."""
    here = machine()
    return (
        f"{here['date']} · {here['cores']} cores ({here['processor']}), {here['memory_gb']} GB, {here['system']} · "
        + ", ".join(f"{name} {number}" for name, number in versions(*more).items())
    )


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
