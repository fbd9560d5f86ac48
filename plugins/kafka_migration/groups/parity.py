"""What consumers depend on besides records, on both clusters side by side: groups' offsets, topics, ACLs.

Group offsets are compared through the offset map: the group's commit on the target with the exact translation of its
commit on the source. Reads only.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_migration.access import difference
from kafka_migration.domain.errors import Fatal, MigrationError, NotAuthorized
from kafka_migration.domain.generations import Generations
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Commits
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.translate import selected_groups
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Acl
from kafka_migration.link import reverse
from kafka_migration.topics import drift
from kafka_migration.topics.drift import DriftStatus

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Of each kind, so many rows stand beside a verdict, and so many problems are shown as progress.
_KEPT, _SHOWN = 100, 10


class Standing(enum.StrEnum):
    """A group's commit of one partition on the target, compared with the translation of its commit on the source."""

    EQUAL = "equal"
    AHEAD = "ahead"
    """Further than the translation: it has consumed on the target."""
    BEHIND = "behind"
    """It would read again what it has read on the source."""
    ABSENT = "absent"
    """No commit on the target."""
    UNKNOWN = "unknown"
    """The source's commit lies beyond what is mirrored so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetParity:
    """One partition of a group. ``expected`` is None where the map does not reach, ``target`` where nothing stands."""

    tp: TopicPartition
    source: int
    expected: int | None
    target: int | None

    @property
    def standing(self) -> Standing:
        """How the two compare."""
        if self.expected is None:
            return Standing.UNKNOWN
        if self.target is None:
            return Standing.ABSENT
        if self.target == self.expected:
            return Standing.EQUAL
        return Standing.AHEAD if self.target > self.expected else Standing.BEHIND

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "source": self.source,
            "expected": self.expected,
            "target": self.target,
            "standing": str(self.standing),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParity:
    """A group: whether it was moved, and each partition that it committed on the source."""

    group: str
    is_moved: bool
    offsets: tuple[OffsetParity, ...]

    @property
    def problem(self) -> str:
        """Why its consumers would not resume exactly where they stand; empty if they would."""
        wrong = {Standing.BEHIND, Standing.ABSENT, Standing.UNKNOWN} if self.is_moved else {Standing.BEHIND}
        found = [offset for offset in self.offsets if offset.standing in wrong]
        if not found:
            return ""
        worst = found[0]
        more = f", and {len(found) - 1} partitions more" if len(found) > 1 else ""
        at = "nothing" if worst.target is None else f"offset {worst.target}"
        due = "not known yet" if worst.expected is None else f"{worst.expected}"
        return f"{worst.tp}: {at} on the target, where {due} is due (source {worst.source}){more}"

    @property
    def counts(self) -> dict[str, int]:
        """Partitions by standing, those that there are."""
        counts = Counter(str(offset.standing) for offset in self.offsets)
        return {str(standing): counts[standing] for standing in Standing if standing in counts}

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "group": self.group,
            "moved": self.is_moved,
            "problem": self.problem,
            "counts": self.counts,
            "offsets": [offset.as_dict() for offset in self.offsets],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Both clusters side by side. ``access`` are ACLs of the source, for what the plan selects, that the target
    lacks; None where they could not be read, and ``access_unknown`` is why."""

    groups: tuple[GroupParity, ...]
    topics: tuple[DriftStatus, ...]
    access: tuple[Acl, ...] | None
    access_unknown: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """What a consumer would notice. Missing ACLs are listed and not judged: principals may have other names on the
        target, and the plan need not name them (`access.principals`)."""
        groups = [f"group {group.group}: {group.problem}" for group in self.groups if group.problem]
        drifted = [f"topic {topic.topic}: {topic.what}: {topic.observed}" for topic in self.topics if topic.endangers]
        return (*groups, *drifted)

    @property
    def exit_code(self) -> int:
        """0 if consumers would notice nothing, 1 otherwise."""
        return int(bool(self.problems))

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "problems": list(self.problems),
            "groups": [group.as_dict() for group in self.groups],
            "topics": [drift.as_dict(topic) for topic in self.topics],
            "access_missing": None if self.access is None else [asdict(acl) for acl in self.access],
            "access_unknown": self.access_unknown,
        }

    def section(self, at: str) -> dict[str, Any]:
        """The same shortened (JSON types): each group in a row, and of each kind at most so many rows, the worst first;
        ``left_out`` counts the others."""
        whole = self.as_dict()
        groups = [
            {name: group[name] for name in ("group", "moved", "problem", "counts")}
            for group in sorted(whole["groups"], key=lambda group: (not group["problem"], group["group"]))
        ]
        rows = {**whole, "groups": groups, "access_missing": whole["access_missing"] or []}
        kinds = ("problems", "groups", "topics", "access_missing")
        return {
            "at": at,
            "unknown": "",
            **{name: rows[name][:_KEPT] for name in kinds},
            "access_unknown": self.access_unknown,
            "left_out": {name: max(0, len(rows[name]) - _KEPT) for name in kinds},
        }


