"""Real clients note through the recorder, on a real broker; the judge finds nothing, and then what was edited in."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from checker.recorder import Recorder
from checker.verdict import Verdict, judge
from tests.kafka_tools import create_topics
from tests.shared import SharedCluster
from tests.waiting import wait_until

RECORDS = 60
PARTITIONS = 2


def test_notes_of_real_clients_are_judged_right(tmp_path: Path, source_cluster: SharedCluster) -> None:
    topic = f"judged-{uuid.uuid4().hex[:8]}"
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": source_cluster.bootstrap_servers}
    create_topics(source_cluster.bootstrap_servers, {topic: PARTITIONS})
    _produce(servers, topic, tmp_path)
    _transactions(servers, topic, tmp_path)
    # Sixty plain records and the ten of the transaction that was committed.
    _consume(servers, topic, tmp_path, count=RECORDS + 10)
    _read_finally(servers, topic, tmp_path, count=RECORDS + 10)
    verdict = judge(tmp_path)
    assert verdict.faults == 0, verdict.findings.examples
    assert verdict.exit_code == 0
    assert (verdict.sent, verdict.acknowledged, verdict.received) == (RECORDS + 20, RECORDS + 10, 2 * (RECORDS + 10))
    assert (verdict.unknown, verdict.unseen, verdict.torn_lines) == (0, 0, 0)
    _leave_out_a_receipt(tmp_path / "final.jsonl")
    assert _faults(judge(tmp_path)) == {"lost": 1}


def _faults(verdict: Verdict) -> dict[str, int]:
    return {fault.value: count for fault, count in verdict.findings.counts.items() if count}


def _send(producer: Producer, recorder: Recorder, topic: str, value: str, key: str, txn: int | None = None) -> None:
    seq = recorder.send(value, topic, key=key, txn=txn)

    def delivered(error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            recorder.ack(seq, partition, message.offset())
        else:
            recorder.failed(seq, certain=False)

    producer.produce(topic, value.encode(), key.encode(), on_delivery=delivered)


def _produce(servers: dict[str, str | int | float | bool], topic: str, folder: Path) -> None:
    recorder = Recorder(folder / "shop.jsonl", client="shop", cluster="source", kind="idempotent")
    producer = Producer({**servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        _send(producer, recorder, topic, f"shop-{number}", f"k{number % 7}")
    assert producer.flush(30) == 0
    recorder.close()


def _transactions(servers: dict[str, str | int | float | bool], topic: str, folder: Path) -> None:
    recorder = Recorder(folder / "till.jsonl", client="till", cluster="source", kind="transactional")
    producer = Producer({**servers, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(30)
    recorder.ready()
    for how in ("abort", "commit"):
        producer.begin_transaction()
        txn = recorder.begin()
        for number in range(10):
            _send(producer, recorder, topic, f"till-{how}-{number}", f"k{number}", txn)
        assert producer.flush(30) == 0
        if how == "commit":
            recorder.end(txn, "commit")
            producer.commit_transaction(30)
            recorder.ended(txn, "committed")
        else:
            recorder.end(txn, "abort")
            producer.abort_transaction(30)
            recorder.ended(txn, "aborted")
    recorder.close()


def _consume(servers: dict[str, str | int | float | bool], topic: str, folder: Path, *, count: int) -> None:
    recorder = Recorder(folder / "billing.jsonl", client="billing-0", cluster="source", group="billing")
    consumer = Consumer(
        {**servers, "group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        | {"isolation.level": "read_committed"}
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, added: recorder.assign([(place.topic, place.partition, None) for place in added]),
        on_revoke=lambda _, gone: recorder.revoke([(place.topic, place.partition) for place in gone]),
    )
    got: list[Message] = []
    wait_until(lambda: _take(consumer, recorder, got) >= count, "all records are received")
    ends = {message.partition(): message for message in got}
    positions = [(topic, partition or 0, (message.offset() or 0) + 1) for partition, message in ends.items()]
    commit = recorder.commit(positions)
    consumer.commit(offsets=[TopicPartition(*place) for place in positions], asynchronous=False)
    recorder.committed(commit, "ok")
    recorder.stop()
    consumer.close()
    recorder.close()


def _read_finally(servers: dict[str, str | int | float | bool], topic: str, folder: Path, *, count: int) -> None:
    recorder = Recorder(folder / "final.jsonl", client="final", cluster="source", final=True)
    consumer = Consumer({**servers, "group.id": f"{topic}-final", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    recorder.assign([(topic, number, 0) for number in range(PARTITIONS)])
    got: list[Message] = []
    wait_until(lambda: _take(consumer, recorder, got) >= count, "all records are received")
    consumer.close()
    recorder.close()


def _take(consumer: Consumer, recorder: Recorder, got: list[Message]) -> int:
    for message in consumer.consume(100, 0.2):
        assert message.error() is None, message.error()
        value, key, topic = message.value(), message.key(), message.topic()
        partition, offset = message.partition(), message.offset()
        assert None not in (topic, partition, offset)
        assert isinstance(value, bytes)
        assert isinstance(key, bytes)
        recorder.receipt(topic or "", partition or 0, offset or 0, value.decode(), key=key.decode())
        got.append(message)
    return len(got)


def _leave_out_a_receipt(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    left_out = next(line for line in lines if json.loads(line).get("value") == "shop-30")
    path.write_text("".join(line for line in lines if line != left_out))
