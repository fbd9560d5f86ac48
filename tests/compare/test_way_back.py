"""What the reverse link copied, read again on both clusters by another reader."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafka_migration.approvals import rollback
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.result import Equality
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import reverse
from kafka_migration.link.lag import LagMeter
from kafka_migration.migration.context import Context
from kafka_migration.steps import mirror
from kafka_migration.validation import validate, verdict
from kafka_migration.validation.job import read_request, run, write_json
from kafka_migration.validation.record import RUN, Note
from tests.copy.bench import ThreadRunner
from tests.copy.test_reverse import sealed
from tests.kafka_tools import ToSend, delete_records, produce, produce_transaction


def _validated(ctx: Context, spark: Any, folder: Path) -> validate.Validation:
    servers = {ctx.plan.connection(cluster.role): cluster.connection.servers for cluster in (ctx.source, ctx.target)}

    def read(asked: Path, answer: Path) -> None:
        request = read_request(asked)
        jvm = {side: {"bootstrap.servers": servers[getattr(request, side)]} for side in ("source", "target")}
        wires = {side: {"bootstrap_servers": servers[getattr(request, side)]} for side in ("source", "target")}
        write_json(answer, run(spark, request, jvm, wires).as_dict())

    agrees = Expectations(success=True, failed=())
    tools = validate.Tools(run=read, suite=lambda *_: agrees, consumers=lambda _ctx: {"asked": True})
    return validate.apply(ctx, reports=folder, tools=tools)


def _gate(back: Context) -> Verdict:
    checks = rollback.rollback_facts(back, (), LagMeter(back).read()).checks
    (found,) = (one for one in checks.results if one.name == verdict.EQUAL_BACK)
    return found.verdict


def test_what_came_back_is_compared_from_the_cut_on_and_a_difference_shuts_the_rollback_gate(
    source_cluster, target_cluster, spark, tmp_path
):
    here, there = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topic = f"way-back-{uuid.uuid4().hex[:8]}.orders"
    first, second = (TopicPartition(topic, n) for n in range(2))
    with sealed(here, there, topic) as (_, ctx):
        back = reverse.arm(ctx)
        produce(there, topic, [ToSend(uuid.uuid4().bytes, partition=n % 2) for n in range(90)])
        produce_transaction(there, topic, [uuid.uuid4().bytes for _ in range(5)])
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).records == 95
        assert _gate(back) is Verdict.WARN, "nothing of the way back was validated yet"
        killed = back.direction.own("killed")
        back.journal.record(RUN, killed, asdict(Note(began=back.stamp(), differs=(f"{first} at 1..2",))))
        assert _gate(back) is Verdict.FAIL, "a run that died had found a difference"
        back.journal.forget(RUN, killed)
        found = _validated(back, spark, tmp_path)
        assert (found.verdict, found.result.as_dict()["totals"]["source_records"]) == (Equality.EQUAL, 95)
        cut, stand = ctx.link.seal(), ctx.link.positions()
        assert cut is not None
        begins = {one.tp: (one.source_start, one.target_start) for one in found.result.partitions}
        assert begins == {tp: (cut.ends[tp] + 1, stand[tp].source) for tp in (first, second)}
        assert (tmp_path / ctx.plan.name / "reverse" / "validation.json").exists()
        assert _gate(back) is Verdict.PASS
        assert verdict.latest(ctx) is None, "the forward link's verdict is another one"

        # Not the reverse link's own: named elsewhere, and no reason to keep groups on the target.
        produce(here, topic, [ToSend(b"a straggler", partition=1)])
        assert _validated(back, spark, tmp_path).verdict is Equality.EQUAL
        delete_records(here, {second: stand[second].source + 5})
        found = _validated(back, spark, tmp_path)
        assert {one.tp: one.verdict for one in found.result.partitions} == {
            first: Equality.EQUAL,
            second: Equality.DIFFERENT,
        }
        assert _gate(back) is Verdict.FAIL
