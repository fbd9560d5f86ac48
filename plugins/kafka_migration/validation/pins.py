"""Pinning: which offsets of both clusters are compared (docs/behaviours.md, 20).

What is called source here and in all of a comparison is where the context's link copies from, and target where to.

And the tail: what was copied since the last validation, pinned and compared batch by batch in this very process (record
by record, where topics have handlers). It is short, since whoever moves producers has validated before, and they wait
meanwhile: a Spark job takes longer to begin than they should. What is compared by keys (compacted topics) is left to
`validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.digests import SOURCE, TARGET, SegmentOutcome
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.reading import LONG_SECONDS
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain import logs
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.levels import Level
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import PartitionEnds, Position, TopicPartition
from kafka_migration.link import reverse
from kafka_migration.link.flight import was_drained
from kafka_migration.validation.record import equal_up_to, kept, rewound_since

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: A live mirror is behind by seconds, since the lag gate stands before validation.
CATCH_UP_SECONDS = 600.0
_POLL_SECONDS, _STABLE_SECONDS = 0.5, 10.0
#: The default of delete.retention.ms.
_TOMBSTONES_MS = 86_400_000
#: Source offsets of a tail. More than that are a matter of minutes for one process, and of a validation.
MOST_OFFSETS = 2_000_000
#: A thread opens connections of its own to both clusters, which costs more than a few hundred records do.
_THREADS, _PARTITIONS_EACH, _RECORDS_EACH = 4, 50, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What was pinned ``at`` (ISO-8601, UTC): ranges to compare, and what could not be pinned, with ``reasons``, and
    how many source offsets the mirror is short there.

    ``first_offsets`` are the first source offsets that were mirrored, or are there: what lies between them and a
    range's start has expired.
    """

    at: str
    ranges: tuple[PartitionRange, ...]
    unpinned: Mapping[TopicPartition, PartitionEnds]
    reasons: Mapping[TopicPartition, str]
    short: Mapping[TopicPartition, int]
    first_offsets: Mapping[TopicPartition, int]

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; without the runs, which are the link's."""
        ranges = [range_.as_dict(with_runs=False) for range_ in self.ranges]
        return {"at": self.at, "ranges": ranges, "unpinned": {str(tp): self.reasons[tp] for tp in self.unpinned}}


def pin(ctx: Context, partitions: Iterable[TopicPartition]) -> Pins:
    """Pin the source's ends, wait until the mirror has reached them, and translate them.

    A partition that the mirror does not reach (it is halted, or has ended, or the wait was too long) stays unpinned.
    """
    at, sources = ctx.stamp(), own(ctx, ctx.origin.ends(partitions, committed=True), ctx.direction.origin)
    reasons, short = _await_mirror(ctx, sources)
    reached = [tp for tp in sources if tp not in reasons]
    pinned = _Pinning(ctx, reached)
    targets = own(ctx, ctx.destination.ends(reached), ctx.direction.destination)
    still = _at_rest(ctx, sources, reached)
    traits = topic_traits(ctx, {tp.topic for tp in reached})
    ranges, firsts = [], {}
    for tp in reached:
        firsts[tp] = next((run.source for run in pinned.maps[tp].runs()), sources[tp].start)
        range_ = pinned.range(tp, sources[tp], targets[tp], whole=tp in still)
        ranges.append(replace(range_, **traits[tp.topic]))
    return Pins(
        at=at,
        ranges=tuple(ranges),
        unpinned={tp: sources[tp] for tp in reasons},
        reasons=reasons,
        short=short,
        first_offsets=firsts,
    )


class _Pinning:
    """How the link has copied ``tps`` up to now."""

    def __init__(self, ctx: Context, tps: Iterable[TopicPartition]) -> None:
        self.maps, self._skips, self._extras = ctx.link.offset_maps(tps), ctx.link.skips(), ctx.link.extras()

    def range(
        self, tp: TopicPartition, source: PartitionEnds, target: PartitionEnds, *, whole: bool = False
    ) -> PartitionRange:
        """As :meth:`PartitionRange.pinned`. Raises NotMirroredYet."""
        skips, extras = self._skips.get(tp, ()), self._extras.get(tp, ())
        return PartitionRange.pinned(
            tp, self.maps[tp], source=source, target=target, skips=skips, extras=extras, whole=whole
        )


