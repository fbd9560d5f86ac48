"""The reverse link: from the target back to the source, of what is written on the target after the cut.

It begins where the forward link was sealed. Until then both logs hold the same records, so on the target everything
up to the seal is left out, and on the source everything that stands there was there before: a record behind that place
which the reverse link did not write halts its partition, as a foreign writer's. Nothing of the forward link changes.

Forward again after that is the next generation of the forward link, which begins in the same way where the reverse link
was sealed; and so on. Each link keeps its map, so offsets of every one of them translate
(:mod:`kafka_migration.domain.generations`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.generations import Generation, Generations
from kafka_migration.domain.offset_map import OffsetMap, RunOpening
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.migration import cancellation, completion
from kafka_migration.state.link import LinkTopic

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: The number of the fence that stands for the cut. Nobody writes behind it: a fence of the link has a higher one.
_CUT = 0


def arm(ctx: Context, back: Context | None = None) -> Context:
    """Begin the link that follows ``ctx``'s, the other way, at the cut; returns the migration as that link sees it:
    ``back``, if :func:`prepare` made that before.

    A second call changes nothing; killed anywhere, the next call goes on. Raises Refused unless the link of ``ctx`` was
    drained and sealed.
    """
    cancellation.require_none(ctx)
    seal = ctx.link.seal()
    if seal is None or not seal.is_complete:
        raise Refused(
            f"link {ctx.link.name} is not sealed, so there is no place from which records go back to the"
            f" {ctx.direction.origin}",
            remedy="run `stop`, which drains and seals it",
        )
    completion.require_none(ctx)
    is_prepared = back is not None
    back = back or ctx.reverse()
    if ctx.dry_run:
        return back
    stand, pinned = ctx.link.positions(), back.link.topics()
    # Once a mirror has run by it, what has begun stays as it is. Before that, whatever a kill left of an earlier
    # beginning, or of taking one back, is replaced: the cut may be another one by now.
    begun_before = pinned.keys() if has_run(back) else set()
    # Without a cut, as that of a topic which was excluded when the link was sealed, all of it would be copied again.
    has_cut = {tp.topic for tp in seal.ends}
    topics = {n: pin for n, pin in ctx.link.topics().items() if n in has_cut and n not in begun_before}
    cuts = {
        tp: RunOpening(fence=_CUT, records=0, source=marker + 1, target=stand[tp].source, closes=stand[tp].source)
        for tp, marker in sorted(seal.ends.items())
        # A topic that was excluded from the plan since the seal is not mirrored back, either.
        if tp.topic in topics
    }
    known = back.link.openings()
    new = {tp: cut for tp, cut in cuts.items() if tp not in known or known[tp].first_of_newest() != cut}
    if not new and topics.keys() <= pinned.keys():
        return back
    if not is_prepared:
        _make_room(ctx, back)
    pins = [LinkTopic(name=name, source_id=pin.target_id, target_id=pin.source_id) for name, pin in topics.items()]
    # Before the topics are pinned: without its cut, a link would copy all of the target behind what the source has.
    back.link.record_openings(new.items(), {pin.name: pin.key for pin in pins})
    back.link.pin_again([pin for pin in pins if pin.name not in pinned], at=ctx.stamp())
    # Who takes the seal away looks for this beginning behind that, as this looks for the seal: one of both sees it.
    if ctx.link.seal() != seal:
        if not begun_before:
            back.link.unpin(topics)
        raise Refused(
            f"the seal of link {ctx.link.name} was taken away meanwhile (`mirror --unseal`)",
            remedy="see which of both is meant; a link goes on, or has another one begin behind its seal",
        )
    return back


def prepare(ctx: Context) -> Context:
    """What :func:`arm` takes time for, done before: returns the migration as the link behind ``ctx``'s sees it.

    A second call changes nothing.

    Raises what the cluster answers that this link will write to.
    """
    back = ctx.reverse()
    _make_room(ctx, back)
    back.link.warm()
    return back


def _make_room(ctx: Context, back: Context) -> None:
    clusters = {"source_cluster": back.origin.cluster_id(), "target_cluster": back.destination.cluster_id()}
    back.link.pin(**clusters, topics=(), at=ctx.stamp())
    # A fence is kept from being forgotten by markers in this topic of the cluster that the link writes to.
    with closing(TopicLog(ctx.origin.connection.librdkafka(), ledger.LINKS_TOPIC)) as log:
        log.ensure()


def disarm(ctx: Context) -> bool:
    """Take the beginning of the link behind ``ctx``'s back, as long as no mirror ran by it. False if there is none.

    Raises Refused once one did: what it copied cannot be taken back.
    """
    back = begun(ctx)
    if back is None:
        return False
    if has_run(back):
        raise Refused(
            f"a mirror has run by link {back.link.name}, which begins behind link {ctx.link.name}",
            remedy="see `status`; records go on in this direction only by a link that begins behind that one",
        )
    if not ctx.dry_run:
        back.link.unpin(back.link.topics())
    return True


def has_run(back: Context) -> bool:
    """Whether a mirror ran by the link of ``back``, or is about to."""
    return bool(back.link.fences() or back.link.attempts() or back.link.run() is not None)


def check(ctx: Context) -> None:
    """Raises Refused if ``ctx``'s link, which is not the first one, has no beginning yet, or the migration was
    cancelled."""
    cancellation.require_none(ctx)
    if not ctx.link.topics():
        raise Refused(
            f"the {ctx.direction} link of {ctx.plan.name} has not begun (generation {ctx.generation})",
            remedy="seal the link before it (`stop`), from where this one is begun (`mirror --reverse`)",
        )


def way_back(ctx: Context) -> Context:
    """The migration as the link sees it by which clients go back, begun or not: the one that follows ``ctx``'s, or the
    one before that if clients have gone back by it, and the link that begins behind it still copies."""
    return ctx.before() if ctx.generation > 1 and ctx.link.seal() is None else ctx.reverse()


def behind(ctx: Context) -> Context:
    """The migration as the link sees it that follows ``ctx``'s. Raises Refused if that has no beginning yet."""
    back = ctx.reverse()
    check(back)
    return back


