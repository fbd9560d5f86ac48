"""Pinning: which offsets of both clusters are compared (docs/behaviours.md, 20)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import PartitionEnds, Position, TopicPartition
from kafka_migration.validation.request import PartitionRange

if TYPE_CHECKING:
    from kafka_migration.phases.context import Context

#: A live mirror is behind by seconds, since the lag gate stands before validation.
CATCH_UP_SECONDS = 600.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What was pinned ``at`` (ISO-8601, UTC): ranges to compare, and what could not be pinned, with ``reasons``.

    ``first_offsets`` are the first source offsets that were mirrored, or are there: what lies between them and a
    range's start has expired.
    """

    at: str
    ranges: tuple[PartitionRange, ...]
    unpinned: Mapping[TopicPartition, PartitionEnds]
    reasons: Mapping[TopicPartition, str]
    first_offsets: Mapping[TopicPartition, int]

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; without the runs, which are the link's."""
        ranges = [{k: v for k, v in asdict(it).items() if k != "runs"} for it in self.ranges]
        return {"at": self.at, "ranges": ranges, "unpinned": {str(tp): self.reasons[tp] for tp in self.unpinned}}


def pin(ctx: Context, partitions: Iterable[TopicPartition]) -> Pins:
    """Pin the source's ends, wait until the mirror has reached them, and translate them.

    A partition that the mirror does not reach (it is halted, or has ended, or the wait was too long) stays unpinned.
    """
    at, sources = ctx.stamp(), ctx.source.ends(partitions, committed=True)
    reasons = _await_mirror(ctx, sources)
    reached = [tp for tp in sources if tp not in reasons]
    maps, targets, skips = ctx.link.offset_maps(reached), ctx.target.ends(reached), ctx.link.skips()
    compacted = _compacted(ctx, {tp.topic for tp in reached})
    ranges, firsts = [], {}
    for tp in reached:
        firsts[tp] = next((run.source for run in maps[tp].runs()), sources[tp].start)
        ranges.append(
            PartitionRange.pinned(
                tp,
                maps[tp],
                source=sources[tp],
                target=targets[tp],
                compacted=tp.topic in compacted,
                skips=skips.get(tp, ()),
            )
        )
    return Pins(
        at=at,
        ranges=tuple(ranges),
        unpinned={tp: sources[tp] for tp in reasons},
        reasons=reasons,
        first_offsets=firsts,
    )


def pin_again(ctx: Context, ranges: Sequence[PartitionRange]) -> tuple[PartitionRange, ...]:
    """``ranges`` from where the source begins now, up to the same ends: what is left after records expired.

    Left out where everything up to the mirror's position has expired, and more: nothing is left to compare there.
    """
    tps = [it.tp for it in ranges]
    sources, targets, maps = ctx.source.ends(tps), ctx.target.ends(tps), ctx.link.offset_maps(tps)
    skips = ctx.link.skips()
    found = []
    for it in ranges:
        start = max(it.source_start, sources[it.tp].start)
        source = PartitionEnds(start=start, end=max(start, it.source_end))
        try:
            found.append(
                PartitionRange.pinned(
                    it.tp,
                    maps[it.tp],
                    source=source,
                    target=targets[it.tp],
                    compacted=it.compacted,
                    skips=skips.get(it.tp, ()),
                )
            )
        except NotMirroredYet:
            ctx.tell(f"{it.tp}: the source has expired up to {start}, beyond what was mirrored")
    return tuple(found)


def _compacted(ctx: Context, topics: Iterable[str]) -> frozenset[str]:
    """Those of ``topics`` that the source compacts."""
    found = ctx.source.topic_configs(sorted(topics))
    policies = {
        name: configs["cleanup.policy"].value or "" for name, configs in found.items() if "cleanup.policy" in configs
    }
    return frozenset(name for name, policy in policies.items() if "compact" in policy)


def _await_mirror(ctx: Context, sources: Mapping[TopicPartition, PartitionEnds]) -> dict[TopicPartition, str]:
    """Wait for the mirror to reach the ends of ``sources``; why it does not, for each partition where it doesn't."""
    deadline = ctx.clock.monotonic() + CATCH_UP_SECONDS
    told = ""
    while True:
        positions, halts = ctx.link.positions(), ctx.link.halts()
        behind = {tp for tp, ends in sources.items() if tp not in positions or positions[tp].source < ends.end}
        if not behind:
            return {}
        moving = behind - halts.keys()
        ended = (ctx.link.run() or {}).get("state") != "running"
        held = ctx.link.controls().describe()
        if not moving or ended or ctx.clock.monotonic() >= deadline:
            why = "does not run" if ended else f"did not get there in {CATCH_UP_SECONDS:g} s"
            why += f" (it is {held})" if held and not ended else ""
            return {
                tp: _reason(positions.get(tp), sources[tp].end, halts[tp].reason if tp in halts else "", why)
                for tp in sorted(behind)
            }
        said = f"waiting until the mirror has reached the pinned ends of {len(moving)} partitions"
        said += f"; it is {held}" if held else ""
        if told != said:
            ctx.tell(said)
            told = said
        ctx.clock.sleep(_POLL_SECONDS)


def _reason(position: Position | None, end: int, halt: str, why: str) -> str:
    stands = "has no position" if position is None else f"stands at source offset {position.source}"
    return f"the mirror {stands}, short of the pinned end {end}, and {f'is halted ({halt})' if halt else why}"
