"""Two clusters behind locks, and principals that may do what a test grants them: a password on the source, a
certificate on the target, and a different name on each side."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AdminClient,
    NewTopic,
)

from demo.access import binding
from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from kafka_migration.inventory import permissions
from kafka_migration.inventory.permissions import Rule
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from tests.kafka_tools import commit_with

PRINCIPALS = {"source": "mover-reads", "target": "mover-writes"}


@dataclass
class Locked:
    """The pair, its administrators, and the connections of the migration's two principals."""

    source: EmbeddedKafka
    target: EmbeddedKafka
    authority: Authority
    password: str
    _admins: dict[str, AdminClient] = field(default_factory=dict)

    def admin(self, side: str) -> AdminClient:
        """Held, since a client that is gone answers nothing."""
        if side not in self._admins:
            self._admins[side] = AdminClient({**self.admin_properties(side)})
        return self._admins[side]

    def admin_properties(self, side: str) -> dict[str, str]:
        return (self.source if side == "source" else self.target).admin_properties

    def connections(self) -> dict[str, dict[str, Any]]:
        """By connection id, as Airflow's JSON form has them."""
        reads = security.scram_client(self.authority, PRINCIPALS["source"], self.password)
        writes = self.authority.client(PRINCIPALS["target"])
        return {
            f"locked_{side}": {"conn_type": "kafka", "extra": {"bootstrap.servers": servers, **properties}}
            for side, servers, properties in (
                ("source", self.source.bootstrap_servers, reads),
                ("target", self.target.bootstrap_servers, writes),
            )
        }

    def environment(self) -> dict[str, str]:
        return {variable_of(name): json.dumps(it) for name, it in self.connections().items()}

    def secrets(self) -> list[str]:
        """All that must never be shown: the password, and what of the private key no other file holds."""
        return [self.password, *key_lines(self.authority.directory / f"{PRINCIPALS['target']}.key")]

    # --- access rules ------------------------------------------------------------------------------------------------

    def grant(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            for future in self.admin(rule.right.side).create_acls([_binding(rule)]).values():
                future.result(30)

    def revoke(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            it = _binding(rule)
            wanted = AclBindingFilter(
                it.restype, it.name, it.resource_pattern_type, it.principal, it.host, it.operation, it.permission_type
            )
            for future in self.admin(rule.right.side).delete_acls([wanted]).values():
                assert len(future.result(30)) == 1, f"{rule} was not granted"

    @contextmanager
    def granted(self, rules: Iterable[Rule]) -> Iterator[None]:
        given = list(rules)
        self.grant(given)
        try:
            yield
        finally:
            self.revoke(given)

    @contextmanager
    def without(self, rule: Rule) -> Iterator[None]:
        """``rule`` is not granted meanwhile."""
        self.revoke([rule])
        try:
            yield
        finally:
            self.grant([rule])

    # --- what is on the clusters -------------------------------------------------------------------------------------

    def create(self, side: str, topic: str, partitions: int = 1) -> None:
        for future in self.admin(side).create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(30)

    def commit(self, side: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
        commit_with(self.admin_properties(side), group, offsets)

    def committed(self, side: str, group: str) -> dict[tuple[str, int], int]:
        wanted = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        found = self.admin(side).list_consumer_group_offsets(wanted)[group].result(30)
        return {(it.topic, it.partition): it.offset for it in found.topic_partitions or ()}


def _binding(rule: Rule) -> AclBinding:
    return binding(rule, f"User:{PRINCIPALS[rule.right.side]}")


def with_back_door(it: security.Security, protocol: str, *principals: str) -> security.Security:
    """``it``, with an internal listener that is open to tests, and ``principals`` that may do everything."""
    return replace(
        it,
        properties={
            **it.properties,
            "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *principals)),
        },
        admin={},
    )


def key_lines(file: Path) -> list[str]:
    """What of a private key stands in no other file."""
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("-----")]


def small_plan(**fields: Any) -> Plan:
    """One topic and one group, by name, of a migration that nobody else has."""
    name = f"locks-{uuid.uuid4().hex[:6]}"
    return restore_plan(
        {
            "version": 1,
            "name": name,
            "source": "locked_source",
            "target": "locked_target",
            "topics": {"include": [f"{name}-orders"]},
            "groups": {"include": [f"{name}-billing"]},
            "mirror": {"num_streams": 1, "epoch_seconds": 2},
            "approvals": {"plan": False, "cutover": False},
            "lag_gate": {"threshold_records": 0, "samples": 1, "interval_seconds": 0.5, "deadline_seconds": 60},
            "cutover": {"rest_seconds": 1, "stopped_groups": [f"{name}-billing"]},
            **fields,
        }
    )


def all_rules(plan: Plan) -> list[Rule]:
    """What `acls` prints for both sides."""
    names = permissions.names_of(plan)
    return [rule for side in permissions.SIDES for rule in permissions.rules(plan, side, names)]


@contextmanager
def locked_pair(directory: Path) -> Iterator[Locked]:
    """Start both clusters, and end them."""
    authority, password = Authority(directory), secrets.token_urlsafe(24)
    source = EmbeddedKafka(name="locked-source", security=security.scram(authority, {PRINCIPALS["source"]: password}))
    target = EmbeddedKafka(name="locked-target", security=security.mutual_tls(authority))
    authority.client(PRINCIPALS["target"])
    with ExitStack() as stack:
        for cluster in (source, target):
            stack.callback(cluster.stop)
            cluster.launch()
        for cluster in (source, target):
            cluster.wait_ready()
        yield Locked(source, target, authority, password)
