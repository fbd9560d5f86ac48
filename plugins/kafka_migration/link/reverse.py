"""The reverse link: from the target back to the source, of what is written on the target after the cut.

It begins where the forward link was sealed. Until then both logs hold the same records, so on the target everything
up to the seal is left out, and on the source everything that stands there was there before: a record behind that place
which the reverse link did not write halts its partition, as a foreign writer's. Nothing of the forward link changes.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.link import LinkTopic

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: The number of the fence that stands for the cut. Nobody writes behind it: a fence of the link has a higher one.
_CUT = 0


def arm(ctx: Context) -> Context:
    """Begin the reverse link of ``ctx``'s forward link, at the cut; returns the migration as that link sees it.

    A second call changes nothing; killed anywhere, the next call goes on. Raises Refused unless the forward link was
    drained and sealed.
    """
    seal = ctx.link.seal()
    if seal is None or not seal.is_complete:
        raise Refused(
            f"link {ctx.link.name} is not sealed, so there is no place from which records go back to the source",
            remedy="run `stop`, which drains and seals it",
        )
    back = ctx.reverse()
    if ctx.dry_run or back.link.topics():
        return back
    topics, stand = ctx.link.topics(), ctx.link.positions()
    # A fence is kept from being forgotten by markers in this topic of the cluster that the link writes to.
    with closing(TopicLog(back.destination.connection.librdkafka(), ledger.LINKS_TOPIC)) as log:
        log.ensure()
    pins = [LinkTopic(name=name, source_id=pin.target_id, target_id=pin.source_id) for name, pin in topics.items()]
    # Before the topics are pinned: without its cut, a link would copy all of the target behind what the source has.
    back.link.record_openings(
        (
            (tp, RunOpening(fence=_CUT, records=0, source=marker + 1, target=stand[tp].source, closes=stand[tp].source))
            for tp, marker in sorted(seal.ends.items())
        ),
        {pin.name: pin.key for pin in pins},
    )
    clusters = {"source_cluster": back.origin.cluster_id(), "target_cluster": back.destination.cluster_id()}
    back.link.pin(**clusters, topics=pins, at=ctx.stamp())
    return back


def check(ctx: Context) -> None:
    """Raises Refused if the reverse link of ``ctx`` has no beginning yet."""
    if not ctx.link.topics():
        raise Refused(
            f"the reverse link of {ctx.plan.name} has not begun",
            remedy="seal the forward link (`stop`), from where the reverse link is begun",
        )
