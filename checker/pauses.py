"""How long each client stood still while it moved, by its own clock, less what itself took to stop and to start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from checker.history import ACKED, History, Numbers, Process

Figures = dict[str, float | None]


def of(history: History) -> dict[str, Figures]:
    """Median, 99th percentile and the longest pause, in milliseconds; null where nobody moved.

    A pause reaches from a client's last success on one cluster to its first on another: an acknowledgement of a
    producer, a receipt of a consumer. Clients that carry other names on the other cluster are known by their group.
    """
    values = history.values
    acked = np.flatnonzero(values.outcome == ACKED)
    producers = _moves(
        history, values.sender[acked], values.log[acked], values.acked[acked], lambda process: process.client
    )
    receipts, spans = history.receipts, history.spans
    finals = np.array([process.final for process in history.processes], dtype=bool)
    process = spans.process[receipts.span] if len(receipts.span) else np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(~finals[process]) if len(process) else process
    args = (history, process[rows], receipts.log[rows], receipts.time[rows])
    consumers = _moves(*args, lambda process: process.client)
    moved = {process.group for process in history.processes if process.client in consumers}
    by_group = _moves(*args, lambda process: None if process.group in moved else process.group)
    return {
        "producers": figures(pause for pauses in producers.values() for pause in pauses),
        "consumers": figures(pause for found in (consumers, by_group) for pauses in found.values() for pause in pauses),
    }


def figures(pauses: Iterable[float]) -> Figures:
    """Of pauses in milliseconds."""
    known = list(pauses)
    if not known:
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(known, [50, 99])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(max(known), 1)}


def _moves(
    history: History, process: Numbers, log: Numbers, time: Numbers, name: Callable[[Process], str | None]
) -> dict[str, list[float]]:
    """By ``name``, the pauses between these successes; of several from one cluster to another, the longest."""
    processes = history.processes
    found: dict[str, list[float]] = {}
    named: dict[str, list[int]] = defaultdict(list)
    for number, client in enumerate(processes):
        key = name(client)
        if key is not None:
            named[key].append(number)
    for key, members in named.items():
        # Clocks of several machines cannot be compared.
        if len({processes[number].clock for number in members}) > 1:
            continue
        rows = np.flatnonzero(np.isin(process, members))
        rows = rows[np.argsort(time[rows], kind="stable")]
        cluster, at = history.log_cluster[log[rows]], time[rows]
        longest: dict[tuple[int, int], float] = {}
        for turn in np.flatnonzero(cluster[1:] != cluster[:-1]).tolist():
            pair = int(cluster[turn]), int(cluster[turn + 1])
            pause = _own_time_off(int(at[turn]), int(at[turn + 1]), [processes[number] for number in members])
            longest[pair] = max(longest.get(pair, 0.0), pause / 1e6)
        if longest:
            found[key] = list(longest.values())
    return found


def _own_time_off(begin: int, end: int, members: list[Process]) -> int:
    """Nanoseconds from ``begin`` to ``end`` in which no member was stopping or starting."""
    own = [
        (member.stopped, member.closed)
        for member in members
        if member.stopped is not None and member.closed is not None
    ]
    own += [(member.started, member.ready if member.ready is not None else member.opened) for member in members]
    spent, reached = 0, begin
    for start, stop in sorted(own):
        span = min(stop, end) - max(start, reached)
        if span > 0:
            spent += span
            reached = min(stop, end)
    return end - begin - spent
