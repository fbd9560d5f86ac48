"""What the journal remembers of one group's move: how far it came, by evidence, so that any later run goes on there.

A step that does something has two entries, before and after (stopping and stopped, writing and written, starting
and started): a run that finds only the first knows that the something may have happened. The record of a group is one
value, so it is never half new. Entries are history, not facts: whoever goes on from here proves again what can go
stale (the group is empty, its commits rest).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from kafka_migration.clusters.types import CommittedOffset
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.journal import Journal

KIND = "group"
FORMAT = 1

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
    """One group's record. Every change is durable in the journal when the method that made it returns."""

    journal: Journal
    group: str
    subscription: frozenset[str] = frozenset()
    steps: dict[Step, dict[str, Any]] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, journal: Journal, group: str) -> Self:
        """What is recorded of ``group``; an empty record if nothing is. Raises StateConflict for an unknown format."""
        value = journal.read(KIND, group)
        return cls(journal, group) if value is None else cls._of(journal, group, value)

    @classmethod
    def all(cls, journal: Journal) -> dict[str, Self]:
        """Every group's record."""
        return {group: cls._of(journal, group, value) for group, value in journal.all(KIND).items()}

    @classmethod
    def _of(cls, journal: Journal, group: str, value: Mapping[str, Any]) -> Self:
        try:
            if value["format"] != FORMAT:
                raise ValueError(f"format {value['format']}")
            found = {Step(name): dict(evidence) for name, evidence in value["steps"].items()}
            # Stored values keep no order; the steps have one.
            steps = {step: found[step] for step in Step if step in found}
            return cls(journal, group, frozenset(value["subscription"]), steps, list(value["earlier"]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StateConflict(
                f"the journal's record of group {group} is not one that this version knows ({error})",
                remedy="go on with the version of this tool that wrote it",
            ) from error

    def mark(self, step: Step, at: datetime, **evidence: Any) -> None:
        """Write down that ``step`` was reached at ``at``. ``evidence`` holds JSON types; times are ISO-8601."""
        self.steps[step] = {"at": at.isoformat(), **evidence}
        self._write()

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
        return tuple(Translation.from_dict(it) for it in self.evidence(Step.TRANSLATED, "positions") or ())

    @property
    def is_moved(self) -> bool:
        """Whether the group's offsets stand on the target, read back, and were not given up again."""
        return self.has(Step.READ_BACK) and not self.has(Step.UNDONE)

    def forget(self, *steps: Step) -> None:
        """Take steps back that hold no more."""
        if any(step in self.steps for step in steps):
            self.steps = {step: it for step, it in self.steps.items() if step not in steps}
            self._write()

    def restart(self) -> None:
        """Give the current attempt up, and keep it as an earlier one."""
        if self.steps:
            self.earlier = [*self.earlier, {str(step): it for step, it in self.steps.items()}][-_KEPT_ATTEMPTS:]
            self.steps = {}
            self._write()

    def remember_subscription(self, topics: Iterable[str]) -> None:
        """Keep what live members subscribed to: once they are gone, nobody else knows."""
        if self.see_subscription(topics):
            self._write()

    def see_subscription(self, topics: Iterable[str]) -> bool:
        """Take a subscription over without writing it down; True if it is another one than was known."""
        seen = frozenset(topics)
        if not seen or seen == self.subscription:
            return False
        self.subscription = seen
        return True

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON types: what the journal holds."""
        return {
            "format": FORMAT,
            "subscription": sorted(self.subscription),
            "steps": {str(step): it for step, it in self.steps.items()},
            "earlier": self.earlier,
        }

    def _write(self) -> None:
        self.journal.record(KIND, self.group, self.as_dict())


def offsets_of(
    commits: Mapping[TopicPartition, CommittedOffset], translations: Iterable[Translation]
) -> list[dict[str, Any]]:
    """What was read back of the translated partitions, as evidence: JSON types, in the order of ``translations``.

    Equal to what was written, except where an earlier run died before reading back and the group went on meanwhile
    (then READ_BACK says ``found``).
    """
    return [
        {"topic": it.tp.topic, "partition": it.tp.partition, "offset": commits[it.tp].offset} for it in translations
    ]


def commits_as_evidence(commits: Mapping[TopicPartition, CommittedOffset]) -> list[dict[str, Any]]:
    """Committed offsets as evidence of a step: JSON types, in order."""
    return [
        {"topic": tp.topic, "partition": tp.partition, "offset": commit.offset}
        for tp, commit in sorted(commits.items())
    ]


def remember_subscriptions(journal: Journal, subscriptions: Mapping[str, Iterable[str]]) -> None:
    """Keep what the live members of groups (by name) read, for when they are gone; empty ones change nothing."""
    known = GroupRecord.all(journal)
    changed = {}
    for group, topics in subscriptions.items():
        record = known.get(group) or GroupRecord(journal, group)
        if record.see_subscription(topics):
            changed[group] = record.as_dict()
    journal.record_all(KIND, changed)