def read(ctx: Context, groups: Sequence[str] | None = None) -> Parity:
    """Compare now. ``groups``: these instead of the plan's. Raises what reading the clusters raises."""
    names = selected_groups(ctx, groups)
    access, unknown = _access(ctx)
    return Parity(groups=_groups(ctx, names), topics=drift.read(ctx), access=access, access_unknown=unknown)


def section(ctx: Context) -> dict[str, Any]:
    """What a validation records beside its verdict, and never as part of it: :meth:`Parity.section`, or why nothing
    could be compared (``unknown``). Shows the problems as progress, too."""
    try:
        found = read(ctx)
    except MigrationError as error:
        ctx.log(f"groups, topics and ACLs could not be compared: {error.message}")
        return {"at": ctx.stamp(), "unknown": error.message}
    for problem in found.problems[:_SHOWN]:
        ctx.log(f"beside the records: {problem}")
    return found.section(ctx.stamp())


def _groups(ctx: Context, names: Sequence[str]) -> tuple[GroupParity, ...]:
    states = ctx.source.group_states(names)
    movable = [name for name in names if states[name].protocol in (*MOVABLE_PROTOCOLS, "")]
    source, target = (cluster.committed_of(movable, is_stable=False) for cluster in (ctx.source, ctx.target))
    committed = {tp for commits in source.values() for tp in commits if ctx.plan.topics.matches(tp.topic)}
    maps = reverse.newest_maps(ctx, sorted(committed))
    moved = {name for name, record in GroupRecord.all(ctx.journal).items() if record.is_moved}
    compare = partial(compared, maps=maps, of=ctx.plan.topics.matches)
    offsets = {name: compare(source.get(name, {}), target.get(name, {})) for name in movable}
    return tuple(
        GroupParity(group=name, is_moved=name in moved, offsets=found) for name, found in offsets.items() if found
    )


def compared(
    source: Commits,
    target: Commits,
    *,
    maps: Mapping[TopicPartition, OffsetMap | Generations],
    of: Callable[[str], bool],
) -> tuple[OffsetParity, ...]:
    """A group's commits on both sides, of topics that ``of`` (a predicate of their names) selects."""
    return tuple(
        OffsetParity(
            tp=tp,
            source=commit.offset,
            expected=_expected(maps.get(tp), commit.offset),
            target=target[tp].offset if tp in target else None,
        )
        for tp, commit in sorted(source.items())
        if of(tp.topic)
    )


def _expected(offsets: OffsetMap | Generations | None, source: int) -> int | None:
    try:
        return None if offsets is None else offsets.to_target(source)
    except NotMirroredYet:
        return None


def _access(ctx: Context) -> tuple[tuple[Acl, ...] | None, str]:
    try:
        return difference.read(ctx).missing, ""
    except (NotSupported, NotAuthorized, Fatal) as error:
        return None, error.message
