"""A wave as the scope of what is judged, approved and moved; whether its turn has come, and where each wave stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.record import APPROVED, Approval, answers
from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.inventory import inventory
from kafka_migration.inventory.facts import plan_waves
from kafka_migration.migration.context import Scope
from kafka_migration.waves.links import Kind
from kafka_migration.waves.order import CANARY
from kafka_migration.waves.pinned import pinned

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.waves.order import Spanning, Wave, Waves

OPTION = "--wave"
#: The journal's kind for waves that began to move, by name: which groups, and since when.
KIND = "wave"

_FIELDS = {Kind.TRANSACTION: "waves.spanning_transactions"}


def within(ctx: Context, name: str) -> Context:
    """The same migration, as far as the wave called ``name`` goes, with the groups that it has now.

    Raises BadInput for a plan without waves and for a name that none has; Refused before computed waves are settled.
    Read-only.
    """
    if ctx.plan.waves is None:
        raise BadInput(
            f"plan {ctx.plan.name} has no waves",
            field=OPTION,
            value=name,
            remedy="leave it out, or add waves to the plan (a run of the DAG has the plan as it was when it began:"
            " clear take_snapshot alone, then this task)",
        )
    waves = _waves(ctx)
    wave = waves.named(name)
    if wave is None:
        raise BadInput(
            f"plan {ctx.plan.name} has no wave {name}",
            field=OPTION,
            value=name,
            remedy=f"its waves are {listed(one.name for one in waves.waves)}",
        )
    return ctx.within(_scope(ctx, waves, wave))


def around(ctx: Context, groups: Iterable[str]) -> Context:
    """The same migration, as far as the wave goes that holds ``groups``; the whole of it for a plan without waves, and
    for groups that no wave has. Raises Refused for groups of several waves."""
    if ctx.plan.waves is None or not ctx.scope.is_whole or not (wanted := set(groups)):
        return ctx
    waves = _waves(ctx)
    holding = [wave for wave in waves.waves if wanted & wave.groups]
    if len(holding) > 1:
        raise Refused(
            "these groups move in several waves: "
            + "; ".join(f"{listed(sorted(wanted & wave.groups))} in {wave.name}" for wave in holding),
            remedy="name groups of one wave at a time, in the order of the waves",
        )
    return ctx.within(_scope(ctx, waves, holding[0])) if holding else ctx


def _waves(ctx: Context) -> Waves:
    names(ctx)
    # With transactions: by them, too, a topic that came late finds its wave, and what spans two is found.
    return plan_waves(ctx, inventory.take(ctx, briefly=True, transactions=True))


def _scope(ctx: Context, waves: Waves, wave: Wave) -> Scope:
    reading = {link.group for link in waves.links if link.group and link.topics}
    elsewhere = frozenset[str]().union(*(one.groups for one in waves.waves))

    def held(one: Wave) -> frozenset[str]:
        """Its groups; those that began to move with it as well that the source does not list any more."""
        begun = frozenset((ctx.journal.read(KIND, one.name) or {}).get("groups", ()))
        return one.groups | {group for group in begun - elsewhere if ctx.plan.groups.matches(group)}

    own = held(wave)
    earlier = waves.waves[: waves.waves.index(wave)]
    return Scope.wave(
        wave.name,
        topics=wave.topics,
        groups=own,
        after=frozenset[str]().union(*(held(one) & reading | held(one) - one.groups for one in earlier)),
        reading=own & reading | own - wave.groups,
        torn=tuple(_torn(one) for one in waves.spanning if wave.name in one.waves and not one.waived),
    )


def _torn(one: Spanning) -> str:
    field = _FIELDS.get(one.link.kind, "waves.spanning_groups")
    return f"{one.link.title} spans waves {', '.join(one.waves)} ({field} would waive this for it)"


def names(ctx: Context) -> dict[str, bool]:
    """The waves of the plan by name, in their order, and whether each is the canary; none for a plan without waves.

    Raises Refused before computed waves are settled.
    """
    waves = ctx.plan.waves
    if waves is None:
        return {}
    found: Sequence[Any] = waves.given if waves.auto is None else pinned(ctx)
    if not found:
        raise Refused(
            f"the waves of {ctx.plan.name} are computed, and settled by `create`, which has not run with the plan's"
            " section waves as it is",
            remedy="run `approve plan` and `create` first",
        )
    return {wave.name: wave.canary for wave in found}


def require_wave(ctx: Context) -> None:
    """Raise Refused for the whole of a plan with waves: its groups move wave by wave, each under its own approval."""
    if ctx.plan.waves is not None and ctx.scope.is_whole:
        raise Refused(
            f"plan {ctx.plan.name} moves its groups by waves, each under an approval of its own, and no wave is named",
            remedy="`approve cutover PLAN --wave NAME`, `cutover PLAN --wave NAME` and `watch PLAN`, in the order of"
            f" the waves ({listed(names(ctx))}); or `run PLAN`, which asks for each in turn",
        )


def checks(ctx: Context) -> tuple[CheckResult, ...]:
    """What the cutover gate demands of a wave besides: its turn, and that nothing spans it and another one."""
    found = [turn(ctx)] if ctx.scope.after else []
    if ctx.scope.torn:
        # No approval can be given, and none that was given lets a further group move.
        torn = CheckResult.failed(
            "nothing spans this wave and another one",
            "; ".join(ctx.scope.torn),
            remedy="put its topics into one wave, or waive this for it in the plan",
        )
        found.append(torn)
    return tuple(found)


def left(ctx: Context, groups: Iterable[str]) -> dict[str, str]:
    """Those of ``groups`` that have not moved, or were not seen to go on, with which of both it is."""
    return {
        group: "was not seen to go on yet" if record.is_moved else "has not moved"
        for group, record in GroupRecord.of(ctx.journal, sorted(groups)).items()
        if not record.is_moved or not (record.forward.has(Step.ALIVE) or group in ctx.plan.cutover.stopped_groups)
    }


def turn(ctx: Context) -> CheckResult:
    """Whether every group of the waves before has moved, and was seen to go on."""
    name = "waves before this one have moved"
    waiting = left(ctx, ctx.scope.after)
    if waiting:
        return CheckResult.failed(
            name,
            listed(f"{group} {why}" for group, why in sorted(waiting.items())),
            remedy="move the waves in their order (`cutover PLAN --wave NAME`), and `watch` their groups; or exclude"
            " groups from the plan that shall stay",
        )
    return CheckResult.passed(name, f"{len(ctx.scope.after)} groups")


def begin(ctx: Context) -> None:
    """Record that the wave in scope begins to move, with the groups that it has; nothing for the whole plan, and on the
    way back. Tasks that move its groups side by side record the same."""
    if ctx.scope.is_whole or ctx.dry_run or ctx.direction is Direction.REVERSE:
        return
    before = ctx.journal.read(KIND, ctx.scope.key) or {"at": ctx.stamp(), "groups": []}
    value = {**before, "groups": sorted(ctx.scope.reading)}
    if value != ctx.journal.read(KIND, ctx.scope.key):
        ctx.journal.record(KIND, ctx.scope.key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a wave stands. ``approval`` is its newest answer; ``groups`` are those that it began to move with, each
    with what keeps it from counting as moved ("" for nothing) and its pause in seconds (None while unknown)."""

    wave: str
    canary: bool
    stands: str
    approval: Approval | None
    begun: str
    groups: dict[str, tuple[str, float | None]]

    @property
    def title(self) -> str:
        """The wave's name, and whether it is the canary."""
        return f"{self.wave} (canary)" if self.canary and self.wave != CANARY else self.wave

    @property
    def waits(self) -> bool:
        """Whether its turn has come, and nobody has answered yet."""
        return self.stands == _WAITS

    @property
    def pause_seconds(self) -> float | None:
        """The longest pause of its groups that is known."""
        return max((pause for _, pause in self.groups.values() if pause is not None), default=None)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        groups = [{"group": group, "left": why, "pause_seconds": pause} for group, (why, pause) in self.groups.items()]
        return {
            "wave": self.wave,
            "canary": self.canary,
            "stands": self.stands,
            "begun": self.begun or None,
            "approval": None if self.approval is None else self.approval.as_dict(),
            "groups": groups,
            "pause_seconds": self.pause_seconds,
        }


