"""The cutover gate, asked before each group is moved: a cutover of many groups takes hours, and much changes in them.

An answer that was revoked, a halt, a verdict that turned: all of that stands in the state on the target, and is read
each time. What only the clusters show (topics, their configs, what groups read) is asked anew once it is older than
:data:`FACTS_SECONDS`, since it is many requests for many groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals import waves
from kafka_migration.approvals.evidence import Evidence, Facts, GateName, item, verdicts
from kafka_migration.approvals.passing import require_passed
from kafka_migration.domain.checks import CheckResult, Gate
from kafka_migration.domain.direction import SOURCE
from kafka_migration.domain.listing import listed
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.groups.record import GroupRecord
from kafka_migration.inventory import inventory
from kafka_migration.kafka.facts import Inventory
from kafka_migration.link import ready, switched
from kafka_migration.link.halts import remedies
from kafka_migration.link.losses import losses, sentence
from kafka_migration.schemas import difference
from kafka_migration.topics import create
from kafka_migration.topics.declared import Drift, mirrored
from kafka_migration.topics.drift import as_declared
from kafka_migration.validation import verdict

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

FACTS_SECONDS = 15.0


class CutoverGate:
    """The gate, for as long as one call of the cutover takes."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seen: tuple[float, Inventory, Sequence[Drift]] | None = None
        self._compared: tuple[Inventory, Sequence[CheckResult]] | None = None

    def ask(self) -> str:
        """Why the next group may be moved. Raises NotApproved if not, CouldNotFindOut if a check could not run."""
        ctx = self._ctx
        now = ctx.clock.monotonic()
        if self._seen is None or now - self._seen[0] > FACTS_SECONDS:
            self._seen = (now, inventory.take(ctx, briefly=True), create.verify(ctx))
        _, taken, drift = self._seen
        return require_passed(ctx, self._facts(taken, drift)).reason

    def _facts(self, taken: Inventory, drift: Sequence[Drift]) -> Evidence:
        if self._compared is None or self._compared[0] is not taken:
            # As many requests again.
            self._compared = (taken, schema_checks(self._ctx))
        return cutover_facts(self._ctx, taken, drift, self._compared[1])


def schema_checks(ctx: Context) -> tuple[CheckResult, ...]:
    """Whether schemas are on the target; none once producers are there: nothing is copied any more."""
    return () if switched.away_from(ctx, SOURCE) is not None else difference.check(ctx, is_due=True)


def cutover_facts(ctx: Context, taken: Inventory, drift: Sequence[Drift], schemas: Sequence[CheckResult]) -> Evidence:
    """The evidence of the cutover gate without its tables, from what the clusters and registries showed and the state
    as it is now. Raises Refused for the whole of a plan with waves."""
    waves.require_wave(ctx)
    return facts_of_scope(ctx, taken, drift, schemas)


def facts_of_scope(
    ctx: Context, taken: Inventory, drift: Sequence[Drift], schemas: Sequence[CheckResult] = ()
) -> Evidence:
    """The same of any scope: producers are switched for the whole of a plan with waves."""
    halts = {tp: halt for tp, halt in ctx.link.halts().items() if ctx.scope.has_topic(tp.topic)}
    given_up = [loss for loss in losses(ctx) if ctx.scope.has_topic(loss["topic"])]
    gate = Gate.of(
        "cutover",
        (
            _every_topic_is_mirrored(taken, mirrored(ctx)),
            as_declared(drift),
            _nothing_halted(ctx, {str(tp): halt.reason for tp, halt in halts.items()}),
            nothing_given_up(given_up),
            *ready.checks(ctx),
            verdict.check(ctx),
            verdict.coverage(ctx),
            *schemas,
            *check_hooks(ctx.plan),
            *waves.checks(ctx),
        ),
    )
    facts: Facts = {
        "plan": {"digest": ctx.plan.digest},
        "topics": {name: item(facts.stable()) for name, facts in taken.topics.items()},
        "drift": {f"{one.topic} {one.what}": item(f"{one.declared} -> {one.observed}") for one in drift},
        "halts": {str(tp): halt.reason for tp, halt in halts.items()},
        "given up": given_up_facts(given_up),
        "groups": _what_groups_read(ctx, taken),
        "checks": verdicts(gate),
        # What was approved of an earlier generation does not let this one pass.
        **({} if ctx.is_first else {"link": {ctx.link.name: "copies"}}),
    }
    return Evidence(
        gate=GateName.CUTOVER,
        migration=ctx.plan.name,
        scope=ctx.scope.key,
        taken_at=taken.taken_at,
        facts=facts,
        checks=gate,
        tables=(),
        inventory=taken,
    )


def _what_groups_read(ctx: Context, taken: Inventory) -> dict[str, str]:
    """Group -> protocol and topics. What a group was once seen to subscribe to still counts while it is stopped."""
    seen = GroupRecord.all(ctx.journal)
    found = {}
    for name, group in taken.groups.items():
        remembered = seen[name].subscription if name in seen else frozenset()
        topics = group.topics | {topic for topic in remembered if topic in taken.topics}
        found[name] = item(f"{group.protocol}: {', '.join(sorted(topics)) or 'nothing of the plan'}")
    return found


def _every_topic_is_mirrored(taken: Inventory, ours: Iterable[str]) -> CheckResult:
    name = "every topic of the plan is mirrored"
    missing = sorted(set(taken.topics) - set(ours))
    if missing:
        return CheckResult.failed(
            name,
            f"{len(missing)} topics match the plan and have no mirror topic: {listed(missing)}",
            remedy="run `create` again and restart the mirror, or exclude them",
        )
    return CheckResult.passed(name, f"{len(taken.topics)} topics")


def given_up_facts(given_up: Iterable[dict[str, Any]]) -> dict[str, str]:
    """These losses as facts of an approval's evidence, one for each."""
    return {f"{loss['topic']}-{loss['partition']} {loss['start']}": item(sentence(loss)) for loss in given_up}


def nothing_given_up(given_up: Iterable[dict[str, Any]]) -> CheckResult:
    """Whether all is copied, as a named check: a person sees what is not before clients move."""
    name = "no records were given up"
    found = [sentence(loss) for loss in given_up]
    if found:
        return CheckResult.warned(
            name,
            listed(found),
            remedy="nothing, if nobody needs these records where clients go; their offsets are in the report",
        )
    return CheckResult.passed(name, "none")


def _nothing_halted(ctx: Context, halts: dict[str, str]) -> CheckResult:
    name = "no partition is halted"
    if halts:
        return CheckResult.failed(
            name,
            listed(f"{tp} {reason}" for tp, reason in sorted(halts.items())),
            remedy="; ".join(
                f"{reason}: {remedy}"
                for reason, remedy in remedies(halts.values(), ctx.direction, ctx.generation).items()
            ),
        )
    return CheckResult.passed(name, "none")
