"""Release: a migration gives up its locks on topics, once it is done with them, so that another one may have them.

What it made and wrote stays, its journal too; ``create`` takes them again, if nobody else has them by then. Topics that
are held open stay so, and are named: after this nobody restores them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.steps.step import Decision
from kafka_migration.topics.declared import INTENT, KIND, is_restored
from kafka_migration.topics.specs import HELD_OPEN, Declared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def check(ctx: Context, *, forced: bool = False) -> tuple[str, ...]:
    """The topics that this migration holds. Raises Refused while its mirror may write to them, or a group of it is in
    the middle of its move. ``forced``: a person knows that a mirror that did not record its end has ended."""
    state, _ = mirror_state(ctx)
    if state == "running":
        raise Refused(
            f"the mirror of {ctx.plan.name} is running, and writes to its topics",
            remedy="end it first: `stop` (drained, through its gate) or `stop --now` (where it stands)",
        )
    seal = ctx.link.seal()
    # Silence proves nothing: a driver that waits for a cluster says nothing, and writes again afterwards. Where every
    # partition shows the seal, nothing that it sends is taken.
    if any(ctx.link.attempts().values()) and not forced and (seal is None or not seal.is_complete):
        raise Refused(
            f"a mirror of {ctx.plan.name} did not record how it ended, and may still write to its topics",
            remedy="start the mirror again and end it (`stop --now`); or see that none of its processes is left, its"
            " Spark tasks included, and add --force",
        )
    if seal is not None and not seal.is_complete:
        raise Refused(
            f"the link was to be sealed at {seal.at}, and not every partition shows the seal",
            remedy="run `stop` again, which completes the seal",
        )
    half = [
        group
        for group, record in sorted(GroupRecord.all(ctx.journal).items())
        if record.has(Step.STOPPING) and not record.is_moved and not record.has(Step.UNDONE)
    ]
    if half:
        raise Refused(
            f"groups are in the middle of their move: {listed(half)}",
            remedy="finish it (`cutover`), or move each back (`undo --group GROUP`)",
        )
    topics = {*ctx.journal.all(KIND), *ctx.journal.all(INTENT)}
    return tuple(sorted(topic for topic, by in ctx.journal.holders(topics).items() if by == ctx.journal.migration))


def apply(ctx: Context, *, forced: bool = False) -> tuple[str, ...]:
    """Give them up; returns which. A second call gives up nothing."""
    topics = check(ctx, forced=forced)
    for topic in topics:
        ctx.tell(f"give up {topic}")
    for text in left_open(ctx, topics):
        ctx.tell(text)
    if topics and not ctx.dry_run:
        ctx.journal.unlock(topics)
    return topics


def left_open(ctx: Context, topics: Iterable[str]) -> tuple[str, ...]:
    """Of ``topics``, those that would keep every record for ever, uncompacted, from then on, in words; none that was
    restored, or is gone from the target. With what an adopted one had before."""
    records = {name: it for name, it in ctx.journal.all(KIND).items() if name in set(topics) and not is_restored(it)}
    there = ctx.target.topics(records)
    open_ = {name: it for name, it in records.items() if name in there and there[name].topic_id == it["topic_id"]}
    if not open_:
        return ()
    settings = ", ".join(f"{name}={value}" for name, value in HELD_OPEN.items())
    said = [
        (
            f"held open still ({settings}): {listed(sorted(open_))}; `restore` gives topics their sources' settings"
            " while they are held, once the mirror is sealed (`create` takes them again); else set them by hand, or"
            " delete the topics"
        )
    ]
    for name, it in sorted(open_.items()):
        replaced = Declared.from_dict(name, it).replaced
        if replaced:
            before = ", ".join(f"{setting}={value}" for setting, value in replaced.items())
            said.append(f"{name} had {before} before it was adopted")
    return tuple(said)


def run(ctx: Context, *, forced: bool = False) -> Decision:
    """Give the locks up, as a step of the workflow; ``value`` are the topics."""
    topics = apply(ctx, forced=forced)
    return Decision(facts={"topics": len(topics)}, notes=left_open(ctx, topics), value=topics)
