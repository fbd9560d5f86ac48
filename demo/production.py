"""Whether the workload was what the demo promises: enough records, steadily, and enough of them on each cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demo.clients.groups import GROUPS
from demo.notes import RunDirectory
from demo.notes_reader import AccountingError, Produced, read_produced

TOPICS = 8
BIG_TOPIC_RECORDS = 1_000_000
PRODUCED_PER_SECOND = 1_000
LIVE_ON_SOURCE = 10_000
LIVE_ON_TARGET = 5_000
WINDOW_SECONDS = 10
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionRate:
    """How steadily the live producers wrote, by the times of their acknowledgements; records a second."""

    seconds: float
    mean: float
    lowest: float


def production_rate(produced: Produced, *, window_seconds: int = WINDOW_SECONDS) -> ProductionRate:
    """How steadily the live producers wrote while all of them ran; `lowest` is that of the slowest window.

    Raises:
        AccountingError: they ran together for less than one window.
    """
    spans = []
    for name, first in produced.records.first.items():
        # Preloaders come before production, and are named so.
        if name.startswith("producer-"):
            mine = slice(first, first + produced.records.sent[name])
            spans.append(produced.noted_ns[mine][produced.acknowledged[mine]])
    begin = max((int(span.min()) for span in spans if len(span)), default=0)
    end = min((int(span.max()) for span in spans if len(span)), default=0)
    windows = (end - begin) // (window_seconds * NANOSECONDS)
    if windows < 1:
        raise AccountingError(f"producers ran for less than {window_seconds} s together, so no rate can be told")
    edges = begin + np.arange(windows + 1, dtype=np.int64) * window_seconds * NANOSECONDS
    counts, _ = np.histogram(np.concatenate(spans), bins=edges)
    seconds = float(windows * window_seconds)
    return ProductionRate(
        seconds=seconds, mean=float(counts.sum()) / seconds, lowest=float(counts.min()) / window_seconds
    )


def shortfalls(directory: Path, account: Mapping[str, Any]) -> list[str]:
    """What a run did not reach of what the demo promises, a sentence each; empty when all is well.

    Args:
        account: of `demo.accounting.account`.
    """
    run = RunDirectory(directory)
    produced, obligations = read_produced(run), run.obligations()
    starts = np.concatenate([np.array(starts) for starts in obligations.log_starts.values()])
    held = np.bincount(
        produced.place[produced.acknowledged & (produced.offset >= starts[produced.place])],
        minlength=produced.partitions.total,
    )
    records = {
        topic: int(held[produced.partitions.first(topic) :][: len(logs)].sum())
        for topic, logs in obligations.log_starts.items()
    }
    found = []
    if sum(count > 0 for count in records.values()) < TOPICS:
        found.append(f"fewer than {TOPICS} topics hold records: {records}")
    if max(records.values()) < BIG_TOPIC_RECORDS:
        found.append(f"no topic holds {BIG_TOPIC_RECORDS} records: {records}")
    if starts.min() < 1:
        found.append("a partition's log starts at offset 0, so its source and target offsets need not differ")
    try:
        lowest = production_rate(produced).lowest
    except AccountingError as too_short:
        found.append(str(too_short))
    else:
        if lowest < PRODUCED_PER_SECOND:
            found.append(f"producers fell to {lowest} records/s for {WINDOW_SECONDS} s, below {PRODUCED_PER_SECOND}")
    for group in GROUPS:
        done = account["groups"][group.name]
        for cluster, wanted in (("on_source", LIVE_ON_SOURCE), ("on_target", LIVE_ON_TARGET)):
            if not group.stopped and done[cluster] < wanted:
                found.append(f"{group.name} processed {done[cluster]} records {cluster}, not {wanted}")
    return found
