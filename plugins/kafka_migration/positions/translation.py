"""Translating positions that somebody else keeps, by the offset map, in either direction, and naming those that it
cannot translate exactly.

The map of a link is exact both ways, and those of all links of a migration, one behind the other, say where each
position stands (:mod:`kafka_migration.domain.generations`). A position that names a record leads to that very record,
and back to the same number. One that names none (a transaction marker, an aborted record, what compaction removed)
leads to the first record behind it, where a consumer that stands there goes on; that record's own number leads back.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import SOURCE, TARGET, Direction
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.generations import Generations
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Halt, PartitionEnds, TopicPartition
from kafka_migration.link import readers
from kafka_migration.positions.texts import Position

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context

_ACCEPT = "add --accept-expired to begin at the first record behind it"


class How(enum.StrEnum):
    """What a translated position is; the words are shown."""

    EXACT = "exact"
    GAP = "next record"
    EXPIRED = "next record, expired"
    STAYS = "stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """``back``: from target to source. ``accept_expired``: a position whose record the other cluster does not have, and
    never will, leads to the first record behind it. Positions of ``kept`` topics stay as they are: they are of another
    cluster."""

    back: bool = False
    accept_expired: bool = False
    kept: Container[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A position, and the number that takes its place; None where there is a ``problem``."""

    position: Position
    offset: int | None
    how: How | None = None
    problem: str = ""
    remedy: str = ""


class NotExact(Refused):
    """Positions that cannot be translated exactly. Nothing was written."""

    def __init__(self, source: str, found: Sequence[tuple[str, Translated]], of: int) -> None:
        self.positions = tuple(one for _, one in found)
        details = listed(
            (f"{place} ({one.position.tp}, {one.position.offset}): {one.problem}" for place, one in found),
            separator="; ",
        )
        super().__init__(
            f"{source}: {len(found)} of {of} positions cannot be translated exactly, so nothing was written: {details}",
            remedy="; ".join(dict.fromkeys(one.remedy for _, one in found)),
        )


def require_same_names(ctx: Context) -> None:
    """Raises BadInput under a plan that renames topics: where positions are kept, only their numbers are replaced."""
    if not ctx.plan.topic_names.are_same:
        raise BadInput(
            "the plan renames topics, and what keeps positions would have to name them as the other cluster does",
            field="naming",
            remedy="translate what its group has committed (`translate --group`), or positions one by one"
            " (`translate --offset`)",
        )


