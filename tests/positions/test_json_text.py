"""Shapes of JSON: what is a position, and that nothing else changes."""

from __future__ import annotations

import json

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.formats import json_positions
from kafka_migration.positions.texts import rewritten

SPARK = '{ "a.b" : {"0":1, "1": -1,\n  "10":-2} ,"c":{"0":  7}}'
LISTED = '[{"note": "x \\"offset\\": 5", "topic":"a","offset":5,"partition":0, "extra":[1.50, {"offset": 9}]}]\n'
TOOLS = '{"partitions":[{"topic":"a","partition":3,"offset":12}],"version":1}'
CONNECT = (
    '{"offsets":[{"partition":{"cluster":"src","topic":"a","partition":1},"offset":{"offset":41}},'
    '{"partition":{"kafka_topic":"a","kafka_partition":2},"offset":{"kafka_offset":8}},'
    '{"partition":{"filename":"x"},"offset":{"position":3}}]}'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SPARK, [("a.b-0", 1), ("a.b-1", -1), ("a.b-10", -2), ("c-0", 7)]),
        (LISTED, [("a-0", 5)]),
        (TOOLS, [("a-3", 12)]),
        (CONNECT, [("a-1", 41), ("a-2", 8)]),
    ],
    ids=["spark", "list", "tools", "connect"],
)
def test_positions_of_every_shape_are_found_and_all_but_their_numbers_stays(text, expected):
    found = json_positions(text, file="f")
    assert [(str(one.tp), one.offset) for one in found] == expected
    assert rewritten(text, {one: one.offset for one in found}) == text
    moved = rewritten(text, {one: one.offset + 1000 for one in found})
    again = json_positions(moved, file="f")
    assert [one.offset for one in again] == [offset + 1000 for _, offset in expected]
    assert rewritten(moved, {new: old.offset for new, old in zip(again, found, strict=True)}) == text
    assert json.loads(moved) != json.loads(text)


def test_mirror_connector_keeps_the_last_record_and_a_sink_connector_the_next():
    assert [one.is_last_read for one in json_positions(CONNECT, file="f")] == [True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a":{"0":%s}}' % ("1" * 5000), "f: a.0: is not an offset"),
        ('{"a":{"%s":1}}' % ("1" * 5000), "is not the number of a partition"),
        ("[" * 990 + "]" * 990, "f: is not JSON (nested too deep"),
    ],
    ids=["offset", "partition", "nesting"],
)
def test_what_is_too_long_or_too_deep_is_bad_input(text, said):
    with pytest.raises(BadInput, match=r"remedy: ") as caught:
        json_positions(text, file="f")
    assert said in str(caught.value)


def test_long_number_that_is_no_position_is_no_matter():
    text = f'[{{"topic":"a","partition":0,"offset":5,"id":{"1" * 5000}}}]'
    (found,) = json_positions(text, file="f")
    assert rewritten(text, {found: 6}) == text.replace(":5,", ":6,")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a":{"0":1.5}}', "f: a.0: is not an offset"),
        ('{"a":{"0":true}}', "f: a.0: is not an offset"),
        ('{"a":{"0":-3}}', "f: a.0: is not an offset"),
        ('{"a":{"0":{"x":1}}}', "f: a.0: is not an offset"),
        ('{"a/b":{"0":1}}', "f: a/b.0: is not the name of a topic"),
        ('{"a":{"0":1,"0":2}}', "field '0' stands twice"),
        ('{"a":{"0":1}', "f: is not JSON"),
        ('[{"topic":"a","partition":0}]', "f: [0]: has no offset"),
        ('[{"topic":"a","partition":-1,"offset":0}]', "f: [0]: is not the number of a partition"),
        ('{"a":"latest"}', "in a shape that is known"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "f: is not JSON"),
    ],
)
def test_what_is_no_position_is_bad_input_that_names_file_and_field(text, said):
    with pytest.raises(BadInput, match=r"remedy: ") as caught:
        json_positions(text, file="f")
    assert said in str(caught.value)
