"""What must be true of a group before anything is done to it, and the refusals where it is not.

No path starts a group's consumers on one side without a proof, right before, that the group is empty on the other, and
not ahead there: not the move, not the way back after a refusal, not ``undo``. What was seen earlier proves nothing,
since consumers come up by themselves while hooks run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import NeedsRollback, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.hooks import Side
from kafka_migration.groups.looks import Commits
from kafka_migration.groups.record import GroupRecord, Step, Translation, commits_from_evidence, offsets_of
from kafka_migration.kafka.types import GroupState

if TYPE_CHECKING:
    from kafka_migration.groups.translate import GroupView
    from kafka_migration.migration.context import Context


# -- refusals that callers distinguish -------------------------------------------------------------------------------


class GroupNotEmpty(Refused):
    """A group that must be empty has members. ``members`` are their client ids and hosts."""

    def __init__(self, side: Side, state: GroupState) -> None:
        self.members = tuple(f"{member.client_id} at {member.host} ({member.member_id})" for member in state.members)
        who = listed(self.members) or f"no members, but state {state.state}"
        super().__init__(
            f"group {state.group} is not empty on the {side}: {who}",
            remedy=f"stop its consumers on the {side} (or have consumers.stop of the plan do it), then run this again",
        )


class CommittedSince(Refused):
    """The group has committed on one side since, so its consumers must not be started on the other."""

    def __init__(self, group: str, side: Side, partitions: str) -> None:
        self.partitions = partitions
        other = "target" if side == "source" else "source"
        super().__init__(
            f"group {group} has committed on the {side} since, so its consumers are not started on the {other}:"
            f" {partitions}",
            remedy=f"find the consumers that commit on the {side}; started on the {other}, the group would process"
            " records a second time",
        )


class CommitsWithoutMembers(Refused):
    """Some client commits for the group without being a member of it, and the plan names nobody who stops it."""

    def __init__(self, group: str, seconds: float) -> None:
        super().__init__(
            f"group {group} has no members on the source, but its committed offsets changed between two looks"
            f" {seconds:.0f} s apart: a client commits for it without being a member (Flink, assign())",
            remedy="have a hook stop that client (consumers.stop of the plan; `wait` if others stop it), or stop it and"
            " declare the group in cutover.stopped_groups",
        )


class WouldRewind(Refused):
    """The group has committed further on the target than its translated offsets."""

    def __init__(self, group: str, ahead: Iterable[Translation], commits: Commits) -> None:
        what = listed(f"{move.tp} (committed {commits[move.tp].offset}, translated {move.target})" for move in ahead)
        super().__init__(
            f"group {group} is further ahead on the target than its translated offsets: {what}",
            remedy="find out who committed there; to rewind the group anyway, set cutover.rewind: true in the plan",
        )


# -- commits beside translations ------------------------------------------------------------------------------------


def changed_on_source(translations: Sequence[Translation], commits: Commits) -> list[TopicPartition]:
    """Partitions whose commit on the source is another one than was translated.

    A missing one does not count: the source forgets a group that is long gone.
    """
    return [move.tp for move in translations if move.tp in commits and commits[move.tp].offset != move.source]


def beyond(translations: Iterable[Translation], commits: Commits) -> list[Translation]:
    """Translations that the group's commits on the target are further than."""
    return [move for move in translations if move.tp in commits and commits[move.tp].offset > move.target]


def below(translations: Iterable[Translation], commits: Commits) -> list[TopicPartition]:
    """Partitions where the target has no commit, or one before the translated offset."""
    return [move.tp for move in translations if move.tp not in commits or commits[move.tp].offset < move.target]


# -- before a start -------------------------------------------------------------------------------------------------


def require_empty(ctx: Context, group: str, side: Side) -> None:
    """Raise GroupNotEmpty if the group has members on ``side`` now."""
    state = (ctx.source if side == "source" else ctx.target).group_state(group)
    if not state.is_empty:
        raise GroupNotEmpty(side, state)


