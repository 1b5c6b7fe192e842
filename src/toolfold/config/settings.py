"""The settings: one frozen model, built once at the edge (`cli/`, `Toolfold.open`) and passed down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from toolfold.config import edge
from toolfold.config.audit import AuditSettings
from toolfold.config.callers import Callers, JwtSettings, Mode
from toolfold.config.logseq import LogseqSettings
from toolfold.config.metrics import MetricsSettings
from toolfold.config.model import Model, switchable
from toolfold.config.oauth import OAuthSettings
from toolfold.config.policy import (
    ApprovalSettings,
    ContextSettings,
    LimitSettings,
    PolicySettings,
    ReviewSettings,
    ToolPattern,
)
from toolfold.config.privacy import PrivacySettings
from toolfold.config.retention import RetentionSettings
from toolfold.config.skills import SkillSettings
from toolfold.config.units import Cores, Seconds, Size

_BACKENDS = {"bwrap": "bubblewrap", "docker": "container", "podman": "container"}


def parse_backend(value: Any) -> Any:
    """The names people use for a backend → ours; a name that is none of them is left for pydantic to refuse."""
    return _BACKENDS.get(value.strip().lower(), value.strip().lower()) if isinstance(value, str) else value


Backend = Annotated[Literal["auto", "bubblewrap", "container", "monty"], BeforeValidator(parse_backend)]


class ServerConfig(Model):
    """How to reach one upstream. `source` is the file it came from. Its repr shows no secret."""

    transport: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = Field(default=(), repr=False)
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: str = ""
    url: str = Field(default="", repr=False)
    headers: dict[str, str] = Field(default={}, repr=False)
    oauth: OAuthSettings = OAuthSettings()
    """How to sign in to a remote server."""
    call_timeout: Seconds = 60.0
    """Seconds that one call may take."""
    start_timeout: Seconds = 30.0
    """Seconds until the server must have answered the handshake."""
    source: str = ""

    @model_validator(mode="after")
    def _reachable(self) -> ServerConfig:
        if self.transport == "stdio" and not self.command:
            raise ValueError("a stdio server needs `command`")
        if self.transport != "stdio" and not self.url:
            raise ValueError(f"an {self.transport} server needs `url`")
        return self

    @property
    def may_sign_in(self) -> bool:
        """Whether OAuth may be used: an `Authorization` header of its own takes its place."""
        return self.transport != "stdio" and self.oauth.enabled and "authorization" not in map(str.lower, self.headers)


class SandboxSettings(Model):
    """Where programs run and what they may use. Every limit's error names the setting here."""

    backend: Backend = "auto"
    isolation: Literal["shared", "strict"] = "shared"
    """Whether bubblewrap's sandboxes of one caller are cloned from a zygote, or each is started by itself."""
    timeout: Seconds = 30.0
    """Wall-clock seconds for one run."""
    memory: Size = 512 * 1000**2
    cpu: Cores = 1.0
    """Cores, where a cgroup can hold the program to it."""
    disk: Size = 1000**3
    """Bytes the workspace may hold."""
    shared: Path | None = None
    """A folder on this machine that all programs of all callers find as `shared/`."""
    kept: Size = 50 * 1000**2
    """Bytes that a session may hold by `keep`."""
    images: int = Field(default=8, ge=0)
    """Images that one run may show."""
    processes: int = Field(default=64, ge=1)
    output: Size = 100 * 1000**2
    """Bytes a run may print before it is ended."""
    tool_calls: int = Field(default=10_000, ge=1)
    concurrent_calls: int = Field(default=64, ge=1)
    message: Size = 16 * 1000**2
    """Bytes of one message from the program to the host: the arguments of one call, or the last value."""
    messages: int = Field(default=50_000, ge=100)
    """Messages a program may send in one second."""
    pool: int = Field(default=6, ge=0)
    """Sandboxes kept warm."""
    packages: tuple[str, ...] = ()
    image: str = ""
    """For the container backend: an image with a Python of its own, in place of the one made from this Python."""

    @field_validator("shared")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        if folder is not None and not folder.expanduser().is_absolute():
            raise ValueError("expected an absolute path")
        return folder.expanduser() if folder is not None else None


