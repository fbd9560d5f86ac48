"""CSV: columns, delimiters, quotes and line ends stay as they are."""

from __future__ import annotations

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.formats import csv_positions
from kafka_migration.positions.texts import rewritten

PLAIN = "Topic,Partition,Offset\na,0,1\na,1,20"
MIXED = (
    '\ufeff"note, or ""not""";"OFFSET";topic;partition\r\n"two\r\nlines; 7";"5";"a";0\r\n;\t6 ;b; 1\r\n\r\nx;-;c;0\r\n'
)
EXPORTED = '"a",0,1\nb,1,2\n'
WITH_GROUP = "g 1,a,0,1\ng 2,a,0,20\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLAIN, [("a-0", 1, "line 2"), ("a-1", 20, "line 3")]),
        (MIXED, [("a-0", 5, "line 2"), ("b-1", 6, "line 4")]),
        (EXPORTED, [("a-0", 1, "line 1"), ("b-1", 2, "line 2")]),
        (WITH_GROUP, [("a-0", 1, "line 1"), ("a-0", 20, "line 2")]),
    ],
    ids=["plain", "mixed", "exported by kafka-consumer-groups", "exported with groups"],
)
def test_positions_are_found_and_all_but_their_numbers_stays(text, expected):
    found = csv_positions(text, file="f")
    assert [(str(one.tp), one.offset, one.where) for one in found] == expected
    moved = rewritten(text, {one: one.offset + 1000 for one in found})
    again = csv_positions(moved, file="f")
    assert [one.offset for one in again] == [offset + 1000 for _, offset, _ in expected]
    assert rewritten(moved, {new: old.offset for new, old in zip(again, found, strict=True)}) == text


def test_columns_of_other_names_are_given():
    text = "offset,t,p,position\n1,a,0,7\n"
    (found,) = csv_positions(text, file="f", columns=["T", "p", "position"])
    assert (str(found.tp), found.offset) == ("a-0", 7)


def test_bytes_of_no_encoding_that_is_known_pass_through():
    text = b"topic,partition,offset,note\na,0,1,caf\xe9\n".decode(errors="surrogateescape")
    (found,) = csv_positions(text, file="f")
    assert (
        rewritten(text, {found: 99}).encode(errors="surrogateescape")
        == b"topic,partition,offset,note\na,0,99,caf\xe9\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: line 1: its first row does not name the columns topic, partition, offset"),
        ("topic,offset\na,1\n", "f: line 1: its first row"),
        ("topic,partition,offset,offset\na,0,1,2\n", "f: line 1: its first row"),
        ("topic,partition,offset\na,0\n", "f: line 2: has 2 fields"),
        ("topic,partition,offset\na,0,1\na,0,x\n", "f: line 3: is not an offset"),
        ("topic,partition,offset\na,0,1e3\n", "f: line 2: is not an offset"),
        (f"topic,partition,offset\na,0,{2**63}\n", "f: line 2: is not an offset"),
        ("topic,partition,offset\na,-1,1\n", "f: line 2: is not the number of a partition"),
        ("topic,partition,offset\na b,0,1\n", "f: line 2: is not the name of a topic"),
        ('topic,partition,offset\n"a,0,1\n', "f: line 2: a quoted field does not end"),
        ('topic,partition,offset\n"a"b,0,1\n', "f: line 2: a quoted field does not end"),
    ],
)
def test_row_that_is_no_position_is_bad_input_that_names_file_and_line(text, said):
    with pytest.raises(BadInput, match=r"remedy: ") as caught:
        csv_positions(text, file="f")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,0,%s", "f: line 2: is not an offset"),
        ("a,%s,1", "f: line 2: is not the number of a partition"),
    ],
)
def test_number_of_thousands_of_digits_is_bad_input_that_names_the_line(row, said):
    for text in ("topic,partition,offset\n" + row, "b,0,1\n" + row):
        with pytest.raises(BadInput) as caught:
            csv_positions(text % ("1" * 5000), file="f")
        assert said in str(caught.value)


def test_large_file_is_read_in_linear_time():
    text = "topic,partition,offset\n" + "".join(f"a,{n % 7},{n}\n" for n in range(50_000))
    assert len(csv_positions(text, file="f")) == 50_000
