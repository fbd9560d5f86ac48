"""The tail: what was copied since the last validation, compared batch by batch in this very process (record by record,
where topics have handlers).

It is short, since whoever moves producers has validated before, and they wait meanwhile: a Spark job takes longer to
begin than they should. What is compared by keys (compacted topics) is left to `validate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET, SegmentOutcome
from kafka_migration.compare.orders import BATCH, RECORD, Orders
from kafka_migration.compare.reading import LONG_SECONDS
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.validation.pins import own, topic_traits
from kafka_migration.validation.record import equal_up_to, kept, rewound_since

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Source offsets. More than that are a matter of minutes for one process, and of a validation.
MOST_OFFSETS = 2_000_000
#: A thread opens connections of its own to both clusters, which costs more than a few hundred records do.
_THREADS, _PARTITIONS_EACH, _RECORDS_EACH = 4, 50, 100_000


class Tail:
    """The tail of ``ctx``'s link: from where its last validation found all equal, or from where the mirror stands now,
    if there was none, or more than :data:`MOST_OFFSETS` were copied since."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        here, last = _here(ctx), kept(ctx) or {}
        before = equal_up_to(last)
        if before is None:
            ctx.log(
                "the last validation was of more partitions than the journal keeps of one, so what was copied before"
                " this moment is not compared in between: run `validate` right before"
            )
            before = {}
        elif before:
            again = rewound_since(ctx, last["at"])
            before = {tp: min(end, again.get(tp, end)) for tp, end in before.items()}
        offsets = sum(max(0, end - before.get(tp, end)) for tp, end in here.items())
        if offsets > MOST_OFFSETS:
            ctx.log(
                f"{offsets:,} source offsets were copied since the last validation, too many to compare in between:"
                " run `validate` right before"
            )
            before = {}
        self._since = {tp: min(end, before.get(tp, end)) for tp, end in here.items()}
        self._traits = topic_traits(ctx, {tp.topic for tp in here})
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tail")
        self._begun: list[Future[list[SegmentOutcome]]] = []
        self._ranges: list[PartitionRange] = []

    def catch_up(self) -> None:
        """Compare up to where the mirror stands, so that little is left to compare later. Raises as :meth:`equal`."""
        here = _here(self._ctx)
        self.begin(here)
        self._ctx.log(self.equal(None))
        self._since = here

    def begin(self, ends: Mapping[TopicPartition, int]) -> None:
        """Have it compared up to these source offsets, which the mirror has reached, beside whatever the caller does
        until it asks for the outcome."""
        ctx = self._ctx
        wanted = {tp: (self._since[tp], end) for tp, end in ends.items() if self._since.get(tp, end) < end}
        maps, skips, extras = ctx.link.offset_maps(wanted), ctx.link.skips(), ctx.link.extras()
        sources = own(ctx, ctx.origin.ends(wanted), ctx.direction.origin)
        targets = own(ctx, ctx.destination.ends(wanted), ctx.direction.destination)
        ranges = [
            replace(
                PartitionRange.pinned(
                    tp,
                    maps[tp],
                    source=PartitionEnds(start=min(end, max(since, sources[tp].start)), end=end),
                    target=targets[tp],
                    skips=skips.get(tp, ()),
                    extras=extras.get(tp, ()),
                ),
                **self._traits[tp.topic],
            )
            for tp, (since, end) in sorted(wanted.items())
        ]
        self._ranges = [range_ for range_ in ranges if not range_.by_key]
        records = sum(range_.records for range_ in self._ranges)
        threads = min(_THREADS, 1 + len(self._ranges) // _PARTITIONS_EACH + records // _RECORDS_EACH)
        shares = [share for at in range(threads) if (share := self._ranges[at::threads])]
        self._begun = [self._pool.submit(read, ctx, share) for share in shares]

    def equal(self, seconds: float | None) -> str:
        """That it is equal, for people. Raises Refused if it differs, CouldNotFindOut if it cannot be read, or not
        within ``seconds``."""
        found: list[SegmentOutcome] = []
        for share in self._begun:
            try:
                found += share.result(seconds)
            except TimeoutError:
                raise CouldNotFindOut(
                    f"what was copied since the last validation could not be compared within {seconds:g} s",
                    remedy="run `validate` right before",
                ) from None
        records = {range_.tp: range_.records for range_ in self._ranges}
        differ = [one for one in found if not (one.failure or one.is_same)]
        if differ:
            rows = listed(f"{one.tp} at source offsets {one.start}..{one.end}" for one in differ)
            raise Refused(
                f"what was copied since the last validation differs on the target: {rows}",
                remedy="`validate` names the records; see `status` for what else writes there",
            )
        for one in found:
            # Equal, since both were read short alike, is not equal.
            if why := one.failure or ("" if one.source.rows == records[one.tp] else "fewer records than were copied"):
                raise CouldNotFindOut(
                    f"what was copied since the last validation cannot be compared: {why}",
                    remedy="correct what the message names, then run this again",
                )
        return f"{sum(records.values()):,} records of {len(records)} partitions were copied since, and are equal"


def read(ctx: Context, ranges: Sequence[PartitionRange]) -> list[SegmentOutcome]:
    """Both sides of ``ranges``, each as one segment."""
    # Imported here: most commands compare nothing.
    from kafka_migration.compare.task import obey

    wires = {SOURCE: ctx.origin.wire(), TARGET: ctx.destination.wire()}
    found = []
    for level, mine in (
        (BATCH, [range_ for range_ in ranges if range_.handler is None]),
        (RECORD, [range_ for range_ in ranges if range_.handler is not None]),
    ):
        if mine:
            orders = Orders(level=level, committed=True, seconds=LONG_SECONDS, wires=wires)
            found += obey(orders, [(0, range_) for range_ in mine]).outcomes
    return found


def _here(ctx: Context) -> dict[TopicPartition, int]:
    """Source offsets up to which the mirror has copied."""
    return {tp: position.source for tp, position in ctx.link.positions().items() if ctx.selects_topic(tp.topic)}
