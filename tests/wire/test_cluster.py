"""What a cluster's answers come to when its brokers do not agree, or not all of them let us in: without brokers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from kafka_migration.domain.errors import AuthenticationFailed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import LATEST, Leader, WireCluster
from kafka_migration.wire.selector import Selector

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_leader_that_metadata_have_taken_away_meanwhile_is_asked_without_its_epoch() -> None:
    with closing(Selector()) as net, closing(WireCluster(net, {"bootstrap_servers": "127.0.0.1:1"}, "source")) as it:
        it.leaders = {FIRST: Leader(1, 7)}
        (topic,) = it._list_offsets_topics([FIRST, SECOND], LATEST)
    assert [one.current_leader_epoch for one in topic.partitions] == [7, -1]


@pytest.mark.parametrize("rejecting", [{2}, {1, 2}], ids=["one broker", "every broker"])
def test_broker_that_rejects_us_keeps_only_its_own_partitions_from_being_found(
    monkeypatch: pytest.MonkeyPatch, rejecting: set[int]
) -> None:
    async def refresh(_topics: Any, **_: Any) -> dict[str, int]:
        return {}

    async def offsets_of(node: int, group: list[TopicPartition], when: int, *, committed: bool) -> dict[Any, Any]:
        if node in rejecting:
            raise AuthenticationFailed("source", "h:1", "bad password")
        return dict.fromkeys(group, (100, 0))

    with closing(Selector()) as net, closing(WireCluster(net, {"bootstrap_servers": "127.0.0.1:1"}, "source")) as it:
        it.leaders = {FIRST: Leader(1, 0), SECOND: Leader(2, 0)}
        monkeypatch.setattr(it, "refresh", refresh)
        monkeypatch.setattr(it, "_offsets_of", offsets_of)

        async def ask() -> dict[TopicPartition, int]:
            return await it.offsets_in_reach([FIRST, SECOND], LATEST, seconds=0.3)

        if len(rejecting) > 1:
            with pytest.raises(AuthenticationFailed):
                net.run(ask)
        else:
            assert net.run(ask) == {FIRST: 100}
