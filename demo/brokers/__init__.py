"""Real Kafka brokers, started and stopped by Python: no Docker, no ZooKeeper, nothing installed."""

from demo.brokers.cluster import EmbeddedKafka
from demo.brokers.process import BrokerError

__all__ = ["BrokerError", "EmbeddedKafka"]
