"""Faults of groups: records processed twice beyond what at-least-once allows, and commits moved backwards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from checker.evidence import Evidence, clock
from checker.findings import Example, Fault, Findings
from checker.history import ACKED, NONE, History, Numbers
from checker.logs import Logs


@dataclass(slots=True)
class _Acknowledged:
    """The acknowledged commits of one group for one log: by time of answer, and the highest offset up to then."""

    answered: list[int]
    highest: list[int]

    def before(self, time: int) -> int:
        """The highest offset that was committed before ``time``; NONE if none was."""
        at = bisect_left(self.answered, time)
        return self.highest[at - 1] if at else NONE


class Committed:
    """What each group committed, for sure."""

    def __init__(self, history: History) -> None:
        commits = history.commits
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in np.flatnonzero(commits.outcome == ACKED).tolist():
            group = history.processes[int(commits.process[row])].group
            entry = (int(commits.answered[row]), int(commits.offset[row]))
            found.setdefault((str(group), int(commits.log[row])), []).append(entry)
        self._found: dict[tuple[str, int], _Acknowledged] = {}
        for place, entries in found.items():
            entries.sort()
            highest = np.maximum.accumulate([offset for _, offset in entries]).tolist()
            self._found[place] = _Acknowledged([time for time, _ in entries], highest)

    def before(self, group: str, log: int, time: int) -> int:
        """The highest offset that a group committed for a log before ``time``; NONE if none."""
        found = self._found.get((group, log))
        return NONE if found is None else found.before(time)


def check(history: History, logs: Logs, evidence: Evidence, findings: Findings) -> int:
    """Add what is wrong with groups; how many receipts repeat others as at-least-once allows."""
    committed = Committed(history)
    findings.add(Fault.COMMITS_BACKWARDS, _backwards(history, logs, committed, evidence), lambda example: example)
    return _doubled(history, logs, committed, evidence, findings)


def _doubled(history: History, logs: Logs, committed: Committed, evidence: Evidence, findings: Findings) -> int:
    receipts, spans = history.receipts, history.spans
    if not len(receipts.value):
        return 0
    readers = {name: number for number, name in enumerate(sorted({process.reader for process in history.processes}))}
    reader_of = np.array([readers[process.reader] for process in history.processes], dtype=np.int64)
    reader = reader_of[spans.process[receipts.span]]
    # A value that stands twice in a log is doubled there, and not once more by whoever reads it there.
    canonical = np.zeros(len(receipts.value), dtype=bool)
    for log, offset in zip(logs.log, logs.offset, strict=True):
        canonical |= (receipts.log == log[receipts.value]) & (receipts.offset == offset[receipts.value])
    rows = np.flatnonzero(canonical)
    rows = rows[np.lexsort((rows, receipts.time[rows], receipts.value[rows], reader[rows]))]
    same = np.zeros(len(rows), dtype=bool)
    same[1:] = (receipts.value[rows][1:] == receipts.value[rows][:-1]) & (reader[rows][1:] == reader[rows][:-1])
    wrong: list[tuple[int, str]] = []
    allowed = 0
    in_spans: set[int] = set()
    for at in np.flatnonzero(same).tolist():
        if not same[at - 1]:
            in_spans = {int(receipts.span[rows[at - 1]])}
        row = int(rows[at])
        span, value = int(receipts.span[row]), int(receipts.value[row])
        why = _unexcused(history, logs, committed, span, value, repeated=span in in_spans)
        in_spans.add(span)
        if why is None:
            allowed += 1
        else:
            wrong.append((row, why))

    def again(item: tuple[int, str]) -> Example:
        value = int(receipts.value[item[0]])
        text = f"{evidence.value(value)} was received once more by {evidence.receipt(item[0])}: {item[1]}"
        return evidence.example(text, value)

    findings.add(Fault.DOUBLED, wrong, again)
    return allowed


def _unexcused(
    history: History, logs: Logs, committed: Committed, span: int, value: int, *, repeated: bool
) -> str | None:
    """Why a group may not receive a value again in this span; None if it may."""
    if repeated:
        return "without a rebalance in between"
    process = history.processes[int(history.spans.process[span])]
    if process.group is None:
        return None
    begun = int(history.spans.begun[span])
    own = int(history.log_cluster[history.spans.log[span]])
    for cluster, name in enumerate(history.cluster_names):
        if cluster != own and not logs.single[value]:
            continue
        log, offset = int(logs.log[cluster][value]), int(logs.offset[cluster][value])
        position = committed.before(process.group, log, begun) if log != NONE else NONE
        if position > offset:
            return f"the group had committed offset {position} on {name} before it got the partition"
    return None


def _backwards(history: History, logs: Logs, committed: Committed, evidence: Evidence) -> Iterator[Example]:
    commits = history.commits
    done: set[tuple[str, int, int]] = set()
    pairs = _Pairs(history, logs)
    for row in np.flatnonzero(commits.outcome == ACKED).tolist():
        group = str(history.processes[int(commits.process[row])].group)
        log, offset, tried = int(commits.log[row]), int(commits.offset[row]), int(commits.tried[row])
        position = committed.before(group, log, tried)
        if position > offset:
            yield Example(
                text=f"group {group} committed offset {offset} for {evidence.log(log)} at {clock(tried)}, "
                f"where it had committed {position} before",
                evidence=_where(history, evidence, group, log, offset),
            )
        yield from _across(history, committed, pairs, evidence, done, (group, log, offset, tried, "committed"))
    for group, log, offset, time in _beginnings(history):
        yield from _across(history, committed, pairs, evidence, done, (group, log, offset, time, "began at"))


def _across(
    history: History,
    committed: Committed,
    pairs: _Pairs,
    evidence: Evidence,
    done: set[tuple[str, int, int]],
    position: tuple[str, int, int, int, str],
) -> Iterator[Example]:
    """A position that lies, by values, before what the group had committed on another cluster; once for each pair."""
    group, log, offset, time, verb = position
    for other in pairs.others(log):
        before = committed.before(group, other, time)
        if before == NONE or (group, other, log) in done:
            continue
        last = pairs.last_below(other, log, before)
        if last is not None and offset <= last[0]:
            done.add((group, other, log))
            yield Example(
                text=f"group {group} {verb} offset {offset} of {evidence.log(log)} at {clock(time)}; it had committed "
                f"{before} on {evidence.cluster(other)}, and so {evidence.value(last[1])}",
                evidence=_where(history, evidence, group, log, offset),
            )


def _where(history: History, evidence: Evidence, group: str, log: int, offset: int) -> dict[str, object]:
    tp = int(history.log_tp[log])
    topic, partition = history.topic_names[int(history.tp_topic[tp])], int(history.tp_partition[tp])
    return {
        "group": group, "topic": topic, "partition": partition, "cluster": evidence.cluster(log), "offset": offset
    }  # fmt: skip


def _beginnings(history: History) -> Iterator[tuple[str, int, int, int]]:
    """Where groups began to read, span by span: group, log, offset, time."""
    spans, receipts = history.spans, history.receipts
    with_receipts, first = np.unique(receipts.span, return_index=True)
    first_of = dict(zip(with_receipts.tolist(), first.tolist(), strict=True))
    for span in range(len(spans.process)):
        group = history.processes[int(spans.process[span])].group
        if group is None:
            continue
        if spans.position[span] != NONE:
            yield group, int(spans.log[span]), int(spans.position[span]), int(spans.begun[span])
        if span in first_of:
            row = first_of[span]
            yield group, int(spans.log[span]), int(receipts.offset[row]), int(spans.begun[span])


class _Pairs:
    """Logs of one partition on different clusters, tied by the values that stand in both."""

    def __init__(self, history: History, logs: Logs) -> None:
        self._history, self._logs = history, logs
        self._known: dict[tuple[int, int], tuple[list[int], Numbers, Numbers]] = {}

    def others(self, log: int) -> list[int]:
        """Logs of the same partition on other clusters."""
        return [
            other
            for other in np.flatnonzero(self._history.log_tp == self._history.log_tp[log]).tolist()
            if other != log
        ]

    def last_below(self, a: int, b: int, offset: int) -> tuple[int, int] | None:
        """Of values below ``offset`` in log ``a``, the highest offset in log ``b``, and whose that is."""
        if (a, b) not in self._known:
            self._known[a, b] = self._tied(a, b)
        offsets, highest, whose = self._known[a, b]
        at = bisect_right(offsets, offset - 1)
        return (int(highest[at - 1]), int(whose[at - 1])) if at else None

    def _tied(self, a: int, b: int) -> tuple[list[int], Numbers, Numbers]:
        logs, clusters = self._logs, self._history.log_cluster
        log_a, log_b = logs.log[clusters[a]], logs.log[clusters[b]]
        values = np.flatnonzero((log_a == a) & (log_b == b) & logs.single)
        values = values[np.argsort(logs.offset[clusters[a]][values], kind="stable")]
        there = logs.offset[clusters[b]][values]
        highest = np.maximum.accumulate(there) if len(there) else there
        whose = values[np.searchsorted(highest, highest)] if len(there) else values
        return logs.offset[clusters[a]][values].tolist(), highest, whose
