"""Partitions between two copy rounds, as the driver knows them, and how the next round shares them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.pace import LONGEST_SECONDS, SMALL_BACKLOG, Slots
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.driver.takeover import Resumed
from kafka_migration.copy.orders import Assignment, Limits, TaskOrders
from kafka_migration.copy.rate_limit import RateDebt, rate_share
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.handlers import Handler, HandlerOf, no_handler
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Identity, Position, Receipt, TopicPartition

_EVENER = 0.75
"""What part of the largest backlog may be left for a task, if partitions are worth assigning again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A partition that is fenced and certain: where it stands and who may write to it."""

    position: Position
    opening: RunOpening
    identity: Identity
    continues: int
    source_epoch: int
    join_bytes: int
    most_bytes: int = 0
    target_start: int = 0

    @classmethod
    def behind(cls, fence: Resumed, identity: Identity, before: Active | None, *, join_bytes: int) -> Self:
        """As it stands right behind a fence of ``identity``. ``before`` is how it stood, if this run copied it already:
        what its batches may hold, and where the target's log began when the run first saw it, stay."""
        return cls(
            position=fence.position,
            opening=fence.opening,
            identity=identity,
            continues=fence.position.source,
            source_epoch=fence.opening.epoch,
            join_bytes=join_bytes if before is None else before.join_bytes,
            most_bytes=0 if before is None else before.most_bytes,
            target_start=fence.target_start if before is None else before.target_start,
        )

    def assignment(
        self,
        tp: TopicPartition,
        topic: PinnedTopic,
        until: int | None,
        hold_seconds: float,
        *,
        is_alone: bool = False,
        handler: Handler | None = None,
    ) -> Assignment:
        """The partition as it is handed to a task."""
        return Assignment(
            partition=tp,
            position=self.position,
            continues=self.continues,
            fence_end=self.opening.target,
            closes=self.opening.closes or 0,
            topic_key=topic.key,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            source_topic_id=topic.source_id,
            target_topic_id=topic.target_id,
            target_start=self.target_start,
            source_epoch=self.source_epoch,
            until=until,
            join_bytes=0 if is_alone else self.join_bytes,
            most_bytes=self.most_bytes,
            hold_seconds=hold_seconds,
            is_alone=is_alone,
            handler=handler,
        )

    def after(self, receipt: Receipt) -> Self:
        """Where it stands after ``receipt``. Raises StateConflict if the receipt does not begin at this position."""
        if (receipt.fence, receipt.target_start) != (self.position.fence, self.position.target):
            raise StateConflict(
                f"{receipt.topic}-{receipt.partition}: a task's receipt begins at fence {receipt.fence}, target offset"
                f" {receipt.target_start}, but the partition stands at {self.position}",
                remedy="report this; the state is unharmed, and the mirror can be started again",
            )
        position = Position(
            source=receipt.source_end,
            target=receipt.target_end,
            fence=receipt.fence,
            records=receipt.target_end - self.opening.target,
        )
        return replace(
            self,
            position=position,
            continues=receipt.continues,
            source_epoch=receipt.source_epoch,
            join_bytes=receipt.join_bytes,
            most_bytes=receipt.most_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dedicated:
    """Tasks for some topics alone, ``streams`` of them: for those that it ``has``, by their names. ``sizes`` are fields
    of their limits that are other ones than those of the run."""

    has: Callable[[str], bool]
    streams: int
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigner:
    """Shares out the partitions of one run. ``source``, ``target`` and ``home`` are kafka-python properties,
    with credentials (see :class:`~kafka_migration.copy.orders.TaskOrders`). Topics that are not ``dedicated`` have
    ``streams`` tasks. ``handler_of`` gives the handler of a topic, if it has one."""

    link: Link
    source: Mapping[str, Any] = field(repr=False)
    target: Mapping[str, Any] = field(repr=False)
    home: Mapping[str, Any] | None = field(default=None, repr=False)
    direction: Direction = Direction.FORWARD
    topics: Mapping[str, PinnedTopic]
    attempts: Attempts
    pinned: PinnedTopics
    slots: Slots
    streams: int
    dedicated: Sequence[Dedicated] = ()
    handler_of: HandlerOf = no_handler
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
        controls = self.link.controls()
        rate = controls.rate(self.limits.throttle_bytes_per_second)
        ends = self.pinned.ends(active)
        backlog = {tp: ends.get(tp, 0) - partition.position.source for tp, partition in active.items()}
        apart = {tp: backlog.pop(tp) for tp in quarantine.tried & active.keys()} if self.slots.now > 1 else {}
        shares = self._shares(backlog, self.slots.now - bool(apart))
        # As they were when their task died, or nothing would be found out of it.
        shares += [(share, self._limits_of(share[0])) for share in balance(apart, 1)]
        owed = self.debt.now(rate)
        parts = parts_of([sum((backlog | apart)[tp] for tp in share) for share, _ in shares])
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
                        handler=self.handler_of(tp.topic),
                    )
                    for tp in share
                ),
                limits=replace(limits, throttle_bytes_per_second=rate_share(rate, part)),
                is_paused=controls.pause is not None,
                part=part,
                share=number,
                source=dict(self.source),
                target=dict(self.target),
                home=None if self.home is None else dict(self.home),
                direction=self.direction,
                young_ms=self.attempts.young_ms(),
                owed_bytes=int(owed * part),
                state_ids=self.attempts.state_ids,
            )
            for number, ((share, limits), part) in enumerate(zip(shares, parts, strict=True))
        ]

    def _shares(self, backlog: dict[TopicPartition, int], room: int) -> list[tuple[list[TopicPartition], Limits]]:
        """The partitions of each of at most ``room`` tasks, and what limits it."""
        kinds: dict[Dedicated | None, dict[TopicPartition, int]] = {}
        for tp, behind in backlog.items():
            kinds.setdefault(self._kind_of(tp), {})[tp] = behind
        if len(kinds) > room:
            # Fewer slots than that: in common, rather than one after the other.
            return [(share, self.limits) for share in balance(backlog, min(room, self._wanted(backlog)))]
        tasks = dict.fromkeys(kinds, 1)
        most = {
            kind: min(self.streams if kind is None else kind.streams, self._wanted(mine), len(mine))
            for kind, mine in kinds.items()
        }
        while sum(tasks.values()) < room and (short := [kind for kind in kinds if tasks[kind] < most[kind]]):
            # Whose tasks have the most to copy gets the next one.
            tasks[max(short, key=lambda kind: sum(kinds[kind].values()) / tasks[kind])] += 1
        return [
            (share, self._limits_of(share[0]))
            for kind, mine in sorted(kinds.items(), key=lambda entry: min(entry[1]))
            for share in balance(mine, tasks[kind])
        ]

    def evens_out(
        self, orders: Sequence[TaskOrders], backlog: Mapping[TopicPartition, int], quarantine: Quarantine
    ) -> bool:
        """Whether the ``backlog`` of tasks with ``orders`` is worth the pause of a new round: always where no topic has
        tasks of its own, and where they lack some: topics of several kinds share one, suspects have one, or a throttle
        is shared out by what the backlog was. Else only if the task with the most to copy of its kind would have much
        less: all others pause for it, and they are not to wait for each other's records."""
        kinds = {self._kind_of(tp) for tp in backlog}
        if len(kinds) < 2 or len(kinds) > self.slots.now or quarantine.tried & backlog.keys():
            return True
        shares = [[a.partition for a in each.assignments] for each in orders]
        is_mixed = any(len({*map(self._kind_of, share)}) > 1 for share in shares)
        if is_mixed or self.link.controls().rate(self.limits.throttle_bytes_per_second) is not None:
            return True
        now = self._most(shares, backlog)
        then = self._most((share for share, _ in self._shares(dict(backlog), self.slots.now)), backlog)
        return any(behind > SMALL_BACKLOG and then[kind] < _EVENER * behind for kind, behind in now.items())

    def _most(
        self, shares: Iterable[list[TopicPartition]], backlog: Mapping[TopicPartition, int]
    ) -> dict[Dedicated | None, int]:
        """Of each kind, what its task with the most to copy has to copy."""
        found: dict[Dedicated | None, int] = {}
        for share in shares:
            kind = self._kind_of(share[0])
            found[kind] = max(found.get(kind, 0), sum(backlog[tp] for tp in share))
        return found

    def _kind_of(self, tp: TopicPartition) -> Dedicated | None:
        return next((each for each in self.dedicated if each.has(tp.topic)), None)

    def _limits_of(self, tp: TopicPartition) -> Limits:
        kind = self._kind_of(tp)
        return self.limits if kind is None else replace(self.limits, **kind.sizes)

    def _wanted(self, backlog: Mapping[TopicPartition, int]) -> int:
        return self.slots.wanted(sum(backlog.values()), len(backlog))


def parts_of(backlogs: Sequence[int]) -> list[float]:
    """What part of a rate each share of so much backlog gets: alike, but for what is a large backlog."""
    weights = [max(0, behind) + SMALL_BACKLOG for behind in backlogs]
    return [weight / sum(weights) for weight in weights]


def balance(backlog: Mapping[TopicPartition, int], streams: int) -> list[list[TopicPartition]]:
    """Partitions in at most ``streams`` shares of about equal backlog (source offsets), largest first; none empty."""
    shares: list[tuple[int, list[TopicPartition]]] = [(0, []) for _ in range(max(1, streams))]
    for tp in sorted(backlog, key=lambda tp: (-backlog[tp], tp)):
        at = min(range(len(shares)), key=lambda i: (shares[i][0], len(shares[i][1])))
        shares[at][1].append(tp)
        shares[at] = (shares[at][0] + max(0, backlog[tp]), shares[at][1])
    return [share for _, share in shares if share]
