"""Compacted logs: what the cleaner may take is no difference, whatever it took on either side, and all else is."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kafka_migration.compare.decode.columns import columns_of
from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.drill import Drill, Found, Scope
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.records import by_key
from kafka_migration.compare.records.compacted import BEHIND, NOT_MIRRORED, Missing, Seen, is_explained
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import parts
from kafka_migration.domain.offset_map import Run
from tests.compare.drill_sides import LATER, NOW, TOPIC, Sparse
from tests.mutation.logs import Content

_DAY = 86_400_000
_MARKER = 1


def _seen(source: Iterable[int], target: Iterable[int]) -> Seen:
    return Seen(places={SOURCE: set(source), TARGET: set(target)})


@pytest.mark.parametrize(
    ("seen", "tombstone", "age", "explained"),
    [
        (_seen([], [5]), False, _DAY, False),
        (_seen([9], [5]), False, _DAY, True),
        (_seen([], [5, 9]), False, _DAY, True),
        (_seen([BEHIND], [5]), False, 0, True),
        (_seen([], [5, BEHIND]), False, 0, True),
        (_seen([3], [3, 5]), False, _DAY, False),
        (_seen([], [5]), True, _DAY, True),
        (_seen([], [5]), True, _DAY - 1, False),
        (_seen([], [5]), True, -1, True),
        (_seen([3], [3, 5]), True, _DAY, False),
        (_seen([5], [5]), False, 0, True),
        (_seen([], []), False, 0, True),
    ],
    ids=[
        "its newest record",
        "a newer one on this side",
        "a newer one on the other side",
        "a newer one behind the pinned end",
        "a newer one behind the end of the other side",
        "an older one is left",
        "a tombstone, old enough",
        "a tombstone, too young",
        "a tombstone of a time that is yet to come",
        "a tombstone whose older record is left",
        "there by now",
        "gone on both sides by now",
    ],
)
def test_record_may_be_gone_if_a_cleaner_could_have_taken_it(seen, tombstone, age, explained):
    it = Missing(place=5, key=b"k", is_tombstone=tombstone, timestamp=NOW)
    assert is_explained(it, seen, missing_on=SOURCE, now_ms=NOW + age, tombstones_ms=_DAY) is explained


def _log(chance: random.Random, count: int) -> dict[int, Content]:
    """Changes of a few keys, with gaps."""
    return {
        at: Content(
            b"k%d" % chance.randrange(12), None if chance.random() < 0.2 else b"%d" % at, ((b"n", b"1"),), NOW + at
        )
        for at in range(count)
        if chance.random() < 0.9
    }


def _cleaned(log: Mapping[int, Content], chance: random.Random, upto: int) -> dict[int, Content]:
    """What a pass of the cleaner leaves: it knows the newest record of each key below ``upto``, and cleans up to there;
    tombstones go once nothing older is left."""
    newest = {one.key: at for at, one in sorted(log.items()) if at < upto}
    left = {at: one for at, one in log.items() if at >= upto or newest[one.key] == at}
    if chance.random() < 0.5:
        first = {one.key: at for at, one in sorted(left.items(), reverse=True)}
        left = {at: one for at, one in left.items() if at >= upto or one.value is not None or first[one.key] != at}
    return left


def _range(written: Mapping[int, Content], pinned: int, **more: object) -> PartitionRange:
    """A map that puts every record one further, behind a fence's marker."""
    runs = tuple(Run(at, at + _MARKER, 1) for at in sorted(written) if at < pinned)
    return PartitionRange(
        topic=TOPIC,
        partition=0,
        source_start=0,
        source_end=pinned,
        target_start=0,
        target_end=pinned + _MARKER,
        runs=Runs(runs),
        compacted=True,
        **more,  # type: ignore[arg-type]
    )


def _on_target(log: Mapping[int, Content], end: int) -> Sparse:
    return Sparse({at + _MARKER: one for at, one in log.items()}, end + _MARKER)


def _drilled(source: Sparse, target: Sparse, it: PartitionRange, *, mirrored: int = 0) -> Found:
    drill = Drill(
        source,
        target,
        [it],
        examples=5,
        now_ms=lambda: LATER,
        mirrored=lambda _: mirrored,
        ends=lambda side, tp: (source if side == SOURCE else target).ends(tp),
    )
    return drill.topic([Scope(range=it, spans=((0, it.source_end),))])


def _missing(source: Sparse, target: Sparse, it: PartitionRange) -> set[int]:
    mine = {at for at in source.records if at < it.source_end}
    theirs = {at - _MARKER for at in target.records if at < it.target_end}
    return mine ^ theirs


