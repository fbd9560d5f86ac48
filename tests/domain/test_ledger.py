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


def test_progress_is_read_back_as_written() -> None:
    told = {
        TopicPartition("a.b-c_d", n): ledger.Told(
            Position(source=7, target=9, fence=2, records=n), 11, "unsettled", 12, n
        )
        for n in range(3)
    }
    ((key, value),) = ledger.progress_records("l", "0", told)
    found = {tp: (position, rest) for tp, position, rest in ledger.read_progress(key, value)}
    assert {tp: position for tp, (position, _) in found.items()} == {tp: it.position for tp, it in told.items()}
    assert [(rest["b"], rest["x"], rest["at"], rest.get("q", 0)) for _, rest in found.values()] == [
        (11, "unsettled", 12, n) for n in range(3)
    ]


def test_progress_of_very_many_partitions_is_told_in_records_that_brokers_take() -> None:
    position = Position(source=2**50, target=2**50, fence=2**31, records=2**50)
    told = {TopicPartition(f"topic-{n % 999}", n): ledger.Told(position, n * 2**30, "run", n) for n in range(12_000)}
    records = ledger.progress_records("l", "0", told)
    assert len({key for key, _ in records}) == 3
    assert max(len(value) for _, value in records) < 500_000
    assert {tp for key, value in records for tp, _, _ in ledger.read_progress(key, value)} == told.keys()


def test_progress_of_versions_that_wrote_a_record_for_each_partition_is_read() -> None:
    value = b'{"at":12,"b":11,"f":2,"n":3,"s":7,"t":9,"v":1,"x":"run"}'
    ((tp, position, rest),) = ledger.read_progress(b"l/a.b-c_d/4", value)
    assert (tp, position) == (TopicPartition("a.b-c_d", 4), Position(source=7, target=9, fence=2, records=3))
    assert (rest["b"], rest["x"], rest["at"]) == (11, "run", 12)


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
