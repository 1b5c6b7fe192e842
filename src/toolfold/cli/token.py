"""`toolfold token`: who may call over HTTP with a token of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, Json
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.config.rewrite import TomlFile

Name = Annotated[str, typer.Argument(help="The caller's name.")]
_OUTER = "callers"
_RESTART = "A gateway that is running learns of it when it is restarted."


def register(app: typer.Typer) -> None:
    token = typer.Typer(
        help="Say who may call over HTTP with a token of their own.\n\nExample: toolfold token new ci",
        no_args_is_help=True,
    )
    for command in (new, list_, revoke):
        token.command(command.__name__.rstrip("_"))(command)
    app.add_typer(token, name="token")


def new(
    name: Name,
    group: Annotated[list[str] | None, typer.Option("--group", help="A group that rules may name.")] = None,
    host: Annotated[bool, typer.Option("--host", help="It speaks for its users: it may give context values.")] = False,
    scraper: Annotated[bool, typer.Option("--scraper", help="It may read /metrics, and nothing else.")] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the lines for the config, write nothing.")] = False,
    config: Config = None,
) -> None:
    """Make a token for a caller. It is shown once; only its hash is written, into your own toolfold.toml.

    Examples: toolfold token new ci
              toolfold token new web-app --host --group production
              toolfold token new prometheus --scraper
    """
    import hashlib
    import secrets

    from pydantic import TypeAdapter, ValidationError

    from toolfold.config.callers import RESERVED, CallerName
    from toolfold.config.rewrite import table

    try:
        TypeAdapter(CallerName).validate_python(name)
    except ValidationError:
        raise ConfigError(
            f"{name!r} cannot be the name of a caller.",
            hint=f"Use letters, digits and . _ @ -, and none of {', '.join(sorted(RESERVED))}.",
        ) from None
    token = f"tf_{secrets.token_urlsafe(32)}"
    values: dict[str, Any] = {"token_sha256": hashlib.sha256(token.encode()).hexdigest()}
    values |= {"groups": group} if group else {}
    values |= {"host": True} if host else {}
    values |= {"scraper": True} if scraper else {}
    if only_print:
        sys.stdout.write(f"{token}\n\n{table(_OUTER, name, values)}")
        return
    file = _file(config)
    if name in _callers(file):
        raise ConfigError(
            f"{file.path} has a caller {name!r} already.", hint=f"`toolfold token revoke {name}` removes it."
        )
    file.add_table(_OUTER, name, values)
    sys.stdout.write(f"{token}\n")
    note(f"This is shown once. Its hash is in {file.path}, as caller {name}. {_RESTART}")


def list_(config: Config = None, json: Json = False) -> None:
    """List the callers that have tokens. Tokens themselves are not kept, so they cannot be shown.

    Example: toolfold token list
    """
    file = _file(config)
    callers = _callers(file)
    if json:
        usual: dict[str, Any] = {"groups": [], "host": False, "scraper": False}
        write_json([{"name": name, **usual, **_known(one)} for name, one in callers.items()])
        return
    for name, one in sorted(callers.items()):
        more = [f"groups {', '.join(map(str, one['groups']))}"] if one.get("groups") else []
        more += [kind for kind in ("host", "scraper") if one.get(kind)]
        sys.stdout.write(f"{printable('  '.join([name, *more]))}\n")
    if not callers:
        note(f"No caller has a token in {file.path}. `toolfold token new NAME` makes one.")


def revoke(name: Name, config: Config = None) -> None:
    """Remove a caller and its token. Its sessions stay until they are removed.

    Example: toolfold token revoke ci
    """
    file = _file(config)
    if name not in _callers(file):
        raise ConfigError(f"{file.path} has no caller {name!r}.", hint="`toolfold token list` names them.")
    file.remove_table(_OUTER, name)
    note(f"The caller {name} is gone from {file.path}. {_RESTART}")


def _known(caller: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in caller.items() if key in {"groups", "host", "scraper"}}


def _file(config: Path | None) -> TomlFile:
    from toolfold.config import edge
    from toolfold.config.rewrite import TomlFile

    here = edge.host()
    path = here.absolute(config) if config is not None else here.config_dir / "toolfold" / "toolfold.toml"
    if path.suffix.lower() != ".toml":
        raise ConfigError(f"{path} is not a TOML file.", hint="`toolfold token new NAME --print` shows what to add.")
    return TomlFile(path)


def _callers(file: TomlFile) -> dict[str, dict[str, Any]]:
    found = file.content.get(_OUTER, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        raise ConfigError(f"{file.path}: `{_OUTER}` must be a table of callers.")
    return found  # pyright: ignore[reportUnknownVariableType]
