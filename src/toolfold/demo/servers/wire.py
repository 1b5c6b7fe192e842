"""MCP on standard input and output, for servers that have nothing but tools.

Written out instead of taken from the SDK: fourteen of these processes start in one demo, and importing the SDK costs
each of them most of a second. A test holds the answers to those of the SDK's own server, request by request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, Any, cast

from toolfold.demo.servers.hosting import DemoServer, DemoTool, compact

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_UNSUPPORTED_VERSION = -32022

Params = dict[str, Any]


class _Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Wire:
    """One server's side of the conversation: a line in, a line out (or nothing, for a notification)."""

    def __init__(self, server: DemoServer) -> None:
        self._info = {"name": server.name, "version": "1.0.0"}
        self._tools = {tool.name: tool for tool in server.tools}
        self._methods: dict[str, Callable[[Params], dict[str, Any]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda params: {},
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
        }

    def serve(self, read: IO[bytes], write: IO[bytes]) -> None:
        """Answer until the client closes its end."""
        for line in read:
            if line.strip() and (answer := self.answer(line)) is not None:
                write.write(compact(answer).encode() + b"\n")
                write.flush()

    def answer(self, line: bytes) -> dict[str, Any] | None:
        try:
            request = _object(json.loads(line))
        except (ValueError, RecursionError):
            return _reply(None, error={"code": _PARSE_ERROR, "message": "Parse error"})
        if request is None or not isinstance(request.get("method"), str):
            return _reply(None, error={"code": _INVALID_REQUEST, "message": "Invalid request"})
        if "id" not in request:
            return None
        try:
            return _reply(request["id"], result=self._result(request["method"], request.get("params")))
        except _Refused as refused:
            return _reply(request["id"], error=refused.error)

    def _result(self, method: str, given: Any) -> dict[str, Any]:
        if method not in self._methods:
            raise _Refused(_METHOD_NOT_FOUND, "Method not found", method)
        params = _required({} if given is None else given)
        version = _required(params.get("_meta", {})).get(_VERSION_KEY)
        if version is None:
            return self._methods[method](params)
        if version not in MODERN_VERSIONS:
            supported = {"supported": list(MODERN_VERSIONS), "requested": version}
            raise _Refused(_UNSUPPORTED_VERSION, "Unsupported protocol version", supported)
        cached = {} if method == "tools/call" else {"ttlMs": 0, "cacheScope": "private"}
        result = self._methods[method](params)
        return result | cached | {"resultType": "complete", "_meta": {_SERVER_KEY: self._info}}

    def _initialize(self, params: Params) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": self._info}

    def _discover(self, params: Params) -> dict[str, Any]:
        return {"supportedVersions": list(MODERN_VERSIONS), "capabilities": _CAPABILITIES}

    def _list_tools(self, params: Params) -> dict[str, Any]:
        return {"tools": [_definition(tool) for tool in self._tools.values()]}

    def _call_tool(self, params: Params) -> dict[str, Any]:
        name, arguments = params.get("name"), _required(params.get("arguments") or {})
        if not isinstance(name, str):
            raise _Refused(_INVALID_PARAMS, "Invalid request parameters", "")
        if name in self._tools:
            text, structured, is_error = self._tools[name].answer(arguments)
        else:
            text, structured, is_error = f"no tool is called {name}; there are {', '.join(self._tools)}", None, True
        content = [{"type": "text", "text": text}]
        return {"content": content, "isError": is_error} | (
            {} if structured is None else {"structuredContent": structured}
        )


_CAPABILITIES = {"tools": {"listChanged": False}}


def _object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _required(value: Any) -> dict[str, Any]:
    found = _object(value)
    if found is None:
        raise _Refused(_INVALID_PARAMS, "Invalid request parameters", "")
    return found


def _reply(request_id: Any, **outcome: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **outcome}


def _definition(tool: DemoTool) -> dict[str, Any]:
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.arguments,
        "annotations": tool.annotations,
    }
    return definition | ({"outputSchema": tool.output_schema} if tool.output_schema else {})
