"""What the journal keeps of one group's moves: how far it came, with evidence, so that any later run resumes there.

A record is an ordered list of *legs*: one for each link by which the group was moved, or is being moved: to the target,
back to the source, and forward again (docs/adr/0014). Only the newest leg is worked on. An undo takes the newest leg
back, and is none of its own.

A step with an effect has two entries, before and after (stopping and stopped, writing and written, starting and
started): a run that finds only the first knows that the effect may have happened. The record of a group is one value,
so it is never half new. Entries are history, not facts: whoever resumes proves again what can go stale (the group is
empty, its committed offsets are unchanged).

Only the owner of a group writes its record (docs/adr/0010). The key holds the owner's epoch, and readers take the
record of the highest: what a former owner still writes replaces nothing, and nobody reads it, compacted or not. The
first sign of life is seen by watches, which own nothing: it has a key of its own, and names the move it belongs to.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused, StateConflict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.looks import Commits, Look

if TYPE_CHECKING:
    from kafka_migration.kafka.types import CommittedOffset
    from kafka_migration.state.journal import Claim, Journal

#: The record of earlier versions, which had no owners; from the first owner on a mark that they do not take for one.
KIND = "group"
#: ``<group>/<owner epoch>``.
OWNED = "group-record"
SIGN = "group-alive"
FORMAT = 3
#: Formats 1 and 2 have the steps of a single leg, forward; format 1 has no owner.
_SINGLE = (1, 2)
#: What stands under ``KIND`` from the first owner on.
_MARK = {"format": 2, "kept": f"under {OWNED}"}

#: Attempts that were given up are kept for the report, the last few of them.
_KEPT_ATTEMPTS = 5

Policy = Literal["exact", "earliest", "cut"]


class Step(enum.StrEnum):
    """How far the move of a group came. The names are part of the state's format."""

    STOPPING = "stopping"
    STOPPED = "stopped"
    TRANSLATED = "translated"
    WRITING = "writing"
    WRITTEN = "written"
    READ_BACK = "read_back"
    STARTING = "starting"
    STARTED = "started"
    ALIVE = "alive"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """One partition's offset for a group on both clusters, as moved in ``direction``.

    On the origin it is the group's commit (None: it has none, see ``policy``), on the destination where it goes on.
    """

    tp: TopicPartition
    source: int | None
    target: int | None
    policy: Policy
    metadata: str = ""
    direction: Direction = Direction.FORWARD

    def __post_init__(self) -> None:
        if (self.origin is None) != (self.policy != "exact"):
            raise ValueError(f"exactly a committed offset is translated exactly: {self}")
        if self._ends()[1] is None:
            raise ValueError(f"an offset is translated to some offset: {self}")

    @classmethod
    def of(
        cls,
        direction: Direction,
        tp: TopicPartition,
        *,
        origin: int | None,
        destination: int,
        policy: Policy,
        metadata: str = "",
    ) -> Self:
        """The translation of ``origin``'s commit to ``destination``."""
        is_forward = direction is Direction.FORWARD
        source, target = (origin, destination) if is_forward else (destination, origin)
        return cls(tp=tp, source=source, target=target, policy=policy, metadata=metadata, direction=direction)

    @property
    def origin(self) -> int | None:
        """The group's commit where it is moved from."""
        return self._ends()[0]

    @property
    def destination(self) -> int:
        """Where it goes on, on the cluster that it is moved to."""
        found = self._ends()[1]
        if found is None:
            raise ValueError(f"an offset is translated to some offset: {self}")
        return found

    def _ends(self) -> tuple[int | None, int | None]:
        is_forward = self.direction is Direction.FORWARD
        return (self.source, self.target) if is_forward else (self.target, self.source)

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "source": self.source,
            "target": self.target,
            "policy": self.policy,
            "metadata": self.metadata,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], direction: Direction = Direction.FORWARD) -> Self:
        """The inverse of ``as_dict``."""
        return cls(
            tp=TopicPartition(value["topic"], value["partition"]),
            source=value["source"],
            target=value["target"],
            policy=value["policy"],
            metadata=value["metadata"],
            direction=direction,
        )


