"""Bytes and durations in few characters, for tables that people read."""

from __future__ import annotations

import math


def size(count: int) -> str:
    """Bytes for a person."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds for a person, in the largest unit of which there are two or more."""
    if math.isinf(seconds):
        return "no end"
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def seconds(value: float | None) -> str:
    """A duration for people; "-" where it is not known."""
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(stamp: str | None) -> str:
    """An ISO-8601 time, to the second; "-" where there is none."""
    return "-" if not stamp else stamp[:19].replace("T", " ")
