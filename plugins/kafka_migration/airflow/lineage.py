"""The mirror in OpenLineage: what Airflow's provider emits for its task has the topics that it reads and writes.

The provider is an extra of the package. Where it is not installed, or has no transport, nothing is emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.kafka.lookup import find_connection
from kafka_migration.topics.declared import mirrored

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset

    from kafka_migration.domain.direction import Side
    from kafka_migration.migration.context import Context


def emit(ctx: Context) -> None:
    """Emit, from within the mirror's task, what the link of ``ctx`` copies. It fails no task: the provider warns."""
    try:
        from airflow.providers.openlineage.api import emit_dataset_lineage, is_openlineage_active
    except ImportError:
        return
    if is_openlineage_active():
        origin, destination = ctx.direction.origin, ctx.direction.destination
        emit_dataset_lineage(inputs=list(_topics(ctx, origin)), outputs=list(_topics(ctx, destination)))


def _topics(ctx: Context, side: Side) -> list[Dataset]:
    """As OpenLineage names topics: a cluster by its first server."""
    from openlineage.client.event_v2 import Dataset

    server = find_connection(ctx.plan.connection(side)).servers.partition(",")[0].strip()
    return [Dataset(namespace=f"kafka://{server}", name=name) for name in sorted(mirrored(ctx))]