@dataclass(slots=True, kw_only=True)
class Leg:
    """One move of a group, by the link of ``direction`` and ``generation``: its steps with their evidence.

    ``earlier`` are attempts that were given up. ``owner_epoch`` is that of who wrote it last; -1 before owners were.
    """

    direction: Direction = Direction.FORWARD
    generation: int = 1
    owner_epoch: int = -1
    steps: dict[Step, dict[str, Any]] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)

    def has(self, step: Step) -> bool:
        """Whether the current attempt reached ``step``."""
        return step in self.steps

    def evidence(self, step: Step, name: str) -> Any:
        """One piece of a step's evidence, or None."""
        return self.steps.get(step, {}).get(name)

    def at(self, step: Step) -> datetime | None:
        """When ``step`` was reached."""
        return self.time(step, "at")

    def time(self, step: Step, name: str) -> datetime | None:
        """A time in a step's evidence."""
        value = self.evidence(step, name)
        return None if value is None else datetime.fromisoformat(value)

    @property
    def translations(self) -> tuple[Translation, ...]:
        """What was translated in the current attempt; empty before."""
        positions = self.evidence(Step.TRANSLATED, "positions") or ()
        return tuple(Translation.from_dict(position, self.direction) for position in positions)

    @property
    def is_done(self) -> bool:
        """Whether the group's offsets stand on the leg's destination, read back, and were not given up again."""
        return self.has(Step.READ_BACK) and not self.has(Step.UNDONE)

    @property
    def is_under_way(self) -> bool:
        """Whether the group was stopped, or is about to be, and its offsets stand where it came from."""
        return self.has(Step.STOPPING) and not self.has(Step.READ_BACK) and not self.has(Step.UNDONE)

    @property
    def is_unfinished(self) -> bool:
        """Whether the move is under way, or was begun to be taken back: something of it is left to do."""
        return self.is_under_way or (self.has(Step.UNDOING) and not self.has(Step.UNDONE))

    @property
    def is_stopped(self) -> bool:
        """Whether its consumers were stopped, as far as is known, and started on neither side since."""
        begun, ended = self.has(Step.STOPPING), self.has(Step.STARTED)
        return not self.has(Step.UNDONE) and (self.has(Step.UNDOING) or (begun and not ended))

    def is_of(self, direction: Direction, generation: int) -> bool:
        """Whether it is the move by that link."""
        return (self.direction, self.generation) == (direction, generation)

    def named_steps(self) -> dict[str, dict[str, Any]]:
        """Its steps as JSON types."""
        return {str(step): evidence for step, evidence in self.steps.items()}

    def as_dict(self) -> dict[str, Any]:
        return {
            "direction": str(self.direction),
            "generation": self.generation,
            "owner_epoch": self.owner_epoch,
            "steps": self.named_steps(),
            "earlier": self.earlier,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], sign: Mapping[str, Any] | None = None) -> Self:
        """The inverse of ``as_dict``, with the first sign of life if that is of this move."""
        return cls(
            direction=Direction(value["direction"]),
            generation=value["generation"],
            owner_epoch=value["owner_epoch"],
            steps=_steps_of(value, sign),
            earlier=list(value["earlier"]),
        )


