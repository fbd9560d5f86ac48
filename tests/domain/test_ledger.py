"""What the internal topics hold: read back as written, and refused when it is not understood."""

import json

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Position, TopicPartition


@pytest.mark.parametrize("topic_key", ["0f0e0d0c-0b0a-0908-0706-050403020100", "a.topic_with-all.characters"])
@pytest.mark.parametrize(
    "opening",
    [
        RunOpening(fence=0, records=0, source=5, target=1, closes=0),
        RunOpening(fence=32767, records=2**31 + 7, source=2**62, target=2**61),
    ],
)
def test_opening_is_read_back_as_written(topic_key, opening):
    key = ledger.opening_key("my.link_1", topic_key, 17, opening)
    assert ledger.read_opening(key, ledger.opening_value(opening)) == ("my.link_1", topic_key, 17, opening)


def test_progress_is_read_back_as_written():
    tp, position = TopicPartition("a.b-c_d", 4), Position(source=7, target=9, fence=2, records=3)
    value = ledger.progress_value(position, bytes_copied=11, state="unsettled", at_ms=12)
    link, found_tp, found, rest = ledger.read_progress(ledger.progress_key("l", tp), value)
    assert (link, found_tp, found) == ("l", tp, position)
    assert (rest["b"], rest["x"], rest["at"]) == (11, "unsettled", 12)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"3", b'"v"', b"{}", b'{"a":1}', b"\xff", b'{"v":1'])
def test_what_this_tool_did_not_write_is_refused(data):
    with pytest.raises(StateConflict, match="not a value of this tool"):
        ledger.decode(data, where="somewhere")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_value_of_another_version_is_refused(version):
    with pytest.raises(StateConflict, match="another version"):
        ledger.decode(json.dumps({"v": version}).encode(), where="somewhere")


def test_value_that_claims_the_version_is_refused():
    with pytest.raises(ValueError, match="called v"):
        ledger.encode({"v": 7})


def test_internal_topics_are_excluded_by_the_usual_patterns():
    assert all(topic.endswith(".internal") for topic in ledger.PARTITIONS)


def test_key_stays_in_its_partition():
    # Fixed for ever: another partition for the same key would bring older values to light again.
    assert [ledger.partition_of(b"key-%d" % n, 16) for n in range(8)] == [12, 10, 0, 6, 5, 3, 9, 15]
    assert ledger.partition_of(b"anything", 1) == 0
