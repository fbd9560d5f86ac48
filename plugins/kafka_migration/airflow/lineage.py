"""The mirror in OpenLineage: what Airflow's provider emits for its task has the topics that it reads and writes.

The provider is an extra of the package. Where it is not installed, or has no transport, nothing is emitted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import TARGET, Side
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.topics.declared import mirrored

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset

    from kafka_migration.migration.context import Context

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


def emit(ctx: Context, task_instance: Any) -> None:
    """Emit, from within the mirror's task, what the link of ``ctx`` copies. Whatever is wrong with that is logged, and
    a receiver that does not answer is not waited for: the mirror runs, and its task has to watch it."""
    try:
        from airflow.providers.openlineage.api import emit_dataset_lineage, is_openlineage_active
    except ImportError:
        return
    try:
        if not is_openlineage_active():
            return
        names = sorted(mirrored(ctx))
        inputs, outputs = (_topics(ctx, side, names) for side in (ctx.direction.origin, ctx.direction.destination))
    except Exception as error:
        log.warning("no lineage is emitted: %s", error)
        return
    # It logs its own errors.
    thread = threading.Thread(
        target=emit_dataset_lineage,
        kwargs={"inputs": inputs, "outputs": outputs, "task_instance": task_instance},
        name="lineage",
        daemon=True,
    )
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    if thread.is_alive():
        log.warning("lineage was not emitted within %g s: its receiver does not answer", _PATIENCE_SECONDS)


def _topics(ctx: Context, side: Side, names: Sequence[str]) -> list[Dataset]:
    """Topics of a cluster as OpenLineage names them: the cluster by its first server."""
    from openlineage.client.event_v2 import Dataset

    server = find_connection(ctx.plan.connection(side)).servers.partition(",")[0].strip()
    called = ctx.plan.topic_names.on_target if side == TARGET else str
    return [Dataset(namespace=f"kafka://{server}", name=called(name)) for name in names]
