"""What became of the topics that the link pinned: still there, gone, or others under the same name."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Halt
from kafka_migration.wire.cluster import UNAUTHORIZED, WireCluster, code_name

UNKNOWN_TOPIC = 3
GONE_SECONDS = 10.0


async def survey(cluster: WireCluster, topics: Iterable[str]) -> dict[str, tuple[Halt, str]]:
    """Topics that are not what ``cluster.pinned`` says, with the name and the detail of the halt that they call for.

    A topic counts as missing only after ten seconds, since a broker that has just started may not know all. Raises
    NotAuthorized, and CouldNotFindOut for any other answer that stays: a halt is for a person to lift, so it is never
    founded on trouble that passes.
    """
    names, deadline = set(topics), time.monotonic() + GONE_SECONDS
    while True:
        problems = await cluster.refresh(names)
        for name, code in problems.items():
            if code in UNAUTHORIZED:
                raise NotAuthorized(cluster.role, "Describe", f"topic {name}")
        if not problems or time.monotonic() > deadline:
            break
        await cluster.net.sleep(0.2)
    lost: dict[str, tuple[Halt, str]] = {}
    for name in sorted(names):
        if name in problems and problems[name] != UNKNOWN_TOPIC:
            raise CouldNotFindOut(
                f"{cluster.role}: nothing is known of topic {name}: {code_name(problems[name])}",
                remedy="check the brokers' state, then run this again",
            )
        another = None if name in problems else recreated(cluster, name)
        if name in problems:
            lost[name] = missing(cluster)
        elif another is not None:
            lost[name] = another
    return lost


def missing(cluster: WireCluster) -> tuple[Halt, str]:
    """Name and detail of the halt of a topic that ``cluster`` does not know any more."""
    return Halt.TOPIC_MISSING, f"the {cluster.role} has no topic of this name"


def recreated(cluster: WireCluster, topic: str) -> tuple[Halt, str] | None:
    """The same for a topic that ``cluster`` knows; None if it is the one that was pinned."""
    pinned = cluster.pinned.get(topic)
    if pinned is not None and pinned.int and cluster.topic_ids.get(topic) != pinned:
        return Halt.RECREATED, f"the {cluster.role} topic was deleted and created again"
    return None
