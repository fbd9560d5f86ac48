"""From what is left over on either side to a class for each record. Pure, but for a search of the source.

In this order: the same content on both sides has changed places (in its partition: reorder; into another: misroute).
A record in another's stead that differs in a part of it was altered. What is left on the source is lost. What is left
on the target has been written twice if the source has it, and is foreign if not.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import altered, is_likely_the_same, shown
from kafka_migration.compare.explain.left import Left, Leftovers, Row
from kafka_migration.compare.explain.originals import Original, Originals
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Altered, Drilled, Example, Fault
from kafka_migration.domain.types import TopicPartition

Search = Callable[[Collection[Left], Mapping[TopicPartition, Row]], Originals]


@dataclass(frozen=True, slots=True)
class _Finding:
    """A fault, where to list it, and the records on both sides: at least one. ``original`` is where the source has
    what the target has once more."""

    fault: Fault
    tp: TopicPartition
    place: int
    source: Left | None
    target: Left | None
    original: Original | None = None
    detail: str = ""

    @property
    def record(self) -> Left:
        """What it is about: the source's record, if there is one."""
        found = self.source or self.target
        if found is None:
            raise ValueError(f"a finding of no record: {self}")
        return found

    @property
    def order(self) -> tuple[bool, int, bool, int]:
        """By place. A record that is wrong where it stands comes before one that stands in addition."""
        if self.fault is Fault.MISPLACED:
            return True, 0, False, 0
        at = self.target.record.offset if self.target is not None else -1
        return False, self.place, self.source is None, at


_Pass = Callable[[Sequence[Left], Sequence[Left]], Iterator[_Finding]]


def classify(
    left: Leftovers,
    places: Mapping[TopicPartition, Places],
    search: Search,
    *,
    examples: int,
    private: bool,
    by_place: Collection[TopicPartition] = (),
) -> list[Drilled]:
    """What is wrong in each partition of a topic, at most so many ``examples`` of each; those with nothing left out.

    ``by_place`` were followed by place: a loss there has shifted what comes after it, too.
    """
    left.make_whole(places)
    found, lost, extra = _passes(left, (_reordered, _misrouted, _mutated))
    found = _without_shifted(found, lost, extra, by_place)
    found += [_Finding(Fault.LOSS, one.tp, one.place, one, None) for one in lost]
    in_rows = left.take_moved()
    extra_rows = left.rows_of(TARGET)
    originals = search(extra, extra_rows) if extra or extra_rows else Originals()
    found += [_of_target_only(one, originals) for one in extra]
    found += [_misplaced(source, target) for source, target in left.misplaced]
    left.count_rest(in_rows, originals.digests)
    of_partition: defaultdict[TopicPartition, list[_Finding]] = defaultdict(list)
    for finding in sorted(found, key=lambda one: one.order):
        of_partition[finding.tp].append(finding)
    return [
        _drilled(
            tp,
            Counter(finding.fault for finding in of_partition[tp]) + in_rows[tp],
            [_example(finding, places, private) for finding in of_partition[tp][:examples]],
            originals.note,
        )
        for tp in sorted(of_partition.keys() | in_rows.keys())
    ]


def _drilled(tp: TopicPartition, counts: Counter[Fault], examples: Iterable[Example], note: str) -> Drilled:
    """Of one partition; ``note`` names where no original was looked for."""
    return Drilled(
        topic=tp.topic,
        partition=tp.partition,
        counts={fault: counts[fault] for fault in Fault if counts[fault]},
        examples=tuple(examples),
        notes=(note,) if note and counts[Fault.FOREIGN] else (),
    )


def _passes(left: Leftovers, passes: Iterable[_Pass]) -> tuple[list[_Finding], list[Left], list[Left]]:
    """Findings of one pass after the other, each over what those before it left; and what all left on both sides."""
    found: list[_Finding] = []
    lost, extra = left.of(SOURCE), left.of(TARGET)
    for one_pass in passes:
        new = list(one_pass(lost, extra))
        used = {one for finding in new for one in (finding.source, finding.target)}
        lost, extra = [one for one in lost if one not in used], [one for one in extra if one not in used]
        found += new
    return found, lost, extra


