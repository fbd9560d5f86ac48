"""What was found: an exact count of each fault, and a few examples with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

Item = TypeVar("Item")


class Fault(StrEnum):
    """Each fault by the name that it has in the summary; docs/checker.md defines them."""

    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    READ_UNCOMMITTED = "read_uncommitted"
    TORN = "torn"
    COMMITS_BACKWARDS = "commits_backwards"
    SKIPPED = "skipped"
    PHANTOM = "phantom"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One instance of a fault.

    Attributes:
        text: a sentence for people.
        evidence: the same for machines: value, client, topic, partition, offsets, times, as far as they are known.
    """

    text: str
    evidence: dict[str, object]


@dataclass(slots=True)
class Findings:
    """Counts are exact; examples stop at ``limit`` for each fault."""

    limit: int = 5
    counts: Counter[Fault] = field(default_factory=Counter)
    examples: dict[Fault, list[Example]] = field(default_factory=dict)

    def add(self, fault: Fault, items: Iterable[Item], describe: Callable[[Item], Example]) -> None:
        """Count ``items``, each an instance of ``fault``, and describe the first of them."""
        kept = self.examples.setdefault(fault, [])
        for item in items:
            self.counts[fault] += 1
            if len(kept) < self.limit:
                kept.append(describe(item))
