"""Handlers of a migration's topics: looked at before anything is copied, or compared, by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.handlers import Handler
from kafka_migration.domain.listing import listed
from kafka_migration.migration.joined import pending
from kafka_migration.topics import declared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KEEP_KEYS = "set keeps_keys: true for these topics (an entry of their own in `handlers`), or have no handler match them"


def used(ctx: Context, topics: Iterable[str]) -> dict[str, Handler]:
    """By topic, the handlers of those that have one."""
    return {topic: found for topic in sorted(topics) if (found := ctx.handler_of(topic)) is not None}


def topic_ids(ctx: Context, names: Iterable[str]) -> dict[str, list[str | None]]:
    """As :func:`declared.topic_ids`, behind them the handler of a topic that has one: by another one, what was found
    equal proves nothing."""
    ids, handlers = declared.topic_ids(ctx, names), used(ctx, names)
    return {name: [*mine, str(handlers[name])] if name in handlers else mine for name, mine in ids.items()}


def require(ctx: Context, topics: Iterable[str]) -> None:
    """Raises Refused where the plan has other handlers than the one that joined, and what :func:`load` and
    :func:`require_keys` raise for those of ``topics``."""
    if ctx.direction is Direction.FORWARD and any(change.field == "handlers" for change in pending(ctx)):
        raise Refused(
            "the plan given changes handlers, by which records are copied and compared, and has not joined",
            remedy="`check` lists what the plan changes; `approve plan`, then `create`: with it the plan joins",
        )
    handlers = used(ctx, topics)
    load(handlers)
    require_keys(ctx, handlers)


def load(handlers: Mapping[str, Handler]) -> None:
    """Raises BadInput for a handler that is not here as the plan means it."""
    for handler in dict.fromkeys(handlers.values()):
        handler.load()


def require_keys(ctx: Context, handlers: Mapping[str, Handler]) -> None:
    """Raises Refused for :func:`compacted` topics."""
    if found := compacted(ctx, handlers):
        raise Refused(
            f"these topics are compacted, and their handlers may change keys and drop records: {listed(found)}; the"
            " target would then keep other records of a key than the source",
            remedy=KEEP_KEYS,
        )


def compacted(ctx: Context, handlers: Mapping[str, Handler]) -> list[str]:
    """The topics that are compacted, and whose records may be dropped by their handlers, or get other keys."""
    free = [topic for topic, handler in handlers.items() if not handler.keeps_keys]
    policies = {topic: found.get("cleanup.policy") for topic, found in ctx.origin.topic_configs(free).items()}
    return [topic for topic, policy in policies.items() if policy and "compact" in (policy.value or "")]
