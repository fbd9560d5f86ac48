"""What the preflight's checks look at, asked of the clusters when first needed and once only; and what they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord
from kafka_migration.inventory import inventory
from kafka_migration.inventory.permissions import spelled_out
from kafka_migration.kafka.facts import Inventory
from kafka_migration.kafka.types import ConfigValue
from kafka_migration.topics import declared
from kafka_migration.topics.declared import TopicStep
from kafka_migration.waves.order import Waves, waves_of
from kafka_migration.waves.pinned import pinned

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

T = TypeVar("T")


class Facts:
    """Facts of one preflight, each asked for once: one that could not be found out fails every check that needs it,
    without asking (and waiting for) a silent cluster again."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.taken: Inventory | None = None
        self._known: dict[str, Any] = {}
        self._failed: dict[str, MigrationError] = {}

    @property
    def inventory(self) -> Inventory:
        """The source's."""
        self.taken = self._once("inventory", lambda: inventory.take(self.ctx))
        return self.taken

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the plan selects: those that the source shows, and those that the plan spells out."""
        plan = self.ctx.plan
        shown = self._once("topics", lambda: plan.topics.select(self.ctx.source.topics()))
        return tuple(sorted({*shown, *spelled_out(plan.topics)}))

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that the plan selects, likewise."""
        plan = self.ctx.plan
        shown = self._once("groups", lambda: plan.groups.select(self.ctx.source.groups()))
        return tuple(sorted({*shown, *spelled_out(plan.groups)}))

    @property
    def steps(self) -> tuple[TopicStep, ...]:
        """What ``create`` would do."""
        return self._once("steps", lambda: declared.steps(self.ctx))

    @property
    def bytes_to_copy(self) -> dict[str, int]:
        """Of each topic, what the plan has copied of it (``mirror.start``), one replica; 0 where a size is unknown."""
        return self._once("bytes to copy", self._bytes_to_copy)

    def _bytes_to_copy(self) -> dict[str, int]:
        topics, begin = self.inventory.topics, self.ctx.plan.mirror.start
        sizes = {name: topic.bytes or 0 for name, topic in topics.items()}
        if begin == "earliest":
            return sizes
        if begin == "latest":
            return dict.fromkeys(sizes, 0)
        tps = [TopicPartition(name, partition) for name, topic in topics.items() for partition in topic.ends]
        first = self.ctx.source.first_since(tps, round(datetime.fromisoformat(begin).timestamp() * 1000))
        left = {
            name: sum(max(0, log.end - first.get(TopicPartition(name, n), log.start)) for n, log in topic.ends.items())
            for name, topic in topics.items()
        }
        return {name: round(sizes[name] * left[name] / max(1, topic.offsets)) for name, topic in topics.items()}

    @property
    def waves(self) -> Waves:
        """The plan's waves on what the source has."""
        return self._once("waves", lambda: plan_waves(self.ctx, self.inventory))

    @property
    def target_defaults(self) -> dict[str, ConfigValue]:
        """Configs of a broker of the target."""
        return self._once("target defaults", self.ctx.target.broker_configs)

    @property
    def target_brokers(self) -> int:
        """How many brokers the target has."""
        return self._once("target brokers", self.ctx.target.broker_count)

    def target_config(self, name: str) -> int | None:
        """A number among the target's broker configs, None if it has no such config."""
        config = self.target_defaults.get(name)
        return int(config.value) if config is not None and config.value is not None else None

    def _once(self, what: str, ask: Callable[[], T]) -> T:
        if what in self._failed:
            raise self._failed[what]
        if what not in self._known:
            try:
                self._known[what] = ask()
            except MigrationError as error:
                self._failed[what] = error
                raise
        known: T = self._known[what]
        return known


def plan_waves(ctx: Context, taken: Inventory) -> Waves:
    """The waves of the plan on ``taken``; computed ones as `create` has settled them. What a stopped group was once
    seen to subscribe to counts, too."""
    remembered = {name: record.subscription for name, record in GroupRecord.all(ctx.journal).items()}
    return waves_of(ctx.plan, taken, remembered=remembered, before=pinned(ctx))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found: a check result without the check's name."""

    verdict: Verdict
    evidence: str
    remedy: str = ""


def passed(evidence: str) -> Finding:
    """All is well."""
    return Finding(verdict=Verdict.PASS, evidence=evidence)


def failed(evidence: str, remedy: str) -> Finding:
    """The migration would go wrong."""
    return Finding(verdict=Verdict.FAIL, evidence=evidence, remedy=remedy)


def warned(evidence: str, remedy: str) -> Finding:
    """Know this before you go on."""
    return Finding(verdict=Verdict.WARN, evidence=evidence, remedy=remedy)


def unchecked(evidence: str, remedy: str) -> Finding:
    """The check could not be run."""
    return Finding(verdict=Verdict.UNCHECKED, evidence=evidence, remedy=remedy)


def sizes_unknown(inventory: Inventory) -> Finding:
    """For checks that need the sizes of topics, where the inventory lacks them."""
    why = inventory.unchecked.get("bytes", "the source does not report how many bytes its topics have")
    return unchecked(why, "grant Describe on the source cluster to the principal of its connection")


def tiered_topics(facts: Facts) -> str:
    """Topics of which sizes show only what lies on the brokers' own disks, in words; "" for none."""
    topics = facts.inventory.topics.values()
    found = sorted(topic.name for topic in topics if topic.configs.get("remote.storage.enable") == "true")
    return f"without what lies in remote storage, which brokers do not report: {listed(found)}" if found else ""
