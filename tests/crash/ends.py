"""How a shop stands in the end, without what two runs may differ in: times, ids, owners, and how often it was tried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord
from kafka_migration.link import reverse
from kafka_migration.state.journal import Journal
from tests.crash.shop import PARTITIONS, RECORDS, Shop

#: Kinds of the journal that are history, were written before, or say who works: what was found while it was tried.
_OF_THE_WAY = re.compile(r"^shop/(phase|approval|inventory|group-record|group|[a-z]+-owner|group-alive)/")
#: Attempts to fence the link, and fences: of these there is one more after a death.
_ATTEMPT, _FENCE = re.compile(r"/attempt/"), re.compile(r"/fence/\d+$")
_TIME, _ID = (
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+"),
    re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
)
#: Fields that measure, or count tries.
_MEASURED = frozenset(
    {"commits", "has_members", "looks", "owner_epoch", "producer_epoch", "records", "reached", "since"}
)

#: By side and partition: the markers beyond the first.
More = Mapping[str, Mapping[TopicPartition, int]]


def end_of(shop: Shop) -> dict[str, Any]:
    """Topics, ACLs, groups and clients of both clusters, the journal, and the links; markers beyond the first of a
    cluster are left out of every offset behind them. A mirror that was to end has ended by then."""
    shop.clock.sleep(1)
    stored, links = shop.store.items(), shop.links.items()
    attempts = [value["state"] for key, value in links.items() if _ATTEMPT.search(key)]
    more = {
        side: {tp: max(0, n - 1) for tp, n in markers.items() if tp.topic in shop.cluster(side).topic_names()}
        for side, markers in shop.markers.items()
    }
    return {
        **{side: _cluster(shop.cluster(side), moved) for side, moved in more.items()},
        "clients": {group: (sorted(it.members), it.faults) for group, it in shop.groups.items()},
        "producers": shop.producers,
        "groups": {group: _record(shop, group) for group in shop.GROUPS},
        "journal": plain({key: it for key, it in stored.items() if not _OF_THE_WAY.match(key)}, more),
        "links": plain({k: it for k, it in links.items() if not (_ATTEMPT.search(k) or _FENCE.search(k))}, more),
        "fenced": sorted({key.partition("/")[0] for key in links if _FENCE.search(key)}),
        "last attempt": sorted(attempts)[-1:],
        "cuts": _cuts(shop, more),
    }


def _cluster(cluster: Any, more: Mapping[TopicPartition, int]) -> dict[str, Any]:
    ends = cluster.ends([tp for tp in PARTITIONS if tp.topic in cluster.topic_names()])
    return {
        "configs": {name: dict(sorted(it.configs.items())) for name, it in sorted(cluster._topics.items())},
        "ends": {str(tp): log.end - more.get(tp, 0) for tp, log in ends.items()},
        "acls": sorted(map(repr, cluster._acls or ())),
        "groups": {name: (_commits(it.commits, more), len(it.members)) for name, it in sorted(cluster._groups.items())},
    }


def _commits(commits: dict[TopicPartition, Any], more: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {
        str(tp): commit.offset - (more.get(tp, 0) if commit.offset > RECORDS else 0)
        for tp, commit in sorted(commits.items())
    }


def _record(shop: Shop, group: str) -> list[Any]:
    """The moves of a group: which way, how far, and from where to where."""
    return [
        (
            str(leg.direction),
            leg.generation,
            sorted(map(str, leg.steps)),
            [(str(it.tp), it.source, it.target, it.policy) for it in leg.translations],
        )
        for leg in GroupRecord.load(Journal(shop.store, "shop"), group).legs
    ]


def _cuts(shop: Shop, more: More) -> dict[str, Any]:
    """From where to where each link goes that has begun behind another one."""
    cuts = {}
    for ctx in [*reverse.all_begun(shop.ctx())][1:]:
        moved = more[ctx.direction.origin]
        found = {tp: it.first_of_newest() for tp, it in sorted(ctx.link.openings().items())}
        cuts[ctx.link.name] = {str(tp): (cut.source - moved[tp], cut.target) for tp, cut in found.items()}
    return cuts


def plain(value: Any, more: More, path: str = "") -> Any:
    if isinstance(value, dict):
        return {
            plain(key, more): _ends(one, more, path) if key == "ends" else plain(one, more, f"{path}/{key}")
            for key, one in sorted(value.items())
            if key not in _MEASURED and not key.endswith(("_ms", "seconds", "_at")) and key != "at"
        }
    if isinstance(value, list | tuple):
        return [plain(one, more, path) for one in value]
    if isinstance(value, str):
        return _ID.sub("ID", _TIME.sub("TIME", value))
    return value


def _ends(packed: Any, more: More, path: str) -> Any:
    """Ends by topic and partition; those of deleted topics not. Those of a seal are markers."""
    moved = more.get("source" if ":reverse" in path else "target", {})
    found = {TopicPartition(topic, int(n)): end for topic, parts in packed.items() for n, end in parts.items()}
    return {str(tp): end - (moved[tp] if "seal" in path else 0) for tp, end in sorted(found.items()) if tp in moved}
