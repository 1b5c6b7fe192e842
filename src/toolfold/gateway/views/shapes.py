"""What the views answer. The OpenAPI document is generated from these, docstrings included."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from toolfold.session.files import FileInfo
from toolfold.session.store import SessionInfo

__all__ = ["FileInfo", "SessionInfo"]


class Search(msgspec.Struct, kw_only=True):
    """What matches a query, best first."""

    total: int
    """How many match; of these, `hits` are shown."""
    hits: list[Tool]
    text: str
    """The same as a model reads it."""


class Tool(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A tool, or another thing that a search found. Each level of detail adds fields to the one before."""

    server: str
    name: str
    """With `server`, what a program imports."""
    kind: Literal["tool", "skill", "resource", "prompt"] = "tool"
    uri: str = ""
    description: str = ""
    import_: str = msgspec.field(default="", name="import")
    """The line that makes it usable in a program."""
    signature: str = ""
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    warning: str = ""
    """Why a person should look at it first."""
    calls: int | None = None
    """How often it was used, by all callers; only the owner is told."""


class Tools(msgspec.Struct, kw_only=True):
    """One page of tools, by server and name."""

    tools: list[Tool]
    next: int | None = None
    """The `offset` of the next page, where there is one."""


class Server(msgspec.Struct, kw_only=True):
    """An upstream MCP server."""

    name: str
    state: Literal["idle", "starting", "listed", "failed"]
    """Whether it has told what it offers, now or earlier; `idle` was never asked."""
    tools: int
    resources: int
    prompts: int
    error: str = ""
    """Why it failed last, also where its tools are known from earlier."""
    next_try_in: float | None = None
    """Seconds until a server that failed is asked again; null: when it is next named."""
    connection: Literal["", "idle", "starting", "ready", "failed", "backoff"] = ""
    """Its process or connection now; empty for definitions from files. Only the owner is told, as of all below."""
    transport: Literal["", "stdio", "http", "sse"] = ""
    protocol_version: str = ""
    restarts: int = 0
    problems: list[str] = []
    calls: int = 0
    """How often its tools were used."""
    log_file: str = ""
    """Only on pages for people."""


class Servers(msgspec.Struct, kw_only=True):
    servers: list[Server]


class Call(msgspec.Struct, kw_only=True):
    """A call to a server during a run. Arguments and results are not kept."""

    id: str
    kind: Literal["tool", "resource", "prompt"]
    server: str
    name: str
    line: int | None = None
    """The program's line that made it, where it is known."""
    after_ms: float = 0.0
    """Since the run began."""
    ms: float = 0.0
    ok: bool | None = None
    """Null while it is under way, or where it was cut off."""
    error_code: str = ""
    error: str = ""
    result_size: int = 0
    """Bytes or characters of the answer."""
    decision: str = ""
    """`allow`, `ask` or `deny`."""
    approved_by: str = ""


class Run(msgspec.Struct, kw_only=True):
    """A program, or one direct call (`language` is `direct`)."""

    id: str
    caller: str
    session: str | None
    language: str
    time: float
    """When it began, in seconds since 1970."""
    ms: float
    ok: bool | None
    """Null while it is under way, or where it was cut off."""
    error_code: str = ""
    error: str = ""
    calls: int = 0
    first_line: str = ""
    """The beginning of the program."""


class Runs(msgspec.Struct, kw_only=True):
    """One page of runs, the newest first."""

    runs: list[Run]
    next: str | None = None
    """What to send as `before` for the next page, where there is one."""


class RunDetail(Run, kw_only=True):
    """One run with its program, its output and its calls."""

    code: str = ""
    code_cut: bool = False
    output: str = ""
    """What it printed, or the end of it. Not known of runs that only the audit log remembers."""
    output_cut: bool = False
    call_list: list[Call] = []
    """The first ones of very many."""
    source: Literal["memory", "audit"] = "memory"
    """Where it is known from: this gateway's memory, or the audit log."""


class Sessions(msgspec.Struct, kw_only=True):
    """Sessions, the last used first."""

    sessions: list[SessionInfo]


class Files(msgspec.Struct, kw_only=True):
    """What a folder of a session's workspace holds."""

    path: str
    files: list[FileInfo]
    more: int
    """Names that were left out; at least so many, where there are very many."""


class Skill(msgspec.Struct, kw_only=True):
    """A saved function (or instructions) that programs import from `skills`."""

    name: str
    scope: Literal["user", "project", "shared"]
    description: str
    tags: list[str]
    version: int
    signature: str
    """Empty for instructions only."""
    uses: int
    succeeded: int
    """Uses in runs that succeeded."""
    last_used: float | None = None
    problem: str = ""
    """Why it cannot be used."""
    pending: bool = False
    """Whether it waits for a person's yes."""


