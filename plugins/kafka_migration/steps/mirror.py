"""The mirror phase: pin what is to be copied, then copy until the wish in the link's state ends it.

Runs on, beside everything that follows, and is ended by the stop gate (:mod:`kafka_migration.steps.stop`) or by
``until_caught_up``. May be killed at any moment: the next call goes on. ``run``, on a Spark session of its own, is what
``spark_jobs/mirror.py`` and the ``mirror`` command call.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.copy.driver.active import Dedicated
from kafka_migration.copy.driver.mirror import Mirror, MirrorEnd, Runner, Settings
from kafka_migration.copy.package import ship_handlers
from kafka_migration.copy.session import close_session, open_session
from kafka_migration.copy.spark import SparkRunner
from kafka_migration.domain.controls import Throttle
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import (
    BadInput,
    CouldNotFindOut,
    HaltedPartition,
    MigrationError,
    NotAuthorized,
    Refused,
    TakenOver,
)
from kafka_migration.domain.held_open import KEEPS_RECORDS
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.types import Desired
from kafka_migration.fence import record as fence_record
from kafka_migration.inventory import plan_changes
from kafka_migration.link import lifecycle, readers, reverse, seal, start, switched
from kafka_migration.link.heartbeat import FAILED, PHASE
from kafka_migration.migration import completion
from kafka_migration.migration.context import open_context
from kafka_migration.migration.history import phase
from kafka_migration.migration.joined import mirror_began
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.patterns import matches_any
from kafka_migration.state.link import LinkTopic, Wish
from kafka_migration.steps import mirror_watch, recopy, schemas
from kafka_migration.topics import handling, keeping, restore
from kafka_migration.topics.create import TargetGrowth
from kafka_migration.topics.declared import AGAIN

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import DedicatedStreams


def check(ctx: Context) -> list[str]:
    """The topics to mirror; raises what :func:`kafka_migration.inventory.plan_changes.to_mirror` raises, and
    :func:`kafka_migration.topics.handling.require`."""
    topics = plan_changes.to_mirror(ctx)
    handling.require(ctx, topics)
    return topics


def pin(ctx: Context, names: Sequence[str] = (), is_new: bool = False) -> list[LinkTopic]:
    """Pin clusters and topics (``names``, or all of the migration) in the link's state, by their ids. A second call
    changes nothing. ``is_new``: made while the mirror ran, so that all of it is copied, wherever the plan begins."""
    names = names or check(ctx)
    source, target = ctx.origin.topics(names), ctx.destination.topics(names)
    for side, found in ((ctx.direction.origin, source), (ctx.direction.destination, target)):
        missing = [name for name in names if name not in found]
        if missing:
            raise Refused(
                f"{side}: topics of this migration are missing: {', '.join(missing[:5])}",
                remedy="find out who removed them; `check` shows the inventory as it is now",
            )
    topics = [LinkTopic.of(name, source[name].topic_id, target[name].topic_id) for name in names]
    if not is_new:
        start.leave_out(ctx, topics)
    ctx.link.pin(
        source_cluster=ctx.origin.cluster_id(),
        target_cluster=ctx.destination.cluster_id(),
        topics=topics,
        at=ctx.stamp(),
    )
    # A fence that stands is no less proved because the mirror was started again.
    fenced = fence_record.proved(ctx) & {*names}
    now = lifecycle.read(ctx)
    lifecycle.note(
        ctx, {n for n in names if now.get(n) is not TopicState.FENCED or n not in fenced}, TopicState.MIRRORING
    )
    lifecycle.note(ctx, fenced, TopicState.FENCED)
    return topics


def apply(
    ctx: Context,
    runner: Runner,
    *,
    until_caught_up: bool = False,
    throttle_bytes_per_second: int | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    submission: str = "",
) -> MirrorEnd:
    """Copy with ``runner`` until the link's desired state, or ``until_caught_up``, ends it.

    ``throttle_bytes_per_second`` replaces what was commanded before; without it that stays in force, as a pause does.
    A wish to stop or to drain that an earlier run has already obeyed is taken back: whoever starts the mirror wants it
    to run. One that it failed to obey stands. ``submission`` names the application that this is.
    Raises what :meth:`kafka_migration.copy.driver.mirror.Mirror.run` raises.
    """
    if throttle_bytes_per_second is not None and throttle_bytes_per_second < 1:
        raise BadInput(
            "must be a positive number of bytes per second", field="throttle", value=throttle_bytes_per_second
        )
    ctx.require_whole("mirroring")
    seal.check(ctx)
    is_first = ctx.is_first
    if is_first:
        pin(ctx)
    else:
        completion.require_none(ctx)
        reverse.check(ctx)
        # No mirror runs by a link while the switch that has begun it may still be given up.
        switched.require_none_under_way(ctx.before())
        handling.require(ctx, ctx.link.topics())
        _keep_records(ctx)
    for topic in sorted(ctx.journal.all(AGAIN)):
        ctx.log(f"{topic} is not mirrored: copying it again has not finished; `mirror --again {topic}` finishes it")
    _take_back_obeyed_wish(ctx)
    mirror_began(ctx, submission)
    # Recorded before the first fence, so that a stop gate asked meanwhile waits for this run instead of the last one.
    ctx.link.record_run({"state": "running", "at": ctx.stamp()})
    if throttle_bytes_per_second is not None:
        ctx.link.throttle(Throttle(bytes_per_second=throttle_bytes_per_second, by="mirror --throttle", at=ctx.stamp()))
    stated, growth = ctx.plan.mirror, TargetGrowth(ctx, pin) if is_first else None
    settings = Settings(
        streams=stated.num_streams,
        dedicated=[_dedicated(each) for each in stated.dedicated_streams],
        handler_of=ctx.handler_of,
        epoch_seconds=stated.epoch_seconds,
        held_open=KEEPS_RECORDS,
    )
    mirror = Mirror(
        link=ctx.link,
        source={**ctx.origin.wire(), "client_id": f"{ctx.link.transactional_id}.source"},
        target={**ctx.destination.wire(), "client_id": f"{ctx.link.transactional_id}.target"},
        home=None if ctx.destination is ctx.home else ctx.home.wire(),
        direction=ctx.direction,
        runner=runner,
        settings=settings,
        growth=growth,
        log=ctx.log,
        interrupted=interrupted,
        # Groups have positions on the source from before, all of them.
        may_rewind=lambda: is_first and not _moved(ctx),
    )
    with phase(ctx, ctx.own(PHASE)) as account:
        try:
            end = mirror.run(until_caught_up=until_caught_up)
        except TakenOver:
            # The other one runs.
            raise
        except MigrationError as error:
            # Whoever waits for its end, or would start it again, must see that it has ended by itself, and how.
            reason = "halted" if isinstance(error, HaltedPartition) else FAILED
            with suppress(CouldNotFindOut):
                ctx.link.record_run({"state": "ended", "reason": reason, "at": ctx.stamp(), "records": 0})
            raise
        halted = f"; halted: {', '.join(map(str, end.halted[:5]))}" if end.halted else ""
        account.ends(1 if end.halted else 0, f"{end.reason}{halted}", records=end.records, fences=end.fences)
        return end


def _keep_records(ctx: Context) -> None:
    """Have the topics that a later link writes to keep every record, before the first one arrives."""
    if ctx.direction is Direction.REVERSE:
        keeping.apply(ctx)
        return
    restore.undo(ctx)
    lifecycle.note(ctx, ctx.link.topics(), TopicState.MIRRORING)


def _take_back_obeyed_wish(ctx: Context) -> None:
    run, wish = ctx.link.run(), ctx.link.wished()
    # A run that failed after it was asked to end may be followed by itself: by a retry that nobody watches.
    failed = run is not None and run.get("reason") == FAILED and wish.at <= run["at"]
    if wish.desired is not Desired.RUN and (run is None or (run.get("state") == "ended" and not failed)):
        ctx.link.wish(Wish(desired=Desired.RUN, reason="the mirror was started", at=ctx.stamp()))


def _moved(ctx: Context) -> bool:
    """True if a group, or another reader, may have a position on the target: offsets there must not come to mean other
    records."""
    topics = ctx.link.topics()
    try:
        return bool(readers.of(ctx, topics) or recopy.positions_on_target(ctx, topics))
    except (NotAuthorized, CouldNotFindOut):
        return True


def _dedicated(stated: DedicatedStreams) -> Dedicated:
    sizes = {
        "fetch_bytes": stated.fetch_bytes,
        "partition_fetch_bytes": stated.fetch_bytes // 16,
        "task_queue_bytes": stated.queue_bytes,
        "partition_queue_bytes": stated.queue_bytes // 32,
        "request_bytes": stated.request_bytes,
        "niceness": stated.niceness,
    }
    if stated.niceness:
        # What is under way is done by brokers, which know nothing of niceness: five appends of eight megabytes would be
        # a second of their time, in which the others wait.
        sizes["in_flight_requests"] = 1
    return Dedicated(has=partial(matches_any, stated.topics), streams=stated.num_streams, sizes=sizes)


def run(
    plan: Plan,
    *,
    master: str | None = None,
    until_caught_up: bool = False,
    throttle_bytes_per_second: int | None = None,
    submission: str = "",
    back: bool = False,
    log: Callable[[str], None] = print,
) -> MirrorEnd:
    """Mirror ``plan`` on Spark; SIGTERM and SIGINT end it cleanly, between two batches.

    ``back``: from the target to the source, by the reverse link, which is begun if need be.

    Raises TakenOver if this is a ``submission`` that is not the newest any more once Spark has given it its slots.
    """
    asked: list[int] = []
    with open_context(plan, log=log) as ctx:
        # Before the internal topics are made: a refusal changes nothing.
        if not back:
            check(ctx)
            seal.check(ctx)
    with open_context(plan, log=log, make_state=not back) as opened:
        ctx = reverse.arm(opened) if back else opened
        if back:
            seal.check(ctx)
        name, cores = f"kafka-migration mirror {plan.name}", plan.mirror.all_streams
        session = open_session(name, master=master, cores=cores, log=log)
        # After the session: PySpark sets a handler of its own, which would cancel the jobs instead.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _frame: asked.append(received))
        try:
            if plan.handlers and not back:
                ship_handlers(session.sparkContext, [each.handler for each in plan.handlers])
            if submission:
                mirror_watch.require_newest(ctx, submission)
            with schemas.following(ctx):
                return apply(
                    ctx,
                    SparkRunner(session),
                    until_caught_up=until_caught_up,
                    throttle_bytes_per_second=throttle_bytes_per_second,
                    interrupted=lambda: bool(asked),
                    submission=submission,
                )
        finally:
            close_session(session)


def main(arguments: Sequence[str]) -> int:
    """The command line of the Spark application. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="spark_jobs/mirror.py", description="Mirror a plan's topics.")
    parser.add_argument("plan", type=Path, help="the plan file, or its snapshot")
    parser.add_argument("--until-caught-up", action="store_true", help="end at the source's present ends")
    parser.add_argument("--throttle", type=int, metavar="BYTES", help="bytes per second, over the whole mirror")
    parser.add_argument("--submission", default="", metavar="ID", help="give way unless this is the newest submission")
    parser.add_argument("--reverse", action="store_true", help="from the target to the source, by the reverse link")
    options = parser.parse_args(arguments)
    try:
        outcome = run(
            load_plan(options.plan),
            until_caught_up=options.until_caught_up,
            throttle_bytes_per_second=options.throttle,
            submission=options.submission,
            back=options.reverse,
            log=lambda text: print(text, flush=True),
        )
    except MigrationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(outcome.as_dict(), flush=True)
    return 1 if outcome.halted else 0
