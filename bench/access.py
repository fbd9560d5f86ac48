"""ACLs, on real brokers with an authorizer: ``make bench-access``. The last line is JSON.

So many rules of so many principals on a plan's topics are compared, made on the target, read back, and removed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from demo.brokers import EmbeddedKafka
from kafka_migration.access import access
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.lookup import find_connection, variable_of
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import restore_plan

_TOPICS = 100
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if the target does not end as it began, or lacked something in between."""
    parser = argparse.ArgumentParser(prog="python -m bench.access", description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    rules: int = parser.parse_args(arguments).rules
    plan = restore_plan(
        {
            "version": 1,
            "name": "bench",
            "source": "bench_source",
            "target": "bench_target",
            "topics": {"include": [r"bench\..*"]},
            "access": {"principals": {"User:0": "User:zero"}},
        }
    )
    with (
        EmbeddedKafka(name="source", properties=_AUTHORIZER) as source,
        EmbeddedKafka(name="target", properties=_AUTHORIZER) as target,
    ):
        for conn_id, cluster in ((plan.source, source), (plan.target, target)):
            servers = {"bootstrap.servers": cluster.bootstrap_servers}
            os.environ[variable_of(conn_id)] = json.dumps({"conn_type": "kafka", "extra": servers})
        topics = [f"bench.{n}" for n in range(_TOPICS)]
        admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
            future.result(60)
        with Cluster("source", find_connection(plan.source)) as there:
            there.create_acls(_rule(topics[n % _TOPICS], n // _TOPICS) for n in range(rules))
            # A broker shows them a moment later.
            deadline = time.monotonic() + 60
            while len(there.acls()) < rules and time.monotonic() < deadline:
                time.sleep(0.2)
        found: dict[str, Any] = {"rules": rules}
        with open_context(plan, make_state=True) as ctx:
            seen = _timed(found, "compare", lambda: access.read(ctx))
            done = _timed(found, "apply", lambda: access.apply(ctx))
            gone = _timed(found, "undo", lambda: access.undo(ctx))
            left = len(ctx.target.acls())
    print(json.dumps(found))
    expected = (rules, 0, rules, rules, 0)
    counts = (len(seen.missing), len(done.missing), done.present, len(gone), left)
    if counts != expected:
        print(f"not as promised: {counts} instead of {expected}", file=sys.stderr)
    return int(counts != expected)


def _rule(topic: str, principal: int) -> Acl:
    return Acl(
        resource_type="TOPIC",
        resource=topic,
        pattern="LITERAL",
        principal=f"User:{principal}",
        host="*",
        operation="READ",
        permission="ALLOW",
    )


def _timed(found: dict[str, Any], name: str, call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = call()
    found[f"{name}_s"] = round(time.perf_counter() - began, 2)
    return result


if __name__ == "__main__":
    sys.exit(main())
