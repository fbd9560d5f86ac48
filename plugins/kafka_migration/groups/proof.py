"""Proving that a group is empty, and not ahead, on one side: asked right before its consumers are started on the other.

No path starts a group without it: not the move, not the way back after a refusal, not ``undo``. What was seen earlier
proves nothing, since consumers come up by themselves while hooks run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.refusals import GroupLives, WentOn
from kafka_migration.groups.source_after import went_on

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def require_left_on_source(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group whose offsets were moved is empty on the source, and stands where it was translated."""
    again = went_on(record.translations, ctx.source.committed(record.group))
    # The state last: a consumer that comes, commits and is still there shows in either.
    state = ctx.source.group_state(record.group)
    if not state.is_empty:
        raise GroupLives("source", state)
    if again:
        raise WentOn(record.group, "source", listed(again))


def require_unused_on_target(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group that the source shall have (again) is empty on the target, and has not gone on there."""
    require_not_gone_on(ctx, record)
    # The state last: a consumer that comes, commits and is still there shows in either.
    state = ctx.target.group_state(record.group)
    if not state.is_empty:
        raise GroupLives("target", state)


def require_not_gone_on(ctx: Context, record: GroupRecord) -> None:
    """Raise WentOn if the group is ahead on the target of where it stands on the source.

    It is not where a commit is what it was before the group was stopped, or not beyond the source's translation.
    """
    there = ctx.target.committed(record.group)
    before = target_before(record)
    since = {tp: it.offset for tp, it in there.items() if before.get(tp) != it.offset}
    translated = {it.tp: it.target for it in record.translations} | _translated(ctx, record.group, since)
    ahead = {tp: offset for tp, offset in since.items() if tp not in translated or offset > translated[tp]}
    if ahead:
        said = listed(
            f"{tp} (translated {translated.get(tp, 'to nothing yet')}, committed {offset})"
            for tp, offset in sorted(ahead.items())
        )
        raise WentOn(record.group, "target", said)


def require_written_on_target(ctx: Context, record: GroupRecord) -> None:
    """Raise if a group that is to be started on the target, and is empty there, would not go on where it left off."""
    there = ctx.target.committed(record.group)
    if not ctx.target.group_state(record.group).is_empty:
        return
    lost = [it.tp for it in record.translations if it.tp not in there or there[it.tp].offset < it.target]
    if lost:
        raise Refused(
            f"group {record.group}: its commits of {listed(lost)} on the target are below what was written",
            remedy="find out who else commits for this group on the target, then run this again",
        )


def target_before(record: GroupRecord) -> dict[TopicPartition, int]:
    """The group's commits on the target before its consumers were stopped on the source, as far as the record says."""
    found = record.evidence(Step.STOPPING, "target_before") or record.evidence(Step.TRANSLATED, "target_before") or ()
    return {TopicPartition(it["topic"], it["partition"]): it["offset"] for it in found}


def _translated(ctx: Context, group: str, partitions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    commits, maps = ctx.source.committed(group), ctx.link.offset_maps(list(partitions))
    found = {}
    for tp in partitions:
        if tp in commits and tp in maps:
            try:
                found[tp] = maps[tp].to_target(commits[tp].offset)
            except NotMirroredYet:
                continue
    return found
