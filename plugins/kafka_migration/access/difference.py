"""What the source's clients may do on it, and could not do on the target. Changes nothing.

Who makes it: :mod:`kafka_migration.access.grants`, or an administrator, by the commands of Kafka's own tool.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_migration.access.carried import Carried, Copying, Names, in_order
from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.fence import record as fences
from kafka_migration.fence.bans import BANS
from kafka_migration.fence.checks import OPEN_DOOR
from kafka_migration.fence.ground import principal_of
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.access import Access
from kafka_migration.plans.producers import EVERYBODY

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context

#: A rule on everything is one on each topic: some of them, of many topics, would be more than a controller bears.
_MOST = 50_000
_ASK_SECONDS = 10.0
_USER = "User:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDiff:
    """``missing`` on the target; how many are ``present`` there; ``left_out`` of the source, each with why; ``notes``
    on both.

    ``users`` are the source's users who may use something of the plan's, by name, with their names on the target.
    """

    missing: tuple[Acl, ...]
    present: int
    left_out: tuple[Carried, ...]
    users: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "missing": [asdict(acl) for acl in self.missing],
            "present": self.present,
            "left_out": [asdict(one.acl) | {"why": one.why} for one in self.left_out],
            "notes": list(self.notes),
        }


def read(ctx: Context) -> AccessDiff:
    """Compare both clusters. Raises NoAuthorizer for one without an authorizer, NotAuthorized, BadInput for principals
    that cannot have one name, Refused for more ACLs than is sensible."""
    source, access = ctx.source.acls(), ctx.plan.access or Access()
    copying = Copying(
        names={
            "TOPIC": Names(ctx.plan.topics.matches, {*ctx.source.topic_names(), *ctx.target.topic_names()}),
            "GROUP": Names(ctx.plan.groups.matches, {*ctx.source.groups(), *ctx.target.groups()}),
        },
        access=access,
        called=ctx.plan.topic_names,
        own=_own_principals(ctx),
        fences=denials_of_fences(ctx, SOURCE),
    )
    found = copying.carried(source)
    wanted = {acl for one in found for acl in one.made}
    if len(wanted) > _MOST:
        most = sorted(found, key=lambda one: -len(one.made))[:5]
        raise Refused(
            f"{len(wanted):,} ACLs would be made, most of them for {listed(in_words(one.acl) for one in most)}",
            remedy="exclude these principals (access.exclude), and grant them a prefix by hand",
        )
    # A fence's denial goes when it is lifted.
    there = set(ctx.target.acls()) - denials_of_fences(ctx, TARGET)
    return AccessDiff(
        missing=tuple(in_order(wanted - there)),
        present=len(wanted & there),
        left_out=tuple(one for one in found if not one.made),
        users=dict(sorted(_users(found))),
        notes=tuple(_notes(ctx, access, source)),
    )


def _users(found: Iterable[Carried]) -> Iterator[tuple[str, str]]:
    for one in found:
        for acl in one.made:
            names = one.acl.principal, acl.principal
            if acl.permission == "ALLOW" and EVERYBODY not in names and all(name.startswith(_USER) for name in names):
                yield names[0].removeprefix(_USER), names[1].removeprefix(_USER)


def own_principal(ctx: Context) -> str:
    """The migration's own on the target; "" if neither the plan nor its connection names it."""
    producers, access = ctx.plan.producers, ctx.plan.access
    fence = producers.target_fence if producers is not None else None
    named = (access.own_principal if access else None) or (fence.own_principal if fence else None)
    return named or principal_of(ctx.target.connection)


def _own_principals(ctx: Context) -> frozenset[str]:
    """Those of the migration on either cluster, and of its probes, as far as anybody but the brokers knows."""
    found = {principal_of(ctx.source.connection), own_principal(ctx)}
    if ctx.plan.producers is not None:
        for side in (SOURCE, TARGET):
            fence = ctx.plan.producers.fence_on(side)
            found |= {fence.own_principal or "", fence.probe_principal or ""}
    return frozenset(found - {""})


def denials_of_fences(ctx: Context, side: Side) -> frozenset[Acl]:
    """Denials of fences on this cluster, of this migration and of others with the same target, while brokers may show
    them."""
    cluster: Cluster = ctx.source if side == SOURCE else ctx.target
    found: set[Acl] = set()
    for ban in BANS:
        if ban.side == side:
            found |= fences.own_acls(ctx, ban)
            found = found.union(*fences.of_others(ctx, ban, cluster.cluster_id()).values())
    return frozenset(found)


def _notes(ctx: Context, access: Access, source: Iterable[Acl]) -> Iterator[str]:
    known = {acl.principal for acl in source}
    for name in sorted({*access.principals, *access.exclude} - known):
        yield f"the source has no ACL of {name}, which the plan's section access names"
    for cluster, text in (
        (ctx.source, "such clients have none to be copied"),
        (ctx.target, "the first ACL on a topic shuts out whoever has none, the migration, too"),
    ):
        with suppress(NotAuthorized, NotSupported):
            if _shows_open_door(cluster):
                yield f"the {cluster.role} may let everybody use what has no ACL ({OPEN_DOOR} is set): {text}"


def may_be_open(cluster: Cluster) -> bool:
    """Whether its brokers may let everybody use what has no ACL. They show that it is set, and hide to what; so it is
    tried whether this principal may read a group that has no ACL. It may, too, if it is a super user, or may read every
    group: then the answer is true."""
    with suppress(NotAuthorized, NotSupported):
        if not _shows_open_door(cluster):
            return False
    nobodys = f"kafka-migration.{uuid.uuid4().hex}"
    return not all(cluster.denied_by_broker("GROUP", "READ", [nobodys], _ASK_SECONDS).values())


def _shows_open_door(cluster: Cluster) -> bool:
    config = cluster.broker_configs().get(OPEN_DOOR)
    return config is not None and str(config.value).lower() != "false"


def in_words(acl: Acl) -> str:
    """An ACL for people, in one line."""
    return f"{acl.permission} {acl.principal} {acl.operation} on {where(acl)}"


def where(acl: Acl) -> str:
    """What an ACL is about, and from which host, for people."""
    pattern = " (prefix)" if acl.pattern == "PREFIXED" else ""
    host = "" if acl.host == "*" else f", from {acl.host}"
    return f"{acl.resource_type} {acl.resource}{pattern}{host}"
