"""Sealing a link: a fence whose epoch no mirror gets, read back in every partition (docs/mirror.md, rule 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from kafka.net.selector import NetworkSelector

from kafka_migration.domain.errors import HaltedPartition, MigrationError, Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, Position, TopicPartition
from kafka_migration.mirror.book import LinkBook
from kafka_migration.mirror.fencing import known_of, now
from kafka_migration.mirror.takeover import Fenced, take_over
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.fence import await_markers
from kafka_migration.wire.markers import keep_alive

_SECONDS = 120.0


class SealableLink(LinkBook, Protocol):
    """A link whose seal can be written."""

    def positions(self) -> Mapping[TopicPartition, Position]: ...
    def record_seal(self, seal: Seal) -> None: ...


def seal(link: SealableLink, target: Mapping[str, Any], tell: Callable[[str], None] = lambda _text: None) -> Seal:
    """Seal ``link``, which was drained; a second call proves the seal again. Killed anywhere, the next call converges.

    The wish stands first, and durably: from then on every task stops at its next look, and no mirror begins. The seal
    itself is the marker. ``target`` are kafka-python properties. Raises HaltedPartition where the log is not what the
    link wrote, Refused if it holds more than the link knows of.
    """
    net = NetworkSelector(slow_task_threshold_secs=0)
    cluster = WireCluster(net, target, "target")
    try:
        cluster.connect()
        for topic in link.topics().values():
            cluster.pinned[topic.name] = topic.target_id
        found = link.seal()
        if found is None:
            found = Seal(at=now(), ends={})
            link.record_seal(found)
        if found.is_complete and found.identity is not None and _still_holds(cluster, net, link, found, found.identity):
            return found
        fenced = _fence(cluster, net, link)
        done = replace(found, identity=fenced.identity, ends=dict(fenced.markers))
        link.record_seal(done)
        tell(f"sealed {len(done.ends)} partitions: {_shown(done)}")
        return done
    finally:
        cluster.close()
        net.close()


def _fence(cluster: WireCluster, net: NetworkSelector, link: SealableLink) -> Fenced:
    fences, positions = dict(link.fences()), link.positions()
    known = known_of(link, positions, fences, positions)
    fenced: Fenced = net.run(
        lambda: take_over(cluster, transactional_id=link.transactional_id, known=known, fences=fences)
    )
    for tp, tail in fenced.tails.items():
        stopped = tail.stopped
        if stopped is not None:
            raise HaltedPartition(
                topic=tp.topic,
                partition=tp.partition,
                reason=str(stopped.reason),
                detail=stopped.detail,
                target_offset=stopped.target_offset,
                remedy="`mirror --unseal` goes on, and halts this partition; `status` then says what can be done",
            )
        if tail.data_end != positions[tp].target:
            raise Refused(
                f"{tp}: the target's data end at {tail.data_end}, the mirror's position is {positions[tp].target}",
                remedy="a mirror wrote until just now: run `mirror --unseal --until-caught-up`, then stop again",
            )
    for tp, gone in fenced.stopped.items():
        raise HaltedPartition(
            topic=tp.topic,
            partition=tp.partition,
            reason=str(gone.reason),
            detail=gone.detail,
            target_offset=gone.target_offset,
            remedy="`mirror --unseal` goes on, and halts this partition; `status` then says what can be done",
        )
    link.record_fence(fenced.fence, fenced.identity, at=now())
    return fenced


def _still_holds(
    cluster: WireCluster, net: NetworkSelector, link: SealableLink, found: Seal, identity: Identity
) -> bool:
    """True if the seal's epoch is still the newest of the transactional id, and its markers stand where they stood."""
    deadline = time.monotonic() + _SECONDS
    try:
        net.run(lambda: keep_alive(cluster, link.transactional_id, identity, deadline=time.monotonic() + 5))
        there = net.run(
            lambda: await_markers(cluster, identity, dict(found.ends), lambda _tp, _header: True, deadline=deadline)
        )
    except MigrationError:
        return False
    return dict(there) == dict(found.ends)


def _shown(found: Seal) -> str:
    ends = [f"{tp} ends at {end}" for tp, end in sorted(found.ends.items())]
    return ", ".join(ends[:3]) + (", …" if len(ends) > 3 else "")
