"""What somebody writes to the source behind the cut: named, kept, and left for a person to decide about.

Behind the cut nobody but the reverse link writes to the source: not for want of a fence alone, but since nothing copies
what others write there. What the reverse link's tasks have confirmed is its own; of what stands behind that, each batch
is judged by its producer's id. Markers are no records, whoever's they are. A producer without an id is a stranger.

Nothing is deleted: what was given up stays on the source for as long as its retention keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.copy.driver import headers
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import lifecycle, reverse

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "straggler"
#: Where the source may be written to again, as far as the migration goes.
_OVER = (TopicState.REVERSED, TopicState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Records that stand on the source behind the cut, and are not the reverse link's: ``records`` of them, at source
    offsets ``start`` up to ``end`` (not included), among which may be others'. ``producers`` are their ids, sorted; -1
    for producers that are not idempotent. Those of an aborted transaction count as well."""

    tp: TopicPartition
    start: int
    end: int
    records: int
    producers: tuple[int, ...]

    def __str__(self) -> str:
        ids = listed(sorted(str(one) if one >= 0 else "none (not idempotent)" for one in self.producers))
        return (
            f"{self.tp}: {self.records:,} records at source offsets {self.start} to {self.end - 1}, producer ids: {ids}"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "start": self.start,
            "end": self.end,
            "records": self.records,
            "producers": list(self.producers),
        }


def look(ctx: Context) -> tuple[Stray, ...]:
    """What nobody has decided about yet, by partition; nothing before the cut, or once the source is written to again.
    Only reads.

    Raises CouldNotFindOut, or NotAuthorized, where the source cannot be read.
    """
    found = _since(ctx)
    if found is None:
        return ()
    newest, since = found
    over = {topic for topic, state in lifecycle.read(ctx).items() if state in _OVER}
    # One that is gone has nothing, and hides nothing of others.
    there_are = ctx.source.topics({tp.topic for tp in since} - over)
    decided = decisions(ctx)
    since = {
        tp: max([at, *(one["end"] for one in decided.get(tp, ()))]) for tp, at in since.items() if tp.topic in there_are
    }
    ends = {tp: log.end for tp, log in ctx.source.ends(since, skip_starts_of=since).items()}
    grown = {tp: at for tp, at in since.items() if ends[tp] > at}
    if not grown:
        return ()
    there = headers.read(ctx.source.connection.kafka_python(), ctx.source.role, grown, ends)
    # Behind the reading: a producer is noted before its first record is sent.
    own = {identity.producer_id for identity in newest.link.fences().values()}
    is_reverse = newest.direction is Direction.REVERSE
    strays = (_stray(tp, seen, own if is_reverse else ()) for tp, seen in sorted(there.items()))
    return tuple(stray for stray in strays if stray is not None)


def _since(ctx: Context) -> tuple[Context, dict[TopicPartition, int]] | None:
    """The newest link, and from where on of the source each partition's batches have to be looked at; None without a
    cut behind which the source rests."""
    *_, newest = reverse.all_begun(ctx)
    seal = newest.link.seal()
    if newest.direction is Direction.REVERSE:
        # Sealed, producers go back to the source.
        return None if seal else (newest, {tp: at.target for tp, at in newest.link.positions().items()})
    if seal is None or not seal.is_complete:
        return None
    return newest, {tp: at.source for tp, at in newest.link.positions().items() if tp in seal.ends}


def _stray(tp: TopicPartition, seen: Sequence[headers.Header], own: Collection[int]) -> Stray | None:
    foreign = [header for header in seen if not header.is_control and header.producer_id not in own]
    if not foreign:
        return None
    return Stray(
        tp=tp,
        start=foreign[0].base_offset,
        end=foreign[-1].next_offset,
        records=sum(header.records for header in foreign),
        producers=tuple(sorted({header.producer_id for header in foreign})),
    )


def decisions(ctx: Context) -> Mapping[TopicPartition, Sequence[Mapping[str, Any]]]:
    """What people decided about earlier ones, by partition, in order."""
    found = {}
    for place, value in ctx.journal.all(KIND).items():
        topic, partition = place.rsplit("/", 1)
        found[TopicPartition(topic, int(partition))] = value["decided"]
    return found


def give_up(ctx: Context, *, by: str, reason: str = "") -> tuple[Stray, ...]:
    """Note that nobody needs what :func:`look` finds: it is neither copied nor named from then on. Returns it. In a dry
    run nothing is noted; a second call finds nothing. Raises what :func:`look` raises."""
    found, before = look(ctx), decisions(ctx)
    if found and not ctx.dry_run:
        ctx.journal.record_all(
            KIND,
            {
                f"{stray.tp.topic}/{stray.tp.partition}": {
                    "decided": [
                        *before.get(stray.tp, ()),
                        {**stray.as_dict(), "what": "given up", "by": by, "reason": reason, "at": ctx.stamp()},
                    ]
                }
                for stray in found
            },
        )
    return found
