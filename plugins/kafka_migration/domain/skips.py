"""What is not copied: source offsets of a halted partition that a person gave up, so that the rest can be copied, and
those before the place where the plan has the copy begin.

A skip only moves the position forward, to where a fence then opens a new run. So the offset map stays exact: an
offset in the skip maps to the first record behind it, as one in any other gap does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: In place of a halt's reason: the plan begins behind these offsets.
START = "START"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Source offsets ``start`` to ``end`` (not included) of one partition, given up ``by`` somebody, or by the plan.

    ``halt`` is the reason that the partition had halted for, or START; ``detail`` what was seen then. ``topic_key``
    is of the target topic that was copied into: what was given up of it is no matter for the next copy. ``at`` is
    ISO-8601, UTC.
    """

    start: int
    end: int
    halt: str
    detail: str
    by: str
    at: str
    topic_key: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a skip goes forward, by an offset at least: {self.start}..{self.end}")

    @property
    def offsets(self) -> int:
        """How many source offsets are given up: as many records at most, since offsets may hold none."""
        return self.end - self.start


def goes_on_at(skips: Iterable[Skip], source: int) -> int:
    """Where a copy at source offset ``source`` resumes: after every skip that contains its position."""
    for skip in sorted(skips, key=lambda skip: skip.start):
        if skip.start <= source < skip.end:
            source = skip.end
    return source
