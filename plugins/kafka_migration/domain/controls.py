"""What a person holds a running mirror back with: a pause, and a throttle over the whole mirror.

Both stay until somebody takes them back: a mirror that is started again finds them as they were left.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from kafka_migration.domain.errors import BadInput

_UNITS = {"": 1} | {
    f"{prefix}{binary}b": base**power
    for power, prefix in enumerate(("k", "m", "g"), start=1)
    for binary, base in (("", 1000), ("i", 1024))
}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?i?b?)(?:/s)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The mirror neither fetches nor sends. ``at`` is ISO-8601, UTC."""

    by: str
    at: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """The mirror sends at most ``bytes_per_second``, over all of its tasks; None: as fast as it can."""

    bytes_per_second: int | None
    by: str
    at: str

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and self.bytes_per_second < 1:
            raise ValueError(f"a throttle of {self.bytes_per_second} bytes a second would be a pause")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What is in force. Without ``throttle`` nobody has set a rate."""

    pause: Pause | None = None
    throttle: Throttle | None = None

    def rate(self, otherwise: int | None = None) -> int | None:
        """Bytes a second over the whole mirror, or None for no limit; ``otherwise`` where nobody has set one."""
        return otherwise if self.throttle is None else self.throttle.bytes_per_second

    def describe(self) -> str:
        """Why the mirror is slower than it could be, for a person; empty if nothing holds it back."""
        parts = []
        if self.pause is not None:
            why = f" ({self.pause.reason})" if self.pause.reason else ""
            parts.append(f"paused by {self.pause.by} at {_moment(self.pause.at)}{why}")
        if self.throttle is not None and self.throttle.bytes_per_second is not None:
            rate = rate_text(self.throttle.bytes_per_second)
            parts.append(f"throttled to {rate} by {self.throttle.by} at {_moment(self.throttle.at)}")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


def parse_rate(text: str) -> int | None:
    """Bytes a second from ``50MB``, ``1.5 MiB/s`` or ``4096``; None for ``off``. Raises BadInput."""
    remedy = "write a number of bytes per second, such as 50MB, 1.5MiB or 4096; or off"
    if text.strip().lower() == "off":
        return None
    found = _RATE.fullmatch(text.strip())
    unit = found[2].lower() if found else ""
    # "50M" means 50 MB, and "b" alone bytes.
    factor = _UNITS.get("" if unit == "b" else unit if unit.endswith("b") or not unit else f"{unit}b")
    if found is None or factor is None:
        raise BadInput("not a number of bytes per second", field="throttle", value=text, remedy=remedy)
    rate = int(float(found[1]) * factor)
    if rate < 1:
        raise BadInput(
            "a mirror at no byte a second is paused", field="throttle", value=text, remedy=f"`pause`; {remedy}"
        )
    return rate


def rate_text(bytes_per_second: int) -> str:
    """``50 MB/s``, as precisely as it was given."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:,.6g} {unit}/s"
    return f"{bytes_per_second} B/s"


def _moment(stamp: str) -> str:
    return f"{stamp[:19].replace('T', ' ')} UTC"
