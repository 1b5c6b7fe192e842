"""What can be said of other systems from here: config places, which sandbox is taken, what is said where none fits."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import pytest

from toolfold.config.clients import FORMATS, app_config
from toolfold.config.edge import Host
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox import choose as choosing
from toolfold.sandbox.choose import choose

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[1] / "docs" / "platforms.md").read_text()


def machine(system: str, home: Any, **env: str) -> Host:
    return Host(cwd=home / "project", home=home, env=env, platform=system)


def test_configs_are_looked_for_where_windows_keeps_them() -> None:
    home = cast("Any", PureWindowsPath(r"C:\Users\ada"))
    host = machine("win32", home)
    assert str(app_config(host)) == r"C:\Users\ada\AppData\Roaming"
    places = {str(path) for known in FORMATS for path in known.user(host)}
    assert r"C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json" in places
    assert r"C:\Users\ada\AppData\Roaming\Code\User\mcp.json" in places
    assert r"C:\Users\ada\.cursor\mcp.json" in places
    assert all(place.startswith(r"C:\Users\ada") and "/" not in place for place in places)
    moved = machine("win32", home, APPDATA=r"D:\Roaming")
    assert str(app_config(moved)) == r"D:\Roaming"


def test_configs_are_looked_for_where_macos_keeps_them() -> None:
    host = machine("darwin", Path("/Users/ada"))
    places = {str(path) for known in FORMATS for path in known.user(host)}
    assert "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json" in places
    assert "/Users/ada/Library/Application Support/Code/User/mcp.json" in places
    assert "/Users/ada/.config/zed/settings.json" in places


async def test_without_bubblewrap_and_containers_monty_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_monty", reason="needs the extra `monty`")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    choice = await choose(SandboxSettings(), tmp_path)
    assert choice.backend.name == "monty"
    said = " ".join(reason.message for reason in choice.passed_over)
    assert "bubblewrap exists on Linux only; this is Darwin." in said


async def test_where_nothing_fits_the_error_says_so_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def missing(*_: Any) -> Any:
        raise SandboxUnavailable("Monty is not installed.", hint="Run: pip install 'toolfold[monty]'")

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(choosing, "monty", missing)
    with pytest.raises(SandboxUnavailable, match="No working sandbox was found, so no program will be run") as error:
        await choose(SandboxSettings(), tmp_path)
    assert "Darwin" in error.value.message
    assert error.value.hint


def test_on_windows_the_command_says_that_it_needs_wsl() -> None:
    # The locks that Windows does not have are taken away too: the message comes before they would be missed.
    code = "import sys\nfrom toolfold.cli.main import main\nsys.platform = 'win32'\nsys.modules['fcntl'] = None\nmain()"
    command = [sys.executable, "-c", code, "serve"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "WSL 2" in result.stderr
    assert "Traceback" not in result.stderr
    assert "wsl -- toolfold serve" in result.stderr


def test_the_page_names_the_settings_and_commands_that_exist() -> None:
    assert "image" in SandboxSettings.model_fields
    for word in ("sandbox.image", "toolfold doctor", "toolfold[monty]", "wsl"):
        assert word in PAGE
