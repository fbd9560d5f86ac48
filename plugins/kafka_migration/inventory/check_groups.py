"""Checks of the plan's groups. They only warn: cutover decides, group by group, on what it finds then."""

from __future__ import annotations

from kafka_migration.domain.listing import listed
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.inventory.facts import Facts, Finding, passed, warned


def movable(facts: Facts) -> Finding:
    """Names groups whose state is not only committed offsets."""
    groups = facts.inventory.groups.values()
    others = [f"{group.name} ({group.protocol})" for group in groups if group.protocol not in MOVABLE_PROTOCOLS]
    if others:
        return warned(
            f"groups whose state is not only committed offsets, so they cannot be moved: {listed(others)}",
            "exclude these groups from the plan, and move their applications by their own procedures",
        )
    return passed(f"all {len(groups)} groups of the plan can be moved")


def committed(facts: Facts) -> Finding:
    """Lists partitions that a group reads and never committed: cutover refuses it, unless the plan has a policy."""
    policy = facts.ctx.plan.cutover.uncommitted
    groups = facts.inventory.groups.values()
    found = [f"{group.name}: {listed(group.uncommitted)}" for group in groups if group.uncommitted]
    if not found:
        return passed("every group has committed every partition that it reads")
    evidence = "; ".join(found[:10]) + (f"; and {len(found) - 10} more groups" if len(found) > 10 else "")
    if policy == "refuse":
        return warned(
            f"groups that read partitions without ever having committed there, so cutover will refuse them: {evidence}",
            "have the groups commit there before cutover, or set cutover.uncommitted of the plan to earliest or cut",
        )
    return passed(f"cutover.uncommitted is {policy}; it applies to {evidence}")


def left_behind(facts: Facts) -> Finding:
    """Names groups that have committed on the plan's topics and that the plan does not move."""
    groups = facts.inventory.left_behind
    if groups:
        return warned(
            f"groups that have committed on these topics, and that the plan does not move: {listed(groups)}",
            "add them to groups.include of the plan, if they are still used",
        )
    return passed("the plan moves every group that has committed on these topics")
