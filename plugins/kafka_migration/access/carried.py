"""Which ACLs of the source become which ones of the target, and why others become none. Pure.

An ACL on every topic or group (``*``) becomes one on each of the plan's: on the target it would reach other topics, and
the migration's own. A prefix stays a prefix. What is of the whole cluster, or of users, is of more than a migration:
it is shown, and left to an administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from kafka_migration.kafka.types import Acl
from kafka_migration.plans.access import Access

_EVERYTHING = "*"
_WRITES = frozenset({"WRITE", "ALL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An ACL of the source, and those that the target gets for it: none, if ``why`` says why."""

    acl: Acl
    made: tuple[Acl, ...] = ()
    why: str = ""


def carried(
    acls: Iterable[Acl],
    *,
    selects: Mapping[str, Callable[[str], bool]],
    names: Mapping[str, Collection[str]],
    access: Access,
    fences: Set[Acl] = frozenset(),
) -> tuple[Carried, ...]:
    """What becomes of each of ``acls`` that is about the plan's resources, or whose principal may use one.

    By resource type, ``selects`` says of a name whether the plan means it, and ``names`` are those that there are.
    ``fences`` are denials that this migration made itself, which are nobody's permissions.
    """

    def is_on(acl: Acl) -> bool:
        if (selected := selects.get(acl.resource_type)) is None:
            return False
        if acl.pattern == "LITERAL" and acl.resource != _EVERYTHING:
            # Of a group that is to come, too.
            return selected(acl.resource)
        return any(acl.is_on(acl.resource_type, name) for name in names[acl.resource_type])

    every = [acl for acl in acls if acl not in fences]
    concerned = {acl for acl in every if is_on(acl)}
    users = {acl.principal for acl in concerned}
    writers = {
        acl.principal
        for acl in concerned
        if acl.resource_type == "TOPIC" and acl.permission == "ALLOW" and acl.operation in _WRITES
    }
    return tuple(
        _one(acl, names, access, writers)
        for acl in every
        if acl in concerned or (acl.resource_type not in selects and acl.principal in users)
    )


def _one(acl: Acl, names: Mapping[str, Collection[str]], access: Access, writers: Set[str]) -> Carried:
    if acl.principal in access.exclude:
        return Carried(acl=acl, why="the plan excludes this principal (access.exclude)")
    named = replace(acl, principal=access.principals.get(acl.principal, acl.principal))
    if acl.resource_type in names:
        if acl.pattern == "LITERAL" and acl.resource == _EVERYTHING:
            return Carried(
                acl=acl, made=tuple(replace(named, resource=name) for name in sorted(names[acl.resource_type]))
            )
        return Carried(acl=acl, made=(named,))
    is_for_writing = acl.resource_type == "TRANSACTIONAL_ID" or (
        acl.resource_type == "CLUSTER" and acl.operation == "IDEMPOTENT_WRITE"
    )
    if not is_for_writing:
        return Carried(acl=acl, why="of more than the plan's topics and groups: grant it there by hand if it is wanted")
    if acl.principal not in writers:
        return Carried(acl=acl, why="its principal writes to none of the plan's topics")
    return Carried(acl=acl, made=(named,))


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """As they are made: denials first, so that nobody may more in between than in the end."""
    return sorted(set(acls), key=lambda acl: (acl.permission != "DENY", repr(acl)))