def require_target_alone(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group whose offsets were moved may be started on the target: it is empty on the source, its
    commits there are those that were translated, and the target has what was written."""
    changed = changed_on_source(record.translations, ctx.source.committed(record.group))
    # The state last: a consumer that comes, commits and is still there shows in either.
    require_empty(ctx, record.group, "source")
    if changed:
        raise CommittedSince(record.group, "source", listed(changed))
    there = ctx.target.committed(record.group)
    if not ctx.target.group_state(record.group).is_empty:
        return
    lost = below(record.translations, there)
    if lost:
        raise Refused(
            f"group {record.group}: its commits of {listed(lost)} on the target are below what was written",
            remedy="find out who else commits for this group on the target, then run this again",
        )


def require_unused_on_target(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group may be started on the source (again): it is empty on the target, and not ahead there."""
    require_not_ahead_on_target(ctx, record)
    # The state last: a consumer that comes, commits and is still there shows in either.
    require_empty(ctx, record.group, "target")


def require_not_ahead_on_target(ctx: Context, record: GroupRecord) -> None:
    """Raise CommittedSince if the group is ahead on the target of where it stands on the source.

    It is not where a commit is what it was before the group was stopped, or not beyond the source's translation.
    """
    there = ctx.target.committed(record.group)
    before = target_before(record)
    since = {tp: commit.offset for tp, commit in there.items() if before.get(tp) != commit.offset}
    translated = {move.tp: move.target for move in record.translations} | _translated(ctx, record.group, since)
    ahead = {tp: offset for tp, offset in since.items() if tp not in translated or offset > translated[tp]}
    if ahead:
        rows = (
            f"{tp} (translated {translated.get(tp, 'to nothing yet')}, committed {offset})"
            for tp, offset in sorted(ahead.items())
        )
        raise CommittedSince(record.group, "target", listed(rows))


def target_before(record: GroupRecord) -> dict[TopicPartition, int]:
    """The group's commits on the target before its consumers were stopped on the source, as far as the record has
    them."""
    found = record.evidence(Step.STOPPING, "target_before") or record.evidence(Step.TRANSLATED, "target_before")
    return commits_from_evidence(found or ())


def _translated(ctx: Context, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the group's source commits of ``partitions`` translate to, those that are mirrored."""
    wanted = list(partitions)
    if not wanted:
        return {}
    commits, maps = ctx.source.committed(group), ctx.link.offset_maps(wanted)
    found = {}
    for tp in wanted:
        if tp in commits and tp in maps:
            try:
                found[tp] = maps[tp].to_target(commits[tp].offset)
            except NotMirroredYet:
                continue
    return found


# -- what an earlier run left, and what has happened to the group since ---------------------------------------------


def accept_if_written(ctx: Context, record: GroupRecord, view: GroupView) -> None:
    """Mark a write as read back that an earlier run made and died before reading back, if the group uses it.

    Were it not marked, the group would be refused for ever: it is active on the target, ahead of its translation. But
    offsets there are taken for that write only on evidence. Whoever else committed further, such as a rehearsal, must
    not pass for the group itself, or the records up to there would be skipped. The group's own progress has members;
    where it stopped there again, a person shows whose progress it is by starting it.
    """
    if not record.has(Step.WRITING) or record.has(Step.READ_BACK) or not view.state.is_empty:
        return
    translations = record.translations
    if changed_on_source(translations, ctx.source.committed(record.group)):
        return
    there = ctx.target.committed(record.group)
    if below(translations, there) or ctx.target.group_state(record.group).is_empty:
        return
    if record.has(Step.WRITTEN) or _may_have_landed(record):
        record.mark(Step.READ_BACK, ctx.clock.now(), offsets=offsets_of(there, translations), found="in use")


def _may_have_landed(record: GroupRecord) -> bool:
    """Whether what stands on the target may be a write that was begun, and whose end nobody marked.

    Not if the group was ahead before: that may be what stands there still.
    """
    before = commits_from_evidence(record.evidence(Step.WRITING, "target_before"))
    return all(before.get(move.tp, move.target) <= move.target for move in record.translations)


def must_move_again(ctx: Context, record: GroupRecord, view: GroupView) -> bool:
    """Whether a group that was moved is to be moved once more: it went on on the source since, or what was written is
    gone from the target. Its record is restarted then. Raises NeedsRollback if it went on on both sides."""
    group, translations = record.group, record.translations
    there = ctx.target.committed(group)
    changed = changed_on_source(translations, ctx.source.committed(group))
    was_active = record.has(Step.ALIVE) and group not in ctx.plan.cutover.stopped_groups
    runs_there = bool(beyond(translations, there)) or was_active or not ctx.target.group_state(group).is_empty
    if changed or not view.state.is_empty:
        if runs_there:
            what = f"committed {listed(changed)} again" if changed else f"has {len(view.state.members)} members"
            raise NeedsRollback(
                f"group {group} was moved and runs on the target, but it also {what} on the source",
                remedy="stop its consumers on the source for good; records that both sides read are processed twice",
            )
        record.restart()
        return True
    # Once a group was active on the target, its offsets there are its own.
    if below(translations, there) and not runs_there:
        record.restart()
        return True
    return False
