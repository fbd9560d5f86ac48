"""The partitions of a run: those that are copied, those that wait, and how they get from one to the other.

A partition is taken in behind a fence. A fence is one transaction over its partitions, and any of them can hold it up:
a leader that does not answer, a coordinator that moves, a log that cannot be read. So it runs beside the tasks of the
others, which it does not concern (docs/adr/0003): their partitions get no marker, and their producer epoch stays good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.fencing import Fences, FenceUnderWay, now
from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.newcomers import Newcomers
from kafka_migration.copy.driver.outages import Outages
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.driver.readiness import Readiness
from kafka_migration.copy.driver.survey import BY_METADATA
from kafka_migration.copy.driver.takeover import Overtaken, Resumed, Stopped, Unread
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Halt, TopicPartition

_TRIES = 3
_BRIEFLY_SECONDS, _LOOK_SECONDS = 1.5, 0.1
"""For so long, between two rounds, those that are sound wait for all looks at others and fences of theirs; what takes
longer goes on beside them. With less than the second left, nothing is begun any more."""
_REGRESSED_SECONDS = 5.0
"""A log that ends too early is looked at again so much later: a broker that was cut off does not know of its successor
for a while, and shows its own log."""
_SHORT = "its log on the target lacks what was confirmed there, which is looked at once more"


@dataclass(slots=True, kw_only=True, eq=False)
class Partitions:
    """``active`` are those that tasks may copy, ``assigned`` those that the newest round began with. One fence at a
    time. ``takes_newcomers``: what appears meanwhile is taken in, too."""

    link: Link
    topics: Mapping[str, PinnedTopic]
    fences: Fences
    readiness: Readiness
    newcomers: Newcomers
    attempts: Attempts
    quarantine: Quarantine
    outages: Outages
    join_bytes: int
    log: Callable[[str], None]
    active: dict[TopicPartition, Active] = field(default_factory=dict)
    assigned: set[TopicPartition] = field(default_factory=set)
    takes_newcomers: bool = False
    _brief_until: float | None = None
    _under_way: FenceUnderWay | None = None
    _fencing: dict[TopicPartition, Active | None] = field(default_factory=dict)
    _regressed: dict[TopicPartition, float] = field(default_factory=dict)

    @property
    def waiting(self) -> Mapping[TopicPartition, Active | None]:
        """Those that wait for their brokers, or a permission, each as it stood when it was last certain, if ever."""
        return self.readiness.waiting

    @property
    def is_fencing(self) -> bool:
        """True if a fence was begun whose end was not seen yet."""
        return self._under_way is not None

    # -- between two rounds -----------------------------------------------------------------------------------

    def wait_briefly(self, *, is_brief: bool = True) -> None:
        """A round has ended: those that are sound wait only briefly for the others. Not ``is_brief``: none is sound."""
        self._brief_until = time.monotonic() + _BRIEFLY_SECONDS if is_brief else None

    @property
    def _left(self) -> float:
        """For how many seconds those that are sound may still wait, since the round before ended."""
        return _BRIEFLY_SECONDS if self._brief_until is None else max(0.0, self._brief_until - time.monotonic())

    def take_in(self) -> None:
        if self.active:
            self.assigned = set(self.active)
            if self._left > _LOOK_SECONDS:
                self.outages.wait_out(lambda: self.join_beside(self._left))
        elif self.takes_newcomers:
            self.join()
        else:
            self.fence(set(self.waiting))

    def join(self) -> None:
        """Take in what nobody copies yet: everything at first, and later what appears or is no longer halted."""
        self.fence(self.outages.wait_out(self._found))

    def join_beside(self, within: float | None = None) -> bool:
        """Take in what nobody copies yet; True if the next round has more to copy. While no round runs, for no longer
        than ``within`` seconds. Raises what :meth:`_begin` does.
        """
        limit = float("inf") if within is None else within
        if not self.is_fencing:
            known = self.active.keys() | self.waiting.keys()
            if self.takes_newcomers and self.newcomers.are_there(known):
                self._begin(self._found(), limit)
            elif self.readiness.is_due():
                self._begin(set(self.waiting), limit)
        self._end_beside(within or 0.0)
        return bool(self.active.keys() - self.assigned)

    def _found(self) -> set[TopicPartition]:
        """What nobody copies yet, and can be: those that wait are among them."""
        ready, stuck = self.newcomers.take(self.active)
        for tp, why in stuck.items():
            self.halt(tp, Halt.NO_PARTITION, f"the target topic has no partition {tp.partition}: {why}")
        return ready

    def fence(self, partitions: set[TopicPartition]) -> None:
        """Fence ``partitions`` and know again where each stands. If others are active they do not wait for long: what
        is not over by then goes on beside them."""
        if not partitions:
            return
        if not self.active.keys() - partitions:
            self.outages.wait_out(lambda: self._fence_all(partitions))
            return
        if not self.is_fencing and self._left > _LOOK_SECONDS:
            self.outages.wait_out(lambda: self._begin(partitions, self._left))
        else:
            self.set_aside(partitions, "their fence has not begun yet")
        self._end_beside(self._left)

    # -- out of the copy --------------------------------------------------------------------------------------

    def set_aside(self, partitions: Collection[TopicPartition], why: str) -> None:
        """``partitions`` are not copied from now on, and wait, because of ``why``."""
        known = {tp: self.active.pop(tp, None) or self.waiting.get(tp) for tp in partitions}
        self.readiness.set_aside(known, why)

    def halt(self, tp: TopicPartition, reason: str, detail: str, *, target: int | None = None) -> None:
        """Halt ``tp`` durably. ``target`` is where the trouble was seen; without, where the partition stands."""
        active = self.active.pop(tp, None) or self.waiting.get(tp)
        self.readiness.drop([tp])
        self._regressed.pop(tp, None)
        # Whatever the fence under way finds of it, it is not taken in.
        self._fencing.pop(tp, None)
        at = active.position if active is not None else self.outages.wait_out(self.link.positions).get(tp)
        source, stands = (at.source, at.target) if at is not None else (0, 0)
        # Of the topic that this run copied into: by now another one may be pinned under its name.
        key, seen = self.topics[tp.topic].key, stands if target is None else target
        self.outages.wait_out(lambda: self.link.halt(tp, str(reason), detail, source, seen, now(), key))
        self.log(f"{tp}: {reason}: {detail}")

    # -- fences -----------------------------------------------------------------------------------------------

    def _fence_all(self, partitions: set[TopicPartition], *, again: int = _TRIES) -> None:
        """Fence those of ``partitions`` that can be, and know again where each stands. Raises what :meth:`_begin` and
        :meth:`Fences.result` do, but for a permission on a topic of theirs: that waits."""
        self._end_beside(None)
        self._begin(partitions)
        if self._under_way is None:
            return
        try:
            self._end(self._under_way)
        except NotAuthorized as error:
            if error.topic not in {tp.topic for tp in partitions}:
                raise
            # Whoever was asked before permitted it, or it was a moment ago. Without this topic, then.
            self.readiness.refuse(error)
            self._fence_all(partitions)
        except Overtaken:
            if not again:
                raise
            self._fence_all(partitions, again=again - 1)

    def _begin(self, partitions: set[TopicPartition], within: float = float("inf")) -> None:
        """Begin to fence those of ``partitions`` that can be, as far as a look shows within so many seconds. Raises
        TakenOver, Refused if the link was sealed, CouldNotFindOut."""
        if not partitions:
            return
        self.attempts.check()
        known = {tp: self.active.get(tp) or self.waiting.get(tp) for tp in partitions}
        starts = self._ready(known, within)
        if not starts:
            return
        if self.waiting.keys() & starts.keys():
            # A broker that was frozen may take what it was sent before only now.
            self.attempts.stalled(self.waiting.keys() & starts.keys())
        positions = {tp: before.position for tp, before in known.items() if before is not None}
        self._under_way = self.fences.begin(starts, positions=positions, source_starts=starts)
        self._fencing = {tp: known[tp] for tp in starts}

    def _ready(self, known: Mapping[TopicPartition, Active | None], within: float) -> dict[TopicPartition, int]:
        """Those of ``known`` that can be fenced now, with where their source's log begins; all others wait."""
        starts = self.readiness.look(known, is_beginning=not self.fences.count, within=within)
        self.readiness.set_aside({tp: known[tp] for tp in known.keys() - starts.keys()})
        for tp in self.waiting:
            self.active.pop(tp, None)
        return starts

    def _end_beside(self, seconds: float | None) -> None:
        """Take in what the fence under way found, if there is one, and it is over within so many seconds. Its
        partitions wait until it is over, and longer if it failed: then another one is tried. Raises TakenOver,
        StateConflict, NotAuthorized for what is not one topic's."""
        if self._under_way is None:
            return
        known = dict(self._fencing)
        if not self.fences.is_over(self._under_way, seconds):
            self.set_aside(known.keys() - self.waiting.keys(), "their fence has not ended yet")
            return
        try:
            self._end(self._under_way)
        except NotAuthorized as error:
            if error.topic not in {tp.topic for tp in known}:
                raise
            self.readiness.refuse(error)
            self.set_aside(known, "another partition of their fence may not be written")
        except CouldNotFindOut as error:
            for tp, active in known.items():
                self._rest(tp, active, error.message)

    def _end(self, under_way: FenceUnderWay) -> None:
        """Take in what the fence found once it is over. Raises what it died of, and TakenOver, or Refused if the link
        was sealed meanwhile."""
        self.fences.is_over(under_way, None)
        # Behind a seal, or somebody else's claim, what stands there is not this run's to judge.
        self.attempts.check()
        known, self._fencing, self._under_way = self._fencing, {}, None
        identity, outcome = self.fences.result(under_way)
        self.attempts.hold(known)
        again = {tp for tp in known if self._is_seen_first(tp, outcome[tp])}
        for tp in again:
            self.readiness.bar(tp, _SHORT, _REGRESSED_SECONDS)
        self.set_aside(again, _SHORT)
        for tp, before in known.items():
            result = outcome[tp]
            if tp in again:
                continue
            if isinstance(result, Unread):
                self._rest(tp, before, f"the target does not serve its log: {result.why}")
            elif isinstance(result, Stopped) and result.reason in BY_METADATA:
                # By one broker's answer, a moment after another one reported otherwise.
                self.active.pop(tp, None)
                self.readiness.set_aside({tp: before}, result.detail)
            elif isinstance(result, Stopped):
                self.halt(tp, result.reason, result.detail, target=result.target_offset)
            else:
                self._regressed.pop(tp, None)
                self.active[tp] = Active.behind(result, identity, before, join_bytes=self.join_bytes)
                hopeless = self.quarantine.hopeless(tp, result.position.source)
                if hopeless:
                    self.halt(tp, Halt.REFUSED, hopeless)
        self.readiness.drop(self.active)

    def _is_seen_first(self, tp: TopicPartition, result: Resumed | Stopped | Unread) -> bool:
        """Whether the log of ``tp`` lacks what was confirmed, and did not some time ago."""
        if not (isinstance(result, Stopped) and result.reason is Halt.LOG_REGRESSED):
            return False
        looked_at = time.monotonic()
        return looked_at - self._regressed.setdefault(tp, looked_at) < _REGRESSED_SECONDS

    def _rest(self, tp: TopicPartition, before: Active | None, why: str) -> None:
        """A fence could not find out where ``tp`` stands: it waits, longer each time, for another one."""
        source = -1 if before is None else before.position.source
        self.readiness.bar(tp, why, self.quarantine.unsettled(tp, source, why, is_passing=True))
        self.set_aside([tp], why)
