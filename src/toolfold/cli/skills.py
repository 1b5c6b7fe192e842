"""`toolfold skills`: see, promote, approve and remove saved functions."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli import skills_share
from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json, open_fold, run_async
from toolfold.errors import ConfigError, SkillError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolfold.config.settings import Settings
    from toolfold.skills.folder import Skill
    from toolfold.skills.index import Record, Use
    from toolfold.skills.store import SkillStore

Name = Annotated[str, typer.Argument(help="The skill's name: sales-report or sales_report.")]
Scope = Annotated[str, typer.Option("--scope", help="user, project or shared; default: the first that has it.")]
Caller = Annotated[str, typer.Option("--caller", help="Whose skills: a caller over HTTP; default: yours.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_SCOPES = ("project", "user", "shared")


def register(app: typer.Typer) -> None:
    skills = typer.Typer(
        help="See, share, promote, approve and remove saved functions.\n\nExample: toolfold skills list",
        no_args_is_help=True,
    )
    for command in (list_, show, rm, promote, approve):
        skills.command(command.__name__.rstrip("_"))(command)
    skills_share.add_to(skills)
    app.add_typer(skills, name="skills")


def list_(
    scope: Scope = "", caller: Caller = "", config: Config = None, data: DataDir = None, json: Json = False
) -> None:
    """List skills: those in use, those that wait for approval, and those that cannot be read.

    Examples: toolfold skills list
              toolfold skills list --scope shared --json
    """
    stores = list(_stores(_settings(config, data), scope, caller))
    rows = [_row(where, record, store.uses().get(name)) for where, store in stores for name, record in _sorted(store)]
    rows += [_waiting_row(where, skill) for where, store in stores for skill in store.pending()]
    if json:
        write_json(rows)
        return
    for row in rows:
        sys.stdout.write(printable(_line(row)) + "\n")
    if not rows:
        places = ", ".join(str(store.root) for _, store in stores)
        note(f"No skills yet. Programs save them with `save_skill(...)`; your own go into {places}.")


def show(
    name: Name,
    version: Annotated[int, typer.Option("--version", help="An earlier version, as the history lists it.")] = 0,
    scope: Scope = "",
    caller: Caller = "",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Show a skill: its document, its code, its use and its history.

    Examples: toolfold skills show sales-report
              toolfold skills show sales_report --version 2
    """
    from toolfold.skills.names import folder_name

    name = folder_name(name)
    where, store = _having(_settings(config, data), name, scope, caller)
    current = next((one for one in store.pending() if one.name == name), None) if store.find(name) is None else None
    skill = current or store.read(name)
    if version and version != skill.version:
        earlier = store.earlier(name, version)
        if earlier is None:
            raise SkillError(f"the skill {name!r} has no version {version}")
        skill = earlier
    use = store.uses().get(name)
    history = store.history(name)
    if json:
        write_json(
            {
                **_skill_data(skill),
                "scope": where,
                "pending": current is not None,
                "source": skill.source,
                "document": skill.body,
                "provenance": dict(skill.provenance),
                "files": sorted(skill.files),
                "uses": use.count if use else 0,
                "succeeded": use.ok if use else 0,
                "history": [_skill_data(one) | {"provenance": dict(one.provenance)} for one in history],
            }
        )
        return
    lines = [f"{skill.name}  version {skill.version}, {where}", skill.description]
    lines += [f"tags: {', '.join(skill.tags)}"] if skill.tags else []
    lines += [f"{key}: {value}" for key, value in skill.provenance.items()]
    lines += [_used(use)] if use else []
    lines += ["", "--- SKILL.md", skill.body, "", "--- skill.py", skill.source] if skill.source else ["", skill.body]
    lines += [f"--- {path} ({len(content):,} bytes)" for path, content in sorted(skill.files.items())]
    lines += [f"earlier: version {one.version}, {one.provenance.get('created', '')}" for one in history]
    sys.stdout.write(printable("\n".join(lines)) + "\n")


def rm(
    name: Name, scope: Scope = "", caller: Caller = "", yes: Yes = False, config: Config = None, data: DataDir = None
) -> None:
    """Remove a skill. Its versions stay in the folder `.history` beside it.

    Example: toolfold skills rm sales-report --yes
    """
    from toolfold.skills.names import folder_name

    name = folder_name(name)
    where, store = _having(_settings(config, data), name, scope, caller)
    _confirm(f"Remove the skill {name} ({where})?", yes)
    store.remove(name)
    note(f"Removed {name} ({where}); its versions are in {store.root / '.history' / name}.")


