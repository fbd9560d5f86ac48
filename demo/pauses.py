"""How long each group stood still while it moved: by its members' own notes and clocks.

A pause reaches from a group's last processed record on the source to its first on the target, less what its members
themselves took to stop (from SIGTERM until they had committed and left) and to start (from the start of the process
until it had partitions). What remains is the migration's part: hooks, checks, translation, the write of the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from demo.clients.groups import BY_GROUP
from demo.clients.settings import ClusterName
from demo.notes import COLUMNS, RunDirectory, read_status

#: The moments of its life that a member notes; nanoseconds on the machine's monotonic clock, null before they come.
MOMENTS = ("begun_ns", "assigned_ns", "asked_ns", "left_ns")


def pause_ms(run: RunDirectory, group: str, *, last_source_ns: int, first_target_ns: int) -> float | None:
    """The pause of ``group`` in milliseconds; None if its operator had stopped it, or a member noted no moments."""
    if group in BY_GROUP and BY_GROUP[group].stopped:
        return None
    before, after = _members(run, group, "source"), _members(run, group, "target")
    # Members of an attempt that was given up left before that last record was processed.
    stopped = [m for m in before.values() if m["asked_ns"] and m["left_ns"] and m["left_ns"] >= last_source_ns]
    started = [m for notes, m in after.items() if _first_note_ns(run, group, notes) == first_target_ns]
    if not stopped or not started or not started[0]["begun_ns"] or not started[0]["assigned_ns"]:
        return None
    stop: int = max(m["left_ns"] for m in stopped) - max(last_source_ns, min(m["asked_ns"] for m in stopped))
    start: int = started[0]["assigned_ns"] - started[0]["begun_ns"]
    return (first_target_ns - last_source_ns - stop - start) / 1e6


def summary(pauses: Iterable[float | None]) -> dict[str, float | None]:
    """Median, 99th percentile and the longest of ``pauses``, in milliseconds; null without any."""
    known = [pause for pause in pauses if pause is not None]
    if not known:
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(known, [50, 99])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(max(known), 1)}


def _members(run: RunDirectory, group: str, cluster: ClusterName) -> dict[str, Mapping[str, Any]]:
    moments = {notes.stem: read_status(notes).get("moments", {}) for notes in run.group_notes(group, cluster)}
    return {member: {name: found.get(name) for name in MOMENTS} for member, found in moments.items()}


def _first_note_ns(run: RunDirectory, group: str, member: str) -> int | None:
    with run.member_notes(group, "target", member).open() as notes:
        first = notes.readline().split("\t")
    return int(first[COLUMNS.index("noted_ns")]) if len(first) == len(COLUMNS) else None
