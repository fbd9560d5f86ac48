"""A migration in memory with gates to pass: clusters on which every check passes, and time that tests move."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from typer.testing import CliRunner, Result

from kafka_migration.cli.app import app
from kafka_migration.domain import ledger
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.kafka.types import ConfigValue, TopicDescription
from kafka_migration.migration import context
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.fakes.cluster import FakeCluster
from tests.steps.worlds import FakeClock

EVERYTHING = frozenset({"ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"})


class PlainStore(MemoryStore):
    """Keeps what the internal topic keeps: JSON whose fields have no order of their own."""

    def put(self, key: str, value: dict[str, Any]) -> None:
        super().put(key, ledger.decode(ledger.encode(value), where=key))


class PermissiveCluster(FakeCluster):
    """A cluster whose principal may do everything, and that tells all its settings."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(
                name=it.name,
                topic_id=it.topic_id,
                partitions=it.partitions,
                replication_factor=it.replication_factor,
                leaders=it.leaders,
                operations=EVERYTHING,
            )
            for name, it in super().topics(names).items()
        }

    def group_operations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return dict.fromkeys(names, EVERYTHING)

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        return bool(transactional_id)

    def api_versions(self) -> dict[str, tuple[int, int]]:
        recent = ("AddPartitionsToTxn", "DescribeConfigs", "EndTxn", "IncrementalAlterConfigs", "OffsetFetch")
        return super().api_versions() | dict.fromkeys(recent, (0, 20))

    def broker_configs(self) -> dict[str, ConfigValue]:
        more = {"socket.request.max.bytes": "104857600", "producer.id.expiration.ms": str(2**31 - 1)}
        return super().broker_configs() | {
            name: ConfigValue(value=value, is_explicit=False) for name, value in more.items()
        }


def by_tls(side: str) -> ClusterConnection:
    """The encrypted connection of a cluster."""
    return ClusterConnection(side, {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"})


class ActiveLink(LinkState):
    """A link whose mirror is active."""

    def __init__(self, migration: Migration, **options: Any) -> None:
        super().__init__("shop", migration.links, None, None, **options)
        self._migration = migration

    def run(self) -> dict[str, Any] | None:
        return super().run() or {"state": "running", "at": self._migration.clock.now().isoformat()}


class Migration:
    """The migration ``shop`` of two topics and a group, as far as a test has brought it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.source, self.target = PermissiveCluster("source"), PermissiveCluster("target")
        self.store, self.links = PlainStore(), PlainStore()
        self.told: list[str] = []
        #: As the cutover gate demands. The link's state holds nothing of it, and no position either.
        self.has_active_mirror = False
        self.source.add_topic("shop.orders", partitions=2, configs={"retention.ms": "604800000"})
        self.source.add_topic("shop.payments")
        self.produce(100)
        self.source.consumer_commits("shop.app", TopicPartition("shop.orders", 0), 40)
        self.source.consumer_commits("shop.app", TopicPartition("shop.orders", 1), 50)

    def produce(self, records: int) -> None:
        """Producers go on writing."""
        for tp in (*(TopicPartition("shop.orders", p) for p in (0, 1)), TopicPartition("shop.payments", 0)):
            self.source.append(tp, records)

    def plan(self, **fields: Any) -> Plan:
        return restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "a",
                "target": "b",
                "topics": {"include": [r"shop\..*"]},
                "groups": {"include": [r"shop\..*"]},
                **fields,
            }
        )

    def ctx(self, *, dry_run: Any = False, **fields: Any) -> Context:
        """A context as a new process would have it."""
        plan = self.plan(**fields)
        return Context(
            plan=plan,
            source=self.source,  # type: ignore[arg-type]
            target=self.target,  # type: ignore[arg-type]
            journal=Journal(self.store, "shop"),
            link=ActiveLink(self, selects=plan.topics.matches)
            if self.has_active_mirror
            else LinkState("shop", self.links, None, None, selects=plan.topics.matches),
            clock=self.clock,
            log=self.told.append,
            dry_run=dry_run,
        )

    def make_target_topic(self, spec: TopicSpec) -> None:
        """Somebody else makes a topic on the target."""
        self.target.add_topic(spec.name, partitions=spec.partitions, configs=spec.configs)


class InMemory(Protocol):
    """A migration whose contexts are made of what stands in memory."""

    def plan(self) -> Plan: ...
    def ctx(self, *, dry_run: bool) -> Context: ...


def at_a_terminal(
    migration: InMemory, folder: Path, patch: pytest.MonkeyPatch, *, columns: int = 120
) -> Callable[..., Result]:
    """Runs commands of the migration's plan: their name, then their options."""
    plan, path = migration.plan(), folder / "shop.yaml"
    path.write_text(yaml.safe_dump(plan.snapshot()))

    @contextmanager
    def open_context(_plan: Plan, *, dry_run: bool = False, **_: Any) -> Iterator[Context]:
        yield migration.ctx(dry_run=dry_run)

    patch.setattr(context, "open_context", open_context)
    for conn_id in (plan.source, plan.target):
        extra = {"bootstrap.servers": "127.0.0.1:1"}
        patch.setenv(variable_of(conn_id), json.dumps({"conn_type": "kafka", "extra": extra}))

    def km(command: str, *options: str) -> Result:
        return CliRunner().invoke(app, [command, str(path), *options], env={"COLUMNS": str(columns)})

    return km
