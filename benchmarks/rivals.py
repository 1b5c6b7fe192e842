"""Other people's programs, each in an environment of its own, so that a comparison runs beside us in one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from toolfold.errors import ToolfoldError

_INSTALL_SECONDS = 400
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
    try:
        return environment(data_dir, "fastmcp-4.1.2", FASTMCP)
    except ToolfoldError:
        return None


def environment(data_dir: Path, name: str, *packages: str) -> Path:
    """A Python with these packages (arguments of pip), in an environment of its own that is made on first use."""
    home = data_dir / "bench" / name
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise ToolfoldError(
            f"{name} could not be installed: {error}", hint="Is a package registry reachable?"
        ) from None
    (home / "ready").touch()
    return python
