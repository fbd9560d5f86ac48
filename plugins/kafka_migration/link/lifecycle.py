"""Where each topic of the migration stands in its life, as the journal keeps it.

Steps note it next to what they do; what proves it (the link's seal, its drain) stands in the link's state. A topic of
which nothing is noted, since an earlier version began the migration, is derived from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.states import known
from kafka_migration.link.flight import was_drained

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "topic-state"


def read(ctx: Context) -> dict[str, TopicState]:
    """The state of every topic in scope that was ever mirrored, by name. Raises StateConflict for one that this
    version does not know."""
    found = {
        topic: known(TopicState, value["state"], f"topic {topic} is in state")
        for topic, value in ctx.journal.all(KIND).items()
    }
    if left := ctx.link.topics().keys() - found.keys():
        seal = ctx.link.seal()
        derived = TopicState.DRAINED if was_drained(ctx) else TopicState.MIRRORING
        holders = ctx.journal.holders(left) if seal is not None and seal.is_complete else None
        for topic in left:
            if holders is not None:
                is_held = holders.get(topic) == ctx.journal.migration
                derived = TopicState.SEALED if is_held else TopicState.COMPLETED
            found[topic] = derived
    return {topic: state for topic, state in sorted(found.items()) if ctx.selects_topic(topic)}


def note(ctx: Context, topics: Iterable[str], state: TopicState) -> None:
    """Note that ``topics`` are in ``state`` from now on. A second call, and a dry run, change nothing.

    Raises StateConflict, before anything is noted, where a topic cannot come there from where it stands.
    """
    now, new = read(ctx), sorted(topics)
    wrong = [topic for topic in new if topic in now and not now[topic].may_become(state)]
    if wrong:
        raise StateConflict(
            f"topic {wrong[0]} is {now[wrong[0]]}, and cannot become {state} from there ({len(wrong)} topics)",
            remedy="see `status` for where each topic stands; another process may have gone on with this migration",
        )
    if not ctx.dry_run:
        value = {"state": str(state), "at": ctx.stamp()}
        ctx.journal.record_all(KIND, {topic: value for topic in new if now.get(topic) is not state})
