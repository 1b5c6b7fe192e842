"""`toolfold audit`: read the audit log, and prove that it is whole."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from toolfold.cli.console import counted, note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json, moment
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from toolfold.telemetry.audit_reader import AuditReader, Call, Filter, Run
    from toolfold.telemetry.audit_records import Head, ToolNoted

Caller = Annotated[str, typer.Option("--caller", help="Only what this caller did.")]
Session = Annotated[str, typer.Option("--session", help="Only what was done in this session.")]
OfRun = Annotated[str, typer.Option("--run", help="Only this run and its calls.")]
Target = Annotated[str, typer.Option("--target", help="Only calls that match, such as 'github.delete_*'.")]
Decision = Annotated[str, typer.Option("--decision", help="Only calls that were decided so: allow, ask, deny.")]
Failed = Annotated[bool, typer.Option("--failed", help="Only what failed or was refused.")]
Since = Annotated[str, typer.Option("--since", help="Since a time (2026-11-02T08:00) or an age (2h, 7d).")]
Until = Annotated[str, typer.Option("--until", help="Until a time or an age.")]

_MOST_SHOWN = 15


def register(app: typer.Typer) -> None:
    audit = typer.Typer(
        help="Read the audit log, and prove that it is whole.\n\nExample: toolfold audit list --caller ci",
        no_args_is_help=True,
    )
    for command in (list_, show, export, verify, head, stats):
        audit.command(command.__name__.rstrip("_"))(command)
    app.add_typer(audit, name="audit")


def list_(
    caller: Caller = "",
    session: Session = "",
    run: OfRun = "",
    target: Target = "",
    decision: Decision = "",
    failed: Failed = False,
    since: Since = "",
    until: Until = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """List runs and calls, the newest first.

    Examples: toolfold audit list --since 2h
              toolfold audit list --target 'github.delete_*' --decision deny --json
    """
    from itertools import islice

    wanted = _filter(caller, session, run, target, decision, failed, since, until)
    with _reader(config, data) as reader:
        found = list(islice(reader.history(wanted), limit))
    if json:
        write_json([_data(item) for item in found])
        return
    for item in found:
        sys.stdout.write(printable(_line(item)) + "\n")
    if not found:
        note("Nothing in the audit log matches.")


def show(
    name: Annotated[str, typer.Argument(help="The id of a run or of a call, as `list` prints it.")],
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Show everything that is known of a run, with its program and its calls; or of one call.

    Example: toolfold audit show 8d5197bb751fae8f
    """
    from toolfold.telemetry.audit_reader import Call, Filter, Run

    def is_it(item: object) -> bool:
        return (isinstance(item, Run | Call) and name == item.run) or (isinstance(item, Call) and name == item.call)

    with _reader(config, data) as reader:
        items = list(filter(is_it, reader.history(Filter(run=name.partition("-")[0]))))[::-1]
    if not items:
        raise ConfigError(f"No run or call {name!r} is in the audit log.", hint="`toolfold audit list` names them.")
    if json:
        write_json([_data(item) for item in items])
        return
    for item in items:
        shown = _data(item)
        code = shown.pop("code", "")
        for key, value in shown.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            sys.stdout.write(f"{key:>12}  {printable(text)}\n")
        sys.stdout.write(f"\n{printable(code).rstrip()}\n\n" if code else "\n")


