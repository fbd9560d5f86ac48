"""Complete: give up the way back, for good. The target serves; the source may be switched off once nobody uses it.

Refused while anything is unvalidated, or a client is not moved. Then the reverse mirror is ended and cut off, the
source's topics get their configs back, the target's get those that were disabled while mirroring, and the locks are
given up. The journal's record comes first: from there on the same command finishes what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.direction import TARGET
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.fence import record as fence_record
from kafka_migration.groups import sides
from kafka_migration.groups.record import GroupRecord
from kafka_migration.inventory import plan_changes
from kafka_migration.link import lifecycle, reverse, seal, stragglers, switched
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.migration import completion
from kafka_migration.migration.completion import Completion
from kafka_migration.migration.history import phase
from kafka_migration.state.link import Wish
from kafka_migration.steps import release, retire
from kafka_migration.steps.draining import NOW_SECONDS, end_mirror
from kafka_migration.steps.step import Decision
from kafka_migration.topics import keeping, restore
from kafka_migration.topics.declared import KIND
from kafka_migration.validation import verdict

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

PHASE = "complete"
SERVED, VALIDATED, DECIDED, UNDER_WAY = (
    "the target serves every topic",
    "everything that was mirrored is validated",
    "records that were written to the source behind the cut",
    "no group is in the middle of its move",
)
#: Of what still uses the source: what keeps a migration from being completed. The rest is for whoever switches it off.
_BLOCKING = frozenset({retire.MIRROR, sides.CHECK_BACK, sides.CHECK_SIDES, sides.CHECK_MOVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How it came out. ``checks`` decide, ``uses`` are what else still uses the source, or may; both are empty where
    the migration was being completed before."""

    completion: Completion | None
    checks: tuple[CheckResult, ...] = ()
    uses: tuple[CheckResult, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "completed": self.completion is not None and bool(self.completion.ended),
            "completion": None if self.completion is None else self.completion.as_dict(),
            "checks": [check.as_dict() for check in self.checks],
            "uses": [check.as_dict() for check in self.uses],
            "note": retire.CONNECTIONS,
        }


def check(ctx: Context, *, seconds: float = 10.0) -> Completed:
    """Whether the migration may be completed, and what still uses the source, watched for ``seconds``. Only reads.

    Raises Refused for a wave.
    """
    ctx.require_whole("completing")
    back = reverse.begun(ctx)
    found = retire.check(ctx, seconds=seconds).results
    blocking = set(_BLOCKING)
    if back is None or mirror_state(back)[0] != "running":
        # Else it is the reverse mirror that writes, and that is ended.
        blocking.add(retire.ENDS)
    return Completed(
        completion=completion.read(ctx),
        checks=(
            _served(ctx),
            _validated(ctx),
            _decided(ctx),
            *_groups_stay(ctx),
            *(one for one in found if one.name in blocking),
        ),
        uses=tuple(one for one in found if one.name not in blocking),
    )


def run(ctx: Context, *, by: str, seconds: float = 10.0) -> Decision:
    """Complete the migration, as ``by``; in a dry run check only. A second call changes nothing, and one after a kill
    goes on.

    Raises what clusters answer; Refused for a wave, or a plan that the migration may not go on with.
    """
    ctx.require_whole("completing")
    before = completion.read(ctx)
    if before is not None and (before.ended or ctx.dry_run):
        return Decision(message=str(before), value=Completed(completion=before))
    found = Completed(completion=before)
    if before is None:
        plan_changes.require(ctx)
        found = check(ctx, seconds=seconds)
        gate = Gate.of("complete", found.checks)
        if ctx.dry_run or not gate.is_open:
            return Decision(exit_code=gate.exit_code, message=gate.shut_by, value=found)
    with phase(ctx, PHASE) as account:
        begun = completion.begin(ctx, by=by)
        if before is None:
            # Once more: who was on the way back when the record came went on. Behind it nobody begins.
            gate = Gate.of("complete", (_served(ctx), *_groups_stay(ctx)))
            if not gate.is_open:
                completion.take_back(ctx)
                account.ends(gate.exit_code, gate.shut_by)
                return Decision(
                    exit_code=gate.exit_code, message=gate.shut_by, value=replace(found, checks=gate.results)
                )
        _cut_off_way_back(ctx)
        given = keeping.give_back(ctx)
        if held := release.check(ctx):
            # Killed behind the first that was released: all were restored before, and that one may be another's by now.
            if ctx.journal.all(KIND).keys() <= {*held}:
                restore.apply(ctx)
            release.apply(ctx)
        done = completion.end(ctx, begun, _kept(ctx))
        account.ends(0, str(done), topics=len(held), configs=len(given))
    return Decision(message=str(done), value=Completed(completion=done, checks=found.checks, uses=found.uses))


