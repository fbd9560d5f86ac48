"""Sealing a link: a fence whose producer epoch no mirror gets, read back in each partition (docs/mirror.md, rule 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_migration.copy.driver.fencing import known_of, now
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.driver.takeover import Fenced, Stopped, take_over
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import HaltedPartition, Refused, TakenOver
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.fence import Forgotten, await_markers, is_marker_of
from kafka_migration.wire.markers import keep_alive
from kafka_migration.wire.selector import Selector

_SECONDS, _ASK_SECONDS = 120.0, 30.0


def seal(
    link: Link,
    target: Mapping[str, Any],
    log: Callable[[str], None] = lambda _text: None,
    *,
    direction: Direction = Direction.FORWARD,
) -> Seal:
    """Seal ``link``, which was drained; a second call proves the seal again. Killed anywhere, the next call converges.

    The wish stands first, and durably: from then on every task stops at its next look, and no mirror begins. The seal
    itself is the marker. ``target`` are kafka-python properties of the link's destination.

    Raises HaltedPartition where the log is not what the link wrote, Refused if it holds more than the link knows of,
    CouldNotFindOut if it stays unknown whether the seal holds.
    """
    net = Selector()
    cluster = WireCluster(net, target, direction.destination)
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
        log(f"sealed {len(done.ends)} partitions: {_shown(done)}")
        return done
    finally:
        cluster.close()
        net.close()


def _fence(cluster: WireCluster, net: Selector, link: Link) -> Fenced:
    fences, positions = dict(link.fences()), link.positions()
    known = known_of(link, positions, fences, positions)
    fenced: Fenced = net.run(
        lambda: take_over(cluster, transactional_id=link.transactional_id, known=known, fences=fences)
    )
    for tp, tail in fenced.tails.items():
        if tail.stopped is not None:
            raise _halted(tp, tail.stopped)
        if tail.data_end != positions[tp].target:
            raise Refused(
                f"{tp}: the target's records end at offset {tail.data_end}, but the mirror's position is"
                f" {positions[tp].target}",
                remedy="a mirror wrote until just now: run `mirror --unseal --until-caught-up`, then stop again",
            )
    for tp, stopped in fenced.stopped.items():
        raise _halted(tp, stopped)
    link.record_fence(fenced.fence, fenced.identity, at=now())
    return fenced


def _halted(tp: TopicPartition, stopped: Stopped) -> HaltedPartition:
    return HaltedPartition(
        topic=tp.topic,
        partition=tp.partition,
        reason=str(stopped.reason),
        detail=stopped.detail,
        target_offset=stopped.target_offset,
        remedy="`mirror --unseal` goes on, and halts this partition; `status` then shows what can be done",
    )


def _still_holds(cluster: WireCluster, net: Selector, link: Link, found: Seal, identity: Identity) -> bool:
    """True if nobody has fenced the link since, and the seal's markers stand where they stood.

    Raises CouldNotFindOut where that stays unknown: no reason to fence again, which moves the final ends.
    """
    fences, ends = link.fences(), dict(found.ends)
    if not fences or fences[max(fences)] != identity:
        return False
    try:
        net.run(lambda: keep_alive(cluster, link.transactional_id, identity, deadline=_in(_ASK_SECONDS)))
    except TakenOver:
        return False
    except Forgotten:
        # Nobody has used it for days, as is right for a sealed link. Of a later fence its state would know.
        pass
    log_ends = net.run(lambda: cluster.list_offsets(ends, LATEST, deadline=_in(_ASK_SECONDS)))
    if any(log_ends[tp] <= end for tp, end in ends.items()):
        return False
    # What stands at a marker's offset is that marker, or the log is another one.
    there = net.run(
        lambda: await_markers(
            cluster, identity, ends, lambda _tp, header: is_marker_of(header, identity), deadline=_in(_SECONDS)
        )
    )
    return dict(there) == ends


def _in(seconds: float) -> float:
    return time.monotonic() + seconds


def _shown(found: Seal) -> str:
    ends = [f"{tp} ends at {end}" for tp, end in sorted(found.ends.items())]
    return ", ".join(ends[:3]) + (", …" if len(ends) > 3 else "")
