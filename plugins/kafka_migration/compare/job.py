"""A validation's reading on Spark: wide jobs, each of a few shares of segments for every slot.

A wave is one job: its shares are about equal, and go to their tasks one by one. What it found is known when it ends, so
waves are short, and two are under way at once: the slots that one leaves free the other takes. How many slots there are
is asked for each wave, since executors come and go. Shares take turns over the brokers that lead their partitions.

Credentials travel inside the pickled function, which Spark neither logs nor shows.

A read that fails proves nothing about what stands beside the one that broke it. A partition whose leader does not
answer is left, and read once all others are. A task that dies fails its wave: that is halved and read again, until what
breaks it stands alone.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from kafka_migration.compare.decode.columns import COMPILED
from kafka_migration.compare.digests import OnRead, SegmentOutcome, sum_of
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.reading import LONG_SECONDS
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import divided, tiles
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.spark_worker import keep_imports, keep_memory
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES_PER_SLOT = 4
_WAVES_AT_ONCE = 2
#: Of a share, on one side: half a minute of work at the most, and no less than is worth a task.
_MOST_BYTES, _LEAST_BYTES = 256 << 20, 16 << 20
#: By such a part a share may be larger than it should be before a segment is cut; with so much less it is full.
_UNEVEN = 0.2
#: As far as nothing was read of a topic.
_BYTES_AN_OFFSET = 1000.0
#: After so many failed jobs the cluster is the trouble, not a segment.
_MOST_FAILURES = 24
#: Once all else is read, partitions whose leaders do not answer are asked for again, for so long.
PATIENCE_SECONDS = 150.0

Log = Callable[[str], None]
Share = tuple[Tile, ...]
#: Broker ids of leaders on the source, as far as they are known.
Leaders = dict[TopicPartition, int]


def run(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    orders: Orders,
    *,
    leaders: Leaders | None = None,
    secrets: Collection[str] = (),
    on_read: OnRead = lambda _found: None,
    log: Log = lambda _text: None,
) -> list[SegmentOutcome]:
    """Every segment of ``ranges``, compared as ``orders`` have it. Never raises for what cannot be read: that is in its
    outcome. ``on_read`` is called with segments as soon as their wave ends."""
    leaders = leaders or {}
    every = in_turns([tile for range_ in ranges for tile in tiles(range_, request.segment_records)], leaders)
    count = len({leaders.get(tile.tp, -1) for _, tile in every})
    return _Work(spark, request, orders, count, secrets, on_read, log).all_of(every)


def in_turns(every: Iterable[Tile], leaders: Leaders) -> list[Tile]:
    """Tiles so that the brokers which lead them on the source take turns."""
    waiting: dict[int, deque[Tile]] = {}
    for tile in every:
        waiting.setdefault(leaders.get(tile[1].tp, -1), deque()).append(tile)
    found, turns = [], deque(waiting.values())
    while turns:
        mine = turns.popleft()
        found.append(mine.popleft())
        if mine:
            turns.append(mine)
    return found


def _task(orders: Orders) -> Callable[[Share], Answer]:
    def work(share: Share) -> Answer:
        from kafka_migration.compare.task import CONNECTIONS, obey  # which need numpy and Arrow

        keep_memory()
        try:
            return obey(orders, share, CONNECTIONS.reach)
        finally:
            keep_imports()

    return work


class _Whole:
    """A tile that may be read in parts, and what was found of it so far."""

    def __init__(self, tile: Tile) -> None:
        self.tile, self.waiting = tile, 1
        self._found: list[SegmentOutcome] = []

    @property
    def is_cut(self) -> bool:
        return self.waiting > 1 or bool(self._found)

    def add(self, outcome: SegmentOutcome) -> SegmentOutcome | None:
        """Of one part. All of the tile's, once that was the last."""
        self._found.append(outcome)
        self.waiting -= 1
        if self.waiting:
            return None
        failed = next((one.failure for one in self._found if one.failure), "")
        return SegmentOutcome.of(
            *self.tile,
            outcome.level,
            source=sum_of(one.source for one in self._found),
            target=sum_of(one.target for one in self._found),
            failure=failed,
            traits=reduce(or_, (one.traits for one in self._found)),
        )


