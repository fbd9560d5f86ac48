"""The topics of a round, by kind: what is written to each, and how it is created on the source."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LARGEST_RECORD = 2_500_000
"""Past the default limits of clients and topics (1 MiB), and small enough for a link that is slow."""


@dataclass(frozen=True)
class Kind:
    """A kind of topic. `prefill` and `live` say what part of the records written beforehand, and of those written
    while the mirror runs, go there."""

    partitions: int
    prefill: float
    live: float
    configs: Mapping[str, str] = field(default_factory=dict)


#: What a round writes.
KINDS: Mapping[str, Kind] = {
    # Batches of all codecs, linger from none to 50 ms.
    "plain": Kind(4, 0.4, 0.4),
    # The same, records of now and of years ago in no order.
    "mixed": Kind(2, 0.1, 0.1),
    # Nothing but records of years ago: what brokers forget of their producers is gone at once.
    "old": Kind(3, 0.3, 0.2),
    # Batches of one record.
    "small": Kind(2, 0.02, 0.06),
    # Large ones, above the usual limits; their share is in bytes, roughly.
    "big": Kind(2, 0.0, 0.0, configs={"max.message.bytes": str(2 * LARGEST_RECORD)}),
    # Nobody writes to it.
    "empty": Kind(2, 0.0, 0.0),
    # Several producers whose transactions interleave in each partition, 30% of them aborted.
    "transactions": Kind(3, 0.15, 0.2),
    # The same, and producers that die with a transaction open, which is aborted seconds later.
    "hanging": Kind(2, 0.02, 0.05),
    # Compacted while it is read: many segments, few keys, tombstones.
    "compacted": Kind(
        2,
        0.15,
        0.15,
        configs={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(1024 * 1024),
            "segment.ms": "3000",
            "max.compaction.lag.ms": "4000",
        },
    ),
    # Times of 0 and none, before 1970 and of the year 9999, beside each other in one batch.
    "odd_times": Kind(2, 0.03, 0.05),
    "append_time": Kind(2, 0.05, 0.1, configs={"message.timestamp.type": "LogAppendTime"}),
}
DEFAULT = tuple(KINDS)
COMPACTED = frozenset({"compacted"})
#: Records of tests are years old: with the default retention brokers delete them under a test's feet.
KEPT = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}


def topic(prefix: str, kind: str) -> str:
    """The name of a round's topic."""
    return f"{prefix}.{kind}"


def shares(kinds: tuple[str, ...], what: str) -> dict[str, float]:
    """What part of all records each of `kinds` gets; the parts sum up to 1."""
    parts = {kind: float(getattr(KINDS[kind], what)) for kind in kinds}
    total = sum(parts.values())
    return {kind: part / total for kind, part in parts.items()} if total else parts
