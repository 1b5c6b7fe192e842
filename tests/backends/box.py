"""A sandbox under test, with a host that offers a few tools: `from servers.lab import echo`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolfold.codegen.tree import write_tree
from toolfold.config.settings import SandboxSettings
from toolfold.definitions import ToolDefinition
from toolfold.errors import ToolfoldError, UnknownTool
from toolfold.sandbox.frames import Call, CallNamed, Request, Resource, Search
from toolfold.sandbox.protocol import Backend, SessionHome
from toolfold.sandbox.sandbox import Sandbox

SETTINGS = SandboxSettings(memory=256_000_000, output=60_000_000)
PICTURE = bytes(range(256)) * 40
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    ToolDefinition(server="lab", name="echo", description="Say it back.", input_schema=_TEXT),
    ToolDefinition(server="lab", name="slow", description="Answer when all callers are there.", input_schema=_NUMBER),
    ToolDefinition(server="lab", name="rows", description="Many rows.", input_schema=_NUMBER),
    ToolDefinition(server="lab", name="boom", description="Report an error."),
    ToolDefinition(server="lab", name="picture", description="A picture."),
    ToolDefinition(server="lab", name="never", description="Do not answer."),
]


@dataclass
class Host:
    """Answers calls, and remembers what was asked, printed and reported."""

    printed_bytes: bytearray = field(default_factory=bytearray)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    reported: list[tuple[str, float | None]] = field(default_factory=list[tuple[str, float | None]])
    cancelled: list[str] = field(default_factory=list[str])
    here: int = 0
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Any:
        match request:
            case Call(tool=tool, arguments=arguments):
                return await self._call(tool, arguments)
            case CallNamed(name=name, arguments=arguments):
                return {**await self._call(name.rpartition("__")[2], arguments), "server": "lab", "tool": name}
            case Search(query=query):
                return {
                    "hits": [
                        {
                            "name": "echo",
                            "server": "lab",
                            "description": query,
                            "import": "from servers.lab import echo",
                        }
                    ],
                    "text": f"lab.echo ({query})",
                }
            case Resource(uri=uri):
                return [{"type": "text", "text": f"content of {uri}"}]
            case _:
                raise UnknownTool("not in this laboratory")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((tool, arguments))
        match tool:
            case "echo":
                return {"parts": [{"type": "text", "text": arguments["text"]}]}
            case "slow":
                await self._meet(arguments["n"])
                return {"parts": [], "structured": {"met": self.here}, "has_structured": True}
            case "rows":
                rows = [{"number": number, "name": f"row {number}"} for number in range(arguments["n"])]
                return {"parts": [], "structured": {"rows": rows}, "has_structured": True}
            case "boom":
                return {"parts": [{"type": "text", "text": "it went boom"}], "is_error": True}
            case "picture":
                data = base64.b64encode(PICTURE).decode()
                return {"parts": [{"type": "blob", "data": data, "mime_type": "image/png", "name": ""}]}
            case "never":
                return await self._hang(tool)
            case _:
                raise UnknownTool(f"There is no tool {tool!r}.")

    async def _meet(self, number: int) -> None:
        """Answers nobody before `number` callers wait here at the same time."""
        self.here += 1
        if self.here >= number:
            self.all_here.set()
        await self.all_here.wait()

    async def _hang(self, tool: str) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(tool)
            raise

    def printed(self, data: bytes) -> None:
        self.printed_bytes += data

    def progress(self, text: str, fraction: float | None) -> None:
        self.reported.append((text, fraction))


@dataclass(frozen=True)
class Ran:
    """How a program ended. `failure` is what ended the sandbox, `error` what the program itself ran into."""

    output: str
    raw: bytes
    error: str
    value: Any
    shown: str
    names: list[str]
    host: Host
    failure: ToolfoldError | None


class Box:
    """One home and the sandbox around it, started again when a program has ended it."""

    def __init__(self, backend: Backend, home: SessionHome, api: Path, settings: SandboxSettings) -> None:
        self.backend = backend
        self.home = home
        self.api = api
        self.settings = settings
        self.sandbox: Sandbox | None = None

    async def run(self, code: str, *, timeout: float = 20.0, host: Host | None = None) -> Ran:
        host = host or Host()
        sandbox = await self._live()
        try:
            done = await sandbox.run(code, host, timeout)
        except ToolfoldError as failure:
            return self._ran(host, failure=failure)
        return self._ran(host, done.error, done.value, done.shown, done.names)

    async def printed(self, code: str) -> str:
        """What a program prints that must end well."""
        ran = await self.run(code)
        assert not ran.failure, ran.failure
        assert not ran.error, ran.error
        return ran.output

    async def _live(self) -> Sandbox:
        if self.sandbox is None or not self.sandbox.alive:
            await self.close()
            starting = self.backend.start(self.home, self.api)
            self.sandbox = await Sandbox.start(starting, self.home, self.settings)
        return self.sandbox

    async def close(self) -> None:
        if self.sandbox is not None:
            await self.sandbox.close()
            self.sandbox = None

    def _ran(
        self,
        host: Host,
        error: str = "",
        value: Any = None,
        shown: str = "",
        names: list[str] | None = None,
        failure: ToolfoldError | None = None,
    ) -> Ran:
        raw = bytes(host.printed_bytes)
        return Ran(raw.decode(errors="replace"), raw, error, value, shown, names or [], host, failure)


@asynccontextmanager
async def box_around(backend: Backend, folder: Path) -> AsyncGenerator[Box]:
    home = SessionHome(folder / "home")
    home.workspace.mkdir(parents=True)
    home.skills.mkdir()
    api = folder / "api"
    write_tree(TOOLS, api)
    box = Box(backend, home, api, SETTINGS)
    try:
        yield box
    finally:
        await box.close()