def _reordered(lost: Sequence[Left], extra: Sequence[Left]) -> Iterator[_Finding]:
    for source, target in _equal(lost, extra, lambda one: (one.tp, one.record.content)):
        yield _Finding(Fault.REORDER, target.tp, source.place, source, target)


def _misrouted(lost: Sequence[Left], extra: Sequence[Left]) -> Iterator[_Finding]:
    for source, target in _equal(lost, extra, lambda one: one.record.content):
        yield _Finding(Fault.MISROUTE, source.tp, source.place, source, target)
        yield _Finding(Fault.MISROUTE, target.tp, target.place, source, target)


def _mutated(lost: Sequence[Left], extra: Sequence[Left]) -> Iterator[_Finding]:
    """What stands in another's stead, and is that record but for a part."""
    there = set(extra)
    for source in lost:
        twin = source.twin
        if twin is not None and twin in there and is_likely_the_same(source.record, twin.record):
            yield _Finding(Fault.MUTATION, source.tp, source.place, source, twin)


def _equal(lost: Iterable[Left], extra: Iterable[Left], key: Callable[[Left], Any]) -> Iterator[tuple[Left, Left]]:
    """Pairs of source and target with the same ``key``, each record once, in the target's order."""
    waiting: defaultdict[Any, deque[Left]] = defaultdict(deque)
    for source in lost:
        waiting[key(source)].append(source)
    for target in extra:
        if sources := waiting.get(key(target)):
            yield sources.popleft(), target


def _without_shifted(
    found: Iterable[_Finding], lost: Iterable[Left], extra: Iterable[Left], by_place: Collection[TopicPartition]
) -> list[_Finding]:
    begins: dict[tuple[TopicPartition, str], int] = {}
    for one in (*lost, *extra):
        begins[one.tp, one.side] = min(begins.get((one.tp, one.side), one.place), one.place)

    def is_shifted(finding: _Finding) -> bool:
        source, target = finding.source, finding.target
        if finding.fault is not Fault.REORDER or finding.tp not in by_place or source is None or target is None:
            return False
        # Behind a record in addition all others stand later, behind a lost one earlier.
        begin = begins.get((finding.tp, TARGET if target.place > source.place else SOURCE))
        return begin is not None and min(source.place, target.place) >= begin

    return [finding for finding in found if not is_shifted(finding)]


def _of_target_only(target: Left, originals: Originals) -> _Finding:
    original = originals.places.get(target)
    if original is None:
        detail = "not found on the source" if originals.note else "never was on the source"
        return _Finding(Fault.FOREIGN, target.tp, target.place, None, target, detail=detail)
    tp, offset = original
    detail = f"partition {tp.partition} of the source has it at offset {offset}" if tp != target.tp else ""
    return _Finding(Fault.DUPLICATE, target.tp, target.place, None, target, original, detail)


def _misplaced(source: Left, target: Left) -> _Finding:
    detail = "this record and those behind it are equal, but do not stand where the offset map has them"
    return _Finding(Fault.MISPLACED, source.tp, source.place, source, target, detail=detail)


def _example(finding: _Finding, places: Mapping[TopicPartition, Places], private: bool) -> Example:
    source, target, home = finding.source, finding.target, finding.record.tp
    record = finding.record.record
    source_offset, source_timestamp = _stands(source)
    target_offset, target_timestamp = _stands(target)
    if finding.original is not None and finding.original[0] == finding.tp:
        source_offset = finding.original[1]
    parts: tuple[Altered, ...] = ()
    if finding.fault is Fault.MUTATION and source is not None and target is not None:
        parts = altered(source.record, target.record, private=private)
    return Example(
        fault=finding.fault,
        topic=home.topic,
        partition=home.partition,
        source_offset=source_offset,
        target_offset=target_offset,
        expected_target=None if source is None else places[home].target_of(source.record.offset),
        found_in=target.tp.partition if target is not None and target.tp != home else None,
        source_timestamp=source_timestamp,
        target_timestamp=target_timestamp,
        key=shown(record.key, private=private),
        content=shown(record.value, private=private),
        altered=parts,
        detail=finding.detail,
    )


def _stands(left: Left | None) -> tuple[int | None, int | None]:
    """Offset and timestamp of a record, None if there is none."""
    return (None, None) if left is None else (left.record.offset, left.record.timestamp)
