"""How fast a target takes data at all: the better of our own sending loop, and of Kafka's ProducerPerformance."""

import multiprocessing
import re
import subprocess
import time
from typing import Any

from bench.data import Data, read_raw
from bench.mirrormaker import class_path
from bench.processes import end_with_parent
from demo.java import java_executable
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import readdress
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.produce import Append
from kafka_migration.wire.selector import Selector

_PREFETCHED_BYTES = 256 * 1024 * 1024
_IN_FLIGHT = 5


def own_loop(source: str, target: str, data: Data, topic: str, *, senders: int = 2) -> float:
    """Records a second when batches lie in memory, ready to be sent: ``senders`` processes, each its share of the
    partitions, the same count of records in all as ``data`` has."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(senders + 1)
    times: Any = context.Queue()
    workers = [
        context.Process(target=_send, args=(source, target, data, topic, n, senders, gate, times))
        for n in range(senders)
    ]
    for worker in workers:
        worker.start()
    gate.wait(300)
    spans = [times.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    return float(sum(s[2] for s in spans) / (max(s[1] for s in spans) - min(s[0] for s in spans)))


def _send(source: str, target: str, data: Data, topic: str, number: int, senders: int, gate: Any, times: Any) -> None:
    end_with_parent()
    mine = data.tps[number::senders]
    raw = read_raw(source, mine, _PREFETCHED_BYTES // data.partitions)
    ready = {
        tp: [
            (header.records, readdress(batch, producer_id=-1, producer_epoch=-1, sequence=-1))
            for header, batch in parts
        ]
        for tp, parts in raw.items()
    }
    net = Selector()
    cluster = WireCluster(net, {"bootstrap_servers": target}, "target", in_flight=_IN_FLIGHT)
    there = {tp: TopicPartition(topic, tp.partition) for tp in mine}
    left = dict.fromkeys(mine, data.records // data.partitions)

    async def send() -> tuple[float, float, int]:
        await cluster.wait_for_leaders(there.values(), deadline=time.monotonic() + 30)
        (node,) = cluster.by_leader(there.values())
        began, sent, turn, under_way = time.time(), 0, 0, []
        while any(count > 0 for count in left.values()):
            request = {}
            for tp, parts in ready.items():
                if left[tp] > 0:
                    count, batch = parts[turn % len(parts)]
                    request[there[tp]] = batch
                    left[tp] -= count
                    sent += count
            turn += 1
            under_way.append(Append(cluster, node, request))
            if len(under_way) >= _IN_FLIGHT:
                await under_way.pop(0).answers()
        for append in under_way:
            await append.answers()
        return began, time.time(), sent

    cluster.connect()
    gate.wait(300)
    times.put(net.run(send))
    cluster.close()
    net.close()


def producer_performance(target: str, data: Data, topic: str, *, records: int) -> float:
    """Records a second of Kafka's own load generator, with the same sizes and codec."""
    command = [
        str(java_executable()),
        *("-Xmx1g", "-Djava.awt.headless=true"),
        *("-cp", class_path()),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(data.value_bytes)),
        *("--throughput", "-1"),
        "--producer-props",
        f"bootstrap.servers={target}",
        "acks=all",
        "linger.ms=20",
        f"batch.size={max(256 * 1024, data.batch_bytes)}",
        f"compression.type={data.codec}",
        "buffer.memory=134217728",
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    rates = re.findall(r"([\d.]+) records/sec", done.stdout)
    if done.returncode != 0 or not rates:
        raise RuntimeError(f"ProducerPerformance: {done.stdout}{done.stderr}")
    return float(rates[-1].replace(",", ""))
