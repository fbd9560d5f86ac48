"""Taking partitions in behind fences, while those that are sound are copied on.

A fence is one transaction over its partitions, and any of them can hold it up: a leader that does not answer, a
coordinator that moves, a log that cannot be read. So it runs beside the tasks of the others, which it does not
concern (docs/adr/0003): their partitions get no marker, and their producer epoch stays good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.fencing import Fences, FenceUnderWay
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.driver.reach import Reach
from kafka_migration.copy.driver.survey import BY_METADATA
from kafka_migration.copy.driver.takeover import Overtaken, Stopped, Unread
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Halt, TopicPartition

_TRIES = 3


class Entry:
    """Into ``active``, which are the partitions that tasks may copy. One fence at a time; what it finds that stops a
    partition goes to ``halt``, as :meth:`Mirror._halt` takes it."""

    def __init__(
        self,
        *,
        active: dict[TopicPartition, Active],
        fences: Fences,
        reach: Reach,
        attempts: Attempts,
        quarantine: Quarantine,
        join_bytes: int,
        halt: Callable[..., None],
    ) -> None:
        self.active, self._fences, self._reach, self._attempts = active, fences, reach, attempts
        self._quarantine, self._join_bytes, self._halt = quarantine, join_bytes, halt
        self._under_way: FenceUnderWay | None = None
        self._fencing: dict[TopicPartition, Active | None] = {}

    @property
    def is_under_way(self) -> bool:
        """True if a fence was begun, and :meth:`end_beside` has not seen its end."""
        return self._under_way is not None

    def forget(self, tp: TopicPartition) -> None:
        """Whatever the fence under way finds of ``tp``, it is not taken in."""
        self._fencing.pop(tp, None)

    def fence(self, partitions: set[TopicPartition], *, again: int = _TRIES) -> None:
        """Fence those of ``partitions`` that can be, and know again where each stands. Raises what :meth:`begin` and
        :meth:`Fences.result` do, but for a permission on a topic of theirs: that waits."""
        self.end_beside(None)
        self.begin(partitions)
        if self._under_way is None:
            return
        try:
            self._end(self._under_way)
        except NotAuthorized as error:
            if error.topic not in {tp.topic for tp in partitions}:
                raise
            # Whoever was asked before permitted it, or it was a moment ago. Without this topic, then.
            self._reach.refuse(error)
            self.fence(partitions)
        except Overtaken:
            if not again:
                raise
            self.fence(partitions, again=again - 1)

    def set_aside(self, partitions: Collection[TopicPartition], why: str) -> None:
        """``partitions`` are not copied from now on, and wait, because of ``why``."""
        known = {tp: self.active.pop(tp, None) or self._reach.waiting.get(tp) for tp in partitions}
        self._reach.set_aside(known, why)

    def begin(self, partitions: set[TopicPartition], within: float = float("inf")) -> None:
        """Begin to fence those of ``partitions`` that can be, as far as a look tells within so many seconds. Raises
        TakenOver, Refused if the link was sealed, CouldNotFindOut."""
        if not partitions:
            return
        self._attempts.check()
        known = {tp: self.active.get(tp) or self._reach.waiting.get(tp) for tp in partitions}
        starts = self._reach.look(partitions, is_beginning=not self._fences.count, within=within)
        self._reach.set_aside({tp: known[tp] for tp in partitions - starts.keys()})
        for tp in self._reach.waiting:
            self.active.pop(tp, None)
        if not starts:
            return
        if self._reach.waiting.keys() & starts.keys():
            # A broker that was frozen may take what it was sent before only now.
            self._attempts.closed()
        positions = {tp: active.position for tp, active in known.items() if active is not None}
        self._under_way = self._fences.begin(starts, positions=positions, source_starts=starts)
        self._fencing = {tp: known[tp] for tp in starts}

    def end_beside(self, seconds: float | None) -> None:
        """Take in what the fence under way found, if there is one, and it is over within so many seconds. Its
        partitions wait until it is over, and longer if it failed: then another one is tried. Raises TakenOver,
        StateConflict, NotAuthorized for what is not one topic's."""
        if self._under_way is None:
            return
        known = dict(self._fencing)
        if not self._fences.is_over(self._under_way, seconds):
            self.set_aside(known.keys() - self._reach.waiting.keys(), "their fence is not over yet")
            return
        try:
            self._end(self._under_way)
        except NotAuthorized as error:
            if error.topic not in {tp.topic for tp in known}:
                raise
            self._reach.refuse(error)
            self.set_aside(known, "another partition of their fence may not be written")
        except CouldNotFindOut as error:
            for tp, active in known.items():
                self._rest(tp, active, error.message)

    def _end(self, under_way: FenceUnderWay) -> None:
        """Take in what the fence found once it is over. Raises what it died of."""
        known, self._fencing, self._under_way = self._fencing, {}, None
        self._fences.is_over(under_way, None)
        identity, outcome = self._fences.result(under_way)
        self._attempts.hold(known)
        for tp, before in known.items():
            result = outcome[tp]
            if isinstance(result, Unread):
                self._rest(tp, before, f"the target does not serve its log: {result.why}")
            elif isinstance(result, Stopped) and result.reason in BY_METADATA:
                # By one broker's word, a moment after another one said otherwise.
                self.active.pop(tp, None)
                self._reach.set_aside({tp: before}, result.detail)
            elif isinstance(result, Stopped):
                self._halt(tp, result.reason, result.detail, target=result.target_offset)
            else:
                join_bytes = self._join_bytes if before is None else before.join_bytes
                most_bytes = 0 if before is None else before.most_bytes
                start = None if before is None else before.target_start
                self.active[tp] = Active.behind(
                    result, identity, join_bytes=join_bytes, most_bytes=most_bytes, target_start=start
                )
                hopeless = self._quarantine.hopeless(tp, result.position.source)
                if hopeless:
                    self._halt(tp, Halt.REFUSED, hopeless)
        self._reach.drop(self.active)

    def _rest(self, tp: TopicPartition, before: Active | None, why: str) -> None:
        """A fence could not find out where ``tp`` stands: it waits, longer each time, for another one."""
        source = -1 if before is None else before.position.source
        self._reach.bar(tp, why, self._quarantine.unsettled(tp, source, why, is_passing=True))
        self.set_aside([tp], why)
