"""Our own encoding of produce requests is kafka-python's, byte for byte."""

import uuid

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from kafka_migration.wire.produce_request import LeanProduceRequest

IDS = {"orders": uuid.UUID(int=7), "grüße": uuid.UUID(int=2**127 + 1)}
TOPICS = {"orders": [(0, b"x" * 200), (3, bytearray(b"y" * 20_000))], "grüße": [(1, memoryview(b""))]}


@pytest.mark.parametrize("version", range(9, 14))
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
    lean = LeanProduceRequest({(name, IDS[name]): it for name, it in TOPICS.items()}, timeout_ms=30_000, max_version=13)
    for request in (generic, lean):
        request.API_VERSION = version
        request.with_header(correlation_id=12, client_id="mirror")
    assert lean.encode(framed=True, header=True) == bytes(generic.encode(framed=True, header=True))
    assert lean.header is not None
    assert lean.header.get_response_class() is ProduceResponse[version]
    assert (lean.header.correlation_id, lean.header.api_key) == (12, generic.header.request_api_key)
