"""What a corrected plan may not change any more, by what the migration has done; and that a step works with the plan
that the migration goes by (docs/plan.md, While it runs).

``create`` has a corrected plan join, after its gate. Until then other steps take the changes that hurt nobody as they
are; a plan that was replaced by a later one does nothing any more, as what joined since would be left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.groups.record import GroupRecord
from kafka_migration.migration import cancellation
from kafka_migration.migration.joined import has_made_topics, joined, pending
from kafka_migration.plans.changes import Change
from kafka_migration.topics import locks
from kafka_migration.topics.declared import KIND as TOPIC

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

NAME = "plan of the running migration"
JOIN = "`check` lists what the plan changes; `approve plan`, then `create`: with it the plan joins"


@dataclass(frozen=True, slots=True)
class _Refusal:
    message: str
    remedy: str


def shown(ctx: Context) -> tuple[Change, ...]:
    """What differs between the plan given and the one that it replaces, or did replace when it joined: the same before
    and after, so that what was approved stays what is shown."""
    last = joined(ctx)
    return last.changes if last is not None and last.digest == ctx.plan.digest else pending(ctx)


def check(ctx: Context, topics: Iterable[str]) -> CheckResult | None:
    """Whether the plan given may join, with all that it changes; None if it changes nothing. ``topics`` are those of
    the source that it selects."""
    found, refused = shown(ctx), [*_refusals(ctx), *_sealed(ctx, topics)]
    if refused:
        evidence = listed((one.message for one in refused), separator="; ")
        remedy = "; ".join(dict.fromkeys(one.remedy for one in refused))
        return CheckResult.failed(NAME, evidence, remedy=remedy)
    if not found:
        return None
    evidence = listed(found, separator="; ")
    if pending(ctx):
        return CheckResult.warned(NAME, f"changed: {evidence}", remedy=JOIN)
    return CheckResult.passed(NAME, f"joined, with changes: {evidence}")


def require(ctx: Context, *, joins: bool = False) -> None:
    """Raise Refused if the plan given changes what may not change, naming field, both values and remedy; or if a later
    plan replaced it, unless the caller has it join (``joins``). Changes nothing, and asks no cluster but for state."""
    last = joined(ctx)
    if last is None or last.digest == ctx.plan.digest:
        return
    if last.replaced(ctx.plan.digest) and not joins:
        raise Refused(
            f"the plan given ({ctx.plan.digest}) was replaced by another one ({last.digest}), which joined migration"
            f" {ctx.plan.name} at {last.at}: what that one has in addition would be left out",
            remedy="use the plan that joined (in Airflow: clear take_snapshot alone, then this task); or have this one"
            f" join again: {JOIN}",
        )
    if refused := _refusals(ctx):
        raise Refused(
            f"migration {ctx.plan.name} runs by another plan: {listed((r.message for r in refused), separator='; ')}",
            remedy="; ".join(dict.fromkeys(one.remedy for one in refused)),
        )


def to_mirror(ctx: Context) -> list[str]:
    """The topics to mirror: those of the plan that this migration created or adopted.

    Raises Refused if there are none, if it does not hold them any more, if the migration was cancelled, or if the plan
    changes what may not change. A plan that was replaced is taken all the same: the mirror goes on with the one that
    joined.
    """
    require(ctx, joins=True)
    cancellation.require_none(ctx)
    return locks.held(ctx)


def _refusals(ctx: Context) -> list[_Refusal]:
    changed = pending(ctx)
    if not changed:
        return []
    is_free = not has_made_topics(ctx.journal)
    found = [
        _Refusal(f"{change}", change.remedy)
        for change in changed
        if change.remedy and not (is_free and change.field.split(".")[0] == "naming")
    ]
    moves = {name: record for name, record in GroupRecord.all(ctx.journal).items() if _has_left(record)}
    if any(change.field.startswith("groups.") for change in changed):
        found += [
            _Refusal(
                f"groups selected {group}, which was moved or is being moved, and does not any more",
                f"have groups.include and groups.exclude select it, or move it back first (`undo --group {group}`, with"
                " the plan before)",
            )
            for group in sorted(moves)
            if not ctx.plan.groups.matches(group)
        ]
    if any(change.field.startswith("topics.") for change in changed):
        found += _left_out_topics(ctx, moves)
    return found


def _left_out_topics(ctx: Context, moves: dict[str, GroupRecord]) -> list[_Refusal]:
    """Topics that moved groups read: what producers still write to them on the source would never reach the groups. Not
    those that are halted, as nothing is copied of them anyway, nor once the mirror is sealed."""
    if ctx.link.seal() is not None:
        return []
    readers: dict[str, list[str]] = {}
    for group, record in sorted(moves.items()):
        for topic in record.subscription | {move.tp.topic for move in record.translations}:
            readers.setdefault(topic, []).append(group)
    created, halted = ctx.journal.all(TOPIC), ctx.link.halted_topics()
    return [
        _Refusal(
            f"topics selected {topic}, and does not any more, though moved groups read it on the target:"
            f" {listed(readers[topic])}",
            "have topics.include, topics.exclude and topics.internal select it until the mirror is sealed, or move"
            " these groups back first (`undo --group GROUP`, with the plan before)",
        )
        for topic in sorted(readers)
        if topic in created and not ctx.plan.topics.matches(topic) and topic not in halted
    ]


def _sealed(ctx: Context, topics: Iterable[str]) -> list[_Refusal]:
    if (cancelled := cancellation.read(ctx)) is not None and cancelled.holds:
        # It begins again, with another copy.
        return []
    seal = ctx.link.seal()
    late = sorted(set(topics) - ctx.link.topics().keys()) if seal is not None else []
    if seal is None or not late:
        return []
    return [
        _Refusal(
            f"the mirror was sealed at {seal.at}, and the plan selects topics that it never copied: {listed(late)}",
            "exclude these topics (topics.exclude) and migrate them by a plan of another name; or `mirror --unseal`"
            " with the plan before, if the mirror shall go on",
        )
    ]


def _has_left(record: GroupRecord) -> bool:
    return record.is_moved or record.leg.is_under_way
