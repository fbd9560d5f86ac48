"""Topics of the source that a mirror has copied there from the target: by a migration with other names for them, they
would go back, be copied again under longer names, and so on for ever."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import SOURCE
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import Store, TopicStore

if TYPE_CHECKING:
    from kafka_migration.kafka.types import TopicDescription
    from kafka_migration.migration.context import Context


def from_target(ctx: Context, topics: Mapping[str, TopicDescription]) -> dict[str, str]:
    """Those of the source's ``topics`` that a link copies there from the target, by its name. A link keeps its state on
    the cluster that it begins by writing to, so the source knows; topics are recognised by their ids. A link that is
    sealed copies nothing any more.

    Raises NotAuthorized, or ClusterUnreachable, where that state cannot be read.
    """
    with closing(TopicLog(ctx.source.connection.librdkafka(), ledger.LINKS_TOPIC, role=SOURCE)) as log:
        if not log.exists(is_written=False):
            return {}
        with closing(TopicStore(log)) as store:
            copied = _copied(store, source=ctx.target.cluster_id(), target=ctx.source.cluster_id())
    return {name: copied[topic.topic_id] for name, topic in topics.items() if topic.topic_id in copied}


def _copied(links: Store, *, source: str, target: str) -> dict[str, str]:
    """Links by the ids of the topics that they write to, of those from ``source`` to ``target`` (ids of clusters)."""
    found: dict[str, str] = {}
    keys = links.keys("")
    for link in (key for key in keys if "/" not in key):
        pinned = links.get(link) or {}
        if (pinned.get("source_cluster"), pinned.get("target_cluster")) != (source, target):
            continue
        if (links.get(ledger.link_key(link, "seal").decode()) or {}).get("ends"):
            # Complete: it copies nothing any more.
            continue
        for value in links.items(ledger.link_key(link, "topic", "").decode()).values():
            if value["target_id"]:
                found[value["target_id"]] = link
    return found
