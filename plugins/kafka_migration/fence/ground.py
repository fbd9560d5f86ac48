"""Where a fence stands: the cluster that it is on, who asks there, and who is asked as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import BadInput
from kafka_migration.fence.bans import Ban
from kafka_migration.plans.producers import CALL_SHARE

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.connections import ClusterConnection
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.producers import Producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """``cluster`` as the migration's own principal, with calls that end in time; ``probe`` as the probe's, or None
    where nobody is asked. Principals are "" where they are not known. ``call_seconds`` bounds one call."""

    cluster: Cluster
    probe: Cluster | None
    own_principal: str
    probe_principal: str
    call_seconds: float

    def resources(self, ban: Ban, names: Iterable[str]) -> tuple[str, ...]:
        """What ACLs on the cluster call the topics or groups ``names``."""
        return tuple(map(self.cluster.topic_here, names) if ban.kind == "TOPIC" else names)


def require_producers(ctx: Context) -> Producers:
    """The plan's section. Raises BadInput for a plan without it."""
    if ctx.plan.producers is None:
        raise BadInput(
            "this plan does not have producers fenced",
            field="producers",
            remedy="write the section producers, with the kind of fence (docs/producers.md)",
        )
    return ctx.plan.producers


@contextmanager
def ground(ctx: Context, ban: Ban) -> Iterator[Ground]:
    """Open what the fence of the plan needs. Raises BadInput for a connection that there is not."""
    producers = require_producers(ctx)
    fence = producers.fence_on(ban.side)
    probe_id = fence.probe
    # Without one of the target's own, these are names on the source.
    is_of_side = ban.side == "source" or producers.target_fence is not None
    seconds = fence.deadline_seconds * CALL_SHARE
    conn_id = ctx.plan.connection(ban.side)
    with ExitStack() as stack:
        cluster = stack.enter_context(closing(ctx.connect(ban.side, conn_id, seconds)))
        probe = None
        if probe_id is not None:
            probe = stack.enter_context(closing(ctx.connect(ban.side, probe_id, seconds)))
        yield Ground(
            cluster=cluster,
            probe=probe,
            own_principal=(fence.own_principal if is_of_side else "") or principal_of(cluster.connection),
            probe_principal="" if probe is None else fence.probe_principal or principal_of(probe.connection),
            call_seconds=seconds,
        )


def principal_of(connection: ClusterConnection) -> str:
    """The principal of whoever connects so, as ACLs name it; "" where only the brokers know.

    A password's user is the principal's name, unless the brokers have a builder of principals of their own: then the
    plan has to name it.
    """
    properties = connection.properties
    if connection.mechanism:
        user = properties.get("sasl.username")
        return f"User:{user}" if user else ""
    return "" if "ssl.certificate.location" in properties else "User:ANONYMOUS"


def topics_of(ctx: Context, cluster: Cluster) -> tuple[str, ...]:
    """The topics of the plan that there are, in scope."""
    found = tuple(name for name in cluster.topic_names() if ctx.selects_topic(name))
    if not found:
        raise BadInput(
            "the plan selects no topic that is there",
            field="topics.include",
            remedy="see `check` for what it selects",
        )
    return found
