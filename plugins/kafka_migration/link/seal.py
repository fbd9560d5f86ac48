"""The seal: after the drain, the mirror's own right to write ends, and the target's final ends stand still.

It stands in the link's state, which every mirror reads, in a fence whose epoch no mirror gets, and in the journal,
which outlives the link's topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.copy.driver.attempts import refuse_sealed
from kafka_migration.copy.driver.fencing import seal
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.topics import restore

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "seal"
NAME = "link"


def check(ctx: Context) -> None:
    """Raises Refused if the link is sealed, by its own state or by the journal's."""
    refuse_sealed(ctx.link)
    kept = ctx.journal.read(KIND, ctx.direction.own(NAME))
    if kept is not None:
        raise Refused(
            f"link {ctx.link.name} was sealed at {kept['at']}, but the link's state has lost the seal",
            remedy="find out who deleted the link's state; if producers write to the source again, `mirror --unseal`",
        )


def apply(ctx: Context) -> Seal:
    """Seal the link, which was drained; a second call proves it again. Raises what the seal itself raises."""
    properties = ctx.destination.connection.kafka_python()
    client = {**properties, "client_id": f"{ctx.link.transactional_id}.seal"}
    done = seal(ctx.link, client, ctx.log, direction=ctx.direction)
    ctx.journal.record(KIND, ctx.direction.own(NAME), done.as_dict())
    return done


def undo(ctx: Context) -> bool:
    """Take the seal away, so that the mirror may run again. False if there was none."""
    name = ctx.direction.own(NAME)
    found = ctx.link.seal() is not None or ctx.journal.read(KIND, name) is not None
    if found and ctx.direction is Direction.FORWARD:
        # Before anything can be copied again: old records would expire as they arrive.
        restore.undo(ctx)
    if found and not ctx.dry_run:
        # The journal last: killed in between, the link is still sealed.
        ctx.link.unseal()
        ctx.journal.forget(KIND, name)
    return found
