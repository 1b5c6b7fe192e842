"""Proof that an audit log still holds what was written to it.

The chain alone proves that nothing before the newest record was altered, removed or reordered by anyone who did not
rewrite all that follows. A head that was kept elsewhere proves that the end was not cut off and nothing was rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from toolfold.telemetry.audit_reader import AuditReader, Stored
from toolfold.telemetry.audit_records import GENESIS, Checkpoint, Cut, Head, Record, chained, decode

_MOST_PROBLEMS = 20


@dataclass
class Proof:
    """`problems` is empty if and only if everything is proved."""

    records: int = 0
    first: int = 0
    head: Head = field(default_factory=lambda: Head(0, GENESIS))
    dropped: Checkpoint | None = None
    """The newest note about records that retention has dropped."""
    heads: int = 0
    """Given heads that the log still holds."""
    uncheckable: int = 0
    """Given heads whose record was dropped by retention."""
    problems: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        return not self.problems

    def problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)


def verify(reader: AuditReader, heads: Iterable[Head] = ()) -> Proof:
    """Check every record, and that the log goes on from each of `heads`."""
    proof = Proof()
    wanted: dict[int, set[bytes]] = {}
    for head in heads:
        wanted.setdefault(head.seq, set()).add(head.hash)
    # Checkpoints stand after the records that they tell of, so they are looked up first.
    proof.dropped = dropped = _newest_checkpoint(reader)
    before, expected = (_bytes(dropped.hash), dropped.through + 1) if dropped is not None else (GENESIS, 1)
    for row in reader.rows():
        proof.first = proof.first or row.seq
        if row.seq > expected:
            proof.problem(f"records {expected} to {row.seq - 1} are missing")
        elif row.seq < expected:
            proof.problem(f"record {row.seq} should not be there: records up to {expected - 1} were dropped")
        elif chained(before, row.seq, row.body) != row.hash:
            proof.problem(f"record {row.seq} was altered, or is not where it was written")
        record = _decoded(row)
        if record is None:
            proof.problem(f"record {row.seq} is not a record")
        if isinstance(record, Cut):
            proof.problem(f"record {row.seq} says that records up to {record.expected} were missing or changed then")
        if row.seq in wanted:
            proof.heads += 1
            if wanted.pop(row.seq) != {row.hash}:
                proof.problem(f"record {row.seq} is not the one that a head kept elsewhere names")
        proof.records += 1
        proof.head = Head(row.seq, row.hash)
        before, expected = row.hash, row.seq + 1
    _check_missing(proof, wanted)
    return proof


def _check_missing(proof: Proof, wanted: dict[int, set[bytes]]) -> None:
    for seq in sorted(wanted):
        if seq > proof.head.seq:
            proof.problem(f"the log ends at record {proof.head.seq}, but a head kept elsewhere names record {seq}")
        elif proof.dropped is not None and seq <= proof.dropped.through:
            proof.uncheckable += 1
            if seq == proof.dropped.through and wanted[seq] != {_bytes(proof.dropped.hash)}:
                proof.problem(f"record {seq}, which was dropped, is not the one that a head kept elsewhere names")
        elif seq != 0:
            proof.problem(f"record {seq}, which a head kept elsewhere names, is missing")


def _newest_checkpoint(reader: AuditReader) -> Checkpoint | None:
    found = (record for _, record in reader.records(newest_first=True) if isinstance(record, Checkpoint))
    return next(found, None)


def _bytes(hexadecimal: str) -> bytes:
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return b""


def _decoded(row: Stored) -> Record | None:
    try:
        return decode(row.body)
    except (msgspec.MsgspecError, TypeError):
        return None
