"""Translating what groups committed where they run into offsets of the other cluster: exact, and without writing.

``preview`` is what the command ``translate`` shows; cutover uses the same computation, so what was shown is what is
written, as far as the group has not committed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, MigrationError, Refused
from kafka_migration.domain.generations import Generations
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Commits, subscribed_topics
from kafka_migration.groups.record import GroupRecord, Policy, Step, Translation
from kafka_migration.kafka.types import CommittedOffset, GroupState
from kafka_migration.link import reverse
from kafka_migration.migration.joined import names_of
from kafka_migration.topics.declared import KIND as TOPICS

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Expiry that is less than so far ahead is worth a remark; brokers look for it this often, at the longest expected.
_SOON, _CHECKED_EVERY = timedelta(days=1), timedelta(hours=1)


class UncommittedPartitions(Refused):
    """A group subscribes to partitions that it never committed: where it would resume is unknown."""

    def __init__(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(
            f"group {group} never committed an offset of {listed(partitions)}, of topics that it reads",
            remedy="have it commit there, or set cutover.uncommitted in the plan to earliest or cut",
        )


#: What to do about a group that reads topics of two migrations.
REMEDY_SHARED = (
    "have one plan move all that the group reads, or exclude the group here, and move it by hand; of a topic that it"
    " does not read any more, delete its commits (kafka-consumer-groups.sh --delete-offsets)"
)


def shared_with_others(ctx: Context, outside: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Of groups and the topics ``outside`` of the plan that they read, those that another migration onto this target
    mirrors, or has mirrored, a sentence for each group.

    Such a topic is there, too: a group that is moved would read it on the target from wherever its
    auto.offset.reset has it, since nothing is committed for it there.
    """
    wanted = {topic for topics in outside.values() for topic in topics}
    if not wanted:
        return ()
    # A migration that is done holds nothing any more.
    here = {ctx.target.topic_here(topic): topic for topic in wanted}
    held: dict[str, str] = {}
    for other in ctx.journal.others():
        there = map(names_of(other).on_target, other.all(TOPICS))
        held |= {here[name]: other.migration for name in there if name in here}
    held |= ctx.journal.held_elsewhere(wanted)
    found = {group: [f"{t} ({held[t]})" for t in sorted(topics) if t in held] for group, topics in outside.items()}
    return tuple(f"group {group} also reads {listed(names)}" for group, names in sorted(found.items()) if names)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as the cluster shows it that it is moved from (the source, or the target on the way back), seen through
    the plan.

    ``committed`` and ``uncommitted`` are partitions of the plan's topics; ``uncommitted`` those of topics that the
    group reads, without a commit. ``outside`` are topics that it reads and the plan does not mirror; ``gone``
    partitions that it committed and that exist no more; ``passed_over``: how many offsets it has not read yet and will
    not, since they are not copied; ``remarks`` what a person should know besides.
    """

    state: GroupState
    committed: Mapping[TopicPartition, CommittedOffset]
    uncommitted: tuple[TopicPartition, ...]
    outside: tuple[str, ...]
    gone: tuple[TopicPartition, ...]
    passed_over: Mapping[TopicPartition, int]
    remarks: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.state.group

    @property
    def is_concerned(self) -> bool:
        """Whether the group reads any topic of the plan."""
        return bool(self.committed or self.uncommitted)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All that the group reads of the plan's topics."""
        return (*self.committed, *self.uncommitted)

    def outside_now(self, before: Set[str] = frozenset()) -> tuple[str, ...]:
        """``outside``, but for topics that it has only commits of: by what its members read, or read ``before``."""
        read = subscribed_topics(self.state) or before
        return tuple(topic for topic in self.outside if topic in read) if read else self.outside

    @property
    def flags(self) -> tuple[str, ...]:
        """What a person should know of the group besides."""
        found = list(self.remarks)
        if self.is_concerned and self.outside:
            found.append(f"partial: it also reads topics that the plan does not mirror ({listed(self.outside)})")
        if self.gone:
            found.append(f"its commits of {listed(self.gone)} are not moved: these partitions no longer exist")
        if self.passed_over:
            counts = listed(f"{count:,} offsets of {tp}" for tp, count in sorted(self.passed_over.items()))
            found.append(f"it resumes after the skipped offsets, and never reads {counts}")
        return tuple(found)


