"""Preflight: everything that can be known to go wrong, as named checks, before anything is changed.

The checks stand in one table. A check that cannot be run (a cluster that does not answer, a permission that the
question itself needs) is UNCHECKED, and the gate does not open for it. Nothing is changed: where the target is asked
to create a topic, it is asked to validate the request only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import AuthenticationFailed, CouldNotFindOut, Fatal, MigrationError, NotAuthorized
from kafka_migration.fence import fence
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.inventory import check_clusters as on_clusters
from kafka_migration.inventory import check_topics as on_selected
from kafka_migration.inventory import check_waves, plan_changes
from kafka_migration.inventory.facts import Facts, Finding
from kafka_migration.kafka.facts import Inventory
from kafka_migration.schemas import difference as schemas
from kafka_migration.waves.order import Waves

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context

#: What is checked, in the order in which people read it. The names are shown, and are part of the evidence.
CHECKS: tuple[tuple[str, Callable[[Facts], Finding]], ...] = (
    ("target is another cluster", on_clusters.another_cluster),
    ("versions", on_clusters.versions),
    ("plan matches topics", on_selected.matches),
    ("permissions on source topics", on_clusters.may_read_source),
    ("permissions on source groups", on_clusters.may_read_groups),
    ("permissions on source cluster", on_clusters.may_look_at_source),
    ("permissions on target", on_clusters.may_write_target),
    ("permissions on target groups", on_clusters.may_write_groups),
    ("permissions on target cluster", on_clusters.may_look_at_target),
    ("no other migration", on_selected.no_other_migration),
    ("target topics", on_selected.target_topics),
    ("replication", on_selected.replication),
    ("partitions", on_selected.partitions),
    ("message sizes", on_selected.message_sizes),
    ("target room", on_clusters.room),
    ("retention outlasts the copy", on_selected.retention),
    ("batches to re-encode", on_selected.re_encoded),
    ("topics with transactions", on_selected.transactions),
    ("record times", on_clusters.record_times),
    ("producer id expiration", on_clusters.producer_id_expiration),
    ("groups of a movable protocol", on_selected.movable),
    ("groups have committed", on_selected.committed),
    ("groups left behind", on_selected.left_behind),
)

#: What is checked besides if the plan has waves.
WAVE_CHECKS: tuple[tuple[str, Callable[[Facts], Finding]], ...] = (
    ("each topic in one wave", check_waves.cover),
    ("groups within one wave", check_waves.groups),
    ("Streams applications within one wave", check_waves.applications),
    ("transactions within one wave", check_waves.transactions),
    ("limits of waves", check_waves.limits),
    ("canary wave", check_waves.canary),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The gate, and the inventory that it was decided on (None if a cluster did not answer), with the waves on it."""

    gate: Gate
    inventory: Inventory | None
    waves: Waves | None = None

    @property
    def exit_code(self) -> int:
        """0 open; 1 a check failed; 3 none failed, but something could not be found out."""
        return self.gate.exit_code

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "open": self.gate.is_open,
            "checks": [check.as_dict() for check in self.gate.results],
            "inventory": None if self.inventory is None else self.inventory.as_dict(),
        }


