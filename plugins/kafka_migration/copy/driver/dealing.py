"""What the tasks of an epoch are told: partitions are dealt out among them by backlog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.book import LinkBook, PinnedTopic
from kafka_migration.copy.driver.lookout import Lookout
from kafka_migration.copy.driver.pace import LONGEST_SECONDS, Slots
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.shares import balance, share_of
from kafka_migration.copy.valve import Debt
from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealer:
    """Deals for one run. ``source`` and ``target`` are kafka-python properties; they hold credentials."""

    link: LinkBook
    source: Mapping[str, Any] = field(repr=False)
    target: Mapping[str, Any] = field(repr=False)
    topics: Mapping[str, PinnedTopic]
    attempts: Attempts
    lookout: Lookout
    slots: Slots
    limits: Limits
    debt: Debt

    def deal(
        self,
        active: Mapping[TopicPartition, Active],
        until: Mapping[TopicPartition, int],
        epoch: int,
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
        limits = replace(limits, throttle_bytes_per_second=controls.rate(limits.throttle_bytes_per_second))
        ends = self.lookout.ends(active)
        backlog = {tp: ends.get(tp, 0) - it.position.source for tp, it in active.items()}
        apart = {tp: backlog.pop(tp) for tp in quarantine.tried & active.keys()} if self.slots.now > 1 else {}
        tasks = self.slots.now - 1 if apart else self.slots.wanted(sum(backlog.values()), len(backlog))
        shares = balance(backlog, tasks) + balance(apart, 1)
        return [
            TaskOrders(
                link=self.link.name,
                epoch=epoch,
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
                limits=share_of(limits, len(shares)),
                is_paused=controls.pause is not None,
                tasks=len(shares),
                share=number,
                source=dict(self.source),
                target=dict(self.target),
                young_ms=self.attempts.young_ms(),
                owed_bytes=self.debt.now(limits.throttle_bytes_per_second) // len(shares),
                state_ids=self.attempts.state_ids,
            )
            for number, share in enumerate(shares)
        ]