class Settings(Model):
    servers: dict[str, ServerConfig] = Field(default={})
    sandbox: SandboxSettings = SandboxSettings()
    enabled: bool = True
    """Whether programs may run at all; search works either way."""
    mode: Mode = "code"
    """Which tools clients are offered: our two (`code`), these and a few of the servers' own (`hybrid`), or all of the
    servers' own and not ours (`direct`)."""
    direct: tuple[ToolPattern, ...] = ()
    """The servers' tools that `hybrid` offers, such as `slack.post_message` or `slack.*`."""
    direct_budget: int | None = Field(default=None, ge=0)
    """Tokens of definitions that `hybrid` fills up with the tools that are used most; by default 1500 where `direct`
    names none, otherwise 0."""
    expose: tuple[Literal["prompts", "resources"], ...] = ()
    """What else of the servers clients are offered, beside tools."""
    catalog_dirs: tuple[Path, ...] = ()
    data_dir: Path = Field(default_factory=lambda: edge.host().data_dir)
    output_chars: int = Field(default=12_000, ge=200)
    """Characters of a run's output that reach the model; the rest stays in `workspace/outputs/`."""
    session_idle: Seconds = 1800.0
    """Seconds after which an unused session's sandbox is closed; its files stay."""
    session_limit: int = Field(default=32, ge=1)
    """Live session sandboxes; the least recently used one is closed first."""
    run_limit: int = Field(default=16, ge=1)
    """Runs without a session that may be under way at once; more wait in line."""
    run_queue: int = Field(default=256, ge=0)
    """Runs that may wait in that line; more are refused."""
    retention: RetentionSettings = RetentionSettings()
    skills: SkillSettings = SkillSettings()
    logseq: LogseqSettings = LogseqSettings()
    check: bool = True
    """Whether programs are reviewed before they run."""
    semantic: bool = True
    """Whether search may use vectors where the extra is installed."""
    token_price: float = Field(default=3.0, ge=0, allow_inf_nan=False)
    """Dollars per million input tokens, for the ledger and `toolfold savings`."""
    tokenizer: str = Field(default="", pattern=r"^$|^[\w.]+:\w+$")
    """A function that counts the tokens of a text in place of o200k, as `package.module:function`."""
    token_store: Literal["file", "keyring"] = "file"  # noqa: S105 (no password)
    """Where the tokens of sign-ins to servers are kept: in the data folder, or in the system's keyring."""
    trusted_servers: tuple[str, ...] = ()
    """Servers whose tools may change without a person's consent; `*` is all."""
    callers: Callers = Field(default={})
    """Who may call over HTTP beside the owner of the gateway, by name."""
    jwt: JwtSettings | None = None
    """The issuer whose JWTs are accepted over HTTP as well."""
    dashboard: Literal["loopback", "on", "off"] = "loopback"
    """Who is served the dashboard: on this machine the user who runs the gateway, everyone who can connect and has a
    link, or nobody."""
    policy: PolicySettings = PolicySettings()
    approval: ApprovalSettings = ApprovalSettings()
    context: ContextSettings = ContextSettings()
    review: ReviewSettings = ReviewSettings()
    limits: LimitSettings = LimitSettings()
    privacy: Annotated[PrivacySettings, switchable] = PrivacySettings()
    """Tokens in place of personal values; `true` and `false` are short for a table with `enabled`."""
    audit: Annotated[AuditSettings, switchable] = AuditSettings()
    """The audit log; `true` and `false` are short for a table with `enabled`."""
    metrics: Annotated[MetricsSettings, switchable] = MetricsSettings()
    """`/metrics` of the HTTP gateway; `true` and `false` are short for a table with `enabled`."""

    @property
    def uses_keyring(self) -> bool:
        return self.token_store == "keyring"  # noqa: S105 (no password)
