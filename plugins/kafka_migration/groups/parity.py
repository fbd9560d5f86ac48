"""What consumers depend on besides records, on both clusters side by side: groups' offsets, topics, access rules.

Group offsets are compared through the offset map: where the group stands on the target is held against the exact
translation of where it stands on the source. Reads only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import MigrationError, NotAuthorized
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.translate import selected_groups
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Acl, CommittedOffset
from kafka_migration.topics import drift
from kafka_migration.topics.drift import DriftStatus

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_EVERYTHING = "*"
#: Of each kind, so many rows stand beside a verdict, and so many problems are told.
_KEPT, _TOLD = 100, 10


class Standing(enum.StrEnum):
    """A group's commit of one partition on the target, compared with the translation of its commit on the source."""

    EQUAL = "equal"
    AHEAD = "ahead"
    """Further on: it has consumed on the target."""
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
        """Why its consumers would not go on exactly where they stand; empty if they would."""
        wrong = {Standing.BEHIND, Standing.ABSENT, Standing.UNKNOWN} if self.is_moved else {Standing.BEHIND}
        found = [it for it in self.offsets if it.standing in wrong]
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
        return {str(it): n for it in Standing if (n := sum(offset.standing is it for offset in self.offsets))}

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "group": self.group,
            "moved": self.is_moved,
            "problem": self.problem,
            "counts": self.counts,
            "offsets": [it.as_dict() for it in self.offsets],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Both clusters side by side. ``access`` are rules of the source, for what the plan selects, that the target
    lacks; None where they could not be read, and ``access_unknown`` says why."""

    groups: tuple[GroupParity, ...]
    topics: tuple[DriftStatus, ...]
    access: tuple[Acl, ...] | None
    access_unknown: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """What a consumer would notice. Missing access rules are told and not judged: principals may have other names
        on the target."""
        groups = [f"group {it.group}: {it.problem}" for it in self.groups if it.problem]
        return (*groups, *(f"topic {it.topic}: {it.what}: {it.observed}" for it in self.topics if it.endangers))

    @property
    def exit_code(self) -> int:
        """0 if consumers would notice nothing, 1 otherwise."""
        return int(bool(self.problems))

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "problems": list(self.problems),
            "groups": [it.as_dict() for it in self.groups],
            "topics": [drift.as_dict(it) for it in self.topics],
            "access_missing": None if self.access is None else [asdict(it) for it in self.access],
            "access_unknown": self.access_unknown,
        }

    def section(self, at: str) -> dict[str, Any]:
        """The same in little (JSON types): each group in a row, and of each kind at most so many rows, the worst first;
        ``left_out`` counts the others."""
        said = self.as_dict()
        groups = [
            {name: it[name] for name in ("group", "moved", "problem", "counts")}
            for it in sorted(said["groups"], key=lambda it: (not it["problem"], it["group"]))
        ]
        rows = {**said, "groups": groups, "access_missing": said["access_missing"] or []}
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
    access, unknown = _access(ctx, names)
    return Parity(groups=_groups(ctx, names), topics=drift.read(ctx), access=access, access_unknown=unknown)


def section(ctx: Context) -> dict[str, Any]:
    """What a validation puts down beside its verdict, and never as part of it: :meth:`Parity.section`, or why nothing
    could be compared (``unknown``). Tells the problems, too."""
    try:
        found = read(ctx)
    except MigrationError as error:
        ctx.tell(f"groups, topics and ACLs are not compared: {error.message}")
        return {"at": ctx.stamp(), "unknown": error.message}
    for problem in found.problems[:_TOLD]:
        ctx.tell(f"beside the records: {problem}")
    return found.section(ctx.stamp())


def _groups(ctx: Context, names: Sequence[str]) -> tuple[GroupParity, ...]:
    states = ctx.source.group_states(names)
    movable = [name for name in names if states[name].protocol in (*MOVABLE_PROTOCOLS, "")]
    sides = [side.committed_of(movable) for side in (ctx.source, ctx.target)]
    committed = {tp for commits in sides[0].values() for tp in commits if ctx.plan.topics.matches(tp.topic)}
    maps = ctx.link.offset_maps(sorted(committed))
    records = GroupRecord.all(ctx.journal)
    found = []
    for name in movable:
        offsets = compared(*(side.get(name, {}) for side in sides), maps=maps, of=ctx.plan.topics.matches)
        record = records.get(name)
        if offsets:
            found.append(GroupParity(group=name, is_moved=record is not None and record.is_moved, offsets=offsets))
    return tuple(found)


def compared(
    source: Mapping[TopicPartition, CommittedOffset],
    target: Mapping[TopicPartition, CommittedOffset],
    *,
    maps: Mapping[TopicPartition, OffsetMap],
    of: Any,
) -> tuple[OffsetParity, ...]:
    """A group's commits on both sides, of topics that ``of`` (a predicate of their names) selects."""
    found = []
    for tp, commit in sorted(source.items()):
        if not of(tp.topic):
            continue
        expected = None
        if tp in maps:
            try:
                expected = maps[tp].to_target(commit.offset)
            except NotMirroredYet:
                expected = None
        there = target.get(tp)
        found.append(
            OffsetParity(tp=tp, source=commit.offset, expected=expected, target=None if there is None else there.offset)
        )
    return tuple(found)


def _access(ctx: Context, groups: Sequence[str]) -> tuple[tuple[Acl, ...] | None, str]:
    try:
        source = ctx.source.acls()
        target = set(ctx.target.acls())
    except (NotSupported, NotAuthorized) as error:
        return None, error.message
    topics = sorted(ctx.journal.all("topic"))
    concerned = [it for it in source if _concerns(it, "topic", topics) or _concerns(it, "group", groups)]
    return tuple(sorted((it for it in concerned if it not in target), key=lambda it: str(asdict(it)))), ""


def _concerns(rule: Acl, kind: str, names: Sequence[str]) -> bool:
    if rule.resource_type.lower() != kind:
        return False
    if rule.pattern.lower() == "prefixed":
        return any(name.startswith(rule.resource) for name in names)
    return rule.resource == _EVERYTHING or rule.resource in names
