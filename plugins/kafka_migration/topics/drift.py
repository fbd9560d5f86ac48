"""What changed about topics since they were declared, on either cluster, and what can be done about each change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.listing import listed
from kafka_migration.topics import create
from kafka_migration.topics.declared import KEPT_OPEN, Drift

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_SOURCES = "source's "
_REMEDIES = {
    **dict.fromkeys(
        ("topic", "topic id", "source topic", "source topic id"),
        "see its halt in `status`; a running mirror notices within seconds",
    ),
    "source partitions": "nothing: they join the mirror that runs, or the next one",
    "partitions": "nothing, if they are the source's; `validate` finds records in partitions that the source lacks",
    "replication factor": "nothing, if it is intended: the mirror does not depend on it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftStatus:
    """One change. ``endangers``: what was copied may be gone, or go."""

    topic: str
    what: str
    declared: str
    observed: str
    endangers: bool
    remedy: str


def as_dict(status: DriftStatus) -> dict[str, Any]:
    """JSON types only."""
    return asdict(status)


def read(ctx: Context) -> tuple[DriftStatus, ...]:
    """Every change, those that endanger records first. Reads both clusters; raises what they raise."""
    found = [
        DriftStatus(**drift.as_dict(), endangers=drift.endangers_records, remedy=remedy(drift))
        for drift in create.verify(ctx)
    ]
    return tuple(sorted(found, key=lambda status: (not status.endangers, status.topic, status.what)))


def as_declared(found: Iterable[Drift]) -> CheckResult:
    """The check of a gate: shut by what endangers records."""
    name = "topics are as declared"
    drift = sorted(found, key=lambda one: not one.endangers_records)
    if not drift:
        return CheckResult.passed(name, "no drift on either cluster")
    if drift[0].endangers_records:
        return CheckResult.failed(
            name,
            listed(drift),
            remedy="find out who changed it: set a changed config back, restart the mirror and validate again; what was"
            " copied into a topic that was deleted or recreated is lost",
        )
    return CheckResult.warned(
        name, listed(drift), remedy="decide whether this matters to the consumers; nothing is repaired by itself"
    )


def remedy(drift: Drift) -> str:
    """What a person can do about it."""
    if drift.what.startswith(_SOURCES):
        name = drift.what.removeprefix(_SOURCES)
        if name in KEPT_OPEN:
            return "nothing: the target needs its own value while mirroring; `restore` sets what the source has then"
        if name == "max.message.bytes":
            return "set it on the target topic as well, or larger batches are refused there; at the end `restore` does"
        return "nothing, if it may wait: `restore` sets what the source has then"
    if drift.what in KEPT_OPEN:
        return f"set it back on the target now: {drift.what}={drift.declared}; otherwise records may be lost there"
    return _REMEDIES.get(
        drift.what, f"set it back on the target ({drift.what}={drift.declared}), or leave it, if it is intended"
    )
