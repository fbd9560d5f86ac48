"""What became of every record: from the clients' own notes alone, never from what the migration says of itself.

    python -m demo.accounting RUN_DIRECTORY

A group owes the records that producers noted as acknowledged, in its topics, from its starting commit on. Per group:

- lost: owed, and no member noted it;
- processed twice: each note more than is due. A starting commit says that everything below it is processed, so a note
  of such a record is one too many as well;
- order violation: a record's first note comes, in time, after that of a record with a higher source offset in its
  partition; or a record was read from another partition than it was produced to.

A record that was never acknowledged may be processed once or not at all. Notes that contradict themselves, or a record
that no producer sent, give no account but an error.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from demo.notes import RunDirectory
from demo.notes_reader import (
    AccountingError,
    Notes,
    Numbers,
    Partitions,
    Produced,
    ordered_keys,
    read_notes,
    read_produced,
)
from demo.pauses import pause_ms, summary

NOT_SUBSCRIBED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAccount:
    """The account of one group, in records.

    Attributes:
        records_produced: what it owes.
        records_processed: its notes, on both clusters; `records_produced - records_lost + records_processed_twice`
            unless it also processed a record that was never acknowledged.
        on_source, on_target: of `records_processed`.
        pause_ms: see `demo.pauses`; None for a group that did not move while it was at work.
    """

    records_produced: int
    records_processed: int
    records_lost: int
    records_processed_twice: int
    order_violations: int
    on_source: int
    on_target: int
    pause_ms: float | None

    def __post_init__(self) -> None:
        if self.on_source + self.on_target != self.records_processed:
            raise ValueError(f"{self.on_source} + {self.on_target} is not {self.records_processed}.")


def account(directory: Path) -> dict[str, Any]:
    """Account for every record of a run.

    Returns:
        `records_produced`: all that were acknowledged, of all producers; `records_processed`, `records_lost`,
        `records_processed_twice`, `order_violations`: sums over the groups; `groups`: a GroupAccount for each;
        `pauses_ms`: of the `consumers`, `p50`, `p99` and `max` over the groups.

    Raises:
        AccountingError: the notes are incomplete or contradict themselves.
    """
    run = RunDirectory(directory)
    produced = read_produced(run)
    obligations = run.obligations()
    groups = {
        name: account_group(run, name, produced, _starts(produced.partitions, topics))
        for name, topics in obligations.groups.items()
    }
    sums = ("records_processed", "records_lost", "records_processed_twice", "order_violations")
    return {
        "records_produced": int(produced.acknowledged.sum()),
        **{name: sum(getattr(group, name) for group in groups.values()) for name in sums},
        "groups": {name: asdict(group) for name, group in groups.items()},
        "pauses_ms": {"consumers": summary(group.pause_ms for group in groups.values())},
    }


def account_group(run: RunDirectory, name: str, produced: Produced, starts: Numbers) -> GroupAccount:
    """Account for one group; `starts` holds its starting commit for each place, or NOT_SUBSCRIBED."""
    on_source = _read_all(run, name, "source", produced)
    on_target = _read_all(run, name, "target", produced)
    notes = _concatenate([on_source, on_target])
    times = np.bincount(notes.record, minlength=produced.records.total)
    start = starts[produced.place]
    owed = produced.acknowledged & (start != NOT_SUBSCRIBED) & (produced.offset >= start)
    settled = produced.acknowledged & (produced.offset < start)
    due = np.where(settled, 0, 1)
    return GroupAccount(
        records_produced=int(owed.sum()),
        records_processed=len(notes.record),
        records_lost=int((owed & (times == 0)).sum()),
        records_processed_twice=int(np.maximum(times - due, 0).sum()),
        order_violations=order_violations(notes, produced),
        on_source=len(on_source.record),
        on_target=len(on_target.record),
        pause_ms=_pause_ms(run, name, on_source, on_target),
    )


def _pause_ms(run: RunDirectory, name: str, on_source: Notes, on_target: Notes) -> float | None:
    if not len(on_source.record) or not len(on_target.record):
        return None
    last, first = int(on_source.noted_ns.max()), int(on_target.noted_ns.min())
    return pause_ms(run, name, last_source_ns=last, first_target_ns=first)


def order_violations(notes: Notes, produced: Produced) -> int:
    """Count first notes that come after the note of a later record, and notes from a wrong partition."""
    misrouted = notes.place != produced.place[notes.record]
    by_time = np.argsort(notes.noted_ns, kind="stable")
    # Only a record's first note: a repetition is counted as processed twice, not as out of order as well.
    _, first = np.unique(notes.record[by_time], return_index=True)
    record = notes.record[by_time][np.sort(first)]
    record = record[produced.acknowledged[record]]
    place = produced.place[record]
    by_place = np.argsort(place, kind="stable")
    keys = ordered_keys(place, produced.offset[record])[by_place]
    # Keys of a later place are higher, so the running maximum starts anew at each place by itself.
    late = keys < np.maximum.accumulate(keys) if len(keys) else keys.astype(bool)
    return int(late.sum()) + int(misrouted.sum())


def _starts(partitions: Partitions, topics: Mapping[str, list[int]]) -> Numbers:
    starts = np.full(partitions.total, NOT_SUBSCRIBED, dtype=np.int64)
    for topic, offsets in topics.items():
        first = partitions.first(topic)
        starts[first : first + len(offsets)] = offsets
    return starts


def _read_all(run: RunDirectory, group: str, cluster: str, produced: Produced) -> Notes:
    parts = [
        part
        for path in run.group_notes(group, "source" if cluster == "source" else "target")
        for part in read_notes(path, produced.records, produced.partitions)
    ]
    return _concatenate(parts)


def _concatenate(parts: list[Notes]) -> Notes:
    arrays = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        if parts
        else np.empty(0, dtype=np.int64)
        for field in fields(Notes)
    }
    return Notes(**arrays)


def main(arguments: list[str]) -> int:
    """Print the account of a run as JSON; 1 if anything is lost, doubled or out of order, 3 if it cannot be told."""
    try:
        result = account(Path(arguments[0]))
    except (AccountingError, FileNotFoundError) as error:
        print(f"no account: {error}", file=sys.stderr)
        return 3
    print(json.dumps(result, indent=1))
    return 1 if any(result[name] for name in ("records_lost", "records_processed_twice", "order_violations")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
