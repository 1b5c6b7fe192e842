"""`toolfold policy`: what may be called, by whom, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import CatalogDirs, Config, DataDir, Json, open_fold, run_async
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.config.policy import Do, Rule
    from toolfold.fold import Toolfold
    from toolfold.guards.events import CallKind

Pattern = Annotated[str, typer.Argument(help="server.tool, resource:server:uri or prompt:server:name; * is any text.")]
Caller = Annotated[str | None, typer.Option("--caller", help="Only for this caller, or group:NAME.")]
Session = Annotated[str | None, typer.Option("--session", help="Only in this session.")]
Print = Annotated[bool, typer.Option("--print", help="Print the lines for the config, write nothing.")]
_RESTART = "A gateway that is running learns of it when it is restarted."


def register(app: typer.Typer) -> None:
    policy = typer.Typer(
        help="Say what may be called: list, test and write rules.\n\nExample: toolfold policy deny 'github.delete_*'",
        no_args_is_help=True,
    )
    for name, command in {"allow": allow, "ask": ask, "deny": deny, "test": try_call, "list": list_rules}.items():
        policy.command(name)(command)
    app.add_typer(policy, name="policy")


def allow(
    pattern: Pattern, caller: Caller = None, session: Session = None, only_print: Print = False, config: Config = None
) -> None:
    """Write a rule that allows calls, before all other rules of your own toolfold.toml (or of --config).

    Examples: toolfold policy allow github.create_issue
              toolfold policy allow 'resource:docs:*' --caller ci
    """
    _write("allow", pattern, caller, session, config, only_print=only_print)


def ask(
    pattern: Pattern, caller: Caller = None, session: Session = None, only_print: Print = False, config: Config = None
) -> None:
    """Write a rule that asks a person before each call, before all other rules of your own toolfold.toml.

    Example: toolfold policy ask 'slack.post_*'
    """
    _write("ask", pattern, caller, session, config, only_print=only_print)


def deny(
    pattern: Pattern, caller: Caller = None, session: Session = None, only_print: Print = False, config: Config = None
) -> None:
    """Write a rule that refuses calls, before all other rules of your own toolfold.toml (or of --config).

    What is denied to a caller is not in its search and its API either.

    Examples: toolfold policy deny 'github.delete_*'
              toolfold policy deny 'stripe.*' --caller ci
    """
    _write("deny", pattern, caller, session, config, only_print=only_print)


def try_call(
    target: Annotated[str, typer.Argument(help="server.tool, resource:server:uri or prompt:server:name.")],
    args: Annotated[str, typer.Option("--args", help="The call's arguments, as JSON.")] = "{}",
    caller: Annotated[str, typer.Option("--caller", help="Who calls.")] = "local",
    group: Annotated[list[str] | None, typer.Option("--group", help="A group of the caller.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session of the run.")] = None,
    config: Config = None,
    catalog: CatalogDirs = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Say what would happen to a call, and why. Nothing is started or called.

    Examples: toolfold policy test github.delete_repo
              toolfold policy test github.create_issue --args '{"owner": "my-org"}' --caller ci
    """
    arguments = _arguments(args)

    async def work() -> dict[str, Any]:
        from toolfold.guards.context import Deadline, RunContext
        from toolfold.guards.guard import Call
        from toolfold.guards.policy import Policy

        fold = open_fold(config, catalog, data)
        kind, server, name = _target(fold, target)
        tool = fold.catalog.tool(server, name) if kind == "tool" else None
        run = RunContext(caller, session, Deadline(60), groups=frozenset(group or ()))
        policy = Policy(fold.settings.policy)
        call = Call("test", kind, server, name, arguments, run, tool)
        decision = policy.decide(call)
        return {
            "target": call.target,
            "do": decision.do,
            "rule": decision.rule,
            "reason": decision.reason,
            "known": tool is not None or kind != "tool",
            "hidden": tool is not None and policy.denial(caller, tool) is not None,
        }

    found = run_async(work)
    if json:
        write_json(found)
        return
    because = f", because {found['reason']}" if found["reason"] else ""
    sys.stdout.write(printable(f"{found['do']}  {found['target']}\n  by {found['rule']}{because}\n"))
    if found["hidden"]:
        sys.stdout.write("  It is not in this caller's search and API.\n")
    if not found["known"]:
        note("This tool is not known here yet, so its annotations could not be looked at.", "yellow")


def list_rules(config: Config = None, catalog: CatalogDirs = None, data: DataDir = None, json: Json = False) -> None:
    """Show the profile and the rules in the order in which they are tried, with how many tools each one names.

    Example: toolfold policy list
    """
    from toolfold.guards.policy import rule_title
    from toolfold.schema.patterns import NO, TargetPattern

    fold = open_fold(config, catalog, data)
    settings = fold.settings.policy
    rows: list[dict[str, Any]] = []
    for number, rule in enumerate(settings.rules, 1):
        pattern = TargetPattern(rule.match)
        named = sum(pattern.match(one.kind, one.server, one.key) != NO for one in fold.catalog.entries)
        rows.append({**rule.model_dump(exclude_none=True), "title": rule_title(number, rule), "names": named})
    if json:
        write_json({"profile": settings.profile, "rules": rows})
        return
    for row in rows:
        sys.stdout.write(printable(f"{row['title']}  names {row['names']} of what is known\n"))
    sys.stdout.write(f"profile {settings.profile}  for everything else\n")


def _write(
    do: Do, pattern: str, caller: str | None, session: str | None, config: Path | None, *, only_print: bool
) -> None:
    from pydantic import ValidationError

    from toolfold.config import edge
    from toolfold.config.policy import Rule
    from toolfold.config.rewrite import TomlFile, entry

    try:
        rule = Rule(match=pattern, caller=caller, session=session, do=do)
    except ValidationError as error:
        raise ConfigError(error.errors()[0]["msg"].removeprefix("Value error, ").capitalize() + ".") from None
    values = _values(rule)
    if only_print:
        sys.stdout.write(entry("policy", "rules", values))
        return
    here = edge.host()
    path = here.absolute(config) if config is not None else here.config_dir / "toolfold" / "toolfold.toml"
    if path.suffix != ".toml":
        raise ConfigError(f"{path} is not a toolfold.toml.", hint="`--print` shows the lines to add.")
    TomlFile(path).put_first("policy", "rules", values, decides="do")
    note(f"{path}: {do} {pattern}. {_RESTART}")


def _values(rule: Rule) -> dict[str, str]:
    found = {"match": rule.match, "caller": rule.caller, "session": rule.session, "do": rule.do}
    return {key: value for key, value in found.items() if value is not None}


def _target(fold: Toolfold, written: str) -> tuple[CallKind, str, str]:
    kind, colon, rest = written.partition(":")
    if colon and kind in {"resource", "prompt"}:
        server, _, name = rest.partition(":")
        if server and name:
            return cast("CallKind", kind), server, name
    elif (tool := fold.catalog.named(written)) is not None:
        return "tool", tool.server, tool.name
    else:
        server, dot, name = written.partition(".")
        if server and dot and name:
            return "tool", server, name
    raise ConfigError(
        f"{written!r} names no call.", hint="Write server.tool, resource:server:uri or prompt:server:name."
    )


def _arguments(text: str) -> dict[str, Any]:
    from json import JSONDecodeError, loads

    try:
        arguments: Any = loads(text)
    except (JSONDecodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ConfigError("--args must be a JSON object.", hint='For example --args \'{"owner": "my-org"}\'.')
    return cast("dict[str, Any]", arguments)