class Skills(msgspec.Struct, kw_only=True):
    skills: list[Skill]


class SkillDetail(Skill, kw_only=True):
    source: str = ""
    document: str = ""
    provenance: dict[str, str] = {}


class AuditRun(msgspec.Struct, kw_only=True, tag_field="type", tag="run"):
    """A run in the audit log."""

    seq: int
    run: str
    time: float
    caller: str
    session: str | None
    language: str
    ok: bool | None
    """Null while it is under way, or where it was cut off."""
    ms: float
    calls: int
    tokens: int
    review: str
    error: str
    code_sha256: str


class AuditCall(msgspec.Struct, kw_only=True, tag_field="type", tag="call"):
    """A call in the audit log."""

    seq: int
    call: str
    run: str
    time: float
    caller: str
    session: str | None
    target: str
    """As policies write it."""
    ok: bool | None
    ms: float
    decision: str
    rule: str
    approved_by: str
    asked: str
    result_size: int
    error: str
    arguments: Any = None
    """Their shapes, or their values where the settings ask for these."""


class AuditTool(msgspec.Struct, kw_only=True, tag_field="type", tag="tool"):
    """A tool's definition that is new, has changed, or was accepted."""

    seq: int
    time: float
    target: str
    event: str
    digest: str
    before: str


class Audit(msgspec.Struct, kw_only=True):
    """One page of the audit log, the newest first. A page may be short of records, and still have a next one."""

    enabled: bool
    """Whether the log is written; by default it is not."""
    records: list[AuditRun | AuditCall | AuditTool]
    next: int | None = None
    """What to send as `before` for the next page, where there is one."""


class Counts(msgspec.Struct, kw_only=True):
    """What this gateway has done since it started."""

    runs: int
    failed_runs: int
    calls: int
    failed_calls: int
    searches: int
    running: int


class Cached(msgspec.Struct, kw_only=True):
    """The same where all prompts are cached: definitions count once for each conversation."""

    sent: int
    direct: int
    saved: int


class Tokens(msgspec.Struct, kw_only=True):
    """What was sent to the model, beside what the same calls would have cost without Toolfold; docs/savings.md has the
    method. `labels` says of each number whether it is measured, computed or estimated."""

    runs: int
    failed: int
    searches: int
    calls: int
    call_errors: int
    conversations: int
    requests: int
    requests_direct: int
    tokens_definitions: int
    tokens_searches: int
    tokens_code: int
    tokens_outputs: int
    tokens_sent: int
    tokens_direct_definitions: int
    tokens_results: int
    tokens_direct: int
    tokens_saved: int
    share_saved: float
    cached: Cached
    dollars_per_million_tokens: float
    dollars_sent: float
    dollars_direct: float
    dollars_saved: float
    labels: dict[str, str]


class DayTokens(msgspec.Struct, kw_only=True):
    day: str
    tokens: Tokens


class CallerTokens(msgspec.Struct, kw_only=True):
    caller: str
    tokens: Tokens


class SessionTokens(msgspec.Struct, kw_only=True):
    caller: str
    session: str
    """Empty for what belongs to no named one."""
    tokens: Tokens


class ToolTokens(msgspec.Struct, kw_only=True):
    """A tool that was called. Resources and prompts are counted by their server."""

    tool: str
    calls: int
    errors: int
    tokens_results: int
    label: str


class Stats(msgspec.Struct, kw_only=True):
    """What was done and what it cost, of one caller or of all: by this gateway since it started, and by all gateways on
    its data folder as the ledger of tokens knows it."""

    caller: str | None
    """Whose; null: of all callers."""
    started: float
    """When this gateway started, in seconds since 1970."""
    gateway: Counts
    total: Tokens
    days: list[DayTokens]
    """The first one first."""
    callers: list[CallerTokens]
    """Those with the most requests first, where it is of all callers. Of these and of what follows, at most 100."""
    sessions: list[SessionTokens]
    tools: list[ToolTokens]
    """The most used first."""


class Overview(msgspec.Struct, kw_only=True):
    """The gateway at a glance, as the viewer may see it."""

    version: str
    started: float
    """In seconds since 1970."""
    counts: Counts
    running: list[Run]
    servers: dict[str, int]
    """How many are in each state."""
    tools: int
    sandbox: str
    """The backend that programs run in; empty before the first program."""
