"""A short run of the real thing: every fault once, on real logs that the mirror wrote, and a few clean runs."""

from collections.abc import Iterator

import pytest

from demo.brokers import EmbeddedKafka
from tests.mutation import clean, faulty
from tests.mutation.copies import originals
from tests.mutation.faults import CONTROLS, KINDS
from tests.mutation.run import QUICK
from tests.mutation.validator import Validator, validator


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[str, str]]:
    """Clusters that compact and expire within seconds."""
    with (
        EmbeddedKafka(name="mutation-source", properties=QUICK) as source,
        EmbeddedKafka(name="mutation-target", properties=QUICK) as target,
    ):
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture(scope="module")
def it(clusters: tuple[str, str]) -> Iterator[Validator]:
    with validator(*clusters) as found:
        yield found


@pytest.mark.soak
@pytest.mark.timeout(1500)  # two clusters and a Spark session of their own
def test_every_kind_of_fault_is_detected_named_and_placed_on_logs_of_the_mirror(
    clusters: tuple[str, str], it: Validator
) -> None:
    (source, target), codecs = clusters, ("lz4", "zstd")
    made = originals(source, target, count=4_000, seed=7, codecs=codecs)
    for original in made:
        assert len(original.target[0].sections) == 2, "behind two fences"
        assert len(original.target[0]) == 4_000
    wanted = [
        *faulty.faults(len(KINDS), 7, list(KINDS), codecs),
        *faulty.faults(2 * len(CONTROLS), 8, list(CONTROLS), codecs),
    ]
    source, target = clusters
    found = faulty.run(it, source, target, made, wanted, segment_records=1_000, at_once=len(wanted), log=print)
    assert found.wrong == []
    assert found.is_good
    assert found.faults == len(KINDS) == len(found.pairs)
    assert found.levels == dict.fromkeys(map(str, faulty.LEVELS), len(KINDS))
    assert (found.controls, found.contradictions) == (2 * len(CONTROLS), 0)
    faulty.after_kept(it, source, target, made, found, seed=7, segment_records=1_000)
    assert found.wrong == []
    assert found.faults == len(KINDS) + len(codecs)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_clean_copies_under_compaction_retention_and_transactions_raise_no_alarm(
    clusters: tuple[str, str], it: Validator
) -> None:
    found = clean.run(it, *clusters, runs=4, a_scene=4, seed=11, log=print)
    assert found.wrong == []
    assert (found.runs, found.alarms) == (4, 0)
    assert found.records > 0
