"""`toolfold auth`: sign in to remote servers."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json, log_to_file, run_async
from toolfold.errors import ConfigError, UpstreamError, UpstreamUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from toolfold.config.settings import ServerConfig, Settings
    from toolfold.upstream.auth.store import Record

Server = Annotated[str, typer.Argument(help="The server's name in the config.")]
_WRONG_PASTE = "That is not the address that this sign-in ends at. Paste all of it, from http to the end."


def register(app: typer.Typer) -> None:
    auth = typer.Typer(help="Sign in to remote servers.\n\nExample: toolfold auth login linear", no_args_is_help=True)
    for command in (login, logout, status):
        auth.command(command.__name__)(command)
    app.add_typer(auth, name="auth")


def login(
    server: Server,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address, to be opened on any machine.")
    ] = False,
    scope: Annotated[list[str] | None, typer.Option("--scope", help="Ask for this scope; may be repeated.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the sign-in.", min=1)] = 300.0,
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Sign in to a server with your browser. Gateways that are running use it at once.

    Without a browser here, open the printed address elsewhere; when the browser then cannot reach its last page, copy
    that page's address and paste it here.

    Examples: toolfold auth login linear
              toolfold auth login linear --no-browser
    """
    settings = _settings(config, data)
    entry = _entry(settings, server)
    open_browser = not no_browser and _has_browser()
    run_async(lambda: _login(server, entry, settings, tuple(scope or ()), timeout, open_browser))


async def _login(
    server: str, config: ServerConfig, settings: Settings, scopes: tuple[str, ...], timeout: float, open_browser: bool
) -> None:
    from toolfold.upstream.auth.login import Login, NoSignInError

    sign_in = Login(server, config, settings.data_dir, scopes=scopes, keyring=settings.uses_keyring)
    if config.oauth.machine:
        found = await sign_in.check()
        note(f"{server} is signed in to with client credentials, without a person: {_offer(len(found.tools))}.")
        return

    def show(url: str) -> None:
        note("Open this address to sign in:")
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        if open_browser:
            import webbrowser

            loop.run_in_executor(None, webbrowser.open, url)
        else:
            note("If the browser cannot show the last page, paste that page's address here:")

    loop = asyncio.get_running_loop()
    pasted = _lines() if not open_browser or sys.stdin.isatty() else None
    note(f"Asking {server} …", "dim")
    try:
        async with asyncio.timeout(timeout):
            await sign_in.sign_in(show, pasted=pasted, on_wrong_paste=lambda: note(_WRONG_PASTE, "yellow"))
    except NoSignInError:
        note(f"{server} answers without a sign-in. If a call is refused later, run this again.")
        return
    except TimeoutError:
        raise UpstreamUnavailable(
            server,
            f"the sign-in was not finished within {timeout:g} s.",
            hint="Run it again; --timeout gives it longer.",
        ) from None
    try:
        found = await sign_in.check()
    except UpstreamError as error:
        note(f"You are signed in to {server}, but it does not work yet.", "yellow")
        raise error from None
    note(f"Signed in to {server}: {_offer(len(found.tools))}. Gateways that are running use it from now on.", "green")


def logout(server: Server, config: Config = None, data: DataDir = None) -> None:
    """Forget the sign-in to a server, and have its tokens revoked where that is possible.

    Example: toolfold auth logout linear
    """
    from toolfold.upstream.auth.login import Login

    settings = _settings(config, data)
    entries = [entry for name, entry, record in _sign_ins(settings) if name == server and _is_kept(record)]
    if not entries:
        if server not in settings.servers:
            raise _unknown(settings, server)
        note(f"You are not signed in to {server}.")
        return

    async def sign_out() -> list[bool]:
        keyring = settings.uses_keyring
        return [await Login(server, entry, settings.data_dir, keyring=keyring).sign_out() for entry in entries]

    if all(run_async(sign_out)):
        note(f"Signed out of {server}; its tokens are revoked.")
    else:
        note(f"Signed out of {server}. Its tokens could not be revoked there: they end by themselves.")