def selected_groups(ctx: Context, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """The groups to work on: those of the plan, or ``wanted`` ones. Raises BadInput for one that the plan leaves out.

    Groups of the plan are those where they are moved from, those declared stopped, and those in the journal: a group
    that was moved may be forgotten there.
    """
    if wanted is not None:
        for group in wanted:
            if not ctx.scope.has_group(group):
                raise BadInput(
                    f"wave {ctx.scope.key} does not hold this group",
                    field="groups",
                    value=group,
                    remedy="check its name, or move it with its own wave",
                )
            if not ctx.plan.groups.matches(group):
                raise BadInput(
                    "the plan does not select this group",
                    field="groups",
                    value=group,
                    remedy="check its name, or add it to groups.include of the plan",
                )
        return tuple(dict.fromkeys(wanted))
    known = {*ctx.origin.groups(), *ctx.plan.cutover.stopped_groups, *GroupRecord.all(ctx.journal)}
    return tuple(group for group in ctx.plan.groups.select(known) if ctx.scope.has_group(group))


def view_groups(ctx: Context, groups: Sequence[str], *, is_stable: bool = True) -> dict[str, GroupView]:
    """What the cluster that they are moved from knows of ``groups`` now, in a few requests for all of them.

    Not ``is_stable``: for a look before anything is stopped, which no open transaction of one of them holds up."""
    states = ctx.origin.group_states(groups)
    movable = [group for group in groups if states[group].protocol in MOVABLE_PROTOCOLS]
    committed = ctx.origin.committed_of(movable, is_stable=is_stable)
    records = GroupRecord.of(ctx.journal, groups)
    # What was seen of a group that no link moved here was seen on the other cluster.
    came = {g: r for g, r in records.items() if ctx.is_first or r.came_by_move(ctx.direction, ctx.generation)}
    reads = {group: _topics_read(states[group], committed.get(group, {}), came.get(group)) for group in groups}
    in_plan = {topic for topics in reads.values() for topic in topics if ctx.plan.topics.matches(topic)}
    partitions = {name: topic.topic_partitions for name, topic in ctx.origin.topics(sorted(in_plan)).items()}
    new = set() if ctx.is_first else _without_counterpart(ctx, [tp for tps in partitions.values() for tp in tps])
    unknown = set() if ctx.is_first else _unknown_there(ctx, records)
    left_out = ctx.link.skips()
    views = {}
    for group in groups:
        expected = [tp for topic in sorted(reads[group]) for tp in partitions.get(topic, ())]
        outside = tuple(sorted(reads[group] - in_plan))
        commits = {tp: commit for tp, commit in committed.get(group, {}).items() if tp.topic in in_plan}
        view = _view(states[group], commits, [tp for tp in expected if tp not in new], outside, left_out)
        remarks = _remarks(ctx, view, is_unknown=group in unknown, came=group in came, new=new.intersection(expected))
        # What is new is not gone. The plan's policy is for groups that it moves out, not for those created there.
        gone = tuple(tp for tp in view.gone if tp not in new)
        uncommitted = view.uncommitted if group in came else ()
        views[group] = replace(view, gone=gone, uncommitted=uncommitted, remarks=remarks)
    return views


def _without_counterpart(ctx: Context, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
    """Partitions that were made after the cut, so that the link, which began at it, does not copy them."""
    return set(partitions) - ctx.link.offset_maps(partitions).keys()


def _unknown_there(ctx: Context, records: Mapping[str, GroupRecord]) -> set[str]:
    """Groups that were created where they run: the cluster that they are to be moved to has no offset of theirs."""
    never_moved = [group for group, record in records.items() if not any(leg.steps for leg in record.legs)]
    return {group for group, commits in ctx.destination.committed_of(never_moved).items() if not commits}


def _remarks(
    ctx: Context, view: GroupView, *, is_unknown: bool, came: bool, new: Set[TopicPartition]
) -> tuple[str, ...]:
    here, there = ctx.direction.origin, ctx.direction.destination
    found = []
    if is_unknown:
        found.append(f"it was created on the {here}: the {there} has no offset of it, and gets what it committed here")
    if view.uncommitted and not came:
        found.append(
            f"it never committed {listed(view.uncommitted)}: nothing is written there, and its auto.offset.reset"
            f" decides on the {there} as it does on the {here}"
        )
    elif view.uncommitted and not ctx.is_first:
        found.append(
            f"it reads {listed(view.uncommitted)} on the {here}, and never committed there: cutover.uncommitted"
            f" ({ctx.plan.cutover.uncommitted}) decides"
        )
    if new:
        found.append(f"its offsets of {listed(sorted(new))} stay behind: these partitions were made after the cut")
    return tuple(found)


def _view(
    state: GroupState,
    commits: Commits,
    expected: Sequence[TopicPartition],
    outside: tuple[str, ...],
    left_out: Mapping[TopicPartition, Sequence[Skip]],
) -> GroupView:
    return GroupView(
        state=state,
        committed={tp: commits[tp] for tp in expected if tp in commits},
        uncommitted=tuple(tp for tp in expected if tp not in commits),
        outside=outside,
        gone=tuple(sorted(set(commits) - set(expected))),
        passed_over=_passed_over(left_out, commits),
    )


def _topics_read(state: GroupState, commits: Commits, record: GroupRecord | None) -> set[str]:
    """By its commits and its members; of an empty group also what was seen while it had members (``record``)."""
    topics = {tp.topic for tp in commits} | subscribed_topics(state)
    return topics if state.members or record is None else topics | record.subscription


def _passed_over(left_out: Mapping[TopicPartition, Sequence[Skip]], commits: Commits) -> dict[TopicPartition, int]:
    counts = {
        tp: sum(max(0, skip.end - max(skip.start, commit.offset)) for skip in left_out.get(tp, ()))
        for tp, commit in commits.items()
    }
    return {tp: count for tp, count in counts.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Where a group resumes on the cluster that it is moved to. ``pending``: partitions of which that is not known yet,
    and why."""

    translations: tuple[Translation, ...]
    pending: Mapping[TopicPartition, str]


def positions_of(
    view: GroupView,
    *,
    maps: Mapping[TopicPartition, OffsetMap | Generations],
    ends: Mapping[TopicPartition, PartitionEnds],
    uncommitted: Literal["refuse", "earliest", "cut"],
    kept: Mapping[TopicPartition, Translation],
    direction: Direction = Direction.FORWARD,
) -> Positions:
    """The exact translation of every commit, and the plan's policy for partitions without one.

    ``maps`` are from source to target, whatever the ``direction``; ``ends`` those of the cluster that it leads to.
    ``kept`` are translations of an earlier try: a cut once made stays where it was made, because records that arrived
    since belong to the group. Raises UncommittedPartitions if the policy is to refuse.
    """
    if view.uncommitted and uncommitted == "refuse":
        raise UncommittedPartitions(view.group, view.uncommitted)
    found: list[Translation] = []
    pending: dict[TopicPartition, str] = {}
    for tp, commit in view.committed.items():
        place, why = _across(maps.get(tp), direction, commit.offset)
        if place is None:
            pending[tp] = why
        else:
            found.append(
                Translation.of(
                    direction, tp, origin=commit.offset, destination=place, policy="exact", metadata=commit.metadata
                )
            )
    policy: Policy = "earliest" if uncommitted == "earliest" else "cut"
    for tp in view.uncommitted:
        move = _without_commit(direction, tp, policy, kept.get(tp), ends.get(tp))
        if move is None:
            pending[tp] = f"the partition does not exist on the {direction.destination}"
        else:
            found.append(move)
    return Positions(translations=tuple(sorted(found, key=lambda move: move.tp)), pending=pending)


def _without_commit(
    direction: Direction,
    tp: TopicPartition,
    policy: Policy,
    before: Translation | None,
    ends: PartitionEnds | None,
) -> Translation | None:
    if before is not None and before.policy == policy:
        return before
    if ends is None:
        return None
    place = ends.start if policy == "earliest" else ends.end
    return Translation.of(direction, tp, origin=None, destination=place, policy=policy)


def _across(offsets: OffsetMap | Generations | None, direction: Direction, offset: int) -> tuple[int | None, str]:
    if offsets is None:
        return None, f"{direction.origin} offset {offset}: nothing of this partition is mirrored yet"
    try:
        return reverse.across(offsets, direction, offset), ""
    except NotMirroredYet as error:
        return None, error.message


def current_positions(
    ctx: Context, view: GroupView, *, kept: Mapping[TopicPartition, Translation] | None = None
) -> Positions:
    """:func:`positions_of` with maps and ends as they are now."""
    ends: dict[TopicPartition, PartitionEnds] = {}
    if view.uncommitted and ctx.plan.cutover.uncommitted != "refuse":
        there = ctx.destination.topics(sorted({tp.topic for tp in view.uncommitted}))
        exist = {tp for topic in there.values() for tp in topic.topic_partitions}
        ends = ctx.destination.ends([tp for tp in view.uncommitted if tp in exist])
    return positions_of(
        view,
        maps=reverse.newest_maps(ctx, list(view.committed)),
        ends=ends,
        uncommitted=ctx.plan.cutover.uncommitted,
        kept=kept or {},
        direction=ctx.direction,
    )


# -- the command `translate` ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPreview:
    """What cutover would write for a group if it were moved now. ``problems`` would keep it from being moved."""

    group: str
    state: str
    members: int
    translations: tuple[Translation, ...]
    problems: tuple[str, ...]
    flags: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "state": self.state,
            "members": self.members,
            "positions": [move.as_dict() for move in self.translations],
            "problems": list(self.problems),
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """One explicit offset. ``target`` is None where there is a ``problem``."""

    tp: TopicPartition
    source: int
    target: int | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "source": self.source,
            "target": self.target,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """All that was asked for. Nothing was written."""

    groups: tuple[GroupPreview, ...] = ()
    offsets: tuple[TranslatedOffset, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if everything translates, 1 if something does not."""
        return int(any(group.problems for group in self.groups) or any(row.target is None for row in self.offsets))

    def as_dict(self) -> dict[str, Any]:
        return {
            "groups": [group.as_dict() for group in self.groups],
            "offsets": [row.as_dict() for row in self.offsets],
        }


def preview(ctx: Context, groups: Sequence[str] | None = None) -> Preview:
    """Where the plan's groups (or ``groups``) would resume if they were moved now, the way of the context's link."""
    names = selected_groups(ctx, groups)
    views, expiring = view_groups(ctx, names, is_stable=False), _expiring(ctx, names)
    return Preview(groups=tuple(_preview_of(ctx, views[group], expiring.get(group)) for group in names))


def _expiring(ctx: Context, groups: Sequence[str]) -> dict[str, str]:
    """A remark on each group whose offsets are about to expire on the cluster that it left, and is to return to.

    Kafka counts from when the group became empty there (KIP-211), and then removes what was written since as well.
    """
    legs = {group: record.leg for group, record in GroupRecord.of(ctx.journal, groups).items()}
    left = {group: leg.at(Step.STOPPED) for group, leg in legs.items() if leg.is_done}
    since = {group: at for group, at in left.items() if at and legs[group].direction is not ctx.direction}
    if not since:
        return {}
    kept, now, there = _offsets_kept(ctx), ctx.clock.now(), ctx.direction.destination
    return {
        group: f"its offsets on the {there} expire at about {at + kept:%Y-%m-%d %H:%M} UTC, and so do those written"
        " by then: have its consumers start before, or move it an hour later"
        for group, at in since.items()
        if -_CHECKED_EVERY <= at + kept - now <= _SOON
    }


def _offsets_kept(ctx: Context) -> timedelta:
    """How long the cluster that groups are moved to keeps the offsets of an empty group; Kafka's default if it does
    not say."""
    config = None
    with suppress(MigrationError):
        config = ctx.destination.broker_configs().get("offsets.retention.minutes")
    return timedelta(minutes=int((config and config.value) or 10_080))


def _preview_of(ctx: Context, view: GroupView, remark: str | None) -> GroupPreview:
    problems: list[str] = []
    translations: tuple[Translation, ...] = ()
    if view.state.protocol not in MOVABLE_PROTOCOLS:
        problems.append(f"it uses protocol {view.state.protocol}, whose state is not only offsets, and is not moved")
    elif not view.is_concerned:
        problems.append("it has no committed offset of a topic of the plan")
    else:
        try:
            positions = current_positions(ctx, view)
        except UncommittedPartitions as error:
            problems.append(error.message)
        else:
            translations = positions.translations
            if ctx.direction is Direction.FORWARD:
                problems += shared_with_others(ctx, {view.group: view.outside_now()})
            problems += [f"{tp}: {why}" for tp, why in sorted(positions.pending.items())]
    return GroupPreview(
        group=view.group,
        state=view.state.state,
        members=len(view.state.members),
        translations=translations,
        problems=tuple(problems),
        flags=(*view.flags, remark) if remark else view.flags,
    )


def translate_offsets(ctx: Context, offsets: Iterable[tuple[TopicPartition, int]]) -> Preview:
    """Explicit source offsets, in the order given: each to where a consumer standing there resumes, over all links that
    have begun."""
    wanted = list(offsets)
    for tp, offset in wanted:
        if offset < 0:
            raise BadInput(f"{tp}: an offset cannot be negative", value=offset, remedy="give an offset of 0 or more")
    maps = reverse.newest_maps(ctx, sorted({tp for tp, _ in wanted}))
    found = []
    for tp, offset in wanted:
        target, why = _across(maps.get(tp), Direction.FORWARD, offset)
        found.append(TranslatedOffset(tp=tp, source=offset, target=target, problem=why))
    return Preview(offsets=tuple(found))
