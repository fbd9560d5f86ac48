"""One page about a migration: how far it came, what runs, what stands still and why, and what a person can do.

Read-only, and never more certain than its sources: a side that does not answer leaves its part unknown, with the
reason, and the rest is shown anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals import record as approval_record
from kafka_migration.approvals import waves
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.fence import record as fence_record
from kafka_migration.groups import sides
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import lifecycle, reverse, stragglers, switched
from kafka_migration.link.halts import meaning_of
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.link.lag import LagMeter, undecided
from kafka_migration.link.losses import all_losses
from kafka_migration.link.stragglers import Stray
from kafka_migration.migration import cancellation, completion
from kafka_migration.migration.cancellation import Cancellation, State
from kafka_migration.migration.history import KIND as PHASE
from kafka_migration.migration.joined import handlers_due
from kafka_migration.topics import drift
from kafka_migration.validation import verdict

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_WORST_PARTITIONS = 5
_HANDLERS_DUE = "handlers of the plan that joined since this mirror began: run `mirror` again, or clear its task"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatus:
    """The last run of a phase. ``outcome`` running: it runs, or was killed. ``runs`` are those that are remembered."""

    name: str
    outcome: str
    started: str
    ended: str | None
    seconds: float | None
    detail: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """The running copy. ``state`` is not started, running, silent (probably dead) or ended; ages are seconds.

    ``sealed``: since when the mirror may not write any more, and whether every partition shows the seal;
    ``waiting`` which partitions stand still, and why, and what waits for a new start; ``rewound`` what the
    target lost and was copied again, last at ``rewound_at``.
    """

    state: str
    desired: str
    reason: str
    last_word: str | None
    age_seconds: float | None
    partitions: int
    fences: int
    records: int
    ended_as: str
    controls: Controls = field(default_factory=Controls)
    """Pause and throttle, by whom and since when."""
    sealed: str = ""
    is_sealed: bool = False
    waiting: str = ""
    rewound: tuple[str, ...] = ()
    rewound_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltStatus:
    """A partition that the mirror does not touch any more. Offsets are where it stood."""

    partition: str
    reason: str
    detail: str
    source_offset: int
    target_offset: int
    at: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """How far the move of a group came; ``pause_seconds`` is None while unknown. ``astray``: what is wrong with where
    it runs now (on both sides, or on neither)."""

    group: str
    step: str
    at: str
    pause_seconds: float | None
    astray: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSummary:
    """Replication lag in offsets of where the link reads; ``worst`` are the partitions that are furthest behind,
    ``topics`` the lag of each topic, ``undecided`` is what open transactions hold back. Rates are offsets a second,
    with an ``outlook`` for people; they take two looks."""

    total: int
    partitions: int
    worst: tuple[tuple[str, int], ...]
    topics: Mapping[str, int] = field(default_factory=dict)
    undecided: str = ""
    copied_per_second: float | None = None
    produced_per_second: float | None = None
    outlook: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """The reverse link. Its ``lag`` is in offsets of the target: as many records would be lost if the target were gone
    now; None while unknown."""

    mirror: MirrorStatus
    lag: LagSummary | None
    halts: tuple[HaltStatus, ...]
    validation: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The whole page. ``unknown``: parts that are missing, and why."""

    migration: str
    plan_digest: str
    at: datetime
    phases: tuple[PhaseStatus, ...]
    mirror: MirrorStatus
    lag: LagSummary | None
    halts: tuple[HaltStatus, ...]
    losses: tuple[Mapping[str, Any], ...]
    drift: tuple[drift.DriftStatus, ...]
    groups: tuple[GroupStatus, ...]
    approvals: tuple[approval_record.Approval, ...]
    validation: Mapping[str, Any] | None
    topics: int
    states: Mapping[str, str]
    """Where each topic stands in its life, by name; those that were never mirrored are left out."""
    locks: Mapping[str, str]
    unknown: Mapping[str, str]
    waves: tuple[waves.Standing, ...] = ()
    """Where each wave of the plan stands, in their order."""
    completion: completion.Completion | None = None
    """That the way back was given up, or is about to be; None before that."""
    cancelled: Cancellation | None = None
    """The newest cancellation, also where the migration has begun again since."""
    switch: switched.Switch | None = None
    """How far producers were switched to the target; None if that was never begun."""
    fences: Mapping[str, str] = field(default_factory=dict)
    """Which fences stand, or stand in part, by key."""
    rehearsal: str = ""
    """Which rehearsals of a switch go on, or left their denials of the probe."""
    way_back: WayBack | None = None
    """The link by which clients would go back; None before it has begun, and once it is given up."""
    stragglers: tuple[Stray, ...] = ()
    """What somebody wrote to the source behind the cut, and nobody decided about."""

    @property
    def has_begun(self) -> bool:
        """Whether this migration has left any trace on the target."""
        return bool(self.phases or self.topics or self.approvals or self.groups)

    @property
    def fence(self) -> str:
        """The fences that stand, in one line; "" for none."""
        return "; ".join(self.fences.values())

    @property
    def is_over(self) -> bool:
        """Whether the migration was completed or cancelled, and has not begun again."""
        is_completed = self.completion is not None and bool(self.completion.ended)
        return is_completed or (self.cancelled is not None and self.cancelled.state is State.CANCELLED)

    @property
    def groups_by_step(self) -> dict[str, int]:
        """How many groups stand at which step, in the order of the steps."""
        counts = {str(step): 0 for step in Step}
        for group in self.groups:
            counts[group.step] = counts.get(group.step, 0) + 1
        return {step: count for step, count in counts.items() if count}

    @property
    def topics_by_state(self) -> dict[str, int]:
        """The number of topics in each state, in the order of the states."""
        counts = Counter(self.states.values())
        return {str(state): counts[state] for state in TopicState if counts[state]}

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "migration": self.migration,
            "plan_digest": self.plan_digest,
            "at": self.at.isoformat(timespec="milliseconds"),
            "phases": [as_fields(phase) for phase in self.phases],
            **_copying(self),
            "way_back": None
            if self.way_back is None
            else {**_copying(self.way_back), "validation": self.way_back.validation},
            "losses": [dict(loss) for loss in self.losses],
            "drift": [as_fields(topic) for topic in self.drift],
            "groups": [as_fields(group) for group in self.groups],
            "groups_by_step": self.groups_by_step,
            "approvals": [approval.as_dict() for approval in self.approvals],
            "waves": [wave.as_dict() for wave in self.waves],
            "validation": None if self.validation is None else dict(self.validation),
            "topics": self.topics,
            "states": dict(self.states),
            "topics_by_state": self.topics_by_state,
            "locks": dict(self.locks),
            "switch": str(self.switch or ""),
            "fence": self.fence,
            "rehearsal": self.rehearsal,
            "stragglers": [stray.as_dict() for stray in self.stragglers],
            "unknown": dict(self.unknown),
            "completion": str(self.completion or ""),
            "cancelled": None if self.cancelled is None else self.cancelled.as_dict(),
        }


