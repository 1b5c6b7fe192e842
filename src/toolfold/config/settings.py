"""The settings: one frozen model, built once at the edge (`cli/`, `Toolfold.open`) and passed down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "kib": 1024, "m": 1000**2, "mb": 1000**2, "mib": 1024**2}
_UNITS |= {"g": 1000**3, "gb": 1000**3, "gib": 1024**3}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(value: Any) -> Any:
    """`"512MB"`, `"1 GiB"` or a plain number of bytes → bytes; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"expected a size such as 512MB or 1GiB, got {value!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerConfig(_Model):
    """How to reach one upstream. `source` is the file it came from."""

    transport: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    call_timeout: float = Field(default=60.0, gt=0)
    """Seconds that one call may take."""
    start_timeout: float = Field(default=30.0, gt=0)
    """Seconds until the server must have answered the handshake."""
    source: str = ""

    @model_validator(mode="after")
    def _reachable(self) -> ServerConfig:
        if self.transport == "stdio" and not self.command:
            raise ValueError("a stdio server needs `command`")
        if self.transport != "stdio" and not self.url:
            raise ValueError(f"an {self.transport} server needs `url`")
        return self


class SandboxSettings(_Model):
    """Where programs run and what they may use. Every limit's error names the setting here."""

    backend: Literal["auto", "bubblewrap", "container", "monty"] = "auto"
    timeout: float = Field(default=30.0, gt=0)
    """Wall-clock seconds for one run."""
    memory: Size = 512 * 1000**2
    cpu: float = Field(default=1.0, gt=0)
    """Cores, where a cgroup can hold the program to it."""
    disk: Size = 1000**3
    """Bytes the workspace may hold."""
    processes: int = Field(default=64, ge=1)
    output: Size = 100 * 1000**2
    """Bytes a run may print before it is ended."""
    tool_calls: int = Field(default=10_000, ge=1)
    concurrent_calls: int = Field(default=64, ge=1)
    pool: int = Field(default=4, ge=0)
    """Sandboxes kept warm."""
    packages: tuple[str, ...] = ()


class Settings(_Model):
    servers: dict[str, ServerConfig] = {}
    sandbox: SandboxSettings = SandboxSettings()
    catalog_dirs: tuple[Path, ...] = ()
    data_dir: Path = Path("~/.local/share/toolfold").expanduser()
    output_chars: int = Field(default=12_000, ge=200)
    """Characters of a run's output that reach the model; the rest stays in `workspace/outputs/`."""
    session_idle: float = Field(default=1800.0, gt=0)
    """Seconds after which an unused session's sandbox is closed; its files stay."""
    session_limit: int = Field(default=32, ge=1)
    """Live session sandboxes; the least recently used one is closed first."""
    check: Literal["on", "off"] = "on"
    """Whether programs are reviewed before they run."""
    semantic: bool = True
    """Whether search may use vectors where the extra is installed."""
    privacy: bool = False
    audit: bool = False
