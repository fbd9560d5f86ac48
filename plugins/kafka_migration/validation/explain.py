"""After the verdict: what exactly differs, and what of it compaction explains (docs/validation.md).

Whoever found a segment unequal, at whatever level: it is read once more here, from both clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.digests import SOURCE
from kafka_migration.compare.explain.drill import Drill, Found, Scope
from kafka_migration.compare.explain.log import LogReader
from kafka_migration.compare.explain.result import Drilled
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality, PartitionResult
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.types import PartitionEnds, TopicPartition

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: All drill-downs of a validation together may take so long. What was not looked through is named.
_SECONDS = 900.0
#: Readers of source and target, by kafka-python's properties of their connections.
OpenLogs = Callable[[Mapping[str, Any], Mapping[str, Any]], AbstractContextManager[tuple[LogReader, LogReader]]]
_UNEQUAL = frozenset({Equality.DIFFERENT, Equality.INCONCLUSIVE})


def with_tails(ctx: Context, ranges: Sequence[PartitionRange]) -> tuple[PartitionRange, ...]:
    """``ranges``; those of compacted logs with the ends up to which newer records of a key are looked for."""
    keyed = [range_.tp for range_ in ranges if range_.by_key]
    if not keyed:
        return tuple(ranges)
    positions, sources, targets = (
        ctx.link.positions(),
        ctx.origin.ends(keyed, committed=True),
        ctx.destination.ends(keyed),
    )
    return tuple(
        replace(
            range_,
            source_tail=max(range_.source_end, sources[range_.tp].end),
            target_tail=max(range_.target_end, targets[range_.tp].end),
            source_mirrored=max(range_.source_end, positions[range_.tp].source if range_.tp in positions else 0),
        )
        if range_.by_key
        else range_
        for range_ in ranges
    )


def to_read_again(
    ctx: Context, ranges: Sequence[PartitionRange], results: Mapping[TopicPartition, PartitionResult], logs: OpenLogs
) -> tuple[PartitionRange, ...]:
    """Those of ``ranges`` to be read again, since compaction may have taken records from one side while they were read.

    None of the others: there, either nothing differs, or compaction does not explain it. It is for the reading to
    decide, by its own rule: nothing that was found out here is left out of it.
    """
    # What is not read on both sides is INCONCLUSIVE, whatever compaction explains of the rest.
    scopes = [scope for scope in _scopes(ranges, results) if scope.range.by_key and not scope.unread]
    again = []
    for found in _drilled(ctx, ranges, scopes, logs):
        for scope in scopes:
            places = found.explained.get(scope.range.tp, frozenset())
            # Also where it is there by now: what was read between two passes of the cleaner is read once more.
            if scope.range.tp in found.explained and (places or not _differing(found, scope.range.tp)):
                again.append(scope.range)
    return tuple(again)


def drilled(
    ctx: Context, ranges: Sequence[PartitionRange], results: Iterable[PartitionResult], logs: OpenLogs
) -> tuple[PartitionResult, ...]:
    """``results``, and of those that are unequal what differs."""
    by_tp = {result.tp: result for result in results}
    scopes = _scopes(ranges, by_tp)
    if scopes:
        ctx.log(f"reading {len(scopes)} partitions again, where they are not equal, to find the records that differ")
    for found in _drilled(ctx, ranges, scopes, logs):
        for drilled_ in found.drilled:
            by_tp[drilled_.tp] = replace(by_tp[drilled_.tp], drilled=drilled_)
            if drilled_.first is not None:
                ctx.log(f"{drilled_.tp}: {drilled_.text}; first {drilled_.first.text}")
    return tuple(by_tp[tp] for tp in sorted(by_tp))


def _scopes(ranges: Sequence[PartitionRange], results: Mapping[TopicPartition, PartitionResult]) -> list[Scope]:
    found = []
    for range_ in sorted(ranges, key=lambda range_: range_.tp):
        result = results.get(range_.tp)
        if result is None or result.verdict not in _UNEQUAL:
            continue
        # What could not be read once is not tried again here, and does not keep its neighbours from being looked at.
        unread = tuple((one.start, one.end) for one in result.segments if one.failure)
        spans = tuple((one.start, one.end) for one in result.segments if one.verdict in _UNEQUAL and not one.failure)
        if spans:
            found.append(Scope(range=range_, spans=spans, unread=unread))
    return found


def _drilled(ctx: Context, ranges: Sequence[PartitionRange], scopes: Sequence[Scope], logs: OpenLogs) -> list[Found]:
    """By topic. Whatever cannot be read is a note, since the verdict stands without it."""
    if not scopes:
        return []
    settings = ctx.plan.validation
    client = {"client_id": f"kafka-migration.{ctx.plan.name}.validation"}
    sides = [{**cluster.wire(), **client} for cluster in (ctx.origin, ctx.destination)]
    try:
        with logs(*sides) as (source, target):
            drill = Drill(
                source,
                target,
                ranges,
                examples=settings.examples,
                private=settings.private_payloads,
                until=ctx.clock.monotonic() + _SECONDS,
                mirrored=partial(_mirrored, ctx),
                ends=partial(_ends, ctx),
                clock=ctx.clock.monotonic,
                now_ms=lambda: int(ctx.clock.now().timestamp() * 1000),
            )
            return [drill.topic(list(them)) for _, them in groupby(scopes, key=lambda scope: scope.range.topic)]
    except Exception as error:
        # Also what nobody thought of.
        why = error.message if isinstance(error, MigrationError) else f"{type(error).__name__}: {error}"
        note = f"the records that differ were not looked for: {why}"
        ctx.log(note)
        tps = [scope.range.tp for scope in scopes]
        return [Found(drilled=tuple(Drilled(topic=tp.topic, partition=tp.partition, notes=(note,)) for tp in tps))]


def _mirrored(ctx: Context, tp: TopicPartition) -> int:
    """Up to which source offset a partition is mirrored by now, at least."""
    position = ctx.link.positions().get(tp)
    return 0 if position is None else position.source


def _ends(ctx: Context, side: str, tp: TopicPartition) -> PartitionEnds:
    """Where a partition's log begins and ends by now, as the drill-down reads that side."""
    found = ctx.origin.ends([tp], committed=True) if side == SOURCE else ctx.destination.ends([tp])
    return found[tp]


def _differing(found: Found, tp: TopicPartition) -> int:
    """How many records of a partition differ."""
    return sum(sum(drilled_.counts.values()) for drilled_ in found.drilled if drilled_.tp == tp)