def _copying(link: Status | WayBack) -> dict[str, Any]:
    lag = link.lag
    return {
        "mirror": {**as_fields(link.mirror), "controls": link.mirror.controls.as_dict()},
        "lag": None
        if lag is None
        else {**as_fields(lag), "worst": [{"partition": tp, "lag": offsets} for tp, offsets in lag.worst]},
        "halts": [as_fields(halt) for halt in link.halts],
    }


def as_fields(value: Any) -> dict[str, Any]:
    """The fields of one part of the page, by name, as JSON types."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def read(ctx: Context, meter: LagMeter | None = None) -> Status:
    """The page as of now; with rates where ``meter``, of the same context, has looked before. Raises only what reading
    the target's state raises."""
    unknown: dict[str, str] = {}
    topics, done = sorted(ctx.journal.all("topic")), completion.read(ctx)
    return Status(
        migration=ctx.plan.name,
        plan_digest=ctx.plan.digest,
        at=ctx.clock.now(),
        phases=phases(ctx),
        mirror=_mirror(ctx),
        lag=_lag(meter or LagMeter(ctx), unknown, "lag"),
        way_back=None if done and done.ended else _way_back(ctx, unknown),
        halts=halts(ctx),
        losses=tuple(all_losses(ctx)),
        drift=_drift(ctx, unknown),
        groups=_groups(ctx, unknown),
        approvals=(
            *approval_record.answers(ctx).values(),
            *approval_record.of_waves(ctx, GateName.ROLLBACK),
        ),
        waves=waves.standings(ctx),
        validation=_validation(ctx),
        topics=len(topics),
        fences=fence_record.described(ctx),
        rehearsal=fence_record.describe_rehearsals(ctx),
        stragglers=_stragglers(ctx, unknown),
        states={topic: str(state) for topic, state in lifecycle.read(ctx).items()},
        locks=ctx.journal.holders(topics),
        unknown=unknown,
        completion=done,
        cancelled=cancellation.read(ctx),
        switch=switched.last(ctx),
    )


def phases(ctx: Context) -> tuple[PhaseStatus, ...]:
    """What the journal has of phases, in the order in which they last began."""
    found = [
        PhaseStatus(
            name=name,
            outcome=value["outcome"],
            started=value["started"],
            ended=value["ended"],
            seconds=value["seconds"],
            detail=value["detail"],
            runs=len(value["earlier"]) + 1,
        )
        for name, value in ctx.journal.all(PHASE).items()
    ]
    return tuple(sorted(found, key=lambda phase: phase.started))


def halts(ctx: Context) -> tuple[HaltStatus, ...]:
    """Every halted partition, with what its reason means and what can be done."""
    found = []
    for tp, halt in sorted(ctx.link.halts().items()):
        known = meaning_of(halt.reason, ctx.direction, ctx.generation)
        here, there = halt.source_offset, halt.target_offset
        found.append(
            HaltStatus(
                partition=str(tp),
                reason=halt.reason,
                detail=halt.detail,
                source_offset=here if ctx.direction is Direction.FORWARD else there,
                target_offset=there if ctx.direction is Direction.FORWARD else here,
                at=halt.at,
                meaning=known.meaning,
                remedy=known.remedy,
            )
        )
    return tuple(found)