def own(ctx: Context, shown: Mapping[TopicPartition, PartitionEnds], side: Side) -> dict[TopicPartition, PartitionEnds]:
    """``shown``, the logs of a cluster, as far as the context's link has to do with them: from the cut on where it
    begins, up to where the link that follows begins. What lies before was an earlier link's, and was validated then."""
    stand = ctx.link.positions() if reverse.begun(ctx) is not None else {}
    starts = reverse.beginning(ctx, side)
    ends = {tp: at.source for tp, at in stand.items()} if side == ctx.direction.origin else {}
    found = {}
    for tp, log in shown.items():
        start, end = max(log.start, starts.get(tp, 0)), min(log.end, ends.get(tp, log.end))
        found[tp] = log if (start, end) == (log.start, log.end) else PartitionEnds(start=start, end=max(start, end))
    return found


def pin_again(ctx: Context, ranges: Sequence[PartitionRange]) -> tuple[PartitionRange, ...]:
    """``ranges`` from where the source begins now, up to the same ends: what is left after records expired.

    Left out where everything up to the mirror's position has expired, and more: nothing is left to compare there.
    """
    tps = [range_.tp for range_ in ranges]
    sources = own(ctx, ctx.origin.ends(tps), ctx.direction.origin)
    targets = own(ctx, ctx.destination.ends(tps), ctx.direction.destination)
    pinned, found = _Pinning(ctx, tps), []
    for range_ in ranges:
        start = max(range_.source_start, sources[range_.tp].start)
        source = PartitionEnds(start=start, end=max(start, range_.source_end))
        try:
            new = pinned.range(range_.tp, source, targets[range_.tp])
        except NotMirroredYet:
            ctx.log(f"{range_.tp}: the source has expired up to {start}, beyond what was mirrored")
            continue
        kept = {name: getattr(range_, name) for name in ("handler", *_SOURCE_TRAITS, *_TARGET_TRAITS)}
        found.append(replace(new, **kept, target_end=max(new.target_start, range_.target_end)))
    return tuple(found)


def stable_ends(ctx: Context, ranges: Sequence[PartitionRange]) -> dict[TopicPartition, int]:
    """The target's last stable offsets. A new leader's may lag for a moment, so they are asked for until they have
    reached the pinned ends, or for some seconds."""
    deadline = ctx.clock.monotonic() + _STABLE_SECONDS
    while True:
        found = {
            tp: ends.end for tp, ends in ctx.destination.ends([range_.tp for range_ in ranges], committed=True).items()
        }
        if all(found[range_.tp] >= range_.target_end for range_ in ranges) or ctx.clock.monotonic() >= deadline:
            return found
        ctx.clock.sleep(_POLL_SECONDS)


