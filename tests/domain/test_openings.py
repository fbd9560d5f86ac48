"""Openings of maps that were found, and not written by a mirror: they describe the very runs, and void older ones."""

import random

import pytest

from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.openings import Openings, openings_of

ANEW = [Run(5, 2, 4), Run(12, 6, 1)]


def stored(runs: list[Run], source_end: int, target_end: int, *, first_fence: int = 0) -> Openings:
    return Openings([*openings_of(runs, first_fence=first_fence, source_end=source_end, target_end=target_end)])


@pytest.mark.parametrize("seed", range(50))
def test_stored_openings_are_the_very_runs_whatever_gaps_both_logs_have(seed):
    chance, runs = random.Random(seed), list[Run]()
    source = target = chance.randrange(5)
    for _ in range(chance.randrange(12)):
        runs.append(Run(source, target, chance.randrange(1, 9)))
        source, target = (at + runs[-1].length for at in (source, target))
        # A gap on the source alone, on the target alone, or on both.
        more = chance.choice([(1, 0), (0, 1), (3, 2)])
        source, target = source + more[0], target + more[1]
    openings = stored(runs, source, target)
    found = openings.offset_map(source_end=source, target_end=target)
    assert [*found.runs()] == runs
    assert openings.records(target_end=target) == sum(run.length for run in runs)


@pytest.mark.parametrize("target_end", [7, 11])
def test_link_begins_behind_a_found_map_as_behind_a_cut(target_end):
    last = stored(ANEW, 13, target_end)[-1]
    assert (last.source, last.target, last.records, last.is_cut) == (13, target_end, 0, True)


def test_map_of_a_copy_that_holds_nothing_begins_at_its_cut():
    assert [(one.source, one.target, one.is_cut) for one in stored([], 40, 3)] == [(40, 3, False), (40, 3, True)]


def test_openings_of_a_later_finding_void_those_before():
    before = [*stored([Run(0, 0, 3), Run(7, 5, 9)], 30, 20)]
    after = [*openings_of(ANEW, first_fence=before[-1].fence + 1, source_end=13, target_end=7)]
    both = Openings([*before, *after]).offset_map(source_end=13, target_end=7)
    assert [*both.runs()] == ANEW
