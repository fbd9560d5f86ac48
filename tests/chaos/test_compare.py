"""A comparer that cannot find what is wrong is worthless: here it is shown each thing that can be, and finds it."""

import random
from array import array

import pytest

from kafka_migration.domain.offset_map import OffsetMap, Run
from tests.chaos.compare import Found, Log, compacted, records, translations
from tests.chaos.run import WRONG, Outcome, Total, compared
from tests.chaos.schedule import Fault

COUNT = 40


def log(values: list[int], first: int = 0, gaps: tuple[int, ...] = (), keys: list[bytes | None] | None = None) -> Log:
    """A log of records that are told by their numbers; `gaps` are offsets that hold none."""
    offsets, at = [], first
    for _ in values:
        while at in gaps:
            at += 1
        offsets.append(at)
        at += 1
    return Log(first, at, array("q", offsets), [b"%016d" % value for value in values], keys)


SOURCE = log(list(range(COUNT)), 100)


def wrong(found: Found) -> dict[str, int]:
    kinds = ("lost", "doubled", "foreign", "reordered", "mistranslated")
    return {name: getattr(found, name) for name in kinds if getattr(found, name)}


def without(values: list[int], at: int) -> list[int]:
    return values[:at] + values[at + 1 :]


ALL = list(range(COUNT))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (ALL, {}),
        (without(ALL, 7), {"lost": 1}),
        (ALL[:-3], {"lost": 3}),
        (ALL[2:], {"lost": 2}),
        ([], {"lost": COUNT}),
        (ALL[:9] + ALL[8:], {"doubled": 1}),
        (ALL + ALL[:5], {"doubled": 5}),
        (ALL + ALL, {"doubled": COUNT}),
        ([*ALL[:5], ALL[6], ALL[5], *ALL[7:]], {"reordered": 1}),
        ([*ALL[1:], 0], {"reordered": 1}),
        (ALL[20:] + ALL[:20], {"reordered": 20}),
        ([*ALL[:5], 777, *ALL[6:]], {"lost": 1, "foreign": 1}),
        ([*ALL, 777], {"foreign": 1}),
        ([*ALL, 777, 777], {"foreign": 2}),
        ([ALL[1], ALL[0], *without(ALL[2:], 10), 777, ALL[9]], {"lost": 1, "doubled": 1, "foreign": 1, "reordered": 1}),
    ],
)
def test_whatever_is_wrong_with_a_copy_is_found(values, expected):
    found = records(SOURCE, log(values, 3))
    assert wrong(found) == expected
    assert found.is_exact is (not expected)
    assert found.records == COUNT


@pytest.mark.parametrize("seed", range(30))
def test_any_number_of_records_dropped_doubled_or_invented_by_chance_is_counted_exactly(seed):
    chance = random.Random(seed)
    dropped = set(chance.sample(ALL, chance.randrange(6)))
    doubled = set(chance.sample(sorted(set(ALL) - dropped), chance.randrange(6)))
    values = [value for value in ALL if value not in dropped for _ in range(2 if value in doubled else 1)]
    invented = [1_000 + n for n in range(chance.randrange(4))]
    for value in invented:
        values.insert(chance.randrange(len(values)), value)
    found = records(SOURCE, log(values))
    assert (found.lost, found.doubled, found.foreign, found.reordered) == (
        len(dropped),
        len(doubled),
        len(invented),
        0,
    )


def test_records_that_are_equal_on_the_source_are_told_apart_by_their_number():
    source = log([1, 1, 1, 2])
    assert wrong(records(source, log([1, 1, 1, 2]))) == {}
    assert wrong(records(source, log([1, 1, 2]))) == {"lost": 1}
    assert wrong(records(source, log([1, 1, 1, 1, 2]))) == {"doubled": 1}


# -- compacted ------------------------------------------------------------------------------------------------


def keyed(*records: tuple[int, str]) -> Log:
    return log([value for value, _ in records], keys=[key.encode() if key else None for _, key in records])