def _served(ctx: Context) -> CheckResult:
    """By a switch of producers, or by a drained and sealed link whose producers were moved by their owners."""
    states, served, link_seal = lifecycle.read(ctx), switched.served(ctx), ctx.link.seal()
    gone_on = (TopicState.SERVED, TopicState.SEALED, TopicState.COMPLETED)
    left = [f"{topic} ({state})" for topic, state in states.items() if state not in gone_on]
    newest = switched.last(ctx)
    remedy = "`switch` moves producers to the target; `stop` drains and seals where their owners have moved them"
    if not states or left or link_seal is None or not link_seal.is_complete:
        evidence = listed(left) if left else "the link is not sealed"
    elif served is not None and served.to != TARGET:
        evidence = str(served)
    elif newest is not None and newest.is_unfinished:
        evidence, remedy = str(newest), f"run `{newest.command}`"
    else:
        evidence = str(served) if served else f"{len(states)} topics; producers were moved by their owners"
        return CheckResult.passed(SERVED, evidence)
    return CheckResult.failed(SERVED, evidence, remedy=remedy)


def _validated(ctx: Context) -> CheckResult:
    """To the end: by a validation that began once nothing was copied any more."""
    found, latest, link_seal = verdict.check(ctx), verdict.latest(ctx), ctx.link.seal()
    if found.verdict is not Verdict.PASS or latest is None or link_seal is None:
        return CheckResult(
            name=VALIDATED, verdict=found.verdict, evidence=found.evidence, remedy=found.remedy or "run `validate`"
        )
    if datetime.fromisoformat(latest["at"]) < datetime.fromisoformat(link_seal.at):
        return CheckResult.failed(
            VALIDATED,
            f"{found.evidence}, before the link was sealed at {link_seal.at}: what came after it was not read",
            remedy="run `validate` again",
        )
    return CheckResult.passed(VALIDATED, found.evidence)


def _decided(ctx: Context) -> CheckResult:
    try:
        stragglers.require_none(ctx)
    except Refused as error:
        return CheckResult.failed(DECIDED, error.message, remedy=error.remedy)
    except CouldNotFindOut as error:
        return CheckResult.unchecked(DECIDED, error.message, remedy=error.remedy)
    return CheckResult.passed(DECIDED, "none is undecided")


def _groups_stay(ctx: Context) -> tuple[CheckResult, ...]:
    return _none_under_way(ctx), sides.check_went_back(ctx)


def _none_under_way(ctx: Context) -> CheckResult:
    half = [group for group, record in sorted(GroupRecord.all(ctx.journal).items()) if record.leg.is_unfinished]
    if not half:
        return CheckResult.passed(UNDER_WAY, "none")
    remedy = "finish the move (`cutover --group GROUP`, or `rollback` the way back), or `undo --group GROUP`"
    return CheckResult.failed(UNDER_WAY, listed(half), remedy=remedy)


def _kept(ctx: Context) -> Iterator[str]:
    """What completing leaves as it is, for whoever switches the source off."""
    yield f"{len(ctx.link.topics())} topics on the source, with their records"
    if moved := [name for name, record in GroupRecord.all(ctx.journal).items() if record.is_moved]:
        yield f"the offsets of {len(moved)} groups on the source, as they were moved from there"
    if standing := fence_record.describe(ctx):
        yield standing
    yield "journal, links and their offset maps, on the target"


def _cut_off_way_back(ctx: Context) -> None:
    """No mirror writes to the source any more, whichever process it is."""
    back = reverse.begun(ctx)
    if back is None:
        return
    if mirror_state(back)[0] in ("running", "silent"):
        wish = Wish(desired=Desired.STOP, reason="the migration is completed", at=ctx.stamp())
        end_mirror(back, wish, NOW_SECONDS)
    if reverse.has_run(back):
        names = back.link.topics()
        seal.cut_off(back, _partitions(ctx, names))


def _partitions(ctx: Context, names: Iterable[str]) -> list[TopicPartition]:
    return [tp for topic in ctx.source.topics(sorted(names)).values() for tp in topic.topic_partitions]
