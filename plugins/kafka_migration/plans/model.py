"""The plan: everything a person decides about one migration, in one immutable value.

Field names are the user's interface. Docstrings below the fields are their documentation in the JSON schema, too.
Contradictions between parts are looked for as soon as the parts concerned are valid, so that one reading of a file
reports everything that is wrong with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from kafka_migration.domain.digest import digest_of
from kafka_migration.plans.alerts import Alerts
from kafka_migration.plans.base import ConnectionId, Contradictions, PlanModel, wrong
from kafka_migration.plans.hooks import Hook
from kafka_migration.plans.patterns import GroupSelection, TopicSelection
from kafka_migration.plans.sections import (
    Approvals,
    Consumers,
    Cutover,
    Drain,
    LagGateSettings,
    Mirror,
    TopicDefaults,
    Validation,
)


class Plan(PlanModel):
    """One migration of topics and consumer groups from a source to a target Kafka cluster."""

    version: Literal[1]
    """Version of this format."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    """The migration's name: its DAG, its state on the target and its report are found by it."""

    source: ConnectionId
    """Airflow connection (type kafka) of the cluster to migrate from."""

    target: ConnectionId
    """Airflow connection (type kafka) of the cluster to migrate to."""

    topics: TopicSelection
    """Topics to mirror."""

    groups: GroupSelection = GroupSelection()
    """Consumer groups to move."""

    naming: Literal["identity"] = "identity"
    """How a target topic is named: identity, as on the source."""

    topic_defaults: TopicDefaults = TopicDefaults()
    """How target topics differ from their sources."""

    mirror: Mirror = Mirror()
    """The running copy."""

    lag_gate: LagGateSettings = LagGateSettings()
    """When the mirror counts as caught up."""

    validation: Validation = Validation()
    """The independent comparison."""

    approvals: Approvals = Approvals()
    """Which gates wait for a person."""

    cutover: Cutover = Cutover()
    """How consumer groups are moved."""

    consumers: Consumers = Consumers()
    """How consumers are stopped and started."""

    drain: Drain = Drain()
    """The gate before the mirror is stopped for good."""

    alerts: Alerts = Alerts()
    """Who is notified when something goes wrong."""

    @field_validator("target")
    @classmethod
    def _another_cluster(cls, target: str, info: ValidationInfo) -> str:
        source = info.data.get("source")
        # Connections come from variables named in capitals: ids that differ in case only are one connection.
        if isinstance(source, str) and source.upper() == target.upper():
            raise wrong(
                f"source ({source}) and target are the same connection",
                "name two connections, to two different clusters",
            )
        return target

    @field_validator("cutover")
    @classmethod
    def _stopped_groups_are_selected(cls, cutover: Cutover, info: ValidationInfo) -> Cutover:
        found = Contradictions()
        groups = info.data.get("groups")
        for at, group in enumerate(cutover.stopped_groups):
            if isinstance(groups, GroupSelection) and not groups.matches(group):
                found.add(
                    ("stopped_groups", at),
                    group,
                    "declared stopped, but groups does not select it",
                    "add it to groups.include (and see groups.exclude), or remove it here",
                )
        found.raise_any("cutover")
        return cutover

    @field_validator("consumers")
    @classmethod
    def _hooks_have_groups(cls, consumers: Consumers, info: ValidationInfo) -> Consumers:
        found = Contradictions()
        groups = info.data.get("groups")
        if isinstance(groups, GroupSelection) and not groups.include:
            for name in ("stop", "start"):
                if getattr(consumers, name):
                    found.add((name,), None, "hooks are given, but no group is moved", "fill groups.include")
        found.raise_any("consumers")
        return consumers

    @property
    def digest(self) -> str:
        """Digest of the plan's content, defaults included: an approval binds to it."""
        return digest_of(self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """The plan as JSON types, defaults included; ``load.restore_plan`` reads it back.

        A run works from its snapshot: the file may be edited while the run is in flight.
        """
        return self.model_dump(mode="json")

    def stop_hooks(self, group: str) -> tuple[Hook, ...]:
        """The hooks that stop ``group``, in order. None for a group that is declared stopped."""
        return self._hooks(self.consumers.stop, group)

    def start_hooks(self, group: str) -> tuple[Hook, ...]:
        """The hooks that start ``group``, in order. None for a group that is declared stopped."""
        return self._hooks(self.consumers.start, group)

    def _hooks(self, hooks: tuple[Hook, ...], group: str) -> tuple[Hook, ...]:
        return () if group in self.cutover.stopped_groups else tuple(h for h in hooks if h.is_for(group))
