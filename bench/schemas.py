"""Schemas of many subjects onto an empty registry: planned, made by their ids, read back: `make bench-schemas`.

Two registries in memory, in processes of their own, with Confluent's semantics; so these are our own costs and those of
HTTP. The last line is JSON: how many there were, seconds for each part, and whether both hold the same in the end. See
docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.timing import timer
from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import restore_plan
from kafka_migration.schemas.difference import registries
from kafka_migration.steps import schemas

_SIDES = ("source", "target")
_PLAN = {
    "version": 1,
    "name": "bench-schemas",
    "source": "bench_schemas_source",
    "target": "bench_schemas_target",
    "topics": {"include": [r"shop\..*"]},
    "approvals": {"plan": False, "cutover": False},
    "schemas": {"source": "bench_registry_source", "target": "bench_registry_target"},
}
#: Prints its address, and serves until its standard input ends. With a number: so many subjects, each of two versions
#: that refer to one of ten.
_SERVER = """
import sys
from tests.schemas.registry_server import RegistryServer
server, count = RegistryServer(), int(sys.argv[1])
def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}
for n in range(min(count, 10)):
    server.register(f"com.example.Money{n}", record(f"Money{n}", {"name": "cents", "type": "int"}))
for n in range(count):
    money = f"Money{n % 10}"
    price, note = {"name": "price", "type": money}, {"name": "note", "type": "string", "default": ""}
    for fields in ([price], [price, note]):
        named = (money, f"com.example.{money}", 1)
        server.register(f"shop.t{n}-value", record(f"Order{n}", *fields), named)
print(server.url, flush=True)
sys.stdin.read()
server.close()
"""


def main() -> int:
    """Exit 0 if the target holds in the end what the source does, and after the undo nothing."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subjects", type=int, default=1_000)
    asked = options.parse_args()
    seconds: dict[str, float] = {}
    timed = timer(seconds)

    with ExitStack() as stack:
        for side, count in zip(_SIDES, (asked.subjects, 0), strict=True):
            kafka = stack.enter_context(EmbeddedKafka(name=f"bench-schemas-{side}"))
            if side == "source":
                _make_a_topic(kafka)
            extra = {"bootstrap.servers": kafka.bootstrap_servers}
            _connect(f"bench_schemas_{side}", conn_type="kafka", extra=extra)
            _connect(f"bench_registry_{side}", conn_type="http", host=stack.enter_context(_registry(count)))
        ctx = stack.enter_context(open_context(restore_plan(_PLAN), make_state=True))
        with timed("planned"):
            found = schemas.check(ctx)
        print(f"{found} are missing", flush=True)
        with timed("made and read back, behind the plan's gate"):
            schemas.apply(ctx)
        with timed("compared"):
            left = schemas.check(ctx)
        with timed("deleted for good"):
            schemas.undo(ctx)
        with registries(ctx.plan) as (_, target):
            is_empty = not target.subjects()
    plan_s, apply_s, compare_s, undo_s = seconds.values()
    is_equal = left.exit_code == 0 and left.present == len(found.missing)
    figures = {"plan_s": plan_s, "apply_s": apply_s, "compare_s": compare_s, "undo_s": undo_s}
    counts = {"subjects": len(found.there), "versions": len(found.missing)}
    print(json.dumps({**counts, **figures, "equal": is_equal, "empty_after_undo": is_empty}))
    return 0 if is_equal and is_empty and len(found.there) >= asked.subjects else 1


def _make_a_topic(kafka: EmbeddedKafka) -> None:
    """Without one the plan's gate stays shut."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    with Cluster("source", ClusterConnection(conn_id="bench", properties=properties)) as source:
        source.create_topics([TopicSpec(name="shop.t0", partitions=1, replication_factor=1, configs={})])


def _connect(conn_id: str, **fields: object) -> None:
    os.environ[variable_of(conn_id)] = json.dumps(fields)


@contextmanager
def _registry(count: int) -> Iterator[str]:
    """The address of a registry that runs."""
    command = [sys.executable, "-c", _SERVER, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
