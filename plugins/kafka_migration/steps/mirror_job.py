"""The mirror phase on a Spark session of its own: what ``spark_jobs/mirror.py`` and the ``mirror`` command run."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kafka_migration.copy.driver.mirror import MirrorEnd
from kafka_migration.copy.package import ship_handlers
from kafka_migration.copy.session import close_session, open_session
from kafka_migration.copy.spark import SparkRunner
from kafka_migration.domain.errors import MigrationError
from kafka_migration.link import reverse, seal
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.model import Plan
from kafka_migration.steps import mirror, mirror_watch, schemas


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
            mirror.check(ctx)
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
                return mirror.apply(
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
