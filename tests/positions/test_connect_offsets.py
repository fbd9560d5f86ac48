"""Which keys of Connect's offsets are positions of Kafka, and what becomes of each; in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import TopicPartition
from kafka_migration.positions import connect_offsets
from kafka_migration.positions.connect_offsets import Change
from kafka_migration.positions.translation import How, Rules, Translated, Translator
from tests.steps.worlds import FakeWorld


def key(topic: str, connector: str = "mm2", **more: object) -> bytes:
    return json.dumps([connector, {"cluster": "old", "partition": 0, "topic": topic, **more}]).encode()


def translated(world: FakeWorld, values: dict[bytes, bytes], *, accept_expired: bool = False) -> list[Translated]:
    found = connect_offsets.entries(values, topic="offsets")
    return Translator(world.ctx(), Rules(accept_expired=accept_expired)).translated(
        one.position for one in found if one.position is not None
    )


def test_positions_of_several_source_clusters_are_not_translated_by_the_map_of_one(world, gappy):
    values = {key(gappy): b'{"offset":10}', key(gappy, "mm3", cluster="other"): b'{"offset":11}'}
    topic: Any = SimpleNamespace(topic="offsets", latest=lambda: values)
    with pytest.raises(Refused, match="by their aliases: old, other"):
        connect_offsets.translate(world.ctx(), topic, rules=Rules())
    one = connect_offsets.translate(world.ctx(), topic, rules=Rules(), connectors=["mm2"])
    assert [found.value for found in one.moved] == [b'{"offset":1}']
    assert len(connect_offsets.translate(world.ctx(), topic, rules=Rules(kept=(gappy,))).moved) == 2


@pytest.mark.parametrize(
    ("offset", "there", "how"),
    [
        (10, 1, How.EXACT),
        (19, 10, How.EXACT),
        (22, 11, How.GAP),
        (25, 12, How.EXACT),
        (29, 16, How.EXACT),
        (5, 0, How.GAP),
        (9, 0, How.GAP),
    ],
)
def test_last_read_offset_leads_to_that_record_or_right_before_the_next(world, gappy, offset, there, how):
    """Records of the source: 10 to 19 and 25 to 29, at 1 to 10 and 12 to 16; see RUNS."""
    (found,) = translated(world, {key(gappy): b'{"offset":%d}' % offset})
    assert (found.offset, found.how) == (there, how)


@pytest.mark.parametrize(("offset", "problem"), [(30, "beyond the mirror's position 30"), (3, "expired")])
def test_last_read_offset_whose_next_record_is_not_there_has_no_answer(world, gappy, offset, problem):
    (found,) = translated(world, {key(gappy): b'{"offset":%d}' % offset})
    assert problem in found.problem
    if offset == 3:
        (accepted,) = translated(world, {key(gappy): b'{"offset":3}'}, accept_expired=True)
        assert accepted.offset == 0, "it goes on with the first record, at 1"


def test_what_other_connectors_keep_is_no_position(world, gappy):
    values = {
        key(gappy): b'{"offset":12}',
        # Of MirrorCheckpointConnector and MirrorHeartbeatConnector.
        key(gappy, "checkpoints", group="g"): b'{"offset":0}',
        b'["beats",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]': b'{"offset":0}',
        b'["jdbc",{"table":"t"}]': b'{"incrementing":5}',
        b"\xff\x00": b"\xfe",
        key(gappy, "avro"): b"\x00\xff",
    }
    found = connect_offsets.entries(values, topic="offsets")
    assert [one.connector for one in found if one.position is not None] == ["mm2"]
    rows = connect_offsets.moved(found, translated(world, values), {})
    assert {one.entry.key: one.value for one in rows} == values | {key(gappy): b'{"offset":3}'}
    assert {one.change for one in rows} == {Change.NEW}


def test_what_is_no_position_is_kept_however_odd_it_is(world, gappy):
    deep, long = b"[" * 30_000 + b"]" * 30_000, b"9" * 5_000
    values = {
        b'["x",{"table":"t","table":"u"}]': b'{"a":1}',
        b'["x",{"table":"v"}]': b'{"a":1,"a":2}',
        b'["x",{"table":"w"}]': b'{"a":' + deep + b"}",
        b'["x",{"table":"y","id":' + long + b"}]": b'{"a":' + long + b"}",
        b'["x",{"table":' + deep + b"}]": b"{}",
        deep: b"{}",
        b'["x",{"table":"z"},1]': b"{}",
        key(gappy, "deep"): deep,
    }
    found = connect_offsets.entries(values, topic="offsets")
    assert [one.position for one in found] == [None] * len(values)
    # Compared with what is there, too.
    rows = connect_offsets.moved(found, [], dict.fromkeys(values, b'{"b":1,"b":2}'))
    assert {one.entry.key: one.value for one in rows} == values
    assert {one.change for one in rows} == {Change.OTHER}


@pytest.mark.parametrize(
    ("odd_key", "value", "said"),
    [
        (
            b'["mm2",{"cluster":"a","partition":0,"topic":"a","topic":"b"}]',
            b'{"offset":1}',
            "key: .*'topic' stands twice",
        ),
        (
            b'["mm2",{"cluster":"a","partition":0,"topic":"a"}]',
            b'{"offset":1,"offset":2}',
            "value: .*'offset' stands tw",
        ),
        (b'["mm2",{"cluster":"a","partition":0,"topic":"a"}]', b'{"offset":%s}' % (b"1" * 5_000), "is not an offset"),
    ],
    ids=["twin in the key", "twin in the value", "long number"],
)
def test_position_is_read_strictly(odd_key, value, said):
    with pytest.raises(BadInput, match=said):
        connect_offsets.entries({odd_key: value}, topic="offsets")


def test_rest_of_a_value_stays_byte_for_byte(world, gappy):
    values = {key(gappy): b'{ "note": "offset\\u0020", "offset" :12 }'}
    (row,) = connect_offsets.moved(
        connect_offsets.entries(values, topic="offsets"), translated(world, values), {key(gappy): b'{"offset":4}'}
    )
    assert (row.value, row.change) == (b'{ "note": "offset\\u0020", "offset" :3 }', Change.AHEAD)


def test_position_that_is_none_is_bad_input_that_names_topic_and_key(gappy):
    with pytest.raises(BadInput, match=r"offsets .*mm2.*: value: is not an offset") as caught:
        connect_offsets.entries({key(gappy): b'{"offset":"x"}'}, topic="offsets")
    assert TopicPartition(gappy, 0).topic in str(caught.value)
