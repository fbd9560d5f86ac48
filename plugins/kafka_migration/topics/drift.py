"""What changed about topics since they were declared, on either cluster, and what can be done about each change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.listing import listed
from kafka_migration.topics import create
from kafka_migration.topics.declared import KEPT_OPEN, Drift

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_SOURCES = "source's "


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftStatus:
    """One change. ``endangers``: what was copied may be gone, or go."""

    topic: str
    what: str
    declared: str
    observed: str
    endangers: bool
    remedy: str


def as_dict(it: DriftStatus) -> dict[str, Any]:
    """JSON types only."""
    return asdict(it)


def read(ctx: Context) -> tuple[DriftStatus, ...]:
    """Every change, those that endanger records first. Reads both clusters; raises what they raise."""
    found = [
        DriftStatus(
            topic=it.topic,
            what=it.what,
            declared=it.declared,
            observed=it.observed,
            endangers=it.endangers_records,
            remedy=remedy(it),
        )
        for it in create.verify(ctx)
    ]
    return tuple(sorted(found, key=lambda it: (not it.endangers, it.topic, it.what)))


def as_declared(found: Iterable[Drift]) -> CheckResult:
    """The check of a gate: shut by what endangers records."""
    name = "topics are as declared"
    drift = sorted(found, key=lambda it: not it.endangers_records)
    if not drift:
        return CheckResult(name=name, verdict=Verdict.PASS, evidence="no drift on either cluster")
    if drift[0].endangers_records:
        return CheckResult(
            name=name,
            verdict=Verdict.FAIL,
            evidence=listed(drift),
            remedy="find out who changed it: set a config back, restart the mirror and validate again; a topic that is"
            " gone or another one by now has lost what was copied",
        )
    return CheckResult(
        name=name,
        verdict=Verdict.WARN,
        evidence=listed(drift),
        remedy="decide whether this matters to the consumers; nothing is repaired by itself",
    )


def remedy(it: Drift) -> str:
    """What a person can do about it."""
    if it.what in ("topic", "topic id", "source topic", "source topic id"):
        return "see what `status` says of its halt; a running mirror notices within seconds"
    if it.what == "source partitions":
        return "nothing: they join the mirror that runs, or the next one"
    if it.what == "partitions":
        return "nothing, if they are the source's; what stands in those that the source lacks, `validate` finds"
    if it.what == "replication factor":
        return "nothing, if it is meant: the mirror does not depend on it"
    if it.what.startswith(_SOURCES):
        name = it.what.removeprefix(_SOURCES)
        if name in KEPT_OPEN:
            return "nothing: held open while mirroring, and `restore` sets what the source has then"
        if name == "max.message.bytes":
            return "set it on the target topic as well, or larger batches are refused there; at the end `restore` does"
        return "nothing, if it may wait: `restore` sets what the source has then"
    if it.what in KEPT_OPEN:
        return f"set it back on the target now: {it.what}={it.declared}; records may be lost there else"
    return f"set it back on the target ({it.what}={it.declared}), or leave it, if it is meant"
