"""How an epoch's partitions, and the mirror's throttle, are shared out among its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import TopicPartition


def balance(backlog: Mapping[TopicPartition, int], streams: int) -> list[list[TopicPartition]]:
    """Partitions in at most ``streams`` shares of about equal backlog (source offsets), largest first; none empty."""
    shares: list[tuple[int, list[TopicPartition]]] = [(0, []) for _ in range(max(1, streams))]
    for tp in sorted(backlog, key=lambda tp: (-backlog[tp], tp)):
        at = min(range(len(shares)), key=lambda i: (shares[i][0], len(shares[i][1])))
        shares[at][1].append(tp)
        shares[at] = (shares[at][0] + max(0, backlog[tp]), shares[at][1])
    return [share for _, share in shares if share]


def share_of(limits: Limits, tasks: int) -> Limits:
    """The throttle is meant for the whole mirror: each task gets its part."""
    return replace(limits, throttle_bytes_per_second=rate_share(limits.throttle_bytes_per_second, tasks))


def rate_share(bytes_per_second: int | None, tasks: int) -> int | None:
    """One task's part of a rate of the whole mirror; None: no limit."""
    return None if bytes_per_second is None else max(1, bytes_per_second // max(1, tasks))
