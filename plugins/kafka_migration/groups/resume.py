"""Going on with a group where an earlier run ended: what it left, and what has happened to the group since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.errors import NeedsRollback
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord, Step, offsets_of
from kafka_migration.groups.source_after import went_on
from kafka_migration.groups.translate import GroupView

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def accept_if_written(ctx: Context, record: GroupRecord, view: GroupView) -> None:
    """Take note of a write that an earlier run made and died before reading back, if the group went on from it.

    Were it not noted, the group would be refused for ever: it lives on the target, ahead of its translation. But
    offsets there are taken for that write only on evidence. Whoever else committed further (a rehearsal, say) must not
    pass for the group itself, or the records up to there would be skipped. The group's own progress has members; of
    one that stopped there again a person says so, by starting it.
    """
    if not record.has(Step.WRITING) or record.has(Step.READ_BACK) or not view.state.is_empty:
        return
    translations = record.translations
    if went_on(translations, ctx.source.committed(record.group)):
        return
    there = ctx.target.committed(record.group)
    if any(it.tp not in there or there[it.tp].offset < it.target for it in translations):
        return
    if not ctx.target.group_state(record.group).is_empty and (record.has(Step.WRITTEN) or _may_have_landed(record)):
        record.mark(Step.READ_BACK, ctx.clock.now(), offsets=offsets_of(there, translations), found="in use")


def _may_have_landed(record: GroupRecord) -> bool:
    """Whether what stands there may be a write that was begun, and whose end nobody noted.

    Not if the group was ahead before: that may be what stands there still.
    """
    before = {
        TopicPartition(it["topic"], it["partition"]): it["offset"]
        for it in record.evidence(Step.WRITING, "target_before")
    }
    return all(before.get(it.tp, it.target) <= it.target for it in record.translations)


def came_back(ctx: Context, record: GroupRecord, view: GroupView) -> bool:
    """Whether a group that was moved is to be moved once more, because it has gone on on the source since.

    Its record is restarted then. Raises NeedsRollback if it has gone on on both.
    """
    group, translations = record.group, record.translations
    there = ctx.target.committed(group)
    again = went_on(translations, ctx.source.committed(group))
    past = any(it.tp in there and there[it.tp].offset > it.target for it in translations)
    lived = record.has(Step.ALIVE) and group not in ctx.plan.cutover.stopped_groups
    runs_there = past or lived or not ctx.target.group_state(group).is_empty
    if again or not view.state.is_empty:
        if runs_there:
            what = f"committed {listed(again)} again" if again else f"has {len(view.state.members)} members"
            raise NeedsRollback(
                f"group {group} was moved and runs on the target, but it also {what} on the source",
                remedy="stop its consumers on the source for good; what both read is processed twice",
            )
        record.restart()
        return True
    missing = [it.tp for it in translations if it.tp not in there or there[it.tp].offset < it.target]
    if missing and not runs_there:
        # Written, and gone again before anybody used it. Once a group has lived there, its offsets are its own.
        record.restart()
        return True
    return False