def promote(
    run: Annotated[str, typer.Argument(help="The id of a past run, as `sessions show` and `audit list` print it.")],
    name: Annotated[str, typer.Option("--name", help="The skill's name; default: that of its one function.")] = "",
    description: Annotated[str, typer.Option("--description", help="What it does and when to use it.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be given several times.")] = None,
    scope: Annotated[str, typer.Option("--scope", help="user, project or shared.")] = "user",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Make a skill of the program of a past run, which is in the audit log or in a session's transcript.

    Where the program defines the function that is named, the skill is that function; otherwise it is the whole program.

    Examples: toolfold skills promote 8d5197bb751fae8f
              toolfold skills promote 8d5197bb751fae8f --name weekly-report --scope shared
    """
    from toolfold.skills.draft import Draft
    from toolfold.skills.promote import promoted

    settings = _settings(config, data)
    wanted = _scope(scope)
    code = _program_of(settings, run)
    title, source = promoted(code, name)
    draft = Draft(title, source, description, tag or [])

    async def save() -> Skill:
        from toolfold.guards.context import LOCAL_CALLER, Deadline, RunContext
        from toolfold.review.servers import named_servers

        async with open_fold(config, None, data) as fold:
            named = named_servers(source, fold.catalog.missing, fold.catalog.names)
            await fold.live.listed_for_program(named, 20.0)
            context = RunContext(LOCAL_CALLER, None, Deadline(60.0), code=source)
            origin = {"author": LOCAL_CALLER, "promoted-from": run}
            saved = await fold.skills.save(context, draft, wanted, approved=True, provenance=origin)
            return saved.skill

    skill = run_async(save)
    if json:
        write_json(_skill_data(skill) | {"scope": scope})
    else:
        note(f"Saved {skill.name}, version {skill.version} ({scope}): `from skills import {skill.module}`.")


def approve(
    name: Name, scope: Scope = "", caller: Caller = "", yes: Yes = False, config: Config = None, data: DataDir = None
) -> None:
    """Let other sessions use a skill that a program has saved (where `skills.approval` asks for that).

    Examples: toolfold skills approve sales-report
              toolfold skills approve sales-report --caller ci --yes
    """
    from toolfold.skills.names import folder_name

    name = folder_name(name)
    for where, store in _stores(_settings(config, data), scope, caller):
        waiting = next((one for one in store.pending() if one.name == name), None)
        if waiting is None:
            continue
        if not yes:
            sys.stdout.write(printable(f"{waiting.description}\n\n{waiting.source}\n"))
        _confirm(f"Let other sessions use {name} ({where})?", yes)
        saved = store.approve(name)
        note(f"Approved {name}, version {saved.skill.version}.")
        return
    raise SkillError(f"no skill {name!r} waits for approval", hint="`toolfold skills list` shows those that do.")


# What the commands share


def _settings(config: Path | None, data: Path | None) -> Settings:
    from toolfold.config.load import load_here

    return load_here(config, data_dir=data).settings


def _stores(settings: Settings, scope: str, caller: str) -> Iterator[tuple[str, SkillStore]]:
    from toolfold.guards.context import LOCAL_CALLER
    from toolfold.skills.skills import scope_folder
    from toolfold.skills.store import SkillStore

    root, project = settings.data_dir / "skills", settings.skills.project
    for one in [_scope(scope)] if scope else _SCOPES:
        if one != "project" or scope or (project is not None and not caller):
            yield one, SkillStore(scope_folder(root, project, one, caller or LOCAL_CALLER))


def _scope(text: str) -> Any:
    if text not in _SCOPES:
        raise ConfigError(f"unknown scope {text!r};", hint=f"use {', '.join(_SCOPES)}.")
    return text


def _having(settings: Settings, name: str, scope: str, caller: str) -> tuple[str, SkillStore]:
    for where, store in _stores(settings, scope, caller):
        if store.find(name) is not None or any(one.name == name for one in store.pending()):
            return where, store
    raise SkillError(f"there is no skill {name!r}", hint="`toolfold skills list` shows them.")


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was done: there is no terminal to ask at.", hint="Add --yes.")
    if not typer.confirm(question):
        raise SystemExit(1)


def _program_of(settings: Settings, run: str) -> str:
    """The program of a past run, from the audit log, or from the transcript of its session."""
    from toolfold.errors import AuditUnavailable
    from toolfold.session.homes import homes_in
    from toolfold.session.transcript import entries
    from toolfold.telemetry.audit_reader import AuditReader, Filter, Run

    try:
        with AuditReader.open(settings.data_dir) as reader:
            found = [one.code for one in reader.history(Filter(run=run)) if isinstance(one, Run) and one.run == run]
    except AuditUnavailable:
        found = []
    found += [each.code for home, _ in homes_in(settings.data_dir) for each in entries(home) if each.run == run]
    if not any(found):
        raise SkillError(
            f"there is no program of a run {run!r}",
            hint="Runs are kept in the audit log (`audit = true` in the settings; `toolfold audit list`) "
            "and in transcripts of sessions.",
        )
    return next(filter(None, found))


def _sorted(store: SkillStore) -> list[tuple[str, Record]]:
    return sorted(store.records().items())


def _row(scope: str, record: Record, use: Use | None) -> dict[str, Any]:
    return {
        "name": record.name,
        "scope": scope,
        "description": record.description,
        "tags": list(record.tags),
        "signature": record.function.signature if record.function is not None else "",
        "version": record.version,
        "pending": False,
        "uses": use.count if use else 0,
        "succeeded": use.ok if use else 0,
        "last_used": use.last if use else None,
        "problem": record.problem,
    }


def _waiting_row(scope: str, skill: Skill) -> dict[str, Any]:
    from toolfold.skills.index import record_of

    return _row(scope, record_of(skill), None) | {"pending": True}


def _line(row: dict[str, Any]) -> str:
    state = "  [waits for approval]" if row["pending"] else ""
    used = f"  ({row['succeeded']} of {row['uses']} runs succeeded)" if row["uses"] else ""
    return f"{row['name']}  {row['scope']}{state}  {row['problem'] or row['description']}{used}"


def _used(use: Use) -> str:
    last = time.strftime("%Y-%m-%d %H:%M", time.localtime(use.last))
    return f"used in {use.count} runs, of which {use.ok} succeeded; last {last}"


def _skill_data(skill: Skill) -> dict[str, Any]:
    data = {"name": skill.name, "description": skill.description, "tags": list(skill.tags)}
    return data | {"version": skill.version, "digest": skill.digest}
