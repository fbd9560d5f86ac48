"""What the report draws: phases over time, lag while it was waited for, and how long each group paused.

Numbers alone, as shares of the drawing's width and height; the template has how it looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafka_migration.domain.amounts import seconds

_MOST_BARS = 40
_TICKS = 5
#: A tenth is not exact.
_NEARLY = 1e-9
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
_STEPS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 7, 14, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row, from ``start`` on; ``kind`` is the outcome that it has by its colour, ``text`` stands at its end."""

    label: str
    start: float
    width: float
    text: str
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Either ``bars``, or a ``line`` of points (x, y), y from 0 at the bottom up to 1, which stands for ``top``.
    ``ticks`` are places on the axis below, with their names; ``note`` has what is left out."""

    title: str
    ticks: tuple[tuple[float, str], ...]
    bars: tuple[Bar, ...] = ()
    line: tuple[tuple[float, float], ...] = ()
    top: str = ""
    note: str = ""


def plots(report: Mapping[str, Any]) -> tuple[Plot, ...]:
    """Those for which ``report`` has something to draw."""
    return (*_phases(report), *_lag(report["phases"]), *_pauses(report["groups"]))


def _phases(report: Mapping[str, Any]) -> Iterator[Plot]:
    """The last run of each phase; one whose end nobody recorded lasts until now."""
    now = _moment(report["written_at"])
    spans = []
    for phase in report["phases"]:
        began = _moment(phase["started"])
        spans.append((phase, began, began + phase["seconds"] if phase["seconds"] is not None else max(began, now)))
    if not spans:
        return
    origin, end = min(began for _, began, _ in spans), max(ended for _, _, ended in spans)
    length = end - origin or 1.0
    bars = tuple(
        Bar(
            label=phase["name"],
            start=(began - origin) / length,
            width=(ended - began) / length,
            text=seconds(phase["seconds"]),
            kind=phase["outcome"],
        )
        for phase, began, ended in spans[-_MOST_BARS:]
    )
    yield Plot(title="Phases over time", ticks=_ticks(length), bars=bars, note=_rest(len(spans), "earlier phases"))


def _lag(phases: Sequence[Mapping[str, Any]]) -> Iterator[Plot]:
    for phase in phases:
        looks = phase["evidence"].get("history", ())
        if is_drawn(looks):
            yield over_time(f"Lag in offsets, while {phase['name']} waited", looks)


def is_drawn(points: Sequence[Sequence[float]]) -> bool:
    """Whether points (seconds, value) make a line."""
    return len(points) > 1 and points[-1][0] > points[0][0]


def over_time(title: str, points: Sequence[Sequence[float]]) -> Plot:
    """A line of points (seconds, value) that :func:`is_drawn`."""
    began, length = points[0][0], points[-1][0] - points[0][0]
    most = max(value for _, value in points)
    line = tuple(((at - began) / length, value / (most or 1)) for at, value in points)
    return Plot(title=title, ticks=_ticks(length), line=line, top=f"{most:,.0f}")


def _pauses(groups: Sequence[Mapping[str, Any]]) -> Iterator[Plot]:
    known = sorted(
        ((group["pause_seconds"], group["group"]) for group in groups if group["pause_seconds"] is not None),
        key=lambda pause: (-pause[0], pause[1]),
    )
    if not known:
        return
    longest = known[0][0] or 1.0
    bars = tuple(
        Bar(label=group, start=0.0, width=pause / longest, text=seconds(pause)) for pause, group in known[:_MOST_BARS]
    )
    note = _rest(len(known), "groups with shorter pauses")
    yield Plot(title="Pauses of groups", ticks=_ticks(longest), bars=bars, note=note)


def _moment(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _ticks(length: float) -> tuple[tuple[float, str], ...]:
    """Round times from 0 on, not many."""
    step = next((step for step in _STEPS if length / step <= _TICKS), _STEPS[-1])
    return tuple((at * step / length, _name(at * step)) for at in range(int(length / step + _NEARLY) + 1))


def _name(at: float) -> str:
    for unit, one in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if at >= one:
            return f"{at / one:g} {unit}"
    return f"{at:g} s"


def _rest(count: int, what: str) -> str:
    return f"{count - _MOST_BARS} {what} are left out" if count > _MOST_BARS else ""