@pytest.mark.parametrize(
    ("seen", "tombstone", "explained"),
    [
        (_seen([5], []), False, False),
        (_seen([5, 9], []), False, True),
        (_seen([5, BEHIND], []), False, True),
        (_seen([5, NOT_MIRRORED], []), False, False),
        (_seen([5], [9]), False, True),
        (_seen([5], [BEHIND]), False, True),
        (_seen([5, NOT_MIRRORED], []), True, True),
        (_seen([5, NOT_MIRRORED], [3]), True, False),
    ],
    ids=[
        "its newest record",
        "a newer one that was mirrored",
        "a newer one behind the pinned end that was mirrored",
        "a newer one that only the source has had",
        "a newer one on this side",
        "a newer one behind the end of this side",
        "a tombstone, old enough",
        "a tombstone whose older record is left",
    ],
)
def test_record_may_be_gone_from_the_target_only_for_what_the_target_has_had(seen, tombstone, explained):
    it = Missing(place=5, key=b"k", is_tombstone=tombstone, timestamp=NOW)
    assert is_explained(it, seen, missing_on=TARGET, now_ms=NOW + _DAY, tombstones_ms=_DAY) is explained
    # The source has had all that the target has.
    other = _seen(seen.places[TARGET], seen.places[SOURCE])
    if explained:
        assert is_explained(it, other, missing_on=SOURCE, now_ms=NOW + _DAY, tombstones_ms=_DAY)


def test_drill_down_does_not_take_a_record_that_is_not_mirrored_yet_for_the_reason_of_a_loss():
    log = {at: Content(b"k%d" % (at % 10), b"%d" % at, (), NOW + at) for at in range(40)}
    target = {at: one for at, one in log.items() if at < 30 and at != 25}
    it = _range(log, 30, target_compacted=True)
    for mirrored, lost in ((30, True), (35, True), (36, False)):
        (found,) = _drilled(Sparse(log, 40), _on_target(target, 30), it, mirrored=mirrored).drilled
        assert found.counts == ({Fault.LOSS: 1} if lost else {}), mirrored
        if lost:
            assert found.first is not None
            assert found.first.source_offset == 25


@pytest.mark.parametrize("both", [False, True], ids=["source compacted", "both compacted"])
def test_whatever_compaction_took_is_explained(both):
    for seed in range(150):
        chance = random.Random(seed)
        count, pinned = 200, 140
        log = _log(chance, count)
        source, target = dict(log), dict(log)
        for _ in range(chance.randrange(1, 4)):
            source = _cleaned(source, chance, chance.randrange(20, count + 1))
            if both:
                target = _cleaned(target, chance, chance.randrange(20, count + 1))
        it = _range(log, pinned, target_compacted=both)
        sides = Sparse(source, count), _on_target(target, count)
        found = _drilled(*sides, it, mirrored=count)
        assert found.drilled[0].counts == {}, (seed, found.drilled[0].text)
        assert found.explained[it.tp] == _missing(*sides, it), seed


def test_fault_on_a_compacted_log_is_found_beside_what_compaction_took():
    for seed in range(60):
        chance = random.Random(seed)
        log = _log(chance, 200)
        source = _cleaned(log, chance, 150)
        it = _range(log, 200)
        target = dict(log)
        left = sorted(at for at in source if source[at].value is not None)
        at, what = chance.choice(left), seed % 3
        if what == 0:
            del target[at]
            expected = Fault.LOSS
        elif what == 1:
            target[at] = target[at]._replace(value=b"altered")
            expected = Fault.MUTATION
        else:
            gone = sorted(set(log) - set(source))
            at = chance.choice(gone)
            # Of a key that nobody deleted, and that has no newer record.
            target[at] = Content(b"foreign", b"x", (), NOW)
            expected = Fault.FOREIGN
        found = _drilled(Sparse(source, 200), _on_target(target, 200), it)
        assert found.drilled[0].counts == {expected: 1}, (seed, found.drilled[0].text)
        first = found.drilled[0].examples[0]
        assert (first.source_offset, first.target_offset) == {
            Fault.LOSS: (at, None),
            Fault.MUTATION: (at, at + _MARKER),
            Fault.FOREIGN: (None, at + _MARKER),
        }[expected]


def test_loss_that_shifts_a_compacted_log_is_one_loss():
    log = {at: Content(b"k%d" % at, b"v%d" % at, (), NOW + at) for at in range(100)}
    shifted = {at if at < 40 else at - 1: one for at, one in log.items() if at != 40}
    found = _drilled(Sparse(log, 100), _on_target(shifted, 99), replace(_range(log, 100), target_end=100))
    assert found.drilled[0].counts == {Fault.LOSS: 1}
    assert found.drilled[0].examples[0].source_offset == 40


