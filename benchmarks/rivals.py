"""Other people's programs, each in an environment of its own, so that a comparison runs beside us in one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FASTMCP = "fastmcp[code-mode]==4.1.2"

CODE_MODE = """
import sys
from fastmcp import FastMCP, Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from fastmcp.experimental.transforms.code_mode import CodeMode
client = Client(StdioTransport(sys.argv[1], sys.argv[2:], keep_alive=True))
proxy = create_proxy(client, name="codemode")
proxy.add_transform(CodeMode(max_tool_calls=None))
proxy.run("stdio", show_banner=False)
"""


def fastmcp_python(data_dir: Path) -> Path | None:
    """A Python that has FastMCP, installed on first use; None when it cannot be installed here."""
    home = data_dir / "bench" / "fastmcp-4.1.2"
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FASTMCP],
            check=True,
            capture_output=True,
        )
    except (subprocess.CalledProcessError, OSError):
        return None
    (home / "ready").touch()
    return python