def begun(ctx: Context) -> Context | None:
    """As :func:`behind`; None if no link has begun behind ``ctx``'s."""
    if ctx.on_open_link is None or not ctx.link.is_stored:
        return None
    back = ctx.reverse()
    return back if back.link.topics() else None


def all_begun(ctx: Context) -> Iterator[Context]:
    """The migration as ``ctx``'s link sees it, and as every link does that has begun behind it, the oldest first."""
    here: Context | None = ctx
    while here is not None:
        yield here
        here = begun(here)


def across(maps: OffsetMap | Generations, direction: Direction, offset: int) -> int:
    """Where a consumer that would read ``offset`` of ``direction``'s origin next goes on, on its destination. Raises
    NotMirroredYet."""
    return maps.to_target(offset) if direction is Direction.FORWARD else maps.to_source(offset)


def seen_by(ctx: Context, direction: Direction, generation: int) -> Context:
    """The migration as the link of ``direction`` and ``generation`` sees it, ``ctx``'s own or any before or after."""

    def place(generation: int, direction: Direction) -> tuple[int, bool]:
        return generation, direction is Direction.REVERSE

    while place(ctx.generation, ctx.direction) > place(generation, direction):
        ctx = ctx.before()
    while place(ctx.generation, ctx.direction) < place(generation, direction):
        ctx = ctx.reverse()
    return ctx


def beginning(ctx: Context, side: Side) -> dict[TopicPartition, int]:
    """The offsets of a cluster from which ``ctx``'s link has to do with its logs; none for the first link."""
    if ctx.is_first:
        return {}
    before = ctx.before()
    if side == before.direction.origin:
        return {tp: at.source for tp, at in before.link.positions().items()}
    sealed = before.link.seal()
    return {} if sealed is None else {tp: marker + 1 for tp, marker in sealed.ends.items()}


def offset_maps(ctx: Context, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetMap | Generations]:
    """The maps from source to target of those ``partitions`` that ``ctx``'s link copies, over it and all before it."""
    own = ctx.link.offset_maps(partitions)
    if ctx.is_first:
        return own
    before = [(direction, link.offset_maps(own)) for direction, link in ctx.earlier]
    return {
        tp: Generations(
            [
                *(Generation(direction=direction, offsets=maps[tp]) for direction, maps in before if tp in maps),
                Generation(direction=ctx.direction, offsets=newest),
            ]
        )
        for tp, newest in own.items()
    }


def newest_maps(ctx: Context, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetMap | Generations]:
    """:func:`offset_maps` over all links that have begun. A partition that a later link does not copy has the map of
    those before."""
    wanted, found = list(partitions), dict[TopicPartition, OffsetMap | Generations]()
    # None has begun before there is a seal: who asks while a group stands still does not wait for that.
    for here in all_begun(ctx) if ctx.link.seal() is not None else (ctx,):
        found |= offset_maps(here, wanted)
    return found
