"""The seal: after the drain, the mirror's own right to write ends, and the target's final ends stand still.

It stands in the link's state, which every mirror reads, in a fence whose epoch no mirror gets, and in the journal,
which outlives the link's topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kafka_migration.copy.driver import fencing
from kafka_migration.copy.driver.attempts import refuse_sealed
from kafka_migration.copy.driver.takeover import SECONDS
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.seal import KIND, NAME, Seal
from kafka_migration.domain.types import Halt
from kafka_migration.link import reverse, stragglers
from kafka_migration.migration import completion
from kafka_migration.topics import restore
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.selector import Selector

if TYPE_CHECKING:
    from kafka_migration.domain.types import TopicPartition
    from kafka_migration.migration.context import Context


def check(ctx: Context) -> None:
    """Raises Refused if the link is sealed, by its own state or by the journal's."""
    refuse_sealed(ctx.link)
    kept = ctx.journal.read(KIND, ctx.own(NAME))
    if kept is not None:
        raise Refused(
            f"link {ctx.link.name} was sealed at {kept['at']}, but the link's state has lost the seal",
            remedy="find out who deleted the link's state; if producers write to the source again, `mirror --unseal`",
        )


@contextmanager
def warmed(ctx: Context) -> Iterator[Callable[[float], Seal]]:
    """:func:`apply`, with its connections open before somebody waits for it."""
    with _destination(ctx) as cluster:
        fencing.warm(ctx.link, cluster)
        yield partial(_apply, ctx, cluster)


def apply(ctx: Context, seconds: float = SECONDS) -> Seal:
    """Seal the link, which was drained, within ``seconds``; a second call proves it again. Raises what the seal itself
    raises."""
    with _destination(ctx) as cluster:
        return _apply(ctx, cluster, seconds)


def keep(ctx: Context, done: Seal) -> None:
    """Have the journal hold the seal of the link's state, as far as whoever set it did not come to that."""
    if ctx.journal.read(KIND, ctx.own(NAME)) != done.as_dict():
        ctx.journal.record(KIND, ctx.own(NAME), done.as_dict())


def _apply(ctx: Context, cluster: WireCluster, seconds: float) -> Seal:
    done = fencing.seal(ctx.link, cluster, ctx.log, seconds=seconds)
    ctx.journal.record(KIND, ctx.own(NAME), done.as_dict())
    return done


def cut_off(ctx: Context, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Seal the link wherever it stands, since nobody needs what it copied. ``partitions`` are those that are left of
    its topics; returns those that hold what somebody else wrote, with what was seen. Raises CouldNotFindOut where one
    could not be fenced."""
    with _destination(ctx) as cluster:
        found = fencing.cut_off(ctx.link, cluster, partitions, ctx.log)
    ends = dict(sealed.ends) if (sealed := ctx.link.seal()) is not None else {}
    return {
        tp: stopped.detail
        for tp, stopped in found.items()
        if stopped.reason is Halt.FOREIGN_WRITER
        # What the link wrote is gone, and something stands there.
        or (stopped.reason is Halt.LOG_REGRESSED and (stopped.target_offset or 0) < ends.get(tp, 0))
    }


@contextmanager
def _destination(ctx: Context) -> Iterator[WireCluster]:
    client_id = f"{ctx.link.transactional_id}.seal"
    properties = {**ctx.destination.wire(), "client_id": client_id}
    with closing(Selector()) as net, closing(WireCluster(net, properties, ctx.direction.destination)) as cluster:
        yield cluster


def undo(ctx: Context) -> bool:
    """Take the seal away, so that the mirror may run again. False if there was none.

    Raises Refused once another link has begun behind it: two that copy into each other would never end; and where
    records of stragglers were forwarded behind it.
    """
    completion.require_none(ctx)
    name, stands = ctx.own(NAME), ctx.link.seal()
    _require_newest(ctx)
    if behind := stragglers.forwarded_behind(ctx):
        raise Refused(
            f"link {ctx.link.name} stays sealed: records of stragglers were forwarded behind it, to {listed(behind)}",
            remedy="the mirror would take them for somebody else's; producers go back by `switch --back`",
        )
    found = stands is not None or ctx.journal.read(KIND, name) is not None
    if found and ctx.is_first:
        # Before anything can be copied again: old records would expire as they arrive.
        restore.undo(ctx)
    if found and not ctx.dry_run:
        # The journal last: killed in between, the link is still sealed.
        ctx.link.unseal()
        try:
            # As :func:`reverse.arm` looks for the seal behind its own write: one of both sees what the other does.
            _require_newest(ctx)
        except Refused:
            if stands is not None:
                ctx.link.record_seal(stands)
            raise
        ctx.journal.forget(KIND, name)
    return found


def _require_newest(ctx: Context) -> None:
    if reverse.begun(ctx) is not None:
        raise Refused(
            f"link {ctx.link.name} stays sealed: the link that copies the other way has begun behind its seal",
            remedy="seal that one as well; records go on in this direction by the link that begins behind it",
        )
