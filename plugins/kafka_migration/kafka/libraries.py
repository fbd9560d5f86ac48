"""Which library a cluster's clients are of: confluent-kafka, but kafka-python for Kerberos, under the same calls.

confluent-kafka's wheels know no GSSAPI (docs/adr/0019-kerberos.md). All functions take librdkafka's properties.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from kafka_migration.kafka import admin_client as of_confluent
from kafka_migration.kafka.connections import KERBEROS, ClusterConnection
from kafka_migration.kafka.properties import is_property


def is_kerberos(properties: Mapping[str, Any]) -> bool:
    """Whether these are properties of a cluster that is reached by Kerberos."""
    return properties.get("sasl.mechanism") == KERBEROS


def admin_client(properties: Mapping[str, Any], *, role: str, timeout_seconds: float) -> Any:
    """An admin client. With Kerberos, raises our errors where no broker answers."""
    if not is_kerberos(properties):
        return of_confluent.AdminClient(dict(properties))
    from kafka_migration.kafka.kerberos.admin import AdminClient
    from kafka_migration.kafka.raw import RawClient

    connection = ClusterConnection("(Kerberos)", {name: properties[name] for name in properties if is_property(name)})
    raw = RawClient(role, connection, timeout_seconds=timeout_seconds, connect_timeout_seconds=timeout_seconds)
    admin = AdminClient(raw)
    # As confluent-kafka's: whoever lets go of it closes its connections.
    weakref.finalize(admin, raw.close)
    return admin


def consumer(properties: Mapping[str, Any]) -> Any:
    """A consumer."""
    if not is_kerberos(properties):
        return confluent_kafka.Consumer(dict(properties))
    from kafka_migration.kafka.kerberos.clients import Consumer

    return Consumer(properties)


def producer(properties: Mapping[str, Any]) -> Any:
    """A producer."""
    if not is_kerberos(properties):
        return confluent_kafka.Producer(dict(properties))
    from kafka_migration.kafka.kerberos.clients import Producer

    return Producer(properties)
