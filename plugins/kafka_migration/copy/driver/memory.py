"""For how long a cluster's brokers remember a producer after the time of its last record."""

from __future__ import annotations

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest

from kafka_migration.wire.cluster import WireCluster

_BROKER = 4
_SETTING = "producer.id.expiration.ms"


async def producer_memory_ms(cluster: WireCluster) -> int | None:
    """The shortest ``producer.id.expiration.ms`` of all brokers (KIP-854), or None if any does not tell it.

    Needs DescribeConfigs on the cluster; brokers before 3.4 do not know the setting.
    """
    found: list[int] = []
    for broker in cluster.manager.cluster.brokers():
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[_SETTING]
        )
        try:
            response = await cluster.send(DescribeConfigsRequest(resources=[resource]), broker.node_id)
        except kafka_errors.KafkaError:
            return None
        values = [
            int(config.value)
            for result in response.results
            if not result.error_code
            for config in result.configs
            if config.name == _SETTING and config.value is not None
        ]
        if not values:
            return None
        found += values
    return min(found, default=None)
