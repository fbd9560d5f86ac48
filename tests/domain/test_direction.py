"""Which way a link copies, and what is its own by name."""

from __future__ import annotations

import re
from typing import Any

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import HOME, Direction
from kafka_migration.domain.types import Identity, Position, TopicPartition
from kafka_migration.plans.model import Plan
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from tests.state.test_link import AT, TOPIC, TP, FakeLog


def test_forward_link_keeps_the_names_that_it_had_before_there_was_another_direction() -> None:
    link = LinkState(Direction.FORWARD.own("shop"), MemoryStore(), None, None)
    assert (link.name, link.transactional_id) == ("shop", "kafka-migration.shop")
    assert (Direction.FORWARD.origin, Direction.FORWARD.destination, HOME) == ("source", "target", "target")
    assert (Direction.REVERSE.origin, Direction.REVERSE.destination) == ("target", "source")


def test_no_plan_can_be_called_as_another_plans_reverse_link() -> None:
    (pattern,) = [found.pattern for found in Plan.model_fields["name"].metadata if hasattr(found, "pattern")]
    assert re.match(pattern, "shop")
    assert not re.match(pattern, Direction.REVERSE.own("shop"))


def test_links_of_both_directions_in_the_same_topics_do_not_see_each_other() -> None:
    store, logs = MemoryStore(), [FakeLog(topic) for topic in (ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)]
    links: dict[Direction, LinkState] = {}
    for direction in Direction:
        mine: list[Any] = [FakeLog(log.topic) for log in logs]
        for own, shared in zip(mine, logs, strict=True):
            own.entries = shared.entries
        links[direction] = LinkState(direction.own("shop"), store, *mine)
    for at, (direction, link) in enumerate(links.items()):
        link.pin(source_cluster=direction.origin, target_cluster=direction.destination, topics=[TOPIC], at=AT)
        link.record_fence(at, Identity(7, at), at=AT)
        place = Position(source=10 + at, target=20 + at, fence=at, records=0)
        logs[1].append(ledger.progress_records(link.name, "0", {TP: ledger.Told(place, 0, "run", 0)}))
        link.halt(TopicPartition("t", at), "CORRUPT", "", 0, 0, AT, topic_key=TOPIC.key)
        link.record_run({"state": "running", "at": AT})
    for at, link in enumerate(links.values()):
        assert link.fences() == {at: Identity(7, at)}
        assert {tp: position.source for tp, (position, _) in link.progress().items()} == {TP: 10 + at}
        assert link.halted() == {TopicPartition("t", at)}
        assert link.topics() == {"t": LinkTopic(name="t", source_id=TOPIC.source_id, target_id=TOPIC.target_id)}
