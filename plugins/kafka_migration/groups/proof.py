"""What must be true of a group before anything is done to it, and the refusals where it is not.

No path starts a group's consumers on one side without a proof, right before, that the group is empty on the other, and
not ahead there: not the move, not the way back after a refusal, not ``undo``. What was seen earlier proves nothing,
since consumers come up by themselves while hooks run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import SOURCE, TARGET, Direction, Side
from kafka_migration.domain.errors import NeedsRollback, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.looks import Commits
from kafka_migration.groups.record import GroupRecord, Step, Translation, commits_from_evidence, offsets_of
from kafka_migration.kafka.types import GroupState
from kafka_migration.link import reverse

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
        other = TARGET if side == SOURCE else SOURCE
        super().__init__(
            f"group {group} has committed on the {side} since, so its consumers are not started on the {other}:"
            f" {partitions}",
            remedy=f"find the consumers that commit on the {side}; started on the {other}, the group would process"
            " records a second time",
        )


class CommitsWithoutMembers(Refused):
    """Some client commits for the group without being a member of it, and the plan names nobody who stops it."""

    def __init__(self, group: str, side: Side, seconds: float) -> None:
        super().__init__(
            f"group {group} has no members on the {side}, but its committed offsets changed between two looks"
            f" {seconds:.0f} s apart: a client commits for it without being a member (Flink, assign())",
            remedy="have a hook stop that client (consumers.stop of the plan; `wait` if others stop it), or stop it and"
            " declare the group in cutover.stopped_groups",
        )


class WouldRewind(Refused):
    """The group has committed further on ``side``, to which it is moved, than its translated offsets."""

    def __init__(self, group: str, side: Side, ahead: Iterable[Translation], commits: Commits) -> None:
        what = listed(
            f"{move.tp} (committed {commits[move.tp].offset}, translated {move.destination})" for move in ahead
        )
        super().__init__(
            f"group {group} is further ahead on the {side} than its translated offsets: {what}",
            remedy="find out who committed there; to rewind the group anyway, set cutover.rewind: true in the plan",
        )


# -- commits beside translations ------------------------------------------------------------------------------------


def changed_at_origin(translations: Sequence[Translation], commits: Commits) -> list[TopicPartition]:
    """Partitions whose commit where the group was moved from is another one than was translated.

    A missing one does not count: a cluster forgets a group that is long gone.
    """
    return [move.tp for move in translations if move.tp in commits and commits[move.tp].offset != move.origin]


def beyond(translations: Iterable[Translation], commits: Commits) -> list[Translation]:
    """Translations that the group's commits where it was moved to are further than."""
    return [move for move in translations if move.tp in commits and commits[move.tp].offset > move.destination]


def below(translations: Iterable[Translation], commits: Commits) -> list[TopicPartition]:
    """Partitions that have no commit where the group was moved to, or one before the translated offset."""
    return [move.tp for move in translations if move.tp not in commits or commits[move.tp].offset < move.destination]


# -- before a start -------------------------------------------------------------------------------------------------


def require_empty(ctx: Context, group: str, side: Side) -> None:
    """Raise GroupNotEmpty if the group has members on ``side`` now."""
    state = ctx.cluster(side).group_state(group)
    if not state.is_empty:
        raise GroupNotEmpty(side, state)


