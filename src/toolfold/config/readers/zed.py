"""Zed: `settings.json` with `context_servers`. Entries without a command or URL belong to Zed's extensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Scope, Source, app_config, has, xdg_config


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".zed" / "settings.json", Scope.PROJECT)
    # On macOS Zed keeps to ~/.config, unlike most programs there.
    home = app_config(host) / "Zed" if host.platform == "win32" else xdg_config(host) / "zed"
    yield Location(home / "settings.json", Scope.USER)


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    reading = Reading()
    reading.add(doc, "context_servers", source, Dialect())
    for entry in reading.entries:
        value = entry.value
        if isinstance(value, Mapping):
            keys = cast("Mapping[str, Any]", value).keys()
            if not keys & {"command", "url"} and keys & {"settings", "source"}:
                reading.skipped[entry.name] = "started by a Zed extension"
    reading.entries = [entry for entry in reading.entries if entry.name not in reading.skipped]
    return reading


FORMAT = Format("zed", locate, read, tails=("zed/settings.json", ".zed/settings.json"), fits=has("context_servers"))
