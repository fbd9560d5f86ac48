"""Pinning: which offsets of both clusters are compared (docs/behaviours.md, 20).

What is called source here and in all of a comparison is where the context's link copies from, and target where to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import PartitionEnds, Position, TopicPartition
from kafka_migration.link import reverse
from kafka_migration.link.flight import was_drained

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: A live mirror is behind by seconds, since the lag gate stands before validation.
CATCH_UP_SECONDS = 600.0
_POLL_SECONDS, _STABLE_SECONDS = 0.5, 10.0
#: The default of delete.retention.ms.
_TOMBSTONES_MS = 86_400_000


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
    maps, skips, extras = ctx.link.offset_maps(reached), ctx.link.skips(), ctx.link.extras()
    targets = own(ctx, ctx.destination.ends(reached), ctx.direction.destination)
    still = _at_rest(ctx, sources, reached)
    traits = topic_traits(ctx, {tp.topic for tp in reached})
    ranges, firsts = [], {}
    for tp in reached:
        firsts[tp] = next((run.source for run in maps[tp].runs()), sources[tp].start)
        range_ = PartitionRange.pinned(
            tp,
            maps[tp],
            source=sources[tp],
            target=targets[tp],
            skips=skips.get(tp, ()),
            extras=extras.get(tp, ()),
            whole=tp in still,
        )
        ranges.append(replace(range_, **traits[tp.topic]))
    return Pins(
        at=at,
        ranges=tuple(ranges),
        unpinned={tp: sources[tp] for tp in reasons},
        reasons=reasons,
        short=short,
        first_offsets=firsts,
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
    maps = ctx.link.offset_maps(tps)
    skips, extras = ctx.link.skips(), ctx.link.extras()
    found = []
    for range_ in ranges:
        start = max(range_.source_start, sources[range_.tp].start)
        source = PartitionEnds(start=start, end=max(start, range_.source_end))
        try:
            new = PartitionRange.pinned(
                range_.tp,
                maps[range_.tp],
                source=source,
                target=targets[range_.tp],
                skips=skips.get(range_.tp, ()),
                extras=extras.get(range_.tp, ()),
            )
        except NotMirroredYet:
            ctx.log(f"{range_.tp}: the source has expired up to {start}, beyond what was mirrored")
            continue
        kept = {name: getattr(range_, name) for name in _TRAITS}
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


_TRAITS = ("compacted", "target_compacted", "source_tombstones_ms", "target_tombstones_ms", "handler")


def topic_traits(ctx: Context, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By topic, whether each side compacts it, how long it keeps tombstones, and its handler: as fields of a range."""
    names = sorted(topics)
    sides = []
    for cluster in (ctx.origin, ctx.destination):
        found = {}
        for name, configs in cluster.topic_configs(names).items():
            values = {key: config.value for key, config in configs.items()}
            is_compacted = "compact" in (values.get("cleanup.policy") or "")
            found[name] = is_compacted, int(values.get("delete.retention.ms") or _TOMBSTONES_MS)
        sides.append(found)
    source, target = sides
    return {
        name: {
            "compacted": source[name][0],
            "target_compacted": target[name][0],
            "source_tombstones_ms": source[name][1],
            "target_tombstones_ms": target[name][1],
            "handler": ctx.handler_of(name),
        }
        for name in names
    }


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