def status(
    server: Annotated[str | None, typer.Argument(help="One server; default: all of them.")] = None,
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Show which servers you are signed in to. Nothing is started or asked. Exit code 1 if the named one needs you.

    Examples: toolfold auth status
              toolfold auth status linear --json
    """
    from toolfold.config.secrets import masked_url

    settings = _settings(config, data)
    if server is not None and server not in settings.servers:
        raise _unknown(settings, server)
    rows: list[dict[str, Any]] = []
    for name, entry, record in _sign_ins(settings):
        if server in (None, name):
            state, text = _state(name, entry, record, configured=name in settings.servers)
            row = {"server": name, "url": masked_url(entry.url), "state": state, "text": text}
            rows.append(
                row | {"scopes": record.scope.split(), "expires_at": record.expires_at, "issuer": record.issuer}
            )
    if json:
        write_json(rows)
    elif not rows:
        note(f"{server} has no sign-in of this kind." if server else "No remote server is configured here.")
    for row in [] if json else rows:
        sys.stdout.write(printable(f"{row['server']}  {row['text']}\n"))
    if server is not None and any(row["state"] in ("needed", "ended", "expired") for row in rows):
        raise SystemExit(1)


# What is known


def _settings(config: Path | None, data: Path | None) -> Settings:
    from toolfold.config.load import load_here

    loaded = load_here(config, data_dir=data)
    if loaded.data_problem:
        raise ConfigError(loaded.data_problem.partition(" A temporary")[0], hint="Sign-ins are kept there.")
    log_to_file(loaded.settings.data_dir / "logs")
    return loaded.settings


def _entry(settings: Settings, server: str) -> ServerConfig:
    entry = settings.servers.get(server)
    if entry is None:
        raise _unknown(settings, server)
    if entry.transport == "stdio":
        raise ConfigError(
            f"{server} is a program on this machine: it has no sign-in here.",
            hint="Give it what it needs in its `env`.",
        )
    if not entry.oauth.enabled:
        raise ConfigError(f"The sign-in to {server} is switched off.", hint="Remove `oauth = false` from its config.")
    if not entry.may_sign_in:
        raise ConfigError(
            f"{server} has an `Authorization` header in its config.", hint="Remove that header to sign in instead."
        )
    return entry


def _unknown(settings: Settings, server: str) -> ConfigError:
    remote = sorted(name for name, entry in settings.servers.items() if entry.transport != "stdio")
    known = f"There are: {', '.join(remote)}. " if remote else ""
    return ConfigError(
        f"No server {server!r} is configured here.", hint=f"{known}Use the gateway's own --config and --data, if any."
    )


def _sign_ins(settings: Settings) -> list[tuple[str, ServerConfig, Record]]:
    """Every server that can be signed in to, and those whose sign-in is kept though they are configured no longer."""
    from toolfold.config.settings import ServerConfig
    from toolfold.upstream.auth.store import FOLDER, RecordFile, records

    folder = settings.data_dir / FOLDER
    known = {name: entry for name, entry in settings.servers.items() if entry.may_sign_in}
    keyring = settings.uses_keyring
    found = [
        (name, entry, RecordFile(folder, name, entry.url, keyring=keyring).load())
        for name, entry in sorted(known.items())
    ]
    here = {(name, entry.url) for name, entry in known.items()}
    left = [each for each in records(folder, keyring=keyring) if (each.server, each.url) not in here and _is_kept(each)]
    return found + [(each.server, ServerConfig(transport="http", url=each.url), each) for each in left]


def _is_kept(record: Record) -> bool:
    return bool(record.tokens or record.client or record.challenge)


def _state(name: str, entry: ServerConfig, record: Record, *, configured: bool) -> tuple[str, str]:
    """One word for scripts, and a line for the person."""
    command = f"run `toolfold auth login {name}`"
    if not configured:
        return "kept", f"is configured no longer, its sign-in is kept: run `toolfold auth logout {name}`"
    if entry.oauth.machine:
        return "automatic", "client credentials; nothing to do"
    if record.challenge is not None and record.challenge.step_up:
        return "needed", f"signed in, but needs more rights ({record.challenge.field('scope')}): {command}"
    if record.access_token and record.refresh_token:
        return "signed_in", "signed in, refreshed as needed"
    if record.access_token and not record.expired:
        left = "" if record.expires_at is None else f" for {_span(record.expires_at - time.time())}"
        return "signed_in", f"signed in{left}"
    if record.access_token:
        return "expired", f"the sign-in has expired: {command}"
    if record.ended:
        return "ended", f"the sign-in has expired or was revoked: {command}"
    if record.challenge is not None:
        return "needed", f"needs a sign-in: {command}"
    return "none", "not signed in; it has not asked for it"


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 5400 else f"{max(seconds, 60) / 60:.0f} min"


def _offer(tools: int) -> str:
    return "1 tool" if tools == 1 else f"{tools} tools"


# The person's terminal


def _has_browser() -> bool:
    """Whether a browser can be opened that does not take over this terminal."""
    if sys.platform != "linux" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def _lines() -> AsyncGenerator[str]:
    """What is typed or pasted, line by line, without holding up the loop; ends with the input."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, ready.set)
    except (OSError, ValueError):
        return  # a file, or nothing: there is nobody who pastes
    text = b""
    try:
        while True:
            await ready.wait()
            ready.clear()
            chunk = os.read(sys.stdin.fileno(), 65_536)
            if not chunk:
                return
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
    finally:
        loop.remove_reader(sys.stdin)
