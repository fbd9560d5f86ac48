"""Our own encoding of produce requests is kafka-python's, byte for byte, and so is what we read from responses."""

import uuid
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.lean import TopicIds
from kafka_migration.wire.produce_request import Appended, LeanProduceRequest

IDS = {"orders": uuid.UUID(int=7), "grüße": uuid.UUID(int=2**127 + 1)}
TOPICS: dict[str, list[tuple[int, Any]]] = {
    "orders": [(0, b"x" * 200), (3, bytearray(b"y" * 20_000))],
    "grüße": [(1, memoryview(b""))],
}


@pytest.mark.parametrize("version", range(8, 14))
def test_same_bytes_as_the_generic_request(version: int) -> None:
    data = ProduceRequest.TopicProduceData
    generic = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data(
                name=name,
                topic_id=IDS[name],
                partition_data=[data.PartitionProduceData(index=index, records=batch) for index, batch in parts],
            )
            for name, parts in TOPICS.items()
        ],
    )
    lean = LeanProduceRequest(TOPICS, TopicIds(IDS), timeout_ms=30_000)
    for request in (generic, lean):
        request.API_VERSION = version
        request.with_header(correlation_id=12, client_id="mirror")
    assert lean.encode(framed=True, header=True) == bytes(generic.encode(framed=True, header=True))
    assert lean.header is not None
    assert (lean.header.correlation_id, lean.header.api_key) == (12, generic.header.request_api_key)


def _response(version: int) -> bytes:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    offsets = {"log_append_time_ms": 2**41, "log_start_offset": 3}
    answers = {
        "orders": [
            part(index=0, error_code=0, base_offset=2**40, record_errors=[], error_message=None, **offsets),
            part(
                index=3,
                error_code=87,
                base_offset=-1,
                record_errors=[
                    part.BatchIndexAndErrorMessage(batch_index=n, batch_index_error_message=text)
                    for n, text in enumerate(["why", None, "x" * 300])
                ],
                error_message="größer " * 40,
                **offsets,
            ),
        ],
        "grüße": [
            part(
                index=1,
                error_code=6,
                base_offset=-1,
                record_errors=[],
                error_message=None,
                **({"current_leader": part.LeaderIdAndEpoch(leader_id=4, leader_epoch=5)} if version >= 10 else {}),
                **offsets,
            )
        ],
    }
    response = ProduceResponse(
        version=version,
        responses=[topic(name=name, topic_id=IDS[name], partition_responses=parts) for name, parts in answers.items()],
        throttle_time_ms=1_234,
    )
    response.with_header(correlation_id=12)
    return bytes(response.encode(header=True))


def _asked(version: int) -> LeanProduceRequest:
    request = LeanProduceRequest(TOPICS, TopicIds(IDS), timeout_ms=1)
    request.API_VERSION = version
    request.with_header(correlation_id=12, client_id="mirror")
    return request


def _frame(data: bytes) -> KafkaBytes:
    frame = KafkaBytes(len(data))
    frame.write(data)
    frame.seek(0)
    return frame


@pytest.mark.parametrize("version", range(8, 14))
def test_responses_are_read_as_they_are_written(version: int) -> None:
    frame, header = _frame(_response(version)), _asked(version).header
    assert header is not None
    reads = header.get_response_class()
    assert reads.parse_header(frame).correlation_id == 12
    response = reads.decode(frame)
    assert response.throttle_time_ms == 1_234
    assert response.answers == [
        Appended(TopicPartition("orders", 0), 0, 2**40, "", 2**41, 3),
        Appended(TopicPartition("orders", 3), 87, -1, "größer " * 40, 2**41, 3),
        Appended(TopicPartition("grüße", 1), 6, -1, "", 2**41, 3),
    ]


@pytest.mark.parametrize("version", [12, 13])
def test_the_answers_of_thousands_of_partitions_are_read(version: int) -> None:
    topic = ProduceResponse.TopicProduceResponse
    parts = [
        topic.PartitionProduceResponse(
            index=n,
            error_code=0,
            base_offset=n * 7,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message=None,
        )
        for n in range(2_500)
    ]
    response = ProduceResponse(
        version=version,
        responses=[topic(name="orders", topic_id=IDS["orders"], partition_responses=parts)],
        throttle_time_ms=0,
    )
    response.with_header(correlation_id=12)
    header = _asked(version).header
    assert header is not None
    header.parse_header(frame := _frame(bytes(response.encode(header=True))))
    answers = header.decode(frame).answers
    assert answers == [Appended(TopicPartition("orders", n), 0, n * 7, "", -1, 0) for n in range(2_500)]


@pytest.mark.parametrize("version", [12, 13])
def test_a_response_that_ends_early_or_names_another_topic_is_refused(version: int) -> None:
    whole = _response(version)
    for size in range(5, len(whole)):
        header = _asked(version).header
        assert header is not None
        header.parse_header(frame := _frame(whole[:size]))
        # The last byte is that of tagged fields, for which nobody asks.
        if size < len(whole) - 1:
            with pytest.raises(kafka_errors.KafkaProtocolError, match="ends early"):
                header.decode(frame)
    if version >= 13:
        header = _asked(version).header
        assert header is not None
        header.parse_header(frame := _frame(whole.replace(IDS["orders"].bytes, uuid.UUID(int=9).bytes)))
        with pytest.raises(kafka_errors.KafkaProtocolError, match="nobody asked"):
            header.decode(frame)
