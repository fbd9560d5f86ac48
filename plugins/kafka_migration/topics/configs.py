"""Changing configs of topics that are there, so that it can be gone on with, and is seen to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.waiting import tries

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context


class Change(Protocol):
    """Configs of one topic that are to be set, and those to be left to the cluster's defaults. ``str`` of it is one
    line for people, the same in a dry run and in earnest."""

    @property
    def topic(self) -> str: ...
    @property
    def set(self) -> Mapping[str, str]: ...
    @property
    def delete(self) -> tuple[str, ...]: ...


T = TypeVar("T", bound=Change)


def change(ctx: Context, cluster: Cluster, look: Callable[[], Sequence[T]], note: Callable[[T], None]) -> tuple[T, ...]:
    """Make the changes that ``look`` finds, read back and compare; nothing in a dry run. Returns what was found.

    Each is noted (``note``) before it is made, so that whoever is killed in between is gone on after. Raises what the
    cluster answers, Refused if it shows another value afterwards.
    """
    todo = tuple(look())
    for one in todo:
        ctx.log(str(one))
        if not ctx.dry_run:
            note(one)
            if one.set or one.delete:
                cluster.alter_configs(one.topic, set=one.set, delete=one.delete)
    if not ctx.dry_run:
        _verify(ctx, cluster, look)
    return todo


def _verify(ctx: Context, cluster: Cluster, look: Callable[[], Sequence[T]]) -> None:
    """Ask again what is left to do: brokers answer before all of them know a new config."""
    left: list[T] = []
    for _ in tries(ctx.clock, seconds=30.0, pause=0.2):
        left = [one for one in look() if one.set or one.delete]
        if not left:
            return
    raise Refused(
        f"the {cluster.role} does not show what was set: {left[0]}",
        remedy="find out what else sets these topics' configs; then run this again",
    )
