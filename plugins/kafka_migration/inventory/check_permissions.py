"""Checks of what the principals may do, by the table of :mod:`kafka_migration.inventory.permissions`.

What is missing is named as the ACL to grant. Whatever a principal may not even describe is hidden from it, so names
that the plan spells out are asked for anyway; what a plan selects by a pattern only can be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.inventory.facts import Facts, Finding, failed, passed
from kafka_migration.inventory.permissions import CLUSTER, RESOURCE, On, Side, describe, operations

#: Enough to see which; `acls` prints them all.
_SHOWN = 50


def may_read_source(facts: Facts) -> Finding:
    """The principal may read every topic of the plan, and its configs."""
    among = [right.code for right in operations("source", On.TOPICS)]
    allowed = facts.ctx.source.topic_operations(facts.topics, among)
    return _judged("source", On.TOPICS, allowed)


def may_read_groups(facts: Facts) -> Finding:
    """The principal may read what the plan's groups have committed."""
    allowed = facts.ctx.source.group_operations(facts.groups)
    return _judged("source", On.GROUPS, allowed)


def may_look_at_source(facts: Facts) -> Finding:
    """The principal may ask the source for sizes on disk."""
    allowed = {CLUSTER: facts.ctx.source.cluster_operations()}
    return _judged("source", On.CLUSTER, allowed)


def may_write_target(facts: Facts) -> Finding:
    """The principal may create and write what the migration needs on the target, whether it exists yet or not."""
    ctx = facts.ctx
    among = {right.code for on in (On.TOPICS, On.STATE) for right in operations("target", on)}
    allowed = ctx.target.topic_operations([*facts.topics, *ledger.PARTITIONS], among)
    state = {topic: allowed.pop(topic) for topic in ledger.PARTITIONS}
    missing = _lacking("target", On.TOPICS, allowed) + _lacking("target", On.STATE, state)
    transactional_id = ctx.link.transactional_id
    if not ctx.target.may_use_transactional_id(transactional_id):
        # That it may be described is all that can be seen without using it, which would fence a running mirror.
        missing += [describe(right, transactional_id) for right in operations("target", On.TRANSACTIONAL_ID)]
    if missing:
        return _refused("target", missing)
    return passed(f"{len(allowed)} topics, {len(state)} internal topics and the transactional id may be used")


def may_write_groups(facts: Facts) -> Finding:
    """The principal may commit for the plan's groups on the target."""
    allowed = facts.ctx.target.group_operations(facts.groups)
    return _judged("target", On.GROUPS, allowed)


def may_look_at_target(facts: Facts) -> Finding:
    """The principal may ask the target for its free space, limits and defaults."""
    target = facts.ctx.target
    allowed = target.cluster_operations()
    if not allowed:
        # Brokers show operations only to who may describe the cluster: the other one has to be tried.
        try:
            target.broker_configs()
            allowed = frozenset({"DESCRIBE_CONFIGS"})
        except NotAuthorized:
            pass
    return _judged("target", On.CLUSTER, {CLUSTER: allowed})


def _judged(side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> Finding:
    missing = _lacking(side, on, allowed)
    if missing:
        return _refused(side, missing)
    if not allowed:
        return passed(f"the plan selects no {RESOURCE[on]}")
    rights = ", ".join(right.operation for right in operations(side, on))
    what = "the cluster" if on is On.CLUSTER else f"{len(allowed)} {RESOURCE[on]}s"
    return passed(f"{rights} on {what}")


def _lacking(side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> list[str]:
    """A text for each resource with operations that are not granted: ``Read, Write on topic orders``."""
    found = []
    for name, has in sorted(allowed.items()):
        missing = [right.operation for right in operations(side, on) if right.code not in has]
        if missing:
            found.append(f"{', '.join(missing)} on {RESOURCE[on]} {name}")
    return found


def _refused(side: Side, missing: Iterable[str]) -> Finding:
    texts = list(missing)
    more = f"; and on {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return failed(
        f"missing ACLs: {'; '.join(texts[:_SHOWN])}{more}",
        f"grant these ACLs to the principal of the {side}'s connection; `acls PLAN --principal User:NAME --side {side}`"
        " prints the commands",
    )
