"""What became of the topics that the link pinned: still there, gone, or others under the same name."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Halt
from kafka_migration.wire.cluster import UNAUTHORIZED, WireCluster, code_name

_UNKNOWN_TOPIC = 3
_GONE_SECONDS = 10.0


async def survey(cluster: WireCluster, topics: Iterable[str]) -> dict[str, tuple[Halt, str]]:
    """Topics that are not what ``cluster.pinned`` says, with the name and the detail of the halt that they call for.

    A topic counts as missing only after ten seconds, since a broker that has just started may not know all. Raises
    NotAuthorized, and CouldNotFindOut for any other answer that stays: a halt is for a person to lift, so it is never
    founded on trouble that passes.
    """
    names, deadline = set(topics), time.monotonic() + _GONE_SECONDS
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
        if name in problems and problems[name] != _UNKNOWN_TOPIC:
            raise CouldNotFindOut(
                f"{cluster.role}: nothing is known of topic {name}: {code_name(problems[name])}",
                remedy="check the brokers' state, then run this again",
            )
        pinned = cluster.pinned.get(name)
        if name in problems:
            lost[name] = Halt.TOPIC_MISSING, f"the {cluster.role} has no topic of this name"
        elif pinned is not None and pinned.int and cluster.topic_ids.get(name) != pinned:
            lost[name] = Halt.RECREATED, f"the {cluster.role} topic was deleted and created again"
    return lost
