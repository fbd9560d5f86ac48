"""From what is left over on either side to a class for each record. Pure, but for a search of the source.

In this order: the same content on both sides has changed places (in its partition: reorder; into another: misroute).
A record in another's stead that differs in a part of it was altered. What is left on the source is lost. What is left
on the target has been written twice if the source has it, and is foreign if not.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_migration.compare.digests import TARGET
from kafka_migration.compare.explain.fields import Record, altered, is_likely_the_same, shown
from kafka_migration.compare.explain.left import Content, Left, Leftovers, Thin
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Drilled, Example, Fault
from kafka_migration.compare.explain.thin import moved, thicken, with_rest
from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """What the source has of records that are on the target only: by identity of a :class:`Left`, where (its own
    partition first); of digests those that it has. ``note`` says what was not looked through."""

    places: Mapping[int, tuple[TopicPartition, int]] = field(default_factory=dict)
    digests: Collection[int] = ()
    note: str = ""


Search = Callable[[Collection[Left], Mapping[TopicPartition, Thin]], Originals]


@dataclass(frozen=True, slots=True)
class _Finding:
    """A fault, where to list it, and the records on both sides."""

    fault: Fault
    tp: TopicPartition
    place: int
    source: Left | None
    target: Left | None
    original: tuple[TopicPartition, int] | None = None
    detail: str = ""


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
    found: list[_Finding] = []
    thicken(left, places)
    lost, extra = _moved(left, found)
    lost, extra = _mutated(lost, extra, found)
    if by_place:
        found = _without_shifted(found, lost, extra, frozenset(by_place))
    found += [_Finding(Fault.LOSS, it.tp, it.place, it, None) for it in lost]
    in_rows = moved(left)
    extra_rows = left.thin_of(TARGET)
    originals = search(extra, extra_rows) if extra or extra_rows else Originals()
    for it in extra:
        original = originals.places.get(id(it))
        fault = Fault.FOREIGN if original is None else Fault.DUPLICATE
        found.append(_Finding(fault, it.tp, it.place, None, it, original, _extra_detail(it, original, originals.note)))
    by_partition: defaultdict[TopicPartition, list[_Finding]] = defaultdict(list)
    for finding in found:
        by_partition[finding.tp].append(finding)
    examples_of = {
        tp: [_example(it, places, private) for it in sorted(them, key=_order)[:examples]]
        for tp, them in by_partition.items()
    }
    counts = {tp: Counter(it.fault for it in them) for tp, them in by_partition.items()}
    for tp, more in with_rest(left, in_rows, originals.digests).items():
        counts.setdefault(tp, Counter()).update(more)
    for misplaced in left.misplaced:
        counts.setdefault(misplaced.tp, Counter())[Fault.MISPLACED] += 1
        mine = examples_of.setdefault(misplaced.tp, [])
        if len(mine) < examples:
            mine.append(_misplaced(misplaced.tp, misplaced.source, misplaced.target, misplaced.expected, private))
    return [
        Drilled(
            topic=tp.topic,
            partition=tp.partition,
            counts={fault: counts[tp][fault] for fault in Fault if counts[tp][fault]},
            examples=tuple(examples_of.get(tp, ())),
            notes=(originals.note,) if originals.note and counts[tp][Fault.FOREIGN] else (),
        )
        for tp in sorted(counts)
    ]


def _order(it: _Finding) -> tuple[int, int, int]:
    # A record that is wrong where it stands comes before one that stands in addition.
    return it.place, it.source is None, it.target.record.offset if it.target is not None else -1


def _moved(left: Leftovers, found: list[_Finding]) -> tuple[list[Left], list[Left]]:
    """Takes out what has an equal elsewhere; what is left of source and target."""
    waiting: defaultdict[tuple[TopicPartition, Content], deque[Left]] = defaultdict(deque)
    anywhere: defaultdict[Content, deque[Left]] = defaultdict(deque)
    for it in left.source:
        waiting[it.tp, it.record.content].append(it)
        anywhere[it.record.content].append(it)
    used: set[int] = set()
    extra = []
    for it in left.target:
        mine = waiting.get((it.tp, it.record.content))
        if mine:
            one = mine.popleft()
            used.add(id(one))
            found.append(_Finding(Fault.REORDER, it.tp, one.place, one, it))
        else:
            extra.append(it)
    still = []
    for it in extra:
        others = anywhere.get(it.record.content, deque())
        while others and id(others[0]) in used:
            others.popleft()
        if others:
            one = others.popleft()
            used.add(id(one))
            found.append(_Finding(Fault.MISROUTE, one.tp, one.place, one, it))
            found.append(_Finding(Fault.MISROUTE, it.tp, it.place, one, it))
        else:
            still.append(it)
    return [it for it in left.source if id(it) not in used], still


def _mutated(lost: Sequence[Left], extra: Sequence[Left], found: list[_Finding]) -> tuple[list[Left], list[Left]]:
    """Takes out what stands in another's stead, and is that record but for a part."""
    there = {id(it) for it in extra}
    used: set[int] = set()
    for it in lost:
        twin = it.twin
        if twin is not None and id(twin) in there and is_likely_the_same(it.record, twin.record):
            used |= {id(it), id(twin)}
            found.append(_Finding(Fault.MUTATION, it.tp, it.place, it, twin))
    return [it for it in lost if id(it) not in used], [it for it in extra if id(it) not in used]