@dataclass(slots=True)
class GroupRecord:
    """One group's record. Every change is durable in the journal when the method that made it returns.

    Only a record that was :meth:`own`-ed can be changed; its methods raise TakenOver once somebody else owns it. What
    is asked of the record itself is asked of its newest leg.
    """

    journal: Journal
    group: str
    subscription: frozenset[str] = frozenset()
    legs: list[Leg] = field(default_factory=lambda: [Leg()])
    claim: Claim | None = None

    @classmethod
    def load(cls, journal: Journal, group: str) -> Self:
        """The record of ``group``, to be read; an empty one if there is none. Raises StateConflict for an unknown
        format."""
        owned = {int(name): value for name, value in journal.all(f"{OWNED}/{group}").items() if name.isdigit()}
        value = owned[max(owned)] if owned else journal.read(KIND, group)
        return cls._of(journal, group, value, journal.read(SIGN, group), Look.load(journal, group))

    @classmethod
    def all(cls, journal: Journal) -> dict[str, Self]:
        """Every group's record."""
        values, epochs = journal.all(KIND), dict[str, int]()
        for name, value in journal.all(OWNED).items():
            group, _, owner_epoch = name.rpartition("/")
            if int(owner_epoch) > epochs.get(group, -1):
                values[group], epochs[group] = value, int(owner_epoch)
        signs, looks = journal.all(SIGN), Look.all(journal)
        names = dict.fromkeys((*values, *(group for group, look in looks.items() if look.subscription)))
        return {name: cls._of(journal, name, values.get(name), signs.get(name), looks.get(name)) for name in names}

    @classmethod
    def of(cls, journal: Journal, groups: Sequence[str]) -> dict[str, Self]:
        """The records of ``groups``, to be read, in few reads of the journal however many they are."""
        if len(groups) == 1:
            return {groups[0]: cls.load(journal, groups[0])}
        every = cls.all(journal)
        return {group: every.get(group) or cls(journal, group) for group in groups}

    @classmethod
    def own(cls, journal: Journal, group: str, *, at: str) -> Self:
        """Claim ``group``, and take over what is recorded of it. ``at`` is the wall clock as ISO-8601, for people.

        Loaded after the claim: what the owner of before wrote until then is not lost. Raises TakenOver if somebody else
        claims it now.
        """
        claim = journal.claim("group", group, at=at)
        record = cls.load(journal, group)
        record.claim = claim
        older = [name for name in journal.all(f"{OWNED}/{group}") if name.isdigit() and int(name) < claim.owner_epoch]
        gone = dict.fromkeys((OWNED, f"{group}/{name}") for name in older)
        journal.require(claim)
        journal.write({record._key(claim): record.as_dict(), (KIND, group): _MARK, **gone})
        return record

    @classmethod
    def _of(
        cls,
        journal: Journal,
        group: str,
        value: Mapping[str, Any] | None,
        sign: Mapping[str, Any] | None,
        look: Look | None,
    ) -> Self:
        seen = frozenset() if look is None else look.subscription
        if value is None or value == _MARK:
            return cls(journal, group, seen)
        try:
            return cls(journal, group, seen or frozenset(value["subscription"]), _legs_of(value, sign))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StateConflict(
                f"this version cannot read the journal's record of group {group} ({error})",
                remedy="use the version of this tool that wrote the record",
            ) from error

    # -- legs ---------------------------------------------------------------------------------------------------------

    @property
    def leg(self) -> Leg:
        """The newest one."""
        return self.legs[-1]

    @property
    def forward(self) -> Leg:
        """The newest one to the target; an empty one if there is none."""
        return self.newest(Direction.FORWARD)

    def newest(self, direction: Direction) -> Leg:
        """The newest one of that direction; an empty one if there is none."""
        return next((leg for leg in reversed(self.legs) if leg.direction is direction), Leg())

    @property
    def is_moved(self) -> bool:
        """Whether the group's offsets stand on the target, read back, and were neither given up nor moved back."""
        return next((leg.direction is Direction.FORWARD for leg in reversed(self.legs) if leg.is_done), False)

    @property
    def was_rolled_back(self) -> bool:
        """Whether it stands on the source after it was on the target, with the offsets that it had there."""
        return not self.is_moved and any(leg.is_done for leg in self.legs)

    def came_by_move(self, direction: Direction, generation: int) -> bool:
        """Whether a link before that of ``direction`` and ``generation`` moved the group, or was to."""
        return any(leg.steps and not leg.is_of(direction, generation) for leg in self.legs)

    def require_leg(self, direction: Direction, generation: int) -> None:
        """Raise Refused if the link of ``direction`` and ``generation`` is not the one to move the group: an earlier
        move is not finished, a later one was begun, or the group is where that link leads."""
        newest = self.leg
        if newest.is_of(direction, generation) or not newest.steps:
            return
        if _order(newest.direction, newest.generation) > _order(direction, generation):
            what = "was moved" if newest.is_done else "was to be moved" if newest.has(Step.UNDONE) else "is being moved"
            raise Refused(
                f"group {self.group} {what} back to the {newest.direction.destination} since (rollback)",
                remedy="leave it where it is, or finish that first (`rollback --group`); it goes forward again by the"
                " next generation of the forward link alone",
            )
        if newest.is_unfinished:
            raise Refused(
                f"group {self.group} is in the middle of its move to the {newest.direction.destination}",
                remedy=f"finish that first: `cutover --group {self.group}`, or `undo --group {self.group}`",
            )
        if self.is_moved is (direction is Direction.FORWARD):
            raise Refused(
                f"group {self.group} stands on the {direction.destination} already",
                remedy="there is nothing to move; `status` shows where groups stand",
            )

    def take_leg(self, direction: Direction, generation: int) -> None:
        """Work on the leg of that link from now on, a new one if need be. Raises what :meth:`require_leg` raises.

        It is written with its first step.
        """
        self.require_leg(direction, generation)
        if self.leg.is_of(direction, generation):
            return
        kept = self.legs if self.leg.steps or self.leg.earlier else self.legs[:-1]
        self.legs = [*kept, Leg(direction=direction, generation=generation)]

    # -- the newest leg, to be read -----------------------------------------------------------------------------------

    @property
    def steps(self) -> dict[Step, dict[str, Any]]:
        """Steps of the current attempt, with their evidence."""
        return self.leg.steps

    @property
    def earlier(self) -> list[dict[str, Any]]:
        """Attempts that were given up."""
        return self.leg.earlier

    def has(self, step: Step) -> bool:
        """Whether the current attempt reached ``step``."""
        return self.leg.has(step)

    def evidence(self, step: Step, name: str) -> Any:
        """One piece of a step's evidence, or None."""
        return self.leg.evidence(step, name)

    def at(self, step: Step) -> datetime | None:
        """When ``step`` was reached."""
        return self.leg.at(step)

    def time(self, step: Step, name: str) -> datetime | None:
        """A time in a step's evidence."""
        return self.leg.time(step, name)

    @property
    def translations(self) -> tuple[Translation, ...]:
        """What was translated in the current attempt; empty before."""
        return self.leg.translations

    @property
    def is_stopped(self) -> bool:
        """Whether its consumers were stopped, as far as is known, and started on neither side since."""
        return self.leg.is_stopped

    # -- the newest leg, to be changed --------------------------------------------------------------------------------

    def require_owner(self) -> None:
        """Raise TakenOver unless this record is still its owner's: asked right before everything that has an effect."""
        if self.claim is None:
            raise ValueError(f"the record of group {self.group} was loaded to be read, not owned")
        self.journal.require(self.claim)

    def mark(self, step: Step, at: datetime, **evidence: Any) -> None:
        """Record that ``step`` was reached at ``at``. ``evidence`` holds JSON types; times are ISO-8601."""
        self.leg.steps[step] = {"at": at.isoformat(), **evidence}
        self._write()

    def note_alive(self, at: datetime, *, sign: str, pause_seconds: float | None) -> None:
        """Record the first sign of life where it was moved to, as anybody may who sees it: it holds for this move
        only."""
        evidence = {"at": at.isoformat(), "sign": sign, "pause_seconds": pause_seconds}
        self.leg.steps[Step.ALIVE] = evidence
        self.journal.record(SIGN, self.group, {"of": self.steps[Step.READ_BACK]["at"], **evidence})

    def forget(self, *steps: Step) -> None:
        """Take steps back that hold no more."""
        if any(step in self.steps for step in steps):
            self.leg.steps = {step: evidence for step, evidence in self.steps.items() if step not in steps}
            self._write()

    def restart(self) -> None:
        """Give the current attempt up, and keep it as an earlier one."""
        if self.steps:
            self.leg.earlier = [*self.earlier, self.leg.named_steps()][-_KEPT_ATTEMPTS:]
            self.leg.steps = {}
            self._write()

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON types: what the journal holds."""
        return {
            "format": FORMAT,
            "owner": "" if self.claim is None else self.claim.owner,
            "subscription": sorted(self.subscription),
            "legs": [leg.as_dict() for leg in self.legs],
        }

    def _write(self) -> None:
        self.require_owner()
        if self.claim is not None:
            self.leg.owner_epoch = self.claim.owner_epoch
            self.journal.write({self._key(self.claim): self.as_dict()})

    def _key(self, claim: Claim) -> tuple[str, str]:
        return OWNED, f"{self.group}/{claim.owner_epoch}"


def _order(direction: Direction, generation: int) -> tuple[int, bool]:
    """Links in the order in which each begins behind the one before."""
    return generation, direction is Direction.REVERSE


def _legs_of(value: Mapping[str, Any], sign: Mapping[str, Any] | None) -> list[Leg]:
    if value["format"] in _SINGLE:
        return [Leg(steps=_steps_of(value, sign), earlier=list(value["earlier"]))]
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']}")
    legs = [Leg.from_dict(leg, sign) for leg in value["legs"]]
    if not legs:
        raise ValueError("it has no legs")
    return legs


def _steps_of(value: Mapping[str, Any], sign: Mapping[str, Any] | None) -> dict[Step, dict[str, Any]]:
    """The steps of a stored leg in their order, with the first sign of life if that is of the same move."""
    found = {Step(name): dict(evidence) for name, evidence in value["steps"].items()}
    if sign is not None and sign["of"] == found.get(Step.READ_BACK, {}).get("at"):
        found.setdefault(Step.ALIVE, {name: part for name, part in sign.items() if name != "of"})
    # Stored values keep no order.
    return {step: found[step] for step in Step if step in found}


def offsets_of(commits: Commits, translations: Iterable[Translation]) -> list[dict[str, Any]]:
    """What was read back of the translated partitions, as evidence: JSON types, in the order of ``translations``.

    Equal to what was written, except where an earlier run died before reading back and the group went on meanwhile
    (READ_BACK then has ``found``).
    """
    return [_offset(move.tp, commits[move.tp]) for move in translations]


def commits_as_evidence(commits: Commits) -> list[dict[str, Any]]:
    """Committed offsets as evidence of a step: JSON types, in order."""
    return [_offset(tp, commit) for tp, commit in sorted(commits.items())]


def commits_from_evidence(offsets: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The inverse: committed offsets by partition."""
    return {TopicPartition(row["topic"], row["partition"]): row["offset"] for row in offsets}


def _offset(tp: TopicPartition, commit: CommittedOffset) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, "offset": commit.offset}
