"""What ends the mirror for good needs, whoever asks: the stop gate, and the switch of producers.

The mirror copies all that it should, ends within a time, and has copied up to given ends when it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups import sides
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.migration.joined import begun_mirror, mirror_selection
from kafka_migration.state.link import Wish
from kafka_migration.topics.declared import mirrored

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

MIRRORED = "the mirror copies every topic of the plan"
_REMEDY = (
    "check the mirror's log; if it has died, start the mirror again, which then ends as asked; then run this again"
)
HALTED = "no partition is halted"
POLL_SECONDS = 0.5
NOW_SECONDS = 60.0


def end_mirror(
    ctx: Context,
    wanted: Wish,
    seconds: float,
    *,
    pause: float = POLL_SECONDS,
    remedy: str = _REMEDY,
    suffices: Callable[[], bool] = lambda: False,
    looks_out: bool = True,
) -> None:
    """Record ``wanted`` and wait until the mirror has ended, or ``suffices`` is true before that, for at most so many
    ``seconds``. Looks out for groups that are astray meanwhile, which takes seconds where there are thousands.

    Raises CouldNotFindOut if it has not in time; the wish stays.
    """
    ctx.link.wish(wanted)
    deadline, lookout = ctx.clock.monotonic() + seconds, sides.Lookout(ctx)
    enough = {"ended", "not started"} | ({"silent"} if wanted.desired is Desired.STOP else set())
    while not suffices() and (state := mirror_state(ctx)[0]) not in enough:
        if ctx.clock.monotonic() > deadline:
            silence = ", and its heartbeat has stopped" if state == "silent" else ""
            raise CouldNotFindOut(
                f"the mirror of {ctx.plan.name} did not end within {seconds:g} s of being asked to {wanted.desired}"
                f"{silence}",
                remedy=remedy,
            )
        if looks_out:
            lookout.look()
        ctx.clock.sleep(pause)


def all_mirrored(ctx: Context) -> CheckResult:
    """Whether the mirror copies all that the plan given selects: what it does not is never copied once it is sealed."""
    made = mirrored(ctx)
    unmade = sorted(set(ctx.plan.topics.select(ctx.source.topic_names())) - made.keys())
    if unmade:
        return CheckResult.failed(
            MIRRORED,
            f"the plan selects topics that were not created on the target: {listed(unmade)}",
            remedy="run `create` (after `approve plan`), and wait until the mirror has copied these topics, or exclude"
            " them; then run this again",
        )
    pinned, selects = ctx.link.topics(), mirror_selection(ctx)
    uncopied = sorted(name for name in made if name not in pinned or not selects(name))
    if uncopied:
        goes_by = str(begun_mirror(ctx) or "")
        return CheckResult.failed(
            MIRRORED,
            evidence=f"the mirror does not copy topics of the plan: {listed(uncopied)}"
            + (f" (it goes by {goes_by})" if goes_by else ""),
            remedy="run `create` with this plan, if that was not done (a mirror that runs then joins them within a"
            " minute), or start the mirror again with it; wait until they are copied, then run this again",
        )
    return CheckResult.passed(MIRRORED, f"{len(made)} topics")


def none_halted(ctx: Context) -> CheckResult:
    """No partition is halted: such a one never drains."""
    halted = {tp: halt.reason for tp, halt in ctx.link.halts().items() if ctx.scope.has_topic(tp.topic)}
    if not halted:
        return CheckResult.passed(HALTED, "none")
    rows = ", ".join(f"{tp} {reason}" for tp, reason in sorted(halted.items())[:5])
    return CheckResult.failed(HALTED, rows, remedy="run `status`, which shows why each is halted and what can be done")


def short_of(ctx: Context, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that are not copied up to these source offsets."""
    positions = {tp: position.source for tp, position in ctx.link.positions().items()}
    return [tp for tp, end in sorted(ends.items()) if positions.get(tp, 0) < end]
