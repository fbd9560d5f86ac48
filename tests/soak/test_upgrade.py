"""What `make upgrade` judges by."""

from tests.kafka_tools import Row
from tests.soak.upgrade import next_record, refusal_of

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