@dataclass(slots=True)
class Translator:
    """The maps and ends that translations rest on, as they were when they were first asked for."""

    ctx: Context
    rules: Rules
    _maps: dict[TopicPartition, OffsetMap | Generations] = field(default_factory=dict)
    _newest: dict[TopicPartition, Direction] = field(default_factory=dict)
    _ends: dict[tuple[str, TopicPartition], PartitionEnds] = field(default_factory=dict)
    _partitions: dict[str, int] = field(default_factory=dict)
    _skips: dict[TopicPartition, list[Skip]] = field(default_factory=dict)
    _recreated: dict[str | TopicPartition, str] = field(default_factory=dict)

    @property
    def origin(self) -> Cluster:
        """The cluster whose positions are translated."""
        return self.ctx.target if self.rules.back else self.ctx.source

    @property
    def destination(self) -> Cluster:
        """The cluster for which they are translated."""
        return self.ctx.source if self.rules.back else self.ctx.target

    def translated(self, positions: Iterable[Position]) -> list[Translated]:
        """Each of ``positions``, in order. Raises CouldNotFindOut if a cluster that has to be asked does not answer."""
        wanted = list(positions)
        moving = sorted({one.tp for one in wanted if not self._stays(one)})
        self._read_links(moving)
        self._recreated = self._others({tp.topic for tp in moving if tp in self._maps})
        self._ask_ends(self.destination, [tp for tp in moving if tp in self._maps])
        unmapped = sorted({tp.topic for tp in moving if tp not in self._maps})
        if unmapped:
            there = self.origin.topics(unmapped)
            self._partitions |= {name: there[name].partitions if name in there else 0 for name in unmapped}
        odd = {one.tp for one in wanted if one.tp in self._maps and not self._is_inside(one)}
        self._ask_ends(self.origin, sorted(odd))
        return [self._one(position) for position in wanted]

    def note_output(self, found: Iterable[Translated], output: str) -> None:
        """Note that ``found`` is about to be written to ``output``, where readers on the target begin by it."""
        if not self.rules.back:
            moving = {one.position.tp.topic for one in found if one.how not in (None, How.STAYS)}
            readers.note(self.ctx, moving, output=output)

    def _read_links(self, moving: Sequence[TopicPartition]) -> None:
        """The maps of all links that have begun, and what those of them gave up that read the clusters positions are
        translated from. A partition that no later link copies has the map of those before."""
        # Whoever asks for help only needs no client of Kafka.
        from kafka_migration.link import reverse

        self._skips = {}
        for here in reverse.all_begun(self.ctx):
            found = reverse.offset_maps(here, moving)
            self._maps |= found
            self._newest |= dict.fromkeys(found, here.direction)
            if here.direction is self._direction:
                for tp, skips in here.link.skips().items():
                    self._skips.setdefault(tp, []).extend(skips)

    def _others(self, topics: Collection[str]) -> dict[str | TopicPartition, str]:
        """Topics, and partitions, that are others by now than those that the maps are of; and why. The source, which
        may be gone after a migration, is not asked: what a mirror noticed there is in its halts."""
        link = self.ctx.link
        pinned = {name: topic.ids[1] for name, topic in link.topics().items() if name in topics}
        known = {name: id for name, id in pinned.items() if id}
        there = self.ctx.target.topics(known)
        found: dict[str | TopicPartition, str] = {
            name: "the target has another topic of this name than the one that was mirrored"
            for name, id in known.items()
            if name in there and there[name].topic_id not in ("", id)
        }
        for tp, halt in link.halts().items():
            if halt.reason in (Halt.RECREATED, Halt.TRUNCATED):
                what = tp.topic if halt.reason == Halt.RECREATED else tp
                found[what] = f"its mirror halted: {halt.reason}: {halt.detail}"
        return found

    @property
    def _direction(self) -> Direction:
        return Direction.REVERSE if self.rules.back else Direction.FORWARD

    def _stays(self, position: Position) -> bool:
        return position.is_symbolic or position.tp.topic in self.rules.kept

    def _is_inside(self, position: Position) -> bool:
        """Whether the map alone has the answer."""
        return self._stays(position) or self._first(position.tp) <= _next(position) <= self._end(position.tp)

    def _ask_ends(self, cluster: Cluster, tps: Sequence[TopicPartition]) -> None:
        new = [tp for tp in tps if (cluster.role, tp) not in self._ends]
        if new:
            self._ends |= {(cluster.role, tp): ends for tp, ends in cluster.ends(new).items()}

    def _one(self, position: Position) -> Translated:
        if self._stays(position):
            return Translated(position=position, offset=position.offset, how=How.STAYS)
        if position.tp not in self._maps:
            return self._unmapped(position)
        if problem := self._recreated.get(position.tp.topic) or self._recreated.get(position.tp):
            remedy = "see `status`; once the topic was mirrored again (`mirror --again`), translate positions in it"
            return Translated(position=position, offset=None, problem=problem, remedy=remedy)
        after, end = _next(position), self._end(position.tp)
        if after > end:
            return self._beyond(position, after, end)
        if self._is_lost(position.tp, after):
            return self._expired(position, self._there(position.tp, after), "the mirror has no record that it names")
        found = self._there(position.tp, after)
        start = self._ends[self.destination.role, position.tp].start
        if found < start:
            why = f"{self.destination.role} offset {found} lies before the log start {start} there"
            return self._expired(position, start, why)
        is_exact = self._back(position.tp, found) == after
        if position.is_last_read:
            return self._last_read(position, found)
        return Translated(position=position, offset=found, how=How.EXACT if is_exact else How.GAP)

    def _last_read(self, position: Position, after: int) -> Translated:
        """The place of that very record; else the one before the next to be read: its reader goes on right behind."""
        there = self._there(position.tp, position.offset)
        is_record = there < after and self._back(position.tp, there) == position.offset
        offset = there if is_record else after - 1
        return Translated(position=position, offset=offset, how=How.EXACT if is_record else How.GAP)

    # -- what has no exact answer -----------------------------------------------------------------------------------

    def _unmapped(self, position: Position) -> Translated:
        topic, partition = position.tp
        partitions = self._partitions[topic]
        if not self.ctx.plan.topics.matches(topic):
            problem = "the plan does not select this topic"
            remedy = "add it to topics.include of the plan, or keep its positions as they are: --keep-topic TOPIC"
        elif not partitions:
            problem, remedy = f"the {self.origin.role} has no such topic", "correct the topic"
        elif partition >= partitions:
            problem = f"the {self.origin.role} has {partitions} partitions of this topic"
            remedy = "correct the partition"
        else:
            problem, remedy = "nothing of this partition is mirrored yet", "mirror the topic, then translate again"
        return Translated(position=position, offset=None, problem=problem, remedy=remedy)

    def _beyond(self, position: Position, after: int, end: int) -> Translated:
        role = self.origin.role
        log_end = self._ends[role, position.tp].high_watermark
        if after > log_end:
            problem = f"{role} offset {after} lies beyond the log end {log_end}"
            remedy = f"check that these are positions of the {role}, and that the topic was not created again"
        else:
            problem = f"{role} offset {after} lies beyond the mirror's position {end}"
            remedy = self._once_it_is_copied(self._newest[position.tp])
        return Translated(position=position, offset=None, problem=problem, remedy=remedy)

    def _once_it_is_copied(self, newest: Direction) -> str:
        """What to do about a record that no link has copied; ``newest`` copies the partition now."""
        if newest is self._direction:
            mirror = "the reverse mirror (`mirror --reverse`)" if self.rules.back else "the mirror"
            return f"wait until {mirror} has copied up to it, then translate again"
        remedy = f"what others write to the {self.origin.role} has no place on the {self.destination.role}"
        return f"{remedy} before a reverse link copies it (`mirror --reverse`)" if self.rules.back else remedy

    def _expired(self, position: Position, after: int, why: str) -> Translated:
        if not self.rules.accept_expired:
            return Translated(position=position, offset=None, problem=f"expired: {why}", remedy=_ACCEPT)
        return Translated(position=position, offset=after - position.is_last_read, how=How.EXPIRED)

    def _is_lost(self, tp: TopicPartition, after: int) -> bool:
        """Whether a consumer at ``after`` would miss records that the map knows nothing of: gone before they were
        copied, or given up."""
        if after < self._first(tp) and after < self._ends[self.origin.role, tp].start:
            return True
        return any(skip.start <= after < skip.end for skip in self._skips.get(tp, ()))

    # -- the map, in either direction -------------------------------------------------------------------------------

    def _there(self, tp: TopicPartition, offset: int) -> int:
        found = self._maps[tp]
        return found.to_source(offset) if self.rules.back else found.to_target(offset)

    def _back(self, tp: TopicPartition, offset: int) -> int:
        found = self._maps[tp]
        return found.to_target(offset) if self.rules.back else found.to_source(offset)

    def _first(self, tp: TopicPartition) -> int:
        """The offset of the first record of the map, or its end if there is none."""
        run = next(self._maps[tp].runs(), None)
        return self._end(tp) if run is None else run.target if self.rules.back else run.source

    def _end(self, tp: TopicPartition) -> int:
        return self._maps[tp].target_end if self.rules.back else self._maps[tp].source_end


def _next(position: Position) -> int:
    """The offset that a reader which stands there reads next."""
    return position.offset + position.is_last_read


def row(one: Translated, *, where: str, back: bool) -> dict[str, Any]:
    """``one`` as JSON types; ``source`` and ``target`` are the clusters', whichever was read."""
    given, other = (TARGET, SOURCE) if back else (SOURCE, TARGET)
    return {
        "where": where,
        "topic": one.position.tp.topic,
        "partition": one.position.tp.partition,
        given: one.position.offset,
        other: one.offset,
        "how": None if one.how is None else str(one.how),
        "problem": one.problem,
    }


def offsets(found: Iterable[Translated]) -> Mapping[Position, int]:
    """What :func:`~kafka_migration.positions.texts.rewritten` replaces. Raises ValueError for one with a problem."""
    out = {}
    for one in found:
        if one.offset is None:
            raise ValueError(f"{one.position} is not translated: {one.problem}")
        out[one.position] = one.offset
    return out
