"""The orders of a copy round's tasks: partitions, and the mirror's throttle, are shared out among them by backlog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.pace import LONGEST_SECONDS, Slots
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.rate_limit import RateDebt, rate_share
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigner:
    """Shares out the partitions of one run. ``source``, ``target`` and ``home`` are kafka-python properties,
    with credentials (see :class:`~kafka_migration.copy.orders.TaskOrders`)."""

    link: Link
    source: Mapping[str, Any] = field(repr=False)
    target: Mapping[str, Any] = field(repr=False)
    home: Mapping[str, Any] | None = field(default=None, repr=False)
    direction: Direction = Direction.FORWARD
    topics: Mapping[str, PinnedTopic]
    attempts: Attempts
    pinned: PinnedTopics
    slots: Slots
    limits: Limits
    debt: RateDebt

    def assign(
        self,
        active: Mapping[TopicPartition, Active],
        until: Mapping[TopicPartition, int],
        round_id: int,
        quarantine: Quarantine,
    ) -> list[TaskOrders]:
        """One share per task; ``until`` are the source offsets at which partitions end, if they do. Who may have killed
        a task gets one of its own, where several run side by side.

        Raises TakenOver, Refused if the link was sealed, CouldNotFindOut.
        """
        self.attempts.check_state()
        commands_from = self.link.commands_from()
        # After that offset tasks see for themselves: a command given meanwhile reaches them twice rather than never,
        # and a claim or a seal that stands before it is seen here.
        self.attempts.check()
        controls, limits = self.link.controls(), self.limits
        rate = controls.rate(limits.throttle_bytes_per_second)
        ends = self.pinned.ends(active)
        backlog = {tp: ends.get(tp, 0) - partition.position.source for tp, partition in active.items()}
        apart = {tp: backlog.pop(tp) for tp in quarantine.tried & active.keys()} if self.slots.now > 1 else {}
        tasks = self.slots.now - 1 if apart else self.slots.wanted(sum(backlog.values()), len(backlog))
        shares = balance(backlog, tasks) + balance(apart, 1)
        owed = self.debt.now(rate) // max(1, len(shares))
        return [
            TaskOrders(
                link=self.link.name,
                round_id=round_id,
                seconds=LONGEST_SECONDS,
                commands_from=commands_from,
                assignments=tuple(
                    active[tp].assignment(
                        tp,
                        self.topics[tp.topic],
                        until.get(tp),
                        self.attempts.hold_seconds(tp),
                        is_alone=tp in quarantine.alone,
                    )
                    for tp in share
                ),
                limits=replace(limits, throttle_bytes_per_second=rate_share(rate, len(shares))),
                is_paused=controls.pause is not None,
                tasks=len(shares),
                share=number,
                source=dict(self.source),
                target=dict(self.target),
                home=None if self.home is None else dict(self.home),
                direction=self.direction,
                young_ms=self.attempts.young_ms(),
                owed_bytes=owed,
                state_ids=self.attempts.state_ids,
            )
            for number, share in enumerate(shares)
        ]


def balance(backlog: Mapping[TopicPartition, int], streams: int) -> list[list[TopicPartition]]:
    """Partitions in at most ``streams`` shares of about equal backlog (source offsets), largest first; none empty."""
    shares: list[tuple[int, list[TopicPartition]]] = [(0, []) for _ in range(max(1, streams))]
    for tp in sorted(backlog, key=lambda tp: (-backlog[tp], tp)):
        at = min(range(len(shares)), key=lambda i: (shares[i][0], len(shares[i][1])))
        shares[at][1].append(tp)
        shares[at] = (shares[at][0] + max(0, backlog[tp]), shares[at][1])
    return [share for _, share in shares if share]