#: Written were 1 to 6 of the keys a b a b c a; compaction left these.
LEFT = keyed((4, "b"), (5, "c"), (6, "a"))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (keyed((4, "b"), (5, "c"), (6, "a")), {}),
        (keyed((1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c"), (6, "a")), {}),
        (keyed((3, "a"), (4, "b"), (5, "c"), (6, "a")), {}),
        # The latest of a key is missing: whatever else stands there.
        (keyed((1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c")), {"lost": 1, "foreign": 0}),
        (keyed((4, "b"), (6, "a")), {"lost": 1}),
        # Behind the last of its key nothing can have been compacted away.
        (keyed((4, "b"), (5, "c"), (6, "a"), (3, "a")), {"foreign": 1}),
        (keyed((9, "x"), (4, "b"), (5, "c"), (6, "a")), {"foreign": 1}),
        # Superseded, and there twice.
        (keyed((3, "a"), (3, "a"), (4, "b"), (5, "c"), (6, "a")), {"foreign": 1}),
        (keyed((4, "b"), (4, "b"), (5, "c"), (6, "a")), {"doubled": 1}),
        (keyed((5, "c"), (4, "b"), (6, "a")), {"reordered": 1}),
        # Not as its producer made it.
        (keyed((3, ""), (4, "b"), (5, "c"), (6, "a")), {"foreign": 1}),
    ],
)
def test_of_a_compacted_topic_only_what_was_superseded_may_differ(target, expected):
    expected = {name: count for name, count in expected.items() if count}
    found = wrong(compacted(LEFT, target))
    if target.digests == [b"%016d" % n for n in (1, 2, 3, 4, 5)]:
        # Nothing supersedes the third any more, so that is one too many besides.
        expected = {"lost": 1, "foreign": 1}
    assert found == expected


#: As above, but a replica leads by now that was not compacted as far as the one that was read from.
LESS = keyed((1, "a"), (3, "a"), (4, "b"), (5, "c"), (6, "a"))


#: Offsets 0 to 4; the replica that was read from has lost the first two.
HELD = frozenset({2, 3, 4})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (keyed((3, "a"), (4, "b"), (5, "c"), (6, "a")), {}),
        (keyed((4, "b"), (5, "c"), (6, "a")), {}),
        # What superseded it is missing, too.
        (keyed((3, "a"), (4, "b"), (5, "c")), {"lost": 1}),
        (keyed((4, "b"), (5, "c")), {"lost": 3}),
        (keyed((1, "a"), (4, "b"), (5, "c")), {"lost": 2}),
        # No replica had lost it.
        (keyed((1, "a"), (3, "a"), (5, "c"), (6, "a")), {"lost": 1}),
    ],
)
def test_what_another_replica_had_lost_already_may_be_missing_before_a_later_record_of_its_key(target, expected):
    assert wrong(compacted(LESS, target, HELD)) == expected


@pytest.mark.parametrize("held", [None, frozenset(range(600))], ids=["one replica", "all replicas"])
def test_records_dropped_out_of_a_compacted_log_are_lost_though_later_ones_of_their_keys_are_there(held):
    source = keyed(*((n, f"key-{n % 60}") for n in range(600)))
    # Whole seconds of it, and now and then one: nearly all of their keys come again.
    kept = [n for n in range(600) if not 100 <= n < 300 and n % 7]
    target = keyed(*((n, f"key-{n % 60}") for n in kept))
    assert wrong(compacted(source, target, held)) == {"lost": 600 - len(kept)}


# -- translation ----------------------------------------------------------------------------------------------


def offsets_of(*runs: tuple[int, int, int], ends: tuple[int, int]) -> OffsetMap:
    return OffsetMap([Run(*run) for run in runs], source_end=ends[0], target_end=ends[1])


#: Ten records, offsets 3 and 4 of the source hold none; a fence took the target's offsets 0 and 6.
HERE, THERE = log(list(range(10)), 0, (3, 4)), log(list(range(10)), 1, (6,))
EXACT = ((0, 1, 3), (5, 4, 2), (7, 7, 5))


def mistranslated(*runs: tuple[int, int, int], ends: tuple[int, int] = (12, 12)) -> int:
    offsets = offsets_of(*runs, ends=ends)
    found = translations(HERE, THERE, offsets.to_target, offsets.to_source, random.Random(1), 200)
    assert found.translated == 400
    return found.mistranslated


def test_exact_map_translates_every_offset_gaps_and_ends_among_them():
    assert mistranslated(*EXACT) == 0


@pytest.mark.parametrize(
    "runs",
    [
        ((0, 1, 3), (5, 4, 2), (7, 8, 4)),  # one further
        ((0, 1, 3), (6, 4, 2), (8, 7, 4)),  # one back
        ((0, 0, 3), (5, 4, 2), (7, 7, 5)),  # the first run begins at the fence's own offset
        ((0, 1, 5), (5, 7, 7)),  # as if there were no gap
        ((5, 4, 2), (7, 7, 5)),  # a run is missing
        ((0, 1, 3),),
    ],
)
def test_map_with_a_run_that_is_missing_or_shifted_is_found_out(runs):
    ends = (max(12, *(run[0] + run[2] for run in runs)), max(12, *(run[1] + run[2] for run in runs)))
    assert mistranslated(*runs, ends=ends) > 0


def test_map_that_ends_too_early_is_found_out():
    assert mistranslated((0, 1, 3), (5, 4, 2), (7, 7, 4), ends=(11, 11)) > 0


def test_partition_that_was_never_mapped_is_mistranslated_altogether():
    found = compared(HERE, THERE, None, random.Random(1))
    assert found.mistranslated > 300
    assert compared(log([]), log([], 0), None, random.Random(1)).is_exact


# -- the verdict ----------------------------------------------------------------------------------------------


def test_result_counts_what_is_foreign_as_doubled_and_is_good_only_without_any():
    total = Total(seed=1)
    total.add(Outcome(found=Found(records=10), injected=["quota"]))
    assert (total.is_good, [total.as_dict()[name] for name in WRONG]) == (True, [0, 0, 0, 0])
    total.add(Outcome(found=Found(records=10, doubled=1, foreign=2), injected=["quota"]))
    assert (total.is_good, total.as_dict()["doubled"], total.as_dict()["faults"]) == (False, 3, {"quota": 2})
    assert list(total.as_dict()) == ["seed", "rounds", "faults", "records", *WRONG, "innocent_stall_s_max"]


def test_run_with_a_fault_that_was_missed_or_a_process_that_ended_wrongly_is_not_good():
    left = Fault(kind="quota", side="target", after=0.3, seed=1)
    for harmed in (Total(seed=1, rounds=1, missed=[left]), Total(seed=1, rounds=1, problems=1), Total(seed=1)):
        assert not harmed.is_good