def export(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; default: standard output.")] = None,
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Write every record as a line of JSON, the oldest first: its number, its hash, and the text that was hashed.

    Example: toolfold audit export -o audit.jsonl
    """
    from json import dumps

    with _reader(config, data) as reader, contextlib.ExitStack() as stack:
        out = sys.stdout if output is None else stack.enter_context(output.open("w", encoding="utf-8"))
        for row in reader.rows():
            body = row.body.decode("utf-8", "replace")
            out.write(dumps({"seq": row.seq, "hash": row.hash.hex(), "body": body}) + "\n")


def verify(
    head: Annotated[list[str] | None, typer.Option("--head", help="A head that was kept elsewhere.")] = None,
    head_file: Annotated[
        Path | None, typer.Option("--head-file", help="A file of such heads; default: the one in the settings.")
    ] = None,
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Prove that no record was altered, removed or reordered, and none cut off after a head that was kept elsewhere.

    Examples: toolfold audit verify
              toolfold audit verify --head "1042 9f3c…"
              toolfold audit verify --head-file /mnt/other/toolfold-heads
    """
    from toolfold.telemetry.audit_verify import verify

    settings = _settings(config, data)
    heads = _heads(head or [], head_file or settings.audit.head_file)
    with _reader(config, data) as reader:
        proof = verify(reader, heads)
    if json:
        write_json(
            asdict(proof)
            | {"ok": proof.ok, "head": str(proof.head), "dropped": proof.dropped and msgspec.to_builtins(proof.dropped)}
        )
    else:
        for problem in proof.problems:
            note(f"✗ {problem}", "red")
        if proof.dropped is not None:
            sys.stdout.write(f"Records up to {proof.dropped.through} were dropped ({proof.dropped.reason}).\n")
        if proof.ok:
            end = f"; {proof.heads} heads kept elsewhere are in it" if proof.heads else ""
            sys.stdout.write(f"{proof.records:,} records, up to {proof.head}: nothing was altered or removed{end}.\n")
            if not heads:
                note("That the end was not cut off takes a head that was kept elsewhere: --head or --head-file.")
    if not proof.ok:
        raise SystemExit(1)


def head(config: Config = None, data: DataDir = None, json: Json = False) -> None:
    """Print the newest record's number and hash. Kept elsewhere, it proves later that nothing up to it was cut off.

    Example: toolfold audit head | ssh other-machine 'cat >> toolfold-heads'
    """
    with _reader(config, data) as reader:
        newest = reader.head
    if json:
        write_json({"seq": newest.seq, "hash": newest.hash.hex()})
    else:
        sys.stdout.write(f"{newest}\n")


def stats(
    caller: Caller = "",
    session: Session = "",
    target: Target = "",
    since: Since = "",
    until: Until = "",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Count runs and calls, by caller, tool, decision and kind of error.

    Example: toolfold audit stats --since 7d
    """
    with _reader(config, data) as reader:
        found = reader.statistics(_filter(caller, session, "", target, "", False, since, until))
    if json:
        write_json(vars(found))
        return
    sys.stdout.write(
        f"{counted(found.runs, 'run')} ({found.failed_runs:,} failed), about {found.tokens:,} tokens of results\n"
    )
    sys.stdout.write(f"{counted(found.calls, 'call')} ({found.failed_calls:,} failed or refused)\n")
    groups = {"callers": found.callers, "tools": found.targets, "decisions": found.decisions, "errors": found.errors}
    for title, counts in groups.items():
        if counts:
            sys.stdout.write(f"\n{title}\n")
        for name, count in counts.most_common(_MOST_SHOWN):
            sys.stdout.write(f"{count:>8,}  {printable(name)}\n")


def _settings(config: Path | None, data: Path | None) -> Any:
    from toolfold.config.load import load_here

    return load_here(config, data_dir=data).settings


@contextlib.contextmanager
def _reader(config: Path | None, data: Path | None) -> Generator[AuditReader]:
    from toolfold.telemetry.audit_reader import AuditReader

    with AuditReader.open(_settings(config, data).data_dir) as reader:
        yield reader


def _filter(
    caller: str, session: str, run: str, target: str, decision: str, failed: bool, since: str, until: str
) -> Filter:
    from toolfold.telemetry.audit_reader import Filter

    return Filter(
        caller=caller,
        session=session,
        run=run,
        target=target,
        decision=decision,
        failed=failed,
        since=moment(since) if since else 0.0,
        until=moment(until) if until else float("inf"),
    )


def _heads(given: list[str], file: Path | None) -> list[Head]:
    from toolfold.telemetry.audit_records import Head

    lines = list(given)
    if file is not None and (given == [] or file.exists()):
        try:
            lines += file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}.") from None
    return [Head.parse(line) for line in lines if line.strip()]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")[:19]


def _data(item: Run | Call | ToolNoted) -> dict[str, Any]:
    """As scripts read it: what happened, when in UTC, and whether it ended."""
    from toolfold.telemetry.audit_records import ToolNoted

    moment = datetime.fromtimestamp(item.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found = {**msgspec.to_builtins(item), "time": moment}
    return found if isinstance(item, ToolNoted) else {**found, "ok": item.ok}


def _line(item: Run | Call | ToolNoted) -> str:
    from toolfold.telemetry.audit_reader import Call
    from toolfold.telemetry.audit_records import ToolNoted

    if isinstance(item, ToolNoted):
        return f"{_time(item.time)}  tool    {item.target}  {item.event}"
    ended = {True: "ok", False: "failed", None: "open"}[item.ok]
    if isinstance(item, Call):
        parts = [f"  {item.call}", item.caller, item.target]
        parts += [" ".join(filter(None, [item.decision, item.rule, item.approved_by]))] if item.decision else []
        parts += [item.asked] if item.asked else []
    else:
        calls = f"{item.calls} call{'s' * (item.calls != 1)}"
        parts = [item.run, item.caller, f"session {item.session}" if item.session else "run", calls]
    error = f"  {item.error.splitlines()[0]}" if item.error else ""
    return f"{_time(item.time)}  {ended:<6}  {'  '.join(parts)}  {item.ms:.1f} ms{error}"
