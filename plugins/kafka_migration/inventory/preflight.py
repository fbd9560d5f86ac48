"""Preflight: everything that can be known to go wrong, as named checks, before anything is changed.

The checks stand in one table. A check that cannot be run (a cluster that does not answer, a permission that the
question itself needs) is UNCHECKED, and the gate does not open for it. Nothing is changed: where the target is asked
to create a topic, it is asked to validate the request only.

The checks of waves stand here: each topic in one wave, and nothing torn apart that belongs together. They are asked
only of a plan that has waves. What spans waves is refused before anything is created: of a group whose topics are in
two waves, one half would wait on the source while its consumers are on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import AuthenticationFailed, CouldNotFindOut, Fatal, MigrationError, NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.fence import fence
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.groups.record import GroupRecord
from kafka_migration.inventory import check_clusters as on_clusters
from kafka_migration.inventory import check_topics as on_selected
from kafka_migration.inventory import plan_changes
from kafka_migration.inventory.facts import Facts, Finding, failed, passed, unchecked, warned
from kafka_migration.kafka.facts import Inventory
from kafka_migration.schemas import difference as schemas
from kafka_migration.waves.links import Kind
from kafka_migration.waves.order import Spanning, Wave, Waves

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


def _covered(facts: Facts) -> Finding:
    """Each selected topic is in exactly one wave, each group in one at the most, and no wave is empty, unless it was
    settled before its topics went."""
    waves = facts.waves
    if not waves.waves:
        return failed("there is no topic, so no wave", "correct topics.include of the plan")
    empty = [wave.name for wave in waves.waves if not wave.topics]
    wrong = {
        "topics in no wave": waves.homeless,
        "topics in several waves": [f"{t} ({', '.join(names)})" for t, names in waves.doubled_topics.items()],
        "groups in several waves": [f"{g} ({', '.join(names)})" for g, names in waves.doubled_groups.items()],
        "waves without a topic": () if waves.settled else empty,
    }
    found = [f"{what}: {listed(names)}" for what, names in wrong.items() if names]
    if found:
        return failed(
            "; ".join(found),
            "correct the patterns of waves.given, each of which must match a whole name (`waves PLAN` lists what each"
            " wave has), or remove a wave whose topics are gone",
        )
    if empty:
        return warned(
            f"waves whose topics are gone from the source, or from the plan: {listed(empty)}",
            "nothing: there is nothing left to move in them",
        )
    return passed(f"{len(waves.waves)} waves: " + listed(f"{w.name} (topics: {len(w.topics)})" for w in waves.waves))


def _groups_together(facts: Facts) -> Finding:
    """No group reads topics of two waves."""
    return _kept_together(facts, Kind.GROUP, "add the group to waves.spanning_groups, which waives this for it")


def _applications_together(facts: Facts) -> Finding:
    """No Streams application has its topics in two waves."""
    waiver = "add the application id to waves.spanning_groups (a group of that name), which waives this for it"
    return _kept_together(facts, Kind.STREAMS, waiver)


def _transactions_together(facts: Facts) -> Finding:
    """No transactional producer writes topics of two waves."""
    if facts.inventory.transactions is None:
        why = facts.inventory.unchecked.get("producers", "producers unknown")
        return warned(f"UNCHECKED: {why}", "see to it that topics of one transaction are in one wave")
    waiver = "add the transactional id to waves.spanning_transactions, which waives this for it"
    return _kept_together(facts, Kind.TRANSACTION, waiver)


def _kept_together(facts: Facts, kind: Kind, waiver: str) -> Finding:
    found = [one for one in facts.waves.spanning if one.link.kind is kind]
    torn, waived = [one for one in found if not one.waived], [one for one in found if one.waived]
    if torn:
        return failed(
            listed((_described(facts, one) for one in torn), separator="; "),
            f"have these topics in one wave (`waves PLAN --why TOPIC` shows what holds a topic), or {waiver}",
        )
    if waived:
        return warned(
            f"waived by the plan: {_names(one.link.name for one in waived)}: "
            + listed((_described(facts, one) for one in waived), separator="; "),
            "nothing, if these may stand with one foot on each cluster until their last wave has moved",
        )
    count = sum(link.kind is kind for link in facts.waves.links)
    return passed(f"none of {count} spans two waves")


def _described(facts: Facts, one: Spanning) -> str:
    parts = []
    for name in one.waves:
        wave = facts.waves.named(name)
        topics = sorted(wave.topics & one.link.topics) if wave is not None else []
        parts.append(f"{name} ({listed(topics) if topics else 'which names the group'})")
    return f"{one.link.title} spans waves {', '.join(parts)}"


def _names(names: Iterable[str]) -> str:
    return listed(sorted(names))


def _within_limits(facts: Facts) -> Finding:
    """Computed waves are within the limits of the plan; a part that is larger by itself is named."""
    auto = facts.ctx.plan.waves.auto if facts.ctx.plan.waves is not None else None
    if auto is None:
        return passed("the plan gives its waves, and sets no limits")
    if auto.most_bytes is not None and facts.inventory.bytes is None:
        return unchecked(
            facts.inventory.unchecked.get("bytes", "the source does not report how many bytes its topics have"),
            "grant Describe on the source cluster to the principal of its connection, or do without"
            " waves.auto.most_bytes",
        )
    if facts.waves.oversized:
        return warned(
            "what cannot move apart is larger than the limits: "
            + listed(f"{name} ({', '.join(over)})" for name, over in facts.waves.oversized.items()),
            "nothing, if such a wave may be that large; `waves PLAN --why TOPIC` shows what holds its topics together",
        )
    return passed("every wave is within them")


def _moved(facts: Facts, wave: Wave) -> list[str]:
    """Groups of the journal that stand on the target, and were moved with topics of ``wave``."""
    return sorted(
        name
        for name, record in GroupRecord.all(facts.ctx.journal).items()
        if record.is_moved
        and wave.topics & ({move.tp.topic for move in record.forward.translations} | record.subscription)
    )


def _canary(facts: Facts) -> Finding:
    """A canary wave that is asked for has a group, or had one that has moved: without one it shows nothing."""
    asked = facts.ctx.plan.waves
    found = next((wave for wave in facts.waves.waves if wave.canary), None)
    if found is not None and found.groups:
        return passed(f"{found.name}: {listed(sorted(found.groups))}")
    if found is not None and (gone := _moved(facts, found)):
        return passed(f"{found.name}: {listed(gone)}, which moved and are gone from the source")
    if found is not None and facts.waves.settled:
        return warned(
            f"canary wave {found.name} has no group any more",
            "nothing, if no canary is needed any more; if waves.auto is changed, waves are computed again",
        )
    if found is not None:
        return failed(
            f"canary wave {found.name} has no group, so nobody would see consumers go on",
            "choose topics that a group of the plan reads, or do without a canary",
        )
    if asked is not None and asked.auto is not None and asked.auto.canary_topic is not None:
        return failed(
            f"the source has no topic {asked.auto.canary_topic}, which shall go first",
            "correct waves.auto.canary_topic",
        )
    if asked is not None and asked.auto is not None and asked.auto.canary:
        return warned("no topic is read by a group of the plan, so no wave goes first", "set waves.auto.canary: false")
    return passed("the plan asks for none")


#: What is checked besides if the plan has waves.
WAVE_CHECKS: tuple[tuple[str, Callable[[Facts], Finding]], ...] = (
    ("each topic in one wave", _covered),
    ("groups within one wave", _groups_together),
    ("Streams applications within one wave", _applications_together),
    ("transactions within one wave", _transactions_together),
    ("limits of waves", _within_limits),
    ("canary wave", _canary),
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
