"""Release: a migration gives up its locks on topics, once it is done with them, so that another one may have them.

A mirror that died, or waits for a cluster, is ended by a claim on its link, and what it sent is waited for. What the
migration created and wrote stays, its journal too; ``create`` locks them again, if nobody else has by then. Topics with
retention disabled while mirroring stay so, and are named: after this nobody restores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.fence import fence
from kafka_migration.groups.record import GroupRecord
from kafka_migration.link import lifecycle, reverse, stragglers, switched
from kafka_migration.link.claim import claimed
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.steps.step import Decision
from kafka_migration.topics import keeping
from kafka_migration.topics.declared import INTENT, KIND, is_restored
from kafka_migration.topics.specs import HELD_OPEN, Declared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def check(ctx: Context, *, forced: bool = False) -> tuple[str, ...]:
    """The topics that this migration holds. Raises Refused while its mirror runs, a group or its producers are in the
    middle of their move, or records on the source behind the cut wait for a decision. ``forced``: a person knows what
    still stands on the source."""
    _refuse_mirror(ctx)
    fence.require_none(ctx)
    records = GroupRecord.all(ctx.journal)
    if not forced and not _is_back(ctx, records.values()):
        stragglers.require_none(ctx)
    if (switch := switched.last(ctx)) is not None and switch.is_unfinished:
        raise Refused(f"a switch of producers {switch}", remedy=f"run `{switch.command}`")
    half = [group for group, record in sorted(records.items()) if record.leg.is_unfinished]
    if half:
        raise Refused(
            f"groups are in the middle of their move: {listed(half)}",
            remedy="finish the move (`cutover --group GROUP`, or `rollback` the way back), or move each group back"
            " (`undo --group GROUP`)",
        )
    topics = {*ctx.journal.all(KIND), *ctx.journal.all(INTENT)}
    return tuple(sorted(topic for topic, by in ctx.journal.holders(topics).items() if by == ctx.journal.migration))


def _is_back(ctx: Context, records: Collection[GroupRecord]) -> bool:
    """Whether all clients went back, and their producers without a switch: the source is written to again, rightly."""
    *_, newest = reverse.all_begun(ctx)
    is_home = any(one.was_rolled_back for one in records) and not any(one.is_moved for one in records)
    return newest.direction is Direction.REVERSE and is_home


def _refuse_mirror(ctx: Context) -> None:
    state, _ = mirror_state(ctx)
    if state == "running":
        raise Refused(
            f"the mirror of {ctx.plan.name} is running, and writes to its topics",
            remedy="end it first: `stop` (drained, through its gate) or `stop --now` (where it stands)",
        )
    back = reverse.begun(ctx)
    if back is not None and mirror_state(back)[0] == "running":
        raise Refused(
            f"the reverse mirror of {ctx.plan.name} is running, and copies from its topics to the source",
            remedy="end it first, where `mirror --reverse` runs (Ctrl-C, or SIGTERM)",
        )
    seal = ctx.link.seal()
    if seal is not None and not seal.is_complete:
        raise Refused(
            f"sealing of the link began at {seal.at}, and not every partition shows the seal",
            remedy="run `stop` again, which completes the seal",
        )


def _unseen(ctx: Context) -> Iterator[Context]:
    """Both directions' links whose mirror did not record its end. Silence proves nothing: a driver that waits for a
    cluster sends no heartbeat, and would write again afterwards. Where every partition shows the seal, nothing that it
    sends is taken."""
    for one in (ctx, reverse.begun(ctx)):
        if one is not None and any(one.link.attempts().values()):
            seal = one.link.seal()
            if seal is None or not seal.is_complete:
                yield one


def apply(ctx: Context, *, forced: bool = False) -> tuple[str, ...]:
    """Give them up; returns which. A second call gives up nothing. Takes minutes where a mirror died, unless
    ``forced``."""
    ctx.require_whole("releasing topics")
    topics = check(ctx, forced=forced)
    unseen = [*_unseen(ctx)]
    for _ in unseen:
        ctx.log("end a mirror that did not record its end" + ("" if forced else ", and wait for what it may have sent"))
    with ExitStack() as stack:
        claims = [stack.enter_context(claimed(one)) for one in ([] if ctx.dry_run else unseen)]
        for claim in claims:
            if not forced:
                claim.await_landing()
        # Much may have begun meanwhile.
        topics = check(ctx, forced=forced) if claims else topics
        return _give_up(ctx, topics)


def _give_up(ctx: Context, topics: tuple[str, ...]) -> tuple[str, ...]:
    fence.end_rehearsals(ctx)
    # Where no switch, and no completion, does it: consumers alone went back.
    keeping.give_back(ctx)
    for topic in topics:
        ctx.log(f"give up {topic}")
    for text in left_open(ctx, topics):
        ctx.log(text)
    if topics and not ctx.dry_run:
        # Before: who is killed in between holds them still, and the next call goes on.
        lifecycle.note(ctx, _ended(ctx, topics), TopicState.COMPLETED)
        ctx.journal.unlock(topics)
    return topics


def _ended(ctx: Context, topics: Iterable[str]) -> list[str]:
    """Those that the mirror has left for good. What is given up before that is cancelled, and not completed."""
    states = lifecycle.read(ctx)
    return [topic for topic in topics if topic in states and states[topic].may_become(TopicState.COMPLETED)]


def left_open(ctx: Context, topics: Iterable[str]) -> tuple[str, ...]:
    """Of ``topics``, those that would keep every record for ever, uncompacted, from then on, in words; none that was
    restored, or is gone from the target. With what an adopted one had before."""
    open_ = _not_restored(ctx, set(topics))
    if not open_:
        return ()
    still = (
        f"retention is still disabled ({_configs(HELD_OPEN)}): {listed(map(ctx.called_on_target, open_))}; `restore`"
        " gives topics their sources' configs while this migration holds them, once the mirror is sealed (`create`"
        " locks them again); otherwise set the configs by hand, or delete the topics"
    )
    adopted = {name: declared.replaced for name, declared in open_.items() if declared.replaced}
    return (still, *(f"{name} had {_configs(before)} before it was adopted" for name, before in adopted.items()))


def run(ctx: Context, *, forced: bool = False) -> Decision:
    """Give the locks up, as a step of the workflow; ``value`` are the topics."""
    topics = apply(ctx, forced=forced)
    return Decision(facts={"topics": len(topics)}, notes=left_open(ctx, topics), value=topics)


def _not_restored(ctx: Context, topics: Set[str]) -> dict[str, Declared]:
    kept = {name: record for name, record in ctx.journal.all(KIND).items() if name in topics}
    records = {name: record for name, record in sorted(kept.items()) if not is_restored(record)}
    there = ctx.target.topics(records)
    return {
        name: Declared.from_dict(name, record)
        for name, record in records.items()
        if name in there and there[name].topic_id == record["topic_id"]
    }


def _configs(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in configs.items())
