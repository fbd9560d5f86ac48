"""What became of every record, by the outside judge (`checker/`), and whether enough happened to prove anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checker.findings import Fault
from checker.history import ACKED, History
from checker.reading import read
from checker.verdict import Verdict, decide
from demo.clients.groups import GROUPS

TOPICS = 8
BIG_TOPIC_RECORDS = 1_000_000
PRODUCED_PER_SECOND = 1_000
LIVE_ON_SOURCE = 10_000
LIVE_ON_TARGET = 5_000
WINDOW_SECONDS = 10
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the notes of a run show.

    Attributes:
        verdict: the judge's.
        account: for the report, see `account`.
        shortfalls: what the workload did not reach of what the demo promises, a sentence each; about the workload
            itself, not about the migration.
    """

    verdict: Verdict
    account: Mapping[str, Any]
    shortfalls: tuple[str, ...]

    @property
    def found(self) -> str:
        """Faults and doubts in a line; empty if there are none."""
        faults = {fault.value: count for fault, count in self.verdict.findings.counts.items() if count}
        examples = [example.text for found in self.verdict.findings.examples.values() for example in found[:1]]
        return "; ".join(
            [*(f"{count:,} {name}" for name, count in faults.items()), *examples, *self.verdict.inconclusive]
        )


def judge(notes: Path) -> Judgement:
    """Judge the notes of a run of the demo.

    Raises:
        BadNotes: they contradict the format, or each other.
    """
    history = read(notes)
    verdict = decide(history)
    counts = account(history, verdict)
    return Judgement(verdict=verdict, account=counts, shortfalls=tuple(shortfalls(history, counts)))


def account(history: History, verdict: Verdict) -> dict[str, Any]:
    """For the report's block "demo": `records_produced` are all that were acknowledged; `records_processed` all
    receipts, and of each of the `groups` on either cluster; three faults by older names; the whole verdict as `judge`.
    """
    by_place = _receipts(history)
    groups = {}
    for name in sorted({process.group for process in history.processes if process.group is not None}):
        counts = {f"on_{cluster}": by_place.get((name, cluster), 0) for cluster in ("source", "target")}
        groups[name] = {"records_processed": sum(counts.values()), **counts}
    faults = verdict.findings.counts
    return {
        "records_produced": verdict.acknowledged,
        "records_processed": verdict.received,
        "records_lost": faults[Fault.LOST],
        "records_processed_twice": faults[Fault.DOUBLED],
        "order_violations": faults[Fault.REORDERED],
        "groups": groups,
        "pauses_ms": verdict.pauses_ms,
        "judge": verdict.summary(),
    }


def _receipts(history: History) -> dict[tuple[str | None, str], int]:
    receipts = history.receipts
    process = history.spans.process[receipts.span]
    cluster = history.log_cluster[receipts.log]
    pairs, counts = np.unique(np.stack([process, cluster]), axis=1, return_counts=True)
    found: dict[tuple[str | None, str], int] = {}
    for (number, where), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        place = history.processes[number].group, history.cluster_names[where]
        found[place] = found.get(place, 0) + count
    return found


def lowest_rate(history: History, *, window_seconds: int = WINDOW_SECONDS) -> float | None:
    """Acknowledged records a second in the slowest window while all live producers ran; None if that was shorter."""
    values = history.values
    # Preloaders come before production, and are named so.
    live = [n for n, process in enumerate(history.processes) if process.client.startswith("producer-")]
    spans = [values.acked[(values.sender == number) & (values.outcome == ACKED)] for number in live]
    if not spans or not all(map(len, spans)):
        return None
    begin, end = max(int(span.min()) for span in spans), min(int(span.max()) for span in spans)
    windows = (end - begin) // (window_seconds * NANOSECONDS)
    if windows < 1:
        return None
    edges = begin + np.arange(windows + 1, dtype=np.int64) * window_seconds * NANOSECONDS
    counts, _ = np.histogram(np.concatenate(spans), bins=edges)
    return float(counts.min()) / window_seconds


def shortfalls(history: History, account: Mapping[str, Any]) -> list[str]:
    """What a run did not reach of what the demo promises, a sentence each; empty when all is well."""
    topics = history.values.topic[np.unique(history.receipts.value)]
    numbers, counts = np.unique(topics, return_counts=True)
    records = {history.topic_names[n]: c for n, c in zip(numbers.tolist(), counts.tolist(), strict=True)}
    owed = [number for number, process in enumerate(history.processes) if process.final]
    starts = history.spans.position[np.isin(history.spans.process, owed)]
    found = []
    if len(records) < TOPICS:
        found.append(f"fewer than {TOPICS} topics hold records: {records}")
    if max(records.values(), default=0) < BIG_TOPIC_RECORDS:
        found.append(f"no topic holds {BIG_TOPIC_RECORDS} records: {records}")
    if starts.min(initial=BIG_TOPIC_RECORDS) < 1:
        found.append("a partition's log starts at offset 0, so its source and target offsets need not differ")
    lowest = lowest_rate(history)
    if lowest is None:
        found.append(f"producers ran for less than {WINDOW_SECONDS} s together, so the rate is not known")
    elif lowest < PRODUCED_PER_SECOND:
        found.append(f"producers fell to {lowest} records/s for {WINDOW_SECONDS} s, below {PRODUCED_PER_SECOND}")
    for group in GROUPS:
        done = account["groups"].get(group.name, {})
        for cluster, wanted in (("on_source", LIVE_ON_SOURCE), ("on_target", LIVE_ON_TARGET)):
            if not group.stopped and done.get(cluster, 0) < wanted:
                found.append(f"{group.name} processed {done.get(cluster, 0)} records {cluster}, not {wanted}")
    return found
