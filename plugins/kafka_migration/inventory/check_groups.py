"""Checks about the plan's groups. They warn: cutover decides, group by group, on what it finds then."""

from __future__ import annotations

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.listing import listed
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.inventory.facts import Facts, passed, warned


def movable(facts: Facts) -> CheckResult:
    """Groups that are more than their committed offsets are named."""
    name = "groups of a movable protocol"
    groups = facts.inventory.groups.values()
    others = [f"{it.name} ({it.protocol})" for it in groups if it.protocol not in MOVABLE_PROTOCOLS]
    if others:
        return warned(
            name,
            f"their state is not in committed offsets alone: {listed(others)}",
            "exclude these groups, and move them as their own documentation says",
        )
    return passed(name, f"{len(groups)} groups")


def committed(facts: Facts) -> CheckResult:
    """Partitions that a group reads and never committed are listed: cutover refuses such a group, unless told."""
    name = "groups have committed"
    policy = facts.ctx.plan.cutover.uncommitted
    found = [f"{it.name}: {listed(it.uncommitted)}" for it in facts.inventory.groups.values() if it.uncommitted]
    if not found:
        return passed(name, "every group has committed every partition that it reads")
    evidence = "; ".join(found[:10]) + (f"; and {len(found) - 10} more groups" if len(found) > 10 else "")
    if policy == "refuse":
        return warned(
            name,
            f"never committed: {evidence}",
            "have the groups commit there before cutover, or set cutover.uncommitted to earliest or cut",
        )
    return passed(name, f"cutover.uncommitted is {policy}, for {evidence}")


def left_behind(facts: Facts) -> CheckResult:
    """Groups that read the plan's topics and that the plan does not move are named."""
    name = "groups left behind"
    groups = facts.inventory.left_behind
    if groups:
        return warned(
            name,
            f"they read these topics, and the plan does not move them: {listed(groups)}",
            "add them to groups.include, if they are still used",
        )
    return passed(name, "the plan moves every group that has committed on these topics")