def foreign_partitions(ctx: Context, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
    """Partitions of the target's ``topics`` that the source lacks and that are not empty, with what they hold.

    None where others may write there.
    """
    if _may_others_write(ctx):
        return {}
    names = sorted(set(topics))
    # The target first: what the mirror adds there, the source has had before.
    there, here = ctx.destination.topics(names), ctx.origin.topics(names)
    more = [tp for name in there.keys() & here.keys() for tp in there[name].topic_partitions[here[name].partitions :]]
    return {tp: ends for tp, ends in ctx.destination.ends(more).items() if ends.start < ends.end} if more else {}


def _at_rest(
    ctx: Context, sources: Mapping[TopicPartition, PartitionEnds], reached: Sequence[TopicPartition]
) -> frozenset[TopicPartition]:
    """Those of ``reached`` where nothing but the pinned records can have been mirrored, when the target's ends were
    read: whatever stands behind them there is foreign.

    None where others may write there.
    """
    if _may_others_write(ctx):
        return frozenset()
    now = ctx.origin.ends(reached, committed=True)
    return frozenset(tp for tp in reached if now[tp].end == sources[tp].end)


def _may_others_write(ctx: Context) -> bool:
    """Whether what stands behind the mirrored records may rightly be others': once the mirror has been drained,
    producers may have gone over to the target; on the way back, a straggler's records stay on the source, are named as
    such, and must not keep groups from going back."""
    return was_drained(ctx) or ctx.direction is Direction.REVERSE


#: Fields of a range that say of a side whether it is compacted, whether some of it lies in remote storage, and how long
#: it keeps tombstones.
_SOURCE_TRAITS = ("compacted", "tiered", "source_tombstones_ms")
_TARGET_TRAITS = ("target_compacted", "target_tiered", "target_tombstones_ms")


def topic_traits(ctx: Context, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By topic, what a range has of both sides' configs, and the topic's handler: as fields of a range."""
    names = sorted(topics)
    found: dict[str, dict[str, Any]] = {name: {"handler": ctx.handler_of(name)} for name in names}
    for cluster, traits in ((ctx.origin, _SOURCE_TRAITS), (ctx.destination, _TARGET_TRAITS)):
        for name, configs in cluster.topic_configs(names).items():
            values = {key: config.value for key, config in configs.items()}
            kept_ms = int(values.get("delete.retention.ms") or _TOMBSTONES_MS)
            found[name] |= zip(traits, (logs.is_compacted(values), logs.is_tiered(values), kept_ms), strict=True)
    return found


def _await_mirror(
    ctx: Context, sources: Mapping[TopicPartition, PartitionEnds]
) -> tuple[dict[TopicPartition, str], dict[TopicPartition, int]]:
    """Wait for the mirror to reach the ends of ``sources``; for each partition where it doesn't, why, and how many
    offsets it is short."""
    deadline = ctx.clock.monotonic() + CATCH_UP_SECONDS
    shown = ""
    while True:
        positions, halts = ctx.link.positions(), ctx.link.halts()
        short = {tp: ends.end - _mirrored(positions.get(tp), ends) for tp, ends in sorted(sources.items())}
        short = {tp: offsets for tp, offsets in short.items() if offsets > 0 or tp not in positions}
        moving = short.keys() - halts.keys()
        has_ended = (ctx.link.run() or {}).get("state") != "running"
        held = f" (it is {control})" if (control := ctx.link.controls().describe()) else ""
        if not moving or has_ended or ctx.clock.monotonic() >= deadline:
            why = "does not run" if has_ended else f"did not get there in {CATCH_UP_SECONDS:g} s{held}"
            why_of = {tp: f"is halted ({halts[tp].reason})" if tp in halts else why for tp in short}
            return {tp: _reason(positions.get(tp), sources[tp].end, why_of[tp]) for tp in short}, short
        line = f"waiting until the mirror has reached the pinned ends of {len(moving)} partitions{held}"
        if line != shown:
            ctx.log(line)
            shown = line
        ctx.clock.sleep(_POLL_SECONDS)


def _mirrored(position: Position | None, ends: PartitionEnds) -> int:
    return ends.start if position is None else position.source


def _reason(position: Position | None, end: int, why: str) -> str:
    stands = "has no position" if position is None else f"stands at source offset {position.source}"
    return f"the mirror {stands}, short of the pinned end {end}, and {why}"


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
        pinned = _Pinning(ctx, wanted)
        sources = own(ctx, ctx.origin.ends(wanted), ctx.direction.origin)
        targets = own(ctx, ctx.destination.ends(wanted), ctx.direction.destination)
        self._ranges = []
        for tp, (since, end) in sorted(wanted.items()):
            source = PartitionEnds(start=min(end, max(since, sources[tp].start)), end=end)
            range_ = replace(pinned.range(tp, source, targets[tp]), **self._traits[tp.topic])
            if not range_.by_key:
                self._ranges.append(range_)
        records = sum(range_.records for range_ in self._ranges)
        threads = min(_THREADS, 1 + len(self._ranges) // _PARTITIONS_EACH + records // _RECORDS_EACH)
        shares = [share for at in range(threads) if (share := self._ranges[at::threads])]
        self._begun = [self._pool.submit(read_both, ctx, share) for share in shares]

    def equal(self, seconds: float | None) -> str:
        """That it is equal, for people. Raises Refused if it differs, CouldNotFindOut if it cannot be read_both, or not
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
            # Equal, since both were read_both short alike, is not equal.
            if why := one.failure or ("" if one.source.rows == records[one.tp] else "fewer records than were copied"):
                raise CouldNotFindOut(
                    f"what was copied since the last validation cannot be compared: {why}",
                    remedy="correct what the message names, then run this again",
                )
        return f"{sum(records.values()):,} records of {len(records)} partitions were copied since, and are equal"


def read_both(ctx: Context, ranges: Sequence[PartitionRange]) -> list[SegmentOutcome]:
    """Both sides of ``ranges``, each as one segment."""
    # Imported here: most commands compare nothing.
    from kafka_migration.compare.task import obey

    wires = {SOURCE: ctx.origin.wire(), TARGET: ctx.destination.wire()}
    found = []
    for level, mine in (
        (Level.BATCH, [range_ for range_ in ranges if range_.handler is None]),
        (Level.RECORD, [range_ for range_ in ranges if range_.handler is not None]),
    ):
        if mine:
            orders = Orders(level=level, committed=True, seconds=LONG_SECONDS, wires=wires)
            found += obey(orders, [(0, range_) for range_ in mine]).outcomes
    return found


def _here(ctx: Context) -> dict[TopicPartition, int]:
    """Source offsets up to which the mirror has copied."""
    return {tp: position.source for tp, position in ctx.link.positions().items() if ctx.selects_topic(tp.topic)}
