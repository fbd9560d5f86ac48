"""Reordered: records against the order in which they were sent, logs against each other, consumers against logs."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from checker.evidence import Evidence
from checker.findings import Example, Fault, Findings
from checker.history import ACKED, NONE, Flags, History, Numbers
from checker.logs import Logs, behind


class Sends:
    """The order in which clients sent, as far as Kafka promises to keep it.

    Attributes:
        rank: by value: of two values of one client, the one that was sent later has the higher rank.
        ordered: by value: its producer's retries cannot reorder it.
        chain: by value: equal for values of one client, partition and key; NONE where no order is promised between
            processes of that client, because they overlapped.
    """

    def __init__(self, history: History, logs: Logs) -> None:
        values = history.values
        processes = history.processes
        client_of, kept, turn = _clients(history)
        ordered = np.array([process.kind not in ("acks=1", None) for process in processes], dtype=bool)
        sender = values.sender
        self.rank = np.zeros(len(sender), dtype=np.int64)
        self.ordered = np.zeros(len(sender), dtype=bool)
        self.chain = np.full(len(sender), NONE, dtype=np.int64)
        if not len(processes) or not len(sender):
            return
        self.ordered = logs.sent & ordered[sender]
        self.rank[np.lexsort((values.seq, turn[sender]))] = np.arange(len(sender))
        rows = np.flatnonzero(self.ordered & kept[sender] & (logs.tp != NONE))
        self.chain[rows] = numbered(client_of[sender[rows]], logs.tp[rows], values.key[rows])


def _clients(history: History) -> tuple[Numbers, Flags, Numbers]:
    """By process: the number of its client, whether that client's processes follow each other, and its turn."""
    numbers: dict[str, int] = {}
    client = np.array(
        [numbers.setdefault(process.client, len(numbers)) for process in history.processes], dtype=np.int64
    )
    turns = sorted(range(len(history.processes)), key=lambda process: history.processes[process].opened)
    turn = np.zeros(len(history.processes), dtype=np.int64)
    turn[turns] = np.arange(len(turns))
    overlapping: set[int] = set()
    last: dict[int, int] = {}
    for process in turns:
        number = int(client[process])
        if history.processes[process].kind is None:
            continue
        if last.get(number, 0) > history.processes[process].opened:
            overlapping.add(number)
        last[number] = max(last.get(number, 0), history.processes[process].last)
    return client, np.array([int(number) not in overlapping for number in client], dtype=bool), turn


def check(history: History, logs: Logs, sends: Sends, evidence: Evidence, findings: Findings) -> None:
    """Add what is reordered. A value counts once, a receipt that jumps back once."""
    late: dict[int, str] = {}
    acknowledged = history.values.outcome == ACKED
    for cluster, name in enumerate(history.cluster_names):
        placed = (logs.log[cluster] != NONE) & sends.ordered & logs.single & logs.stands
        # Within one process, also what was never acknowledged: a producer that is ordered leaves no gap behind it.
        rows = np.flatnonzero(placed)
        chain = numbered(history.values.sender[rows], logs.log[cluster][rows], history.values.key[rows])
        found = rows[behind(chain, logs.offset[cluster][rows], sends.rank[rows])]
        rows = np.flatnonzero(placed & acknowledged & (sends.chain != NONE))
        found = np.concatenate(
            [found, rows[behind(sends.chain[rows], logs.offset[cluster][rows], sends.rank[rows])]]
        )  # fmt: skip
        for value in found.tolist():
            late.setdefault(value, f"stands on {name} behind a record that its client sent later with the same key")
    for a, b in combinations(range(len(history.cluster_names)), 2):
        both = (logs.log[a] != NONE) & (logs.log[b] != NONE) & logs.single & logs.stands
        rows = np.flatnonzero(both)
        rows = rows[history.log_tp[logs.log[a][rows]] == history.log_tp[logs.log[b][rows]]]
        names = history.cluster_names
        for value in rows[behind(logs.log[a][rows], logs.offset[a][rows], logs.offset[b][rows])].tolist():
            late.setdefault(value, f"stands behind a record on {names[a]} that it precedes on {names[b]}")

    def described(item: tuple[int, str]) -> Example:
        return evidence.example(f"{evidence.value(item[0])} {item[1]}", item[0])

    findings.add(Fault.REORDERED, late.items(), described)
    back = [row for row in _backwards(history) if int(history.receipts.value[row]) not in late]
    findings.add(
        Fault.REORDERED,
        back,
        lambda row: evidence.example(
            f"{evidence.name(int(history.receipts.value[row]))} was received by {evidence.receipt(row)}: "
            "after a record with a higher offset, without a rebalance in between",
            int(history.receipts.value[row]),
        ),
    )


def _backwards(history: History) -> list[int]:
    """Receipts below an earlier one of their span; one that repeats a value of its span is doubled instead."""
    receipts = history.receipts
    rows = np.arange(len(receipts.value))
    found = behind(receipts.span, rows, receipts.offset)
    if not len(found):
        return []
    order = np.lexsort((rows, receipts.value, receipts.span))
    repeated = np.zeros(len(rows), dtype=bool)
    same = (receipts.span[order][1:] == receipts.span[order][:-1]) & (
        receipts.value[order][1:] == receipts.value[order][:-1]
    )
    repeated[order[1:][same]] = True
    return sorted(int(row) for row in found if not repeated[row])


def numbered(*columns: Numbers) -> Numbers:
    """A number for each distinct row of these columns."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    _, inverse = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64)
