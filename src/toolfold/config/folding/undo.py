"""Working out what `toolfold unfold` would change, and doing what either command has worked out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolfold.config.folding import journal
from toolfold.config.folding.drafts import Added, Block, Draft, Op
from toolfold.config.folding.journal import Change, Edit, Journal, Record
from toolfold.config.folding.plan import BLOCK_USE, OUR_FILE, Plan


@dataclass(slots=True)
class Undoing:
    """What would be put back."""

    records: list[Record]
    changes: list[Change] = field(default_factory=list[Change])
    notes: list[str] = field(default_factory=list[str])
    others: list[Record] = field(default_factory=list[Record])
    """Folds of other clients that take over what they share with these."""


def plan_unfold(records: Sequence[Record], known: Journal) -> Undoing:
    """What undoing `records` would change, the newest first."""
    newest_first = sorted(records, key=lambda record: -record.number)
    return _Unfolder(Undoing(newest_first), known).plan()


def fold(plan: Plan, known: Journal) -> None:
    """Do what was planned: either all of it or nothing."""
    if not plan.changes:
        return
    record = known.begin(plan.target.name, plan.changes, plan.uses)
    try:
        journal.write_all(plan.changes)
    except BaseException:
        known.forget(record)
        raise
    record.finished = True
    known.save(record)


def unfold(undoing: Undoing, known: Journal) -> None:
    """Put everything back: either all of it or nothing."""
    journal.write_all(undoing.changes)
    for record in undoing.others:
        known.save(record)
    for record in undoing.records:
        known.forget(record)


def recover(known: Journal) -> list[str]:
    """Undo folds that were cut off in the middle; the clients that they were for."""
    cut_off = [record for record in known.records if not record.finished]
    if cut_off:
        unfold(plan_unfold(cut_off, known), known)
    return [record.client for record in cut_off]


class _Unfolder:
    def __init__(self, undoing: Undoing, known: Journal) -> None:
        self._undoing, self._known = undoing, known
        self._now: dict[Path, bytes | None] = {}
        """What each file holds after what has been undone so far."""
        self._at_first: dict[Path, bytes | None] = {}
        self._modes: dict[Path, int] = {}
        self._folders: dict[Path, list[str]] = {}
        self._staying = [record for record in known.records if record not in undoing.records]

    def plan(self) -> Undoing:
        for record in self._undoing.records:
            for edit in reversed(record.edits):
                self._undo(edit, record.number)
        for path, after in self._now.items():
            before = self._at_first[path]
            if before != after:
                folders = self._folders.get(path, [])
                change = Change(path, before, after, mode=self._modes.get(path), made_folders=folders)
                self._undoing.changes.append(change)
        return self._undoing

    def _undo(self, edit: Edit, number: int) -> None:
        path = Path(edit.path)
        if not path.parent.is_dir():
            if edit.existed:
                self._undoing.notes.append(f"{path}: its folder is gone, so it was not put back.")
            return
        if path not in self._now:
            self._now[path] = self._at_first[path] = journal.current(path)
        now = self._now[path]
        self._folders.setdefault(path, []).extend(edit.folders)
        shared = [op for op in edit.ops if self._heir(path, op) is not None]
        exact = bool(edit.after)
        if exact and not shared and (now is None or hashlib.sha256(now).hexdigest() == edit.after):
            self._now[path] = self._known.copy_of(edit)
            self._modes[path] = edit.mode
        elif now is not None and not (exact and now == self._known.copy_of(edit)):
            self._now[path] = self._edited(Draft(path, now), edit, shared)
            if path.name == OUR_FILE:
                self._modes[path] = edit.mode
        if self._now[path] is not None:
            self._hand_over(path, edit, shared, number)

    def _edited(self, draft: Draft, edit: Edit, shared: Sequence[Op]) -> bytes | None:
        """The file with our entries taken out and theirs put back, and everything else as it is."""
        for op in reversed(edit.ops):
            if op not in shared:
                draft.undo(op)
        self._undoing.notes += draft.notes
        after = draft.after()
        return None if not edit.existed and draft.text.strip() in {"", "{}"} else after

    # ---- what folds of other clients share with this one

    def _heir(self, path: Path, op: Op) -> Record | None:
        """A fold that stays and needs what `op` has put there."""
        name = op.name if isinstance(op, Added) else BLOCK_USE if isinstance(op, Block) else None
        return next((each for each in self._staying if name in each.uses.get(str(path), ())), None)

    def _hand_over(self, path: Path, edit: Edit, shared: Sequence[Op], number: int) -> None:
        for op in shared:
            heir = self._heir(path, op)
            if heir is None:
                continue
            own = next((each for each in heir.edits if each.path == str(path)), None)
            if own is None:
                own = Edit(str(path), existed=True, backup="", mode=edit.mode, after="", ops=[])
                heir.edits.append(own)
            own.ops.append(op)
            self._changed(heir)
        for record in self._staying:
            for own in record.edits:
                if own.path == str(path) and record.number > number:
                    self._inherit(own, edit)
                    self._changed(record)
        if path.name == OUR_FILE and any(own.path == str(path) for each in self._staying for own in each.edits):
            self._modes[path] = journal.PRIVATE

    @staticmethod
    def _inherit(own: Edit, edit: Edit) -> None:
        """A later fold of the same file puts back what the earlier one had found."""
        own.mode = edit.mode
        own.after = ""
        if not edit.existed and own.existed:
            own.existed = False
            own.folders = [*edit.folders, *own.folders]

    def _changed(self, record: Record) -> None:
        if record not in self._undoing.others:
            self._undoing.others.append(record)