#: Part of a tile, as it is given to a task.
_Part = tuple[_Whole, PartitionRange]


class _Work:
    """The reading of one request."""

    def __init__(
        self,
        spark: SparkSession,
        request: ValidationRequest,
        orders: Orders,
        leaders: int,
        secrets: Collection[str],
        on_read: OnRead,
        log: Log,
    ) -> None:
        self._spark, self._request, self._orders, self._leaders = spark, request, orders, leaders
        self._secrets, self._on_read, self._log = secrets, on_read, log
        self._found: list[SegmentOutcome] = []
        self._waiting: deque[_Part] = deque()
        self._again: deque[list[list[_Part]]] = deque()
        self._late: list[_Part] = []
        self._silent: set[TopicPartition] = set()
        self._late_since: float | None = None
        self._sizes: dict[str, float] = {}
        self._gone, self._failed, self._waves = "", 0, 0
        self._kernels: set[str] = set()

    def all_of(self, every: Sequence[Tile]) -> list[SegmentOutcome]:
        """Read ``every`` tile; outcomes in the order in which they were found."""
        self._waiting.extend((_Whole(tile), tile[1]) for tile in every)
        running: dict[Future[list[Answer]], list[list[_Part]]] = {}
        with ThreadPoolExecutor(max_workers=_WAVES_AT_ONCE) as pool:
            try:
                while True:
                    while len(running) < _WAVES_AT_ONCE and (wave := self._next_wave(idle=not running)):
                        running[pool.submit(self._read, wave)] = wave
                    if not running:
                        return self._found
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        self._take(running.pop(done), done)
            except BaseException:
                # Whoever waited is gone, or wants no more: nobody would know what the rest finds.
                pool.shutdown(wait=False, cancel_futures=True)
                self._spark.sparkContext.cancelJobGroup(self._request.id)
                raise

    def _next_wave(self, *, idle: bool) -> list[list[_Part]]:
        """Shares to read next; none where nothing is left but what runs."""
        while True:
            if self._gone:
                parts = [*self._waiting, *self._late, *(part for wave in self._again for one in wave for part in one)]
                for queue in (self._waiting, self._late, self._again):
                    queue.clear()
                self._settle([(part, self._failure(part, self._gone)) for part in parts])
                return []
            if self._again:
                return self._again.popleft()
            if self._waiting:
                if wave := self._wave():
                    return wave
                continue
            if not (idle and self._late):
                return []
            # Everything else is read.
            self._orders = replace(self._orders, seconds=LONG_SECONDS)
            self._late_since = self._late_since or time.monotonic()
            late: dict[TopicPartition, list[_Part]] = {}
            for part in self._late:
                late.setdefault(part[1].tp, []).append(part)
            self._late = []
            # A share for each partition: within one, nobody waits twice for its leader.
            return list(late.values())

    def _wave(self) -> list[list[_Part]]:
        slots = max(1, self._spark.sparkContext.defaultParallelism)
        count = SHARES_PER_SLOT * slots
        total = sum(map(self._weight, self._waiting))
        # In as many waves as it takes, and those alike: what is left over would keep one slot busy at the end.
        waves = math.ceil(total / (count * _MOST_BYTES))
        most = max(_LEAST_BYTES, total / (count * max(1, waves)))
        self._waves += 1
        if self._waves <= _WAVES_AT_ONCE:
            # A little, until one has ended: it shows how large records are, and that it goes on.
            count, most = slots, _LEAST_BYTES
        shares: list[list[_Part]] = []
        share: list[_Part] = []
        size = 0.0
        while self._waiting and len(shares) < count:
            part = self._waiting.popleft()
            if part[1].tp in self._silent:
                self._late.append(part)
                continue
            weight, room = self._weight(part), most - size
            if weight > room + _UNEVEN * most:
                # Batches that a cut goes through are decoded, and digests of batch level look otherwise:
                # what fits into a share stays whole.
                may_cut = weight > (1 + _UNEVEN) * most or part[0].is_cut
                if may_cut and (rest := self._cut(part, room / weight)):
                    part, weight = rest[0], room
                    # Behind those of the other leaders: each has something to do.
                    self._waiting.insert(self._leaders - 1, rest[1])
                elif share:
                    self._waiting.appendleft(part)
                    shares.append(share)
                    share, size = [], 0.0
                    continue
            share.append(part)
            size += weight
            if size >= (1 - _UNEVEN) * most:
                shares.append(share)
                share, size = [], 0.0
        return [*shares, share] if share else shares

    def _cut(self, part: _Part, fraction: float) -> list[_Part]:
        """Its first ``fraction`` and the rest; nothing where it cannot be divided so."""
        whole, range_ = part
        at = range_.source_start + round(fraction * (range_.source_end - range_.source_start))
        if not range_.source_start < at < range_.source_end:
            return []
        whole.waiting += 1
        return [(whole, one) for one in divided(range_, (at,))]

    def _weight(self, part: _Part) -> float:
        """Bytes on one side, about."""
        range_ = part[1]
        size = self._sizes.get(range_.topic, _BYTES_AN_OFFSET)
        return size * max(range_.source_end - range_.source_start, range_.target_end - range_.target_start)

    def _read(self, wave: list[list[_Part]]) -> list[Answer]:
        self._spark.sparkContext.setJobGroup(
            self._request.id, f"validation of {self._request.migration}: {len(wave)} shares of segments"
        )
        shares = [tuple((whole.tile[0], range_) for whole, range_ in share) for share in wave]
        found: list[Answer] = (
            self._spark.sparkContext.parallelize(shares, len(shares)).map(_task(self._orders)).collect()
        )
        return found

    def _take(self, wave: list[list[_Part]], done: Future[list[Answer]]) -> None:
        try:
            answers = done.result()
        except Exception as error:
            self._halve(wave, reason_of(error, self._secrets))
            return
        settled = []
        for share, answer in zip(wave, answers, strict=True):
            self._gone = self._gone or hidden(answer.unreachable, self._secrets)
            self._note(answer.kernel)
            for part, outcome in zip(share, answer.outcomes, strict=True):
                if outcome.tp in answer.unanswered and outcome.failure and self._may_answer(outcome):
                    self._late.append(part)
                else:
                    settled.append((part, outcome))
        self._settle(settled)

    def _halve(self, wave: list[list[_Part]], reason: str) -> None:
        self._log(f"a job of {len(wave)} shares failed: {reason}")
        self._failed += 1
        if self._failed >= _MOST_FAILURES:
            self._gone = f"not read: {self._failed} Spark jobs before it failed, the last with: {reason}"
        if len(wave) == 1 and len(wave[0]) == 1:
            self._settle([(wave[0][0], self._failure(wave[0][0], reason))])
            return
        halved = wave if len(wave) > 1 else [[part] for part in wave[0]]
        middle = len(halved) // 2
        self._again += [halved[:middle], halved[middle:]]

    def _may_answer(self, outcome: SegmentOutcome) -> bool:
        """Whether the leader of a partition, which gave no answer, is to be asked again."""
        self._silent.add(outcome.tp)
        return self._late_since is None or time.monotonic() - self._late_since < PATIENCE_SECONDS

    def _note(self, kernel: str) -> None:
        if kernel and kernel not in self._kernels:
            self._kernels.add(kernel)
            self._log(f"records are decoded by {kernel}" + ("" if kernel == COMPILED else ", slowly: install numba"))

    def _settle(self, outcomes: Iterable[tuple[_Part, SegmentOutcome]]) -> None:
        new = []
        for (whole, _), outcome in outcomes:
            if not outcome.failure and outcome.end > outcome.start and outcome.source.bytes:
                self._sizes[outcome.topic] = outcome.source.bytes / (outcome.end - outcome.start)
            if (all_of_it := whole.add(replace(outcome, failure=hidden(outcome.failure, self._secrets)))) is not None:
                new.append(all_of_it)
        self._found += new
        if new:
            self._on_read(new)

    def _failure(self, part: _Part, reason: str) -> SegmentOutcome:
        whole, range_ = part
        return self._orders.failure((whole.tile[0], range_), reason)
