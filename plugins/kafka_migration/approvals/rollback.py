"""The rollback gate: asked before each group goes back to the source, and before producers do.

It needs the way back, which is a link that begins behind the newest forward link's seal, and a person's answer where
the plan has one asked before groups are moved. A validation that found a difference shuts it. Lag and halts of the
reverse link do not: a group waits for its own records alone, and producers are kept from moving by checks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals.cutover import given_up_facts, nothing_given_up
from kafka_migration.approvals.evidence import Evidence, GateName, Table, item, limited, verdicts
from kafka_migration.approvals.passing import require_passed
from kafka_migration.domain.checks import CheckResult, Gate
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.listing import listed
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.translate import preview, selected_groups
from kafka_migration.link import reverse, switched
from kafka_migration.link.lag import LagMeter, LagReport
from kafka_migration.link.losses import losses
from kafka_migration.migration import completion
from kafka_migration.validation import verdict

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_FACTS_SECONDS = 15.0
SEALED, COPIED, HALTED = "the forward link is sealed", "everything is mirrored back", "no partition is halted"


class RollbackGate:
    """The gate, for as long as one call takes. ``back`` is the migration as the reverse link sees it."""

    def __init__(self, back: Context) -> None:
        self._back = back
        self._seen: tuple[float, tuple[str, ...], LagReport] | None = None

    def ask(self) -> str:
        """Why the next group may go back, and the reverse link's lag. Raises NotApproved if not, Refused without a way
        back, CouldNotFindOut if a check could not run."""
        back = self._back
        completion.require_none(back)
        reverse.check(back)
        now = back.clock.monotonic()
        if self._seen is None or now - self._seen[0] > _FACTS_SECONDS:
            self._seen = (now, selected(back), LagMeter(back).read())
        _, groups, lag = self._seen
        passed = require_passed(back, rollback_facts(back, groups, lag))
        return f"{passed.reason}; {_lag(lag)}; each group waits for its own records"


def selected(back: Context, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """``wanted`` groups, or all that stand on the target, were created there, or are on their way back.

    Raises BadInput for one that the plan leaves out.
    """
    names = selected_groups(back, wanted)
    if wanted is not None:
        return names
    records = GroupRecord.of(back.journal, names)
    untouched = [name for name in names if not any(leg.steps for leg in records[name].legs)]
    on_source, on_target = (side.committed_of(untouched, is_stable=False) for side in (back.source, back.target))
    return tuple(
        name
        for name in names
        if records[name].is_moved
        or records[name].leg.direction is Direction.REVERSE
        # One without commits on either may as well run on the source, and be about to commit there.
        or (name in on_source and not on_source[name] and on_target.get(name))
    )


def rollback_evidence(ctx: Context) -> Evidence:
    """Before the first group goes back: the reverse link's lag, and who stands where. Read-only.

    Raises Refused if the way back has not begun.
    """
    back = ctx.reverse()
    reverse.check(back)
    names, lag = selected(back), LagMeter(back).read()
    return replace(rollback_facts(back, names, lag), tables=(_records(back, lag), _groups(back, names)))


def rollback_facts(back: Context, names: Sequence[str], lag: LagReport) -> Evidence:
    """The evidence without its tables."""
    _, forward = back.earlier[-1]
    seal = forward.seal()
    given_up = [loss for loss in losses(back) if back.scope.has_topic(loss["topic"])]
    gate = Gate.of(
        "rollback",
        (
            _sealed(back),
            _copied(lag),
            _halted(back),
            # Before anything was, the evidence stays what it is without this check, and approvals of it count.
            *([nothing_given_up(given_up)] if given_up else []),
            verdict.check_back(back),
            *check_hooks(back.plan),
        ),
    )
    return Evidence(
        gate=GateName.ROLLBACK,
        migration=back.plan.name,
        scope=back.scope.key,
        taken_at=back.clock.now(),
        facts={
            "plan": {"digest": back.plan.digest},
            "link": {back.link.name: item(seal.as_dict() if seal else None)},
            "groups": dict.fromkeys(names, "goes back"),
            **({"given up": given_up_facts(given_up)} if given_up else {}),
            "checks": verdicts(gate),
        },
        checks=gate,
        tables=(),
    )


def _lag(lag: LagReport) -> str:
    return (
        f"the reverse link has {lag.total:,} offsets of the target to copy in {len(lag.sample.lag)} partitions"
        f" (mirror: {lag.mirror})"
    )


def _sealed(back: Context) -> CheckResult:
    _, forward = back.earlier[-1]
    seal = forward.seal()
    if seal is not None and seal.is_complete:
        return CheckResult.passed(SEALED, f"link {forward.name}, at {seal.at}")
    return CheckResult.failed(
        SEALED,
        f"link {forward.name} is not sealed any more: what it copies, the reverse link would copy back",
        remedy="run `stop`, which drains and seals it; nothing is rolled back while both links may write",
    )


def _copied(lag: LagReport) -> CheckResult:
    if not lag.total:
        return CheckResult.passed(COPIED, _lag(lag))
    remedy = "see that `mirror --reverse` runs: a group that needs one of these records waits for it"
    return CheckResult.warned(COPIED, _lag(lag), remedy=remedy)


def _halted(back: Context) -> CheckResult:
    halts = {str(tp): halt.reason for tp, halt in sorted(back.link.halts().items())}
    if not halts:
        return CheckResult.passed(HALTED, "none")
    return CheckResult.warned(
        HALTED,
        listed(f"{tp} {reason}" for tp, reason in halts.items()),
        remedy="groups that read behind a halt stay where they are; `status` has its cause, and what can be done",
    )


def _records(back: Context, lag: LagReport) -> Table:
    worst = lag.sample.worst
    switch = switched.served(back)
    lost = f"{lag.total:,} offsets, if the target were gone now; `rollback` waits for them" if lag.total else "none"
    return Table(
        title="Records on the way back",
        columns=("what", "now"),
        rows=(
            ("not mirrored back yet", f"{lag.total:,} offsets in {len(lag.sample.lag)} partitions"),
            ("most behind", f"{worst[0]} ({worst[1]:,})" if worst and worst[1] else "none"),
            ("mirror", lag.mirror),
            ("records that would be lost", lost),
            ("producers", "moved by their owners, if at all" if switch is None else str(switch)),
        ),
    )


def _groups(back: Context, names: Sequence[str]) -> Table:
    records = GroupRecord.of(back.journal, list(names)) if names else {}
    rows = []
    for group in preview(back, names).groups:
        record = records[group.group]
        known = any(leg.steps for leg in record.legs)
        place = "source" if record.was_rolled_back else "target" if known else "target, where it was created"
        first = "; ".join(f"{one.tp}: {one.target} -> {one.source}" for one in group.translations[:3])
        more = f" and {len(group.translations) - 3} more" if len(group.translations) > 3 else ""
        remarks = listed([*group.problems, *group.flags])
        rows.append((group.group, place, f"{group.state}, {group.members} members", first + more, remarks))
    columns = ("group", "stands on", "on the target", "target -> source", "remarks")
    return limited("Where each group would go on", columns, rows, see="translate PLAN --reverse --json")