def _mirror(ctx: Context) -> MirrorStatus:
    run, wish, progress, seal = ctx.link.run(), ctx.link.wished(), ctx.link.progress(), ctx.link.seal()
    state, last = mirror_state(ctx)
    rewinds = ctx.link.rewinds()
    due = _HANDLERS_DUE if state == "running" and handlers_due(ctx) else ""
    age = None if last is None else max(0.0, (ctx.clock.now() - last).total_seconds())
    return MirrorStatus(
        state=state,
        desired=str(wish.desired),
        reason=wish.reason,
        last_word=None if last is None else last.isoformat(timespec="milliseconds"),
        age_seconds=None if age is None else round(age, 1),
        partitions=len(progress),
        fences=len(ctx.link.fences()),
        records=sum(ctx.link.records().values()),
        ended_as=str(run.get("reason", "")) if run and run["state"] == "ended" else "",
        controls=ctx.link.controls(),
        sealed=_sealed(seal),
        is_sealed=seal is not None and seal.is_complete,
        waiting="; ".join(filter(None, (str((run or {}).get("waiting", "")), due))),
        rewound=tuple(
            f"{tp}: target offsets {rewind['lost_from']} to {rewind['lost_to'] - 1} were lost there, and copied again"
            f" from source offset {rewind['source']} at {rewind['at']}"
            for tp, mine in sorted(rewinds.items())
            for rewind in mine
        ),
        rewound_at=max((rewind["at"] for mine in rewinds.values() for rewind in mine), default=""),
    )


def _sealed(seal: Seal | None) -> str:
    if seal is None:
        return ""
    if not seal.is_complete:
        return f"begun at {seal.at}, not complete: run `stop` again"
    return f"at {seal.at}, seen in all {len(seal.ends)} partitions"


def _way_back(ctx: Context, unknown: dict[str, str]) -> WayBack | None:
    back = reverse.begun(ctx)
    if back is None:
        return None
    return WayBack(
        mirror=_mirror(back),
        lag=_lag(LagMeter(back), unknown, "way_back"),
        halts=halts(back),
        validation=_validation(back),
    )


def _lag(meter: LagMeter, unknown: dict[str, str], part: str) -> LagSummary | None:
    try:
        report = meter.read()
    except MigrationError as error:
        unknown[part] = error.message
        return None
    worst = sorted(report.sample.lag.items(), key=lambda item: (-item[1], item[0]))[:_WORST_PARTITIONS]
    topics = Counter[str]()
    for tp, lag in report.sample.lag.items():
        topics[tp.topic] += lag
    trend = report.trend if report.trend.window_seconds else None
    return LagSummary(
        total=report.total,
        partitions=len(report.sample.lag),
        worst=tuple((str(tp), lag) for tp, lag in worst if lag),
        topics=dict(sorted(topics.items())),
        undecided=undecided(report.sample),
        copied_per_second=None if trend is None else round(trend.copied_per_second, 1),
        produced_per_second=None if trend is None else round(trend.produced_per_second, 1),
        outlook=str(trend or ""),
    )


def _drift(ctx: Context, unknown: dict[str, str]) -> tuple[drift.DriftStatus, ...]:
    try:
        return drift.read(ctx)
    except MigrationError as error:
        unknown["drift"] = error.message
        return ()


def _stragglers(ctx: Context, unknown: dict[str, str]) -> tuple[Stray, ...]:
    try:
        return stragglers.look(ctx)
    except MigrationError as error:
        unknown["stragglers"] = error.message
        return ()


def last_step(record: GroupRecord) -> Step:
    """The step that a group reached last, by time: the journal does not keep the order of a record's fields."""
    order = list(Step)
    return max(record.steps, key=lambda step: (str(record.evidence(step, "at")), order.index(step)))


def _validation(ctx: Context) -> dict[str, Any] | None:
    """The last verdict, and the partitions that are not equal; the others are in the report."""
    found = verdict.latest(ctx)
    if found is None:
        return None
    kept = ("at", "verdict", "passed", "summary", "totals", "hints")
    partitions = [partition for partition in found["partitions"] if not partition["equal"]]
    return {name: found[name] for name in kept} | {"unequal": partitions}


def _groups(ctx: Context, unknown: dict[str, str]) -> tuple[GroupStatus, ...]:
    astray: dict[str, str] = {}
    try:
        astray = sides.astray(ctx)
    except MigrationError as error:
        unknown["groups"] = error.message
    found = []
    for group, record in sorted(GroupRecord.all(ctx.journal).items()):
        # A record without steps only remembers what the group subscribes to.
        if record.steps:
            step = last_step(record)
            pause = record.evidence(Step.ALIVE, "pause_seconds")
            at = str(record.evidence(step, "at"))
            notice = astray.get(group, "")
            way = "back: " if record.leg.direction is Direction.REVERSE else ""
            found.append(GroupStatus(group=group, step=f"{way}{step}", at=at, pause_seconds=pause, astray=notice))
    return tuple(found)
