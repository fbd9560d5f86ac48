"""What a topic is configured to, asked at the protocol's level: where the answer decides what a task does."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from kafka.protocol.admin import DescribeConfigsRequest

from kafka_migration.domain import logs
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.wire.cluster import WireCluster, code_name

_TOPIC = 2
_SECONDS = 10.0


async def described(
    cluster: WireCluster, topics: Iterable[str], names: Iterable[str]
) -> tuple[dict[str, dict[str, str]], dict[str, int]]:
    """Those of ``names`` that ``cluster`` knows, explicit or not, by topic; and the error codes of topics whose configs
    it does not return. One request. Raises CouldNotFindOut, and kafka-python's errors."""
    resource, keys = DescribeConfigsRequest.DescribeConfigsResource, sorted(names)
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC, resource_name=name, configuration_keys=keys)
            for name in sorted(map(cluster.name_here, topics))
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    results = (await cluster.send_to_any(request, deadline=time.monotonic() + _SECONDS)).results
    found = {
        cluster.known_as(topic.resource_name): {config.name: config.value or "" for config in topic.configs}
        for topic in results
        if not topic.error_code
    }
    refused = {cluster.known_as(topic.resource_name): topic.error_code for topic in results if topic.error_code}
    return found, refused


async def topic_configs(cluster: WireCluster, topic: str, names: Collection[str]) -> dict[str, str]:
    """As :func:`described`, of one topic. Raises CouldNotFindOut, and kafka-python's errors."""
    found, refused = await described(cluster, [topic], names)
    if topic in refused:
        raise CouldNotFindOut(
            f"{cluster.role}: the configs of topic {topic} cannot be read: {code_name(refused[topic])}",
            remedy=f"grant DescribeConfigs on topic {cluster.name_here(topic)} to the principal of this connection",
        )
    if topic not in found:
        raise CouldNotFindOut(
            f"{cluster.role}: no broker reports the configs of topic {topic}", remedy="run this again"
        )
    return found[topic]


async def can_be_empty(cluster: WireCluster, topic: str) -> bool:
    """Whether offsets of its log can hold nothing although nobody deleted them: it is compacted, and all of it lies
    with its brokers, so that what they do not send is not there. Raises as :func:`topic_configs` does."""
    found = await topic_configs(cluster, topic, logs.LOOKED_AT)
    return logs.is_compacted(found) and not logs.is_tiered(found)
