"""How large each wave is, and how long its copy takes against how long the source keeps its records.

One mirror copies all topics at once, whatever wave they are in. So before it runs, a wave takes as long as its own
bytes at the least, and as long as everything at the most, at the speed that the preflight assumes; while it runs, what
it has copied lately counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.amounts import duration, size
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.lag import LagSample, trend
from kafka_migration.kafka.facts import Inventory, TopicFacts
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.link.lag import LagMeter
from kafka_migration.topics.declared import mirrored
from kafka_migration.waves.order import CANARY, Wave, Waves

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Mirror

#: What one stream copies at the least, bytes a second: a small part of what was measured on one small machine, since
#: networks and disks between two real clusters are slower.
ASSUMED_BYTES_PER_SECOND = 10 * 2**20
_MARGIN = 1.5
_MARGIN_SECONDS = 600.0
_SAMPLE_SECONDS = 1.0

#: What stands for the one wave of a plan without waves.
ALL = "(all)"
#: The columns of :func:`row`.
COLUMNS = ("wave", "topics", "groups", "records", "bytes", "per s", "ETA", "retention")


def with_margin(seconds: float) -> float:
    """How long records have to be kept if copying them takes ``seconds``."""
    return seconds * _MARGIN + _MARGIN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """Seconds until a wave is copied, between ``least`` and ``most``; infinite for never. ``measured`` on the mirror
    that runs, or else at the assumed speed."""

    least: float
    most: float
    measured: bool

    def __str__(self) -> str:
        if math.isinf(self.least):
            return "never"
        least, most = duration(self.least), duration(self.most)
        if self.measured or least == most:
            return least
        return f"{least} - {'never' if math.isinf(self.most) else most}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; null for never."""
        return {
            "least_seconds": _finite(self.least),
            "most_seconds": _finite(self.most),
            "from": "mirror" if self.measured else "assumed speed",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSize:
    """One wave in numbers. ``records`` are offsets: never fewer than records. Bytes are of one replica, None if they
    are unknown for a topic. ``kept_seconds`` is the shortest that the source keeps a record of ``kept_topic``;
    infinite where nothing expires."""

    wave: Wave
    partitions: int
    records: int
    bytes: int | None
    records_per_second: float
    bytes_per_second: float | None
    kept_seconds: float
    kept_topic: str
    eta: Eta | None = None

    @property
    def is_kept(self) -> bool | None:
        """Whether the source keeps every record until it is copied, with a margin; None where that is unknown."""
        if math.isinf(self.kept_seconds):
            return True
        return None if self.eta is None else with_margin(self.eta.most) <= self.kept_seconds

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return self.wave.as_dict() | {
            "partitions": self.partitions,
            "records_at_most": self.records,
            "bytes": self.bytes,
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": None if self.bytes_per_second is None else round(self.bytes_per_second, 1),
            "eta": None if self.eta is None else self.eta.as_dict(),
            "shortest_retention_seconds": _finite(self.kept_seconds),
            "shortest_retention_topic": self.kept_topic,
            "kept_until_copied": self.is_kept,
        }


def title(wave: Wave) -> str:
    """A wave's name, and whether it is the canary."""
    return f"{wave.name} (canary)" if wave.canary and wave.name != CANARY else wave.name or ALL


def row(sized: WaveSize) -> tuple[str, ...]:
    """A wave as a row of a table, short enough for a terminal."""
    short = ", too short" if sized.is_kept is False else ""
    return (
        sized.wave.name or ALL,
        str(len(sized.wave.topics)),
        str(len(sized.wave.groups)),
        f"{sized.records:,}",
        "unknown" if sized.bytes is None else size(sized.bytes),
        f"{sized.records_per_second:,.0f}",
        "unknown" if sized.eta is None else str(sized.eta),
        f"{duration(sized.kept_seconds)}{short}",
    )


def note(sized: Sequence[WaveSize]) -> str:
    """What a reader of the rows has to know about their numbers."""
    parts = ["Records are offsets, so at most as many."]
    etas = [one.eta for one in sized if one.eta is not None]
    if any(eta.measured for eta in etas):
        parts.append("ETA as the mirror copies now.")
    elif etas:
        speed = size(ASSUMED_BYTES_PER_SECOND)
        parts.append(
            f"ETA at an assumed {speed}/s for each stream: of this wave alone - of all, as one mirror copies all."
        )
    return " ".join(parts)


def sizes(ctx: Context, waves: Waves, taken: Inventory) -> tuple[WaveSize, ...]:
    """Every wave in numbers, in their order. Takes two samples of the lag where a mirror runs. Read-only."""
    found = [_size(wave, taken) for wave in waves.waves]
    samples = _samples(ctx)
    if samples is not None:
        return tuple(replace(one, eta=_measured(samples, one.wave.topics)) for one in found)
    return tuple(replace(one, eta=_assumed(ctx.plan.mirror, one, taken)) for one in found)


def _size(wave: Wave, taken: Inventory) -> WaveSize:
    topics = [taken.topics[name] for name in sorted(wave.topics)]
    kept, topic = min(((topic.kept_seconds, topic.name) for topic in topics), default=(math.inf, ""))
    return WaveSize(
        wave=wave,
        partitions=sum(topic.partitions for topic in topics),
        records=sum(topic.offsets for topic in topics),
        bytes=_total([topic.bytes for topic in topics]),
        records_per_second=sum(topic.records_per_second for topic in topics),
        bytes_per_second=growth(topics),
        kept_seconds=kept,
        kept_topic="" if math.isinf(kept) else topic,
    )


def growth(topics: list[TopicFacts]) -> float | None:
    """How fast topics grow together, bytes a second; None where a size is unknown."""
    rates = [topic.bytes_per_second for topic in topics]
    return None if None in rates else sum(rate for rate in rates if rate is not None)


def _total(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


def _assumed(mirror: Mirror, sized: WaveSize, taken: Inventory) -> Eta | None:
    least, most = (_slowest(mirror, names, taken) for names in (sized.wave.topics, taken.topics))
    return None if least is None or most is None else Eta(least=least, most=most, measured=False)


def _slowest(mirror: Mirror, names: Iterable[str], taken: Inventory) -> float | None:
    """How long the copy of these topics takes, each by its own tasks; None where a size is unknown."""
    longest = 0.0
    for entry, mine in mirror.by_streams(names).items():
        topics = [taken.topics[name] for name in mine]
        total, growing = _total([topic.bytes for topic in topics]), growth(topics)
        if total is None or growing is None:
            return None
        speed = ASSUMED_BYTES_PER_SECOND * mirror.streams_of(entry)[0]
        longest = max(longest, copy_seconds(total, growing, speed))
    return longest


def copy_seconds(count: int, growing: float, speed: float) -> float:
    """How long ``count`` bytes take that grow meanwhile (bytes a second); infinite where copying never catches up."""
    return math.inf if growing >= speed else count / (speed - growing)


def _samples(ctx: Context) -> tuple[LagSample, LagSample] | None:
    if not mirrored(ctx) or mirror_state(ctx)[0] != "running":
        return None
    meter = LagMeter(ctx)
    try:
        first = meter.read().sample
        ctx.clock.sleep(_SAMPLE_SECONDS)
        return first, meter.read().sample
    except CouldNotFindOut:
        return None


def _measured(samples: tuple[LagSample, LagSample], topics: Set[str]) -> Eta | None:
    own = [_only(sample, topics) for sample in samples]
    if {tp.topic for tp in own[-1].lag} != topics:
        # Not all of it is mirrored yet.
        return None
    seconds = trend(own).eta_seconds
    seconds = math.inf if seconds is None else seconds
    return Eta(least=seconds, most=seconds, measured=True)


def _only(sample: LagSample, topics: Set[str]) -> LagSample:
    def of(values: Mapping[Any, int]) -> dict[Any, int]:
        return {tp: value for tp, value in values.items() if tp.topic in topics}

    return LagSample(
        at=sample.at, lag=of(sample.lag), source_ends=of(sample.source_ends), undecided=of(sample.undecided)
    )


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else round(seconds, 1)