def _without_shifted(
    found: Iterable[_Finding], lost: Iterable[Left], extra: Iterable[Left], by_place: frozenset[TopicPartition]
) -> list[_Finding]:
    first: dict[tuple[TopicPartition, bool], int] = {}
    for is_extra, them in ((False, lost), (True, extra)):
        for it in them:
            place = first.get((it.tp, is_extra), it.place)
            first[it.tp, is_extra] = min(place, it.place)

    def is_shifted(it: _Finding) -> bool:
        if it.fault is not Fault.REORDER or it.tp not in by_place or it.source is None or it.target is None:
            return False
        begins = first.get((it.tp, it.target.place > it.source.place))
        return begins is not None and min(it.source.place, it.target.place) >= begins

    return [it for it in found if not is_shifted(it)]


def _extra_detail(it: Left, original: tuple[TopicPartition, int] | None, note: str) -> str:
    if original is None:
        return "never was on the source" if not note else "not found on the source"
    tp, offset = original
    return f"partition {tp.partition} of the source has it at offset {offset}" if tp != it.tp else ""


def _example(it: _Finding, places: Mapping[TopicPartition, Places], private: bool) -> Example:
    source, target = it.source, it.target
    record = (source or target or it).record  # type: ignore[union-attr]
    home = source.tp if source is not None else it.tp
    elsewhere = target is not None and source is not None and target.tp != source.tp
    source_offset = source.record.offset if source is not None else None
    if it.original is not None and it.original[0] == it.tp:
        source_offset = it.original[1]
    return Example(
        fault=it.fault,
        topic=home.topic,
        partition=home.partition,
        source_offset=source_offset,
        target_offset=target.record.offset if target is not None else None,
        expected_target=None if source is None else places[home].target_of(source.record.offset),
        found_in=target.tp.partition if target is not None and elsewhere else None,
        source_timestamp=source.record.timestamp if source is not None else None,
        target_timestamp=target.record.timestamp if target is not None else None,
        key=shown(record.key, private=private),
        content=shown(record.value, private=private),
        altered=altered(source.record, target.record, private=private)
        if it.fault is Fault.MUTATION and source is not None and target is not None
        else (),
        detail=it.detail,
    )


def _misplaced(tp: TopicPartition, source: Record, target: Record, expected: int | None, private: bool) -> Example:
    return Example(
        fault=Fault.MISPLACED,
        topic=tp.topic,
        partition=tp.partition,
        source_offset=source.offset,
        target_offset=target.offset,
        expected_target=expected,
        source_timestamp=source.timestamp,
        target_timestamp=target.timestamp,
        key=shown(source.key, private=private),
        content=shown(source.value, private=private),
        detail="it and what follows it is equal, but not where the offset map says",
    )


def with_note(it: Drilled, note: str) -> Drilled:
    """``it``, and one more note."""
    return replace(it, notes=(*it.notes, note))
