"""The tail on brokers: read in this process, from where a validation ended to where the mirror stands."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.handlers import no_handler
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.kafka.cluster import Cluster, Role
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.validation import record
from kafka_migration.validation.pins import Tail
from tests.compare.lab import Copy, Lab, Wanted, source_offset

COUNT, VALIDATED = 30, 12


@pytest.fixture(scope="module")
def copies(lab: Lab) -> dict[str, Copy]:
    def altered(at: int) -> Any:
        def damage(sent: Any) -> None:
            sent[1][at] = replace(sent[1][at], value=b"altered")

        return damage

    def lacks_its_last(sent: Any) -> None:
        sent[1].pop()

    wanted = {
        "right": Wanted(partitions=2, count=COUNT),
        "wrong before": Wanted(partitions=2, count=COUNT, damage=altered(VALIDATED - 1)),
        "wrong behind": Wanted(partitions=2, count=COUNT, damage=altered(VALIDATED)),
        "short": Wanted(partitions=2, count=COUNT, damage=lacks_its_last),
    }
    return lab.copies(wanted)


def _tail(lab: Lab, copy: Copy, said: list[str], *, kept: int | None = None) -> tuple[Tail, dict[TopicPartition, int]]:
    """The tail of a link that has copied ``copy``, the first records of which were validated."""
    roles: tuple[Role, ...] = ("source", "target")
    sides = {role: Cluster(role, ClusterConnection(role, lab.connections[role])) for role in roles}
    ends = {tp: found.source_end for tp, found in copy.maps.items()}
    validated = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "source_end": source_offset(VALIDATED, COUNT),
            "verdict": "EQUAL",
        }
        for tp in ends
    ]
    positions = {tp: Position(source=end, target=0, fence=0, records=0) for tp, end in ends.items()}
    link = SimpleNamespace(
        positions=lambda: positions,
        offset_maps=lambda tps: {tp: copy.maps[tp] for tp in tps},
        skips=dict,
        extras=dict,
        rewinds=dict,
    )
    ctx = SimpleNamespace(
        link=link,
        origin=sides["source"],
        destination=sides["target"],
        direction=Direction.FORWARD,
        is_first=True,
        on_open_link=None,
        journal=SimpleNamespace(
            read=lambda *_: {
                "at": "2030-01-01T00:00:00+00:00",
                "partitions": validated[:kept],
                "left_out": 0 if kept is None else len(validated) - kept,
            }
        ),
        selects_topic=lambda _topic: True,
        handler_of=no_handler,
        log=said.append,
    )
    return Tail(cast(Context, ctx)), ends


@pytest.mark.parametrize("name", ["right", "wrong before"])
def test_right_copy_is_equal_from_where_it_was_validated_on(lab: Lab, copies: dict[str, Copy], name: str) -> None:
    said: list[str] = []
    tail, ends = _tail(lab, copies[name], said)
    tail.catch_up()
    assert said == ["36 records of 2 partitions were copied since, and are equal"]
    # Nothing is left of it.
    tail.begin(ends)
    assert tail.equal(30).startswith("0 records of 0 partitions")


def test_verdict_that_the_journal_has_in_part_says_that_nothing_is_compared_before_this_moment(
    lab: Lab, copies: dict[str, Copy]
) -> None:
    said: list[str] = []
    tail, _ = _tail(lab, copies["right"], said, kept=1)
    tail.catch_up()
    assert "is not compared in between: run `validate` right before" in said[0]
    assert said[1].startswith("0 records of 0 partitions")


def test_verdict_of_very_many_partitions_keeps_up_to_where_each_was_found_equal() -> None:
    found = [
        {"topic": f"t{n:05}", "partition": 0, "source_end": n, "verdict": "EQUAL", "equal": True, "digest": "x" * 500}
        for n in range(10_000)
    ]
    ids = {one["topic"]: [str(uuid.uuid4()), str(uuid.uuid4())] for one in found}
    value = record._bounded({"partitions": found, "verdict": "EQUAL", "topic_ids": ids})
    assert value["left_out"] > 0
    kept = record.compared(value)
    assert {name: (one.which, one.partitions) for name, one in kept.items()} == {
        name: (record.which(both), 1) for name, both in ids.items()
    }
    assert record.equal_up_to(value) == {TopicPartition(f"t{n:05}", 0): n for n in range(10_000)}
    assert len(json.dumps(value)) < 1_000_000


@pytest.mark.parametrize("name", ["wrong behind", "short"])
def test_wrong_copy_differs_by_name_of_the_partition(lab: Lab, copies: dict[str, Copy], name: str) -> None:
    copy = copies[name]
    tail, ends = _tail(lab, copy, [])
    tail.begin(ends)
    start, end = source_offset(VALIDATED, COUNT), ends[TopicPartition(copy.topic, 1)]
    with pytest.raises(Refused, match=rf"differs on the target: {copy.topic}-1 at source offsets {start}\.\.{end}\n"):
        tail.equal(30)


def test_what_is_not_read_in_time_is_not_equal(
    lab: Lab, copies: dict[str, Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    tail, ends = _tail(lab, copies["right"], [])
    answered = threading.Event()
    monkeypatch.setattr("kafka_migration.validation.pins.read_both", lambda *_: answered.wait() and [])
    tail.begin(ends)
    with pytest.raises(CouldNotFindOut, match=r"could not be compared within 0\.1 s"):
        tail.equal(0.1)
    answered.set()