def standings(ctx: Context) -> tuple[Standing, ...]:
    """Where each wave of the plan stands, in their order, by the journal alone; none for a plan without waves, and none
    before computed ones are settled."""
    try:
        known = names(ctx)
    except Refused:
        return ()
    found: list[Standing] = []
    for name, canary in known.items():
        begun = ctx.journal.read(KIND, name)
        groups = begun["groups"] if begun else []
        waiting = left(ctx, groups)
        records = GroupRecord.of(ctx.journal, groups)
        pauses = {group: record.forward.evidence(Step.ALIVE, "pause_seconds") for group, record in records.items()}
        newest = answers(ctx.within(Scope.wave(name, topics=frozenset(), groups=frozenset()))).get(GateName.CUTOVER)
        before = next((one.wave for one in found if not one.stands.startswith(_MOVED)), "")
        found.append(
            Standing(
                wave=name,
                canary=canary,
                stands=_moving(groups, waiting) if begun else _before(ctx, newest, before),
                approval=newest,
                begun=begun["at"] if begun else "",
                groups={group: (waiting.get(group, ""), pause) for group, pause in pauses.items()},
            )
        )
    return tuple(found)


_MOVED, _WAITS = "moved", "waits for an approval"


def _moving(groups: Sequence[str], waiting: dict[str, str]) -> str:
    if not waiting:
        return f"{_MOVED}: {len(groups)} groups"
    return f"{len(groups) - len(waiting)} of {len(groups)} groups have moved and go on"


def _before(ctx: Context, newest: Approval | None, before: str) -> str:
    if before:
        return f"waits for wave {before}"
    if not ctx.plan.approvals.cutover:
        return "is next"
    if newest is None:
        return _WAITS
    return "approved, and not begun" if newest.answer == APPROVED else f"{newest.answer} by {newest.approver}"
