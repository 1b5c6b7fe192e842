"""The demo's seven servers by name, and the configuration that starts them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from toolfold.demo.servers.hosting import DemoServer

SERVERS = ("google_drive", "salesforce", "slack", "github", "supabase", "grafana", "context7")


def build(name: str) -> DemoServer:
    """The server `name` with fresh data. Only its own module is imported."""
    return importlib.import_module(f"toolfold.demo.servers.{name}").server()


def demo_servers() -> dict[str, dict[str, Any]]:
    """How to start each server: a process of this Python."""
    return {name: {"command": sys.executable, "args": ["-m", "toolfold.demo", "serve", name]} for name in SERVERS}


def demo_config() -> dict[str, Any]:
    """A config as any MCP client has it, for `Toolfold.open` or a file.

    All data is made up and nobody watches, so nothing is asked about.
    """
    return {"mcpServers": demo_servers(), "mcpCodeExecution": {"securityLevel": "low"}}
