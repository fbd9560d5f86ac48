"""A source with an authorizer, in memory: three brokers, producers, a probe, and the migration's own principal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from kafka_migration.domain.types import TopicPartition
from kafka_migration.fence import fence
from kafka_migration.fence.fence import Fenced, Lifted
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import Context
from kafka_migration.plans.hooks import Hook
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.fakes.cluster import FakeCluster
from tests.steps.gates import PlainStore
from tests.steps.worlds import FakeClock

ORDERS, PAYMENTS = "shop.orders", "shop.payments"
FIRST = TopicPartition(ORDERS, 0)
OWN, PROBE = "User:mover", "User:probe"


def acl(principal: str, operation: str, resource: str, pattern: str = "LITERAL", permission: str = "ALLOW") -> Acl:
    return Acl(
        resource_type="TOPIC",
        resource=resource,
        pattern=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission=permission,
    )


#: Two who may write to the plan's topics, the migration's own principal, and the probe.
SHOP_ACLS = (
    acl("User:web", "WRITE", ORDERS),
    acl("User:billing", "ALL", "shop.", "PREFIXED"),
    acl(OWN, "READ", "shop.", "PREFIXED"),
    acl(OWN, "WRITE", "shop.", "PREFIXED"),
    acl(PROBE, "WRITE", "shop.", "PREFIXED"),
)


class FencedShop:
    """The plan ``shop`` and its source. ``ctx`` is what a new process would have; ``hooked`` are hooks that ran."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.source = FakeCluster("source", brokers=3, has_authorizer=True)
        self.target = FakeCluster("target")
        self.store: MemoryStore = PlainStore()
        self.links = PlainStore()
        self.told: list[str] = []
        self.hooked: list[tuple[str, str]] = []
        self.source.add_topic(ORDERS, partitions=3)
        self.source.add_topic(PAYMENTS)
        self.source.add_topic("other")
        for partition in range(3):
            self.source.lead(TopicPartition(ORDERS, partition), partition + 1)
        self.grant(
            acl("User:web", "WRITE", ORDERS),
            acl("User:billing", "ALL", "shop.", "PREFIXED"),
            acl("User:batch", "WRITE", "*"),
            acl("User:reader", "READ", ORDERS),
            acl("User:stranger", "WRITE", "other"),
            acl(OWN, "READ", "shop.", "PREFIXED"),
            acl(PROBE, "WRITE", "shop.", "PREFIXED"),
        )

    def grant(self, *acls: Acl) -> None:
        self.source.create_acls(acls)
        self.source.changes.clear()

    def revoke(self, *acls: Acl) -> None:
        self.source.delete_acls(acls)
        self.source.changes.clear()

    def plan(self, *, producers: Any = None, **fence: Any) -> Plan:
        section = {"fence": {"probe": "probe", **fence}, **(producers or {})}
        return restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "own",
                "target": "b",
                "topics": {"include": [r"shop\..*"]},
                "producers": section,
            }
        )

    def ctx(self, *, dry_run: bool = False, plan: Plan | None = None, **fields: Any) -> Context:
        found = plan or self.plan(**fields)
        return Context(
            plan=found,
            source=self.source.as_principal(OWN),  # type: ignore[arg-type]
            target=self.target,  # type: ignore[arg-type]
            journal=Journal(self.store, "shop"),
            link=LinkState("shop", self.links, None, None, selects=found.topics.matches),
            clock=self.clock,
            log=self.told.append,
            dry_run=dry_run,
            connect=self.connect,
        )

    def connect(self, role: str, conn_id: str, timeout_seconds: float) -> Any:
        """As the principal of that name; with Alter on the cluster only for the migration's own."""
        return self.source.as_principal(f"User:{'mover' if conn_id == 'own' else conn_id}")

    def run_hooks(self, hooks: Iterable[Hook], phase: Literal["fence", "lift"]) -> None:
        self.hooked += [((hook.command or ("",))[0], phase) for hook in hooks]

    def fence(self, **fields: Any) -> Fenced:
        return fence.apply(self.ctx(**fields), self.run_hooks)

    def lift(self, **fields: Any) -> Lifted:
        return fence.lift(self.ctx(**fields), self.run_hooks, sweeps=True)

    def denials(self) -> set[tuple[str, str]]:
        """Principal and topic of every denial that there is."""
        return {(it.principal, it.resource) for it in self.source.acls() if it.permission == "DENY"}
