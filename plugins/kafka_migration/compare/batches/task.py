"""Batch level in a task: both sides of some segments side by side, on one loop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import kafka.errors as kafka_errors

from kafka_migration.compare.batches.segment import compare
from kafka_migration.compare.batches.side import Side
from kafka_migration.compare.digests import SOURCE, TARGET, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.reading import CannotRead, Unanswered
from kafka_migration.domain.errors import ClusterUnreachable, MigrationError
from kafka_migration.wire.cluster import LeaderUnknown, WireCluster
from kafka_migration.wire.selector import Selector


def obey(orders: Orders, tiles: Sequence[Tile]) -> Answer:
    """Compare ``tiles``. Never raises for what cannot be read: that is in the answer."""
    answer = Answer()
    net = Selector()
    sides = {role: WireCluster(net, wire, role) for role, wire in orders.wires.items()}
    try:
        for cluster in sides.values():
            cluster.connect()
        net.run(lambda: _each(orders, tiles, sides, answer))
    except ClusterUnreachable as error:
        answer.unreachable = error.message
        answer.fail(orders, tiles[len(answer.outcomes) :], error.message)
    except (MigrationError, kafka_errors.KafkaError) as error:
        answer.fail(orders, tiles[len(answer.outcomes) :], getattr(error, "message", None) or repr(error))
    finally:
        for cluster in sides.values():
            cluster.close()
        net.close()
    return answer


async def _each(orders: Orders, tiles: Sequence[Tile], clusters: Mapping[str, WireCluster], answer: Answer) -> None:
    tps = {tile.tp for _, tile in tiles}
    for cluster in clusters.values():
        try:
            await cluster.wait_for_leaders(tps, deadline=time.monotonic() + orders.seconds)
        except LeaderUnknown:
            # Of one partition: those of the others are known by now, and its own reader names what is missing.
            continue
    for number, tile in tiles:
        if tile.tp in answer.unanswered:
            answer.fail(orders, [(number, tile)], answer.unanswered[tile.tp])
            continue
        source = Side(
            clusters[SOURCE],
            tile.tp,
            tile.source_start,
            tile.source_end,
            committed=orders.committed,
            seconds=orders.seconds,
            left_out=tile.left_out,
        )
        # Uncommitted: whatever stands on the target must be explained.
        target = Side(
            clusters[TARGET],
            tile.tp,
            tile.target_start,
            tile.target_end,
            committed=False,
            seconds=orders.seconds,
            left_out=tile.target_left_out,
        )
        try:
            one, other, traits = await compare(tile, source, target)
        except CannotRead as error:
            if isinstance(error, Unanswered):
                answer.unanswered[tile.tp] = error.message
            answer.fail(orders, [(number, tile)], error.message)
        else:
            answer.outcomes.append(
                SegmentOutcome.of(number, tile, orders.level, source=one, target=other, traits=traits)
            )
