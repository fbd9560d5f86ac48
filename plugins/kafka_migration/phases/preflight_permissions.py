"""Checks of what the principals may do, right by right, after the table of :mod:`kafka_migration.phases.permissions`.

What is missing is named as the access rule to grant. Whatever a principal may not even describe is hidden from it, so
names that the plan spells out are asked for one by one; what a plan means by a pattern only can be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_migration.domain import ledger
from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import BadInput, NotAuthorized
from kafka_migration.phases.permissions import On, Side, describe, names_of, operations
from kafka_migration.phases.preflight_facts import Facts, failed, passed, some

_CLUSTER = "kafka-cluster"


def may_read_source(facts: Facts) -> CheckResult:
    """The principal may read every topic of the plan, and its settings."""
    name = "permissions on source topics"
    hidden = [topic for topic in _spelled(facts, "topics") if not _is_shown(facts, topic)]
    allowed = dict.fromkeys(hidden, frozenset[str]())
    try:
        allowed |= {topic: it.operations for topic, it in facts.inventory.topics.items()}
    except NotAuthorized as error:
        # The inventory ends at the first topic whose settings are hidden: ask for all, one by one.
        shown = facts.ctx.source.topics()
        allowed |= {topic: it.operations for topic, it in shown.items() if facts.ctx.plan.topics.matches(topic)}
        if not _lacking("source", On.TOPICS, allowed):
            return failed(name, error.message, error.remedy)
    return _judged(name, "source", On.TOPICS, allowed)


def _is_shown(facts: Facts, topic: str) -> bool:
    try:
        facts.ctx.source.topics([topic])
    except NotAuthorized:
        return False
    return True


def _spelled(facts: Facts, field: str) -> list[str]:
    """Names that the plan spells out, whole; none if its patterns are not all names or prefixes."""
    try:
        names = getattr(names_of(facts.ctx.plan), field)
    except BadInput:
        return []
    return [name for name, prefixed in names.items() if not prefixed]


def may_read_groups(facts: Facts) -> CheckResult:
    """The principal may read what the plan's groups have committed."""
    groups = [*facts.inventory.groups, *_spelled(facts, "groups")]
    return _judged(
        "permissions on source groups", "source", On.GROUPS, facts.ctx.source.group_operations(dict.fromkeys(groups))
    )


def may_look_at_source(facts: Facts) -> CheckResult:
    """The principal may ask the source for sizes on disk."""
    return _judged(
        "permissions on source cluster", "source", On.CLUSTER, {_CLUSTER: facts.ctx.source.cluster_operations()}
    )


def may_write_target(facts: Facts) -> CheckResult:
    """The principal may create and write what the migration needs on the target, whether it exists yet or not."""
    name, ctx = "permissions on target", facts.ctx
    allowed = ctx.target.topic_operations([*facts.inventory.topics, *ledger.PARTITIONS])
    state = {topic: allowed.pop(topic) for topic in ledger.PARTITIONS}
    missing = _lacking("target", On.TOPICS, allowed) + _lacking("target", On.STATE, state)
    transactional_id = ctx.link.transactional_id
    if not ctx.target.may_use_transactional_id(transactional_id):
        # That it may be described is all that can be seen without using it, which would fence a running mirror.
        missing += [describe(right, transactional_id) for right in operations("target", On.TRANSACTIONAL_ID)]
    if missing:
        return _refused(name, "target", missing)
    return passed(name, f"{len(allowed)} topics, {len(state)} internal topics and the transactional id may be used")


def may_write_groups(facts: Facts) -> CheckResult:
    """The principal may commit for the plan's groups on the target."""
    groups = [*facts.inventory.groups, *_spelled(facts, "groups")]
    return _judged(
        "permissions on target groups", "target", On.GROUPS, facts.ctx.target.group_operations(dict.fromkeys(groups))
    )


def may_look_at_target(facts: Facts) -> CheckResult:
    """The principal may ask the target for its free space, limits and defaults."""
    target = facts.ctx.target
    allowed = target.cluster_operations()
    if not allowed:
        # Operations are told to those only who may describe the cluster: the other right has to be tried.
        try:
            target.broker_configs()
            allowed = frozenset({"DESCRIBE_CONFIGS"})
        except NotAuthorized:
            pass
    return _judged("permissions on target cluster", "target", On.CLUSTER, {_CLUSTER: allowed})


def _judged(name: str, side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> CheckResult:
    missing = _lacking(side, on, allowed)
    if missing:
        return _refused(name, side, missing)
    if not allowed:
        return passed(name, f"the plan names none of {on}")
    rights = ", ".join(right.operation for right in operations(side, on))
    return passed(name, f"{rights} on {some(sorted(allowed)) if on is not On.CLUSTER else 'the cluster'}")


def _lacking(side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> list[str]:
    return [
        describe(right, name)
        for name, has in sorted(allowed.items())
        for right in operations(side, on)
        if right.code not in has
    ]


def _refused(name: str, side: Side, missing: Iterable[str]) -> CheckResult:
    return failed(
        name,
        f"missing ACLs: {some(missing)}",
        f"grant these to the principal of the {side}'s connection; `acls PLAN --principal User:NAME --side {side}`"
        " prints the commands",
    )
