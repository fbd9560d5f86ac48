"""What the preflight's checks look at: asked of the clusters when first needed, and once only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import MigrationError
from kafka_migration.inventory import inventory
from kafka_migration.inventory.permissions import spelled_out
from kafka_migration.kafka.facts import Inventory
from kafka_migration.kafka.types import ConfigValue
from kafka_migration.topics import declared
from kafka_migration.topics.declared import TopicStep

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

T = TypeVar("T")

_SHOWN = 10


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
        """Topics that the plan means: those that the source shows, and those that the plan spells out."""
        plan = self.ctx.plan
        shown = self._once("topics", lambda: plan.topics.select(self.ctx.source.topics()))
        return tuple(sorted({*shown, *spelled_out(plan.topics)}))

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that the plan means, likewise."""
        plan = self.ctx.plan
        shown = self._once("groups", lambda: plan.groups.select(self.ctx.source.groups()))
        return tuple(sorted({*shown, *spelled_out(plan.groups)}))

    @property
    def steps(self) -> tuple[TopicStep, ...]:
        """What ``create`` would do."""
        return self._once("steps", lambda: declared.steps(self.ctx))

    @property
    def target_defaults(self) -> dict[str, ConfigValue]:
        """Settings of a broker of the target."""
        return self._once("target defaults", self.ctx.target.broker_configs)

    @property
    def target_brokers(self) -> int:
        """How many brokers the target has."""
        return self._once("target brokers", self.ctx.target.broker_count)

    def target_setting(self, name: str) -> int | None:
        """A number among the target's broker settings, None if it has no such setting."""
        setting = self.target_defaults.get(name)
        return int(setting.value) if setting is not None and setting.value is not None else None

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


def passed(name: str, evidence: str) -> CheckResult:
    """A check that says yes."""
    return CheckResult(name=name, verdict=Verdict.PASS, evidence=evidence)


def failed(name: str, evidence: str, remedy: str) -> CheckResult:
    """A check that says no."""
    return CheckResult(name=name, verdict=Verdict.FAIL, evidence=evidence, remedy=remedy)


def warned(name: str, evidence: str, remedy: str) -> CheckResult:
    """A check that says: know this before you go on."""
    return CheckResult(name=name, verdict=Verdict.WARN, evidence=evidence, remedy=remedy)


def unchecked(name: str, evidence: str, remedy: str) -> CheckResult:
    """A check that could not be run."""
    return CheckResult(name=name, verdict=Verdict.UNCHECKED, evidence=evidence, remedy=remedy)
