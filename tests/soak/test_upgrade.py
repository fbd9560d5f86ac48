"""A short version of `make upgrade`: the version that is checked out begins, and its own files finish."""

import pytest

from demo.brokers import EmbeddedKafka
from tests.kafka_tools import Row
from tests.soak.kill import is_exact
from tests.soak.upgrade import Scene, checked_out, next_record, refusal_of, upgraded


@pytest.mark.long
@pytest.mark.timeout(1800)  # a whole migration, with seven starts of Spark
def test_migration_whose_mirror_was_killed_is_finished_by_the_files_that_are_here(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path
):
    scene = Scene(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, tmp_path / "killed")
    with checked_out("HEAD") as checkout:
        result = upgraded("killed", scene, checkout)
    assert is_exact(result), result
    assert result["records"] > 20_000, "the workload wrote while the migration ran"
    assert result["misplaced"] == 0


ROWS = [Row(offset=n, key=b"", value=b"%d" % n, timestamp=n) for n in (3, 4, 7)]


def test_next_record_is_the_first_one_at_or_behind_an_offset():
    assert next_record(ROWS, 0) == next_record(ROWS, 3) == ROWS[0].without_offset()
    assert next_record(ROWS, 5) == ROWS[2].without_offset()
    assert next_record(ROWS, 8) is None


def test_what_a_run_was_refused_with_is_its_error_with_the_remedy():
    assert (
        refusal_of("step: a\nerror: plan gate: shut\n  remedy: open it\n") == "error: plan gate: shut remedy: open it"
    )
    assert refusal_of("a\nb\nc\nd\n") == "b c d"
