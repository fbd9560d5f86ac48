"""Topics that a link copied to the source from the target, by what it has left there; in earnest, by commands:
tests/cli/test_renamed.py."""

from __future__ import annotations

import uuid

from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from kafka_migration.topics.declared import _copied

THERE, HERE, ELSEWHERE = "cluster-b", "cluster-a", "cluster-c"
IDS = {name: uuid.uuid4() for name in ("orders", "payments", "old")}


def test_only_topics_that_a_link_from_the_target_wrote_here_came_from_there() -> None:
    store = MemoryStore()
    for link, source, target, topics in (
        ("back", THERE, HERE, ("orders", "payments")),
        ("from-elsewhere", ELSEWHERE, HERE, ("old",)),
        ("to-elsewhere", THERE, ELSEWHERE, ("old",)),
    ):
        pinned = [LinkTopic(name=name, source_id=uuid.uuid4(), target_id=IDS[name]) for name in topics]
        LinkState(link, store, None, None).pin(source_cluster=source, target_cluster=target, topics=pinned, at="noon")
    found = _copied(store, source=THERE, target=HERE)
    assert found == {str(IDS[name]): "back" for name in ("orders", "payments")}
    assert _copied(MemoryStore(), source=THERE, target=HERE) == {}
