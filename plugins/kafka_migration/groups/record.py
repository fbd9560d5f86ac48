"""What the journal keeps of one group's move: how far it came, with evidence, so that any later run resumes there.

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

from kafka_migration.domain.errors import StateConflict
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
FORMAT = 2
_FORMATS = (1, FORMAT)

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
    """One partition's offset for a group: ``source`` is its commit there (None: it has none, see ``policy``)."""

    tp: TopicPartition
    source: int | None
    target: int
    policy: Policy
    metadata: str = ""

    def __post_init__(self) -> None:
        if (self.source is None) != (self.policy != "exact"):
            raise ValueError(f"exactly a committed offset is translated exactly: {self}")

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
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``as_dict``."""
        return cls(
            tp=TopicPartition(value["topic"], value["partition"]),
            source=value["source"],
            target=value["target"],
            policy=value["policy"],
            metadata=value["metadata"],
        )


@dataclass(slots=True)
class GroupRecord:
    """One group's record. Every change is durable in the journal when the method that made it returns.

    Only a record that was :meth:`own`-ed can be changed; its methods raise TakenOver once somebody else owns it.
    """

    journal: Journal
    group: str
    subscription: frozenset[str] = frozenset()
    steps: dict[Step, dict[str, Any]] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)
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
        mark = {"format": FORMAT, "kept": f"under {OWNED}"}
        journal.require(claim)
        journal.write({record._key(claim): record.as_dict(), (KIND, group): mark, **gone})
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
        if value is None or (value.get("format") == FORMAT and "steps" not in value):
            return cls(journal, group, seen)
        try:
            if value["format"] not in _FORMATS:
                raise ValueError(f"format {value['format']}")
            subscription = seen or frozenset(value["subscription"])
            return cls(journal, group, subscription, _steps_of(value, sign), list(value["earlier"]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StateConflict(
                f"this version cannot read the journal's record of group {group} ({error})",
                remedy="use the version of this tool that wrote the record",
            ) from error

    def require_owner(self) -> None:
        """Raise TakenOver unless this record is still its owner's: asked right before everything that has an effect."""
        if self.claim is None:
            raise ValueError(f"the record of group {self.group} was loaded to be read, not owned")
        self.journal.require(self.claim)

    def mark(self, step: Step, at: datetime, **evidence: Any) -> None:
        """Record that ``step`` was reached at ``at``. ``evidence`` holds JSON types; times are ISO-8601."""
        self.steps[step] = {"at": at.isoformat(), **evidence}
        self._write()

    def note_alive(self, at: datetime, *, sign: str, pause_seconds: float | None) -> None:
        """Record the first sign of life on the target, as anybody may who sees it: it holds for this move only."""
        evidence = {"at": at.isoformat(), "sign": sign, "pause_seconds": pause_seconds}
        self.steps[Step.ALIVE] = evidence
        self.journal.record(SIGN, self.group, {"of": self.steps[Step.READ_BACK]["at"], **evidence})

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
        return tuple(Translation.from_dict(position) for position in self.evidence(Step.TRANSLATED, "positions") or ())

    @property
    def is_moved(self) -> bool:
        """Whether the group's offsets stand on the target, read back, and were not given up again."""
        return self.has(Step.READ_BACK) and not self.has(Step.UNDONE)

    @property
    def is_stopped(self) -> bool:
        """Whether its consumers were stopped, as far as is known, and started on neither side since."""
        begun, ended = self.has(Step.STOPPING), self.has(Step.STARTED)
        return not self.has(Step.UNDONE) and (self.has(Step.UNDOING) or (begun and not ended))

    def forget(self, *steps: Step) -> None:
        """Take steps back that hold no more."""
        if any(step in self.steps for step in steps):
            self.steps = {step: evidence for step, evidence in self.steps.items() if step not in steps}
            self._write()

    def restart(self) -> None:
        """Give the current attempt up, and keep it as an earlier one."""
        if self.steps:
            self.earlier = [*self.earlier, self._named_steps()][-_KEPT_ATTEMPTS:]
            self.steps = {}
            self._write()

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON types: what the journal holds."""
        return {
            "format": FORMAT,
            "owner": "" if self.claim is None else self.claim.owner,
            "subscription": sorted(self.subscription),
            "steps": self._named_steps(),
            "earlier": self.earlier,
        }

    def _named_steps(self) -> dict[str, dict[str, Any]]:
        return {str(step): evidence for step, evidence in self.steps.items()}

    def _write(self) -> None:
        self.require_owner()
        if self.claim is not None:
            self.journal.write({self._key(self.claim): self.as_dict()})

    def _key(self, claim: Claim) -> tuple[str, str]:
        return OWNED, f"{self.group}/{claim.owner_epoch}"


def _steps_of(value: Mapping[str, Any], sign: Mapping[str, Any] | None) -> dict[Step, dict[str, Any]]:
    """The steps of a stored record in their order, with the first sign of life if that is of the same move."""
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