def require_alone_at_destination(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group whose offsets were moved may be started where they are: it is empty on the origin, its
    commits there are those that were translated, and the destination has what was written."""
    here, there = ctx.direction.origin, ctx.direction.destination
    changed = changed_at_origin(record.translations, ctx.origin.committed(record.group))
    # The state last: a consumer that comes, commits and is still there shows in either.
    require_empty(ctx, record.group, here)
    if changed:
        raise CommittedSince(record.group, here, listed(changed))
    commits = ctx.destination.committed(record.group)
    if not ctx.destination.group_state(record.group).is_empty:
        return
    lost = below(record.translations, commits)
    if lost:
        raise Refused(
            f"group {record.group}: its commits of {listed(lost)} on the {there} are below what was written",
            remedy=f"find out who else commits for this group on the {there}, then run this again",
        )


def require_unused_at_destination(ctx: Context, record: GroupRecord) -> None:
    """Raise unless a group may be started on the origin (again): empty on the destination, and not ahead there."""
    require_not_ahead_at_destination(ctx, record)
    # The state last: a consumer that comes, commits and is still there shows in either.
    require_empty(ctx, record.group, ctx.direction.destination)


def require_not_ahead_at_destination(ctx: Context, record: GroupRecord) -> None:
    """Raise CommittedSince if the group is ahead on the destination of where it stands on the origin.

    It is not where a commit is what it was before the group was stopped, or not beyond the origin's translation.
    """
    there = ctx.destination.committed(record.group)
    before = commits_before(record)
    since = {tp: commit.offset for tp, commit in there.items() if before.get(tp) != commit.offset}
    translated = {move.tp: move.destination for move in record.translations} | _translated(ctx, record.group, since)
    ahead = {tp: offset for tp, offset in since.items() if tp not in translated or offset > translated[tp]}
    if ahead:
        rows = (
            f"{tp} (translated {translated.get(tp, 'to nothing yet')}, committed {offset})"
            for tp, offset in sorted(ahead.items())
        )
        raise CommittedSince(record.group, ctx.direction.destination, listed(rows))


def before_key(direction: Direction) -> str:
    """What the evidence of a step calls the commits where a group is moved to, as they were before."""
    return f"{direction.destination}_before"


def commits_before(record: GroupRecord) -> dict[TopicPartition, int]:
    """The group's commits where it is moved to before its consumers were stopped where they ran, as far as the record
    has them."""
    key = before_key(record.leg.direction)
    found = record.evidence(Step.STOPPING, key) or record.evidence(Step.TRANSLATED, key)
    return commits_from_evidence(found or ())


def _translated(ctx: Context, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the group's commits of ``partitions`` on the origin translate to, those that are mirrored."""
    wanted = list(partitions)
    if not wanted:
        return {}
    commits, maps = ctx.origin.committed(group), reverse.newest_maps(ctx, wanted)
    found = {}
    for tp in wanted:
        if tp in commits and tp in maps:
            try:
                found[tp] = reverse.across(maps[tp], ctx.direction, commits[tp].offset)
            except NotMirroredYet:
                continue
    return found


# -- what an earlier run left, and what has happened to the group since ---------------------------------------------


def accept_if_written(ctx: Context, record: GroupRecord, view: GroupView) -> None:
    """Mark a write as read back that an earlier run made and died before reading back, if the group uses it.

    Were it not marked, the group would be refused for ever: it is active there, ahead of its translation. But
    offsets there are taken for that write only on evidence. Whoever else committed further, such as a rehearsal, must
    not pass for the group itself, or the records up to there would be skipped. The group's own progress has members;
    where it stopped there again, a person shows whose progress it is by starting it.
    """
    if not record.has(Step.WRITING) or record.has(Step.READ_BACK) or not view.state.is_empty:
        return
    translations = record.translations
    if changed_at_origin(translations, ctx.origin.committed(record.group)):
        return
    there = ctx.destination.committed(record.group)
    if below(translations, there) or ctx.destination.group_state(record.group).is_empty:
        return
    if record.has(Step.WRITTEN) or _may_have_landed(record):
        record.mark(Step.READ_BACK, ctx.clock.now(), offsets=offsets_of(there, translations), found="in use")


def _may_have_landed(record: GroupRecord) -> bool:
    """Whether what stands on the destination may be a write that was begun, and whose end nobody marked.

    Not if the group was ahead before: that may be what stands there still.
    """
    before = commits_from_evidence(record.evidence(Step.WRITING, before_key(record.leg.direction)))
    return all(before.get(move.tp, move.destination) <= move.destination for move in record.translations)


def must_move_again(ctx: Context, record: GroupRecord, view: GroupView) -> bool:
    """Whether a group that was moved is to be moved once more: it went on on the origin since, or what was written is
    gone from the destination. Its record is restarted in the first case, and holds in the second what the origin may
    have forgotten, too. Raises NeedsRollback if it went on on both sides."""
    group, translations = record.group, record.translations
    origin, destination = ctx.direction.origin, ctx.direction.destination
    there = ctx.destination.committed(group)
    changed = changed_at_origin(translations, ctx.origin.committed(group))
    was_active = record.has(Step.ALIVE) and group not in ctx.plan.cutover.stopped_groups
    runs_there = bool(beyond(translations, there)) or was_active or not ctx.destination.group_state(group).is_empty
    if changed or not view.state.is_empty:
        if runs_there:
            what = f"committed {listed(changed)} again" if changed else f"has {len(view.state.members)} members"
            raise NeedsRollback(
                f"group {group} was moved and runs on the {destination}, but it also {what} on the {origin}",
                remedy=f"stop its consumers on the {origin} for good; records that both sides read are processed twice",
            )
        record.restart()
        return True
    # Once a group was active there, its offsets there are its own.
    return bool(below(translations, there)) and not runs_there