def _place(side: str, at: int, pinned: int, mirrored: int) -> int:
    if at < pinned:
        return at
    return NOT_MIRRORED if side == SOURCE and at >= mirrored else BEHIND


@pytest.mark.parametrize("stretches", [1, 4])
def test_tasks_settle_by_keys_what_the_rule_explains(stretches):
    """The same logs, by the rule and on arrays, which know of no passes between two reads."""
    found: list[Any] = []
    expected: dict[tuple[int, int, str], bool] = {}
    ranges = []
    for partition in range(60):
        chance = random.Random(partition)
        log = _log(chance, 60)
        source, target = _cleaned(log, chance, chance.randrange(20, 61)), dict(log)
        is_both = bool(partition % 2)
        if is_both:
            target = _cleaned(target, chance, chance.randrange(20, 46))
        if partition % 3 == 0:
            # Faults beside.
            target.pop(chance.choice(sorted(target)))
            source.pop(chance.choice(sorted(source)))
        pinned, mirrored = 45, chance.choice((45, 50, 60))
        # What was not mirrored, the target cannot have, nor have had.
        target = {at: each for at, each in target.items() if at < mirrored}
        sides = {SOURCE: source, TARGET: target}
        # All tombstones are older than a day, and younger than a month.
        kept = {side: chance.choice((_DAY, 30 * _DAY)) for side in (SOURCE, TARGET)}
        tombstones = {f"{side}_tombstones_ms": ms for side, ms in kept.items()}
        it = replace(_range(log, pinned, target_compacted=is_both, **tombstones), partition=partition)
        ranges.append(it)
        rows = {side: _rows(partition, side, records, pinned, mirrored) for side, records in sides.items()}
        for tile in parts(it, stretches):
            mine, others = (
                one[(tile.source_start <= one["place"]) & (one["place"] < tile.source_end)] for one in rows.values()
            )
            found += by_key.compared(tile, mine, others, 1)
        found += [by_key.keys_of(one[one["place"] >= pinned]) for one in rows.values()]
        for side, records in sides.items():
            other = TARGET if side == SOURCE else SOURCE
            for at, record in records.items():
                if at >= pinned:
                    continue
                seen = _seen(
                    *(
                        [
                            _place(one_side, n, pinned, mirrored)
                            for n, one in sides[one_side].items()
                            if one.key == record.key
                        ]
                        for one_side in (SOURCE, TARGET)
                    )
                )
                missing = Missing(
                    place=at, key=record.key, is_tombstone=record.value is None, timestamp=record.timestamp
                )
                is_missing = at not in sides[other]
                may_be = other == SOURCE or is_both
                expected[partition, at, side] = (
                    is_missing
                    and may_be
                    and is_explained(missing, seen, missing_on=other, now_ms=LATER, tombstones_ms=kept[other])
                )
    tombstones_ms = [(it.source_tombstones_ms, it.target_tombstones_ms) for it in ranges]
    settled = dict(by_key.settled(found, 1, tombstones_ms, LATER))
    assert {key: bool(one.compacted) for key, one in settled.items()} == expected
    assert {(one.rows, one.compacted) for one in settled.values()} == {(1, 0), (0, 1)}


def _rows(number: int, side: str, records: Mapping[int, Content], pinned: int, mirrored: int) -> Any:
    columns = columns_of((at, one.timestamp, one.key, one.value, one.headers) for at, one in sorted(records.items()))
    places = np.array([_place(side, at, pinned, mirrored) for at in sorted(records)], np.int64)
    return by_key.rows_of(number, side, columns, places)


def test_keys_go_to_one_bucket_whichever_stretch_they_stand_in(monkeypatch):
    log = {at: Content(b"k%d" % (at % 40), b"%d" % at, (), NOW) for at in range(200)}
    rows = _rows(0, SOURCE, log, 200, 200)
    halves = [[*by_key.compared(_range(log, 200), rows[at : at + 100], rows[:0], 50)] for at in (0, 100)]
    monkeypatch.setattr(by_key, "_found", lambda _orders, stretches, _records: stretches)
    buckets: dict[int, set[int]] = {}
    for half in halves:
        for bucket, found in by_key.read(None, half, 50, 7):  # type: ignore[arg-type]
            if not isinstance(found, tuple) and found.dtype == by_key.KEYS:
                for key in found["key"].tolist():
                    buckets.setdefault(key, set()).add(bucket)
    assert len(buckets) == 40
    assert all(len(one) == 1 for one in buckets.values())
    assert set[int].union(*buckets.values()) == set(range(7))
