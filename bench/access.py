"""ACLs and client quotas on a target that lacks all of them: planned, made, read back and removed: `make bench-access`.

Two brokers with authorizers, one of which holds the ACLs of many applications. The last line is JSON: how many there
were, seconds for each part, and whether the target holds in the end what it held before. See docs/performance.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.timing import timer
from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import restore_plan
from kafka_migration.steps import access

_AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_OPERATIONS = ("READ", "WRITE")
_PLAN: dict[str, Any] = {
    "version": 1,
    "name": "bench-access",
    "source": "bench_access_source",
    "target": "bench_access_target",
    "topics": {"include": [r"shop\..*"]},
    "approvals": {"plan": False, "cutover": False},
}


def main() -> int:
    """Exit 0 if the target holds in the end what it held before, 1 if not."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--acls", type=int, default=10_000)
    options.add_argument("--topics", type=int, default=100)
    options.add_argument("--applications", type=int, default=50)
    asked = options.parse_args()
    seconds: dict[str, float] = {}
    timed = timer(seconds)

    with ExitStack() as stack:
        _fill(_started(stack, "source"), asked)
        _started(stack, "target")
        ctx = stack.enter_context(open_context(restore_plan(_PLAN), make_state=True))
        before = (ctx.target.acls(), ctx.target.quotas())
        with timed("planned"):
            seen = access.check(ctx)
        print(f"{seen.missing} are missing", flush=True)
        with timed("made and read back, behind the plan's gate"):
            made = access.run(ctx, seen).facts
        left = access.look(ctx).missing
        with timed("removed and read back"):
            access.undo(ctx)
        equal = _soon(lambda: (ctx.target.acls(), ctx.target.quotas()) == before)
    plan_s, apply_s, undo_s = seconds.values()
    figures = {"plan_s": plan_s, "apply_s": apply_s, "undo_s": undo_s, "missing_after": len(left.acls), "equal": equal}
    print(json.dumps({**made, **figures}))
    return 0 if equal and not left and made["acls"] == asked.acls else 1


def _started(stack: ExitStack, side: str) -> EmbeddedKafka:
    kafka = stack.enter_context(EmbeddedKafka(name=f"bench-access-{side}", properties=_AUTHORIZED))
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    os.environ[variable_of(_PLAN[side])] = json.dumps({"conn_type": "kafka", "extra": extra})
    return kafka


def _fill(kafka: EmbeddedKafka, asked: argparse.Namespace) -> None:
    topics, users = [f"shop.{n}" for n in range(asked.topics)], [f"app{n}" for n in range(asked.applications)]
    every = (
        Acl(
            resource_type="TOPIC",
            resource=topic,
            pattern="LITERAL",
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission="ALLOW",
        )
        for topic in topics
        for user in users
        for operation in _OPERATIONS
    )
    acls = [acl for _, acl in zip(range(asked.acls), every, strict=False)]
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    with Cluster("source", ClusterConnection(conn_id="bench", properties=properties)) as source:
        source.create_topics(
            [TopicSpec(name=topic, partitions=1, replication_factor=1, configs={}) for topic in topics]
        )
        source.create_acls(acls)
        source.alter_quotas({(("user", user),): {"producer_byte_rate": 1e6} for user in users})
        _soon(lambda: len(source.acls()) == len(acls) and len(source.quotas()) == len(users))


def _soon(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.2)
    return found


if __name__ == "__main__":
    sys.exit(main())
