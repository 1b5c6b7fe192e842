"""`toolfold unfold`."""

from __future__ import annotations

import typer

from toolfold.cli.changes import agreed, show
from toolfold.cli.console import note
from toolfold.cli.fold import Client, Print, Yes
from toolfold.errors import ConfigError


def register(app: typer.Typer) -> None:
    app.command("unfold")(unfold)


def unfold(client: Client = None, yes: Yes = False, only_print: Print = False) -> None:
    """Put a client's files back as they were before `toolfold fold`.

    Byte for byte where the client has not changed a file since; else only Toolfold's own entries are taken out, and
    the servers put back.

    Examples: toolfold unfold claude-code
              toolfold unfold --print
    """
    from toolfold.config import edge
    from toolfold.config.folding import undo
    from toolfold.config.folding.journal import Journal
    from toolfold.config.folding.targets import TARGETS, target

    chosen = target(client) if client is not None else None
    if client is not None and chosen is None:
        names = ", ".join(each.name for each in TARGETS)
        raise ConfigError(f"Unknown client {client!r}. Known are: {names}.")
    known = Journal.of(edge.host())
    records = [record for record in known.records if chosen is None or record.client == chosen.name]
    if not records:
        note(f"{chosen.title} was not folded: nothing to put back." if chosen else "Nothing is folded.")
        return
    undoing = undo.plan_unfold(records, known)
    show(undoing.changes)
    for line in undoing.notes:
        note(f"  {line}")
    if only_print:
        return
    names = ", ".join(each.title for each in TARGETS if any(record.client == each.name for record in records))
    if not yes and not agreed(f"Put back {names} like this?"):
        raise SystemExit(1)
    undo.unfold(undoing, known)
    note(f"{names}: everything is as it was.", "green")