def check(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Preflight:
    """Take the inventory and run every check. Read-only.

    ``environ`` (default: the process's) has the hooks that the administrator allows.
    """
    results = [_reachable(ctx.source), _reachable(ctx.target)]
    taken: Inventory | None = None
    waves: Waves | None = None
    checks = (*CHECKS, *_of_names(ctx), *_of_handlers(ctx), *_of_waves(ctx))
    do_answer = all(result.verdict is Verdict.PASS for result in results)
    results += [_sent_in_clear(cluster) for cluster in (ctx.source, ctx.target) if cluster.connection.sent_in_clear]
    if do_answer:
        facts = Facts(ctx)
        results += [_run(name, check, facts) for name, check in checks]
        taken = facts.taken
        if taken is not None:
            with suppress(MigrationError):
                # Its checks have the reason.
                waves = facts.waves if _of_waves(ctx) else None
            results += _unchecked(taken)
            changed = plan_changes.check(ctx, taken.topics)
            results += [changed] if changed else []
    else:
        silent = ", ".join(result.name for result in results if result.verdict not in (Verdict.PASS, Verdict.WARN))
        results += [CheckResult.unchecked(name, f"not asked: {silent} failed") for name, _ in checks]
    if do_answer and ctx.plan.producers is not None:
        results += _fence(ctx)
    results += schemas.check(ctx, is_due=False)
    results += check_hooks(ctx.plan, environ=environ)
    return Preflight(gate=Gate.of("preflight", results), inventory=taken, waves=waves)


def wave_checks(facts: Facts) -> Gate:
    """What the checks of waves alone find; nothing of a plan without waves. Read-only."""
    return Gate.of("waves", [_run(name, check, facts) for name, check in _of_waves(facts.ctx)])


def _of_names(ctx: Context) -> tuple[tuple[str, Callable[[Facts], Finding]], ...]:
    return () if ctx.plan.topic_names.are_same else (("names on the target", on_selected.names_on_target),)


def _of_handlers(ctx: Context) -> tuple[tuple[str, Callable[[Facts], Finding]], ...]:
    return () if ctx.plan.handlers is None else (("handlers", on_selected.handlers),)


def _of_waves(ctx: Context) -> tuple[tuple[str, Callable[[Facts], Finding]], ...]:
    return WAVE_CHECKS if ctx.plan.waves is not None and ctx.scope.is_whole else ()


def _fence(ctx: Context) -> list[CheckResult]:
    """Whether producers can be fenced, as the plan has it."""
    try:
        return [*fence.check(ctx).checks, *fence.check_target(ctx)]
    except AuthenticationFailed as error:
        return [CheckResult.failed("fence", error.message, remedy=error.remedy)]
    except CouldNotFindOut as error:
        return [CheckResult.unchecked("fence", error.message, remedy=error.remedy)]
    except Fatal as error:
        return [CheckResult.failed("fence", error.message, remedy=error.remedy)]


def _reachable(cluster: Cluster) -> CheckResult:
    name = f"{cluster.role} reachable"
    try:
        evidence = f"cluster {cluster.cluster_id()} answers, with {cluster.broker_count()} brokers"
    except (AuthenticationFailed, NotAuthorized) as error:
        return CheckResult.failed(name, error.message, remedy=error.remedy)
    except CouldNotFindOut as error:
        # Not a failure: whether the principal may connect is unknown until a broker answers.
        return CheckResult.unchecked(name, error.message, remedy=error.remedy)
    return CheckResult.passed(name, evidence)


def _sent_in_clear(cluster: Cluster) -> CheckResult:
    what = cluster.connection.sent_in_clear
    return CheckResult.warned(
        f"{cluster.role} credentials",
        f"{what} crosses the network in clear: SASL_PLAINTEXT with {cluster.connection.mechanism}",
        remedy="use SASL_SSL, or SCRAM, which does not send the password",
    )


def _run(name: str, check: Callable[[Facts], Finding], facts: Facts) -> CheckResult:
    try:
        found = check(facts)
    except MigrationError as error:
        return CheckResult.unchecked(name, error.message, remedy=error.remedy)
    return CheckResult(name=name, verdict=found.verdict, evidence=found.evidence, remedy=found.remedy)


def _unchecked(taken: Inventory) -> list[CheckResult]:
    """What the inventory lacks. None of it stops a migration by itself: checks that need it are UNCHECKED."""
    return [
        CheckResult.warned(
            f"inventory: {what}", f"UNCHECKED: {why}", remedy="grant the permission, or check this by hand"
        )
        for what, why in sorted(taken.unchecked.items())
    ]
