"""Our own encoding of fetch requests is kafka-python's, byte for byte, and so is what we read from responses."""

import uuid

import kafka.errors as kafka_errors
import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.frame import KafkaBytes

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.fetch_request import Fetched, FetchFrom, FetchOptions, LeanFetchRequest
from kafka_migration.wire.lean import TopicIds

IDS = {"orders": uuid.UUID(int=7), "grüße": uuid.UUID(int=2**127 + 1)}
WANTED = [
    ("orders", [(FetchFrom(TopicPartition("orders", 3), 2**40, 1_000_000, 5), 6)]),
    ("grüße", [(FetchFrom(TopicPartition("grüße", n), n, 70_000), -1) for n in range(200)]),
    ("orders", [(FetchFrom(TopicPartition("orders", 0), 0, 1), 0)]),
]
OPTIONS = FetchOptions(max_wait_ms=500, min_bytes=1, max_bytes=2**26, committed=True, session=(2**31 - 1, 7))
FORGOTTEN = [TopicPartition("grüße", 201), TopicPartition("orders", 9)]
VERSIONS = range(11, LeanFetchRequest.NEWEST + 1)


def _asked(version: int) -> LeanFetchRequest:
    request = LeanFetchRequest(WANTED, TopicIds(IDS), OPTIONS, FORGOTTEN)
    request.API_VERSION = version
    request.with_header(correlation_id=12, client_id="mirror")
    return request


def test_the_newest_version_is_one_that_both_know() -> None:
    assert LeanFetchRequest.NEWEST >= 16


@pytest.mark.parametrize("version", VERSIONS)
def test_same_bytes_as_the_generic_request(version: int) -> None:
    topic = FetchRequest.FetchTopic
    generic = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2**26,
        isolation_level=1,
        session_id=2**31 - 1,
        session_epoch=7,
        topics=[
            topic(
                topic=name,
                topic_id=IDS[name],
                partitions=[
                    topic.FetchPartition(
                        partition=want.partition.partition,
                        current_leader_epoch=epoch,
                        fetch_offset=want.offset,
                        last_fetched_epoch=want.last_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=want.max_bytes,
                    )
                    for want, epoch in parts
                ],
            )
            for name, parts in WANTED
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=IDS[name], partitions=[index]) for name, index in FORGOTTEN
        ],
        rack_id="",
    )
    generic.API_VERSION = version
    generic.with_header(correlation_id=12, client_id="mirror")
    assert _asked(version).encode(framed=True, header=True) == bytes(generic.encode(framed=True, header=True))


def _response(version: int) -> bytes:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData
    none = {"preferred_read_replica": -1, "log_start_offset": 1}
    response = FetchResponse(
        version=version,
        throttle_time_ms=1_234,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                topic="orders",
                topic_id=IDS["orders"],
                partitions=[
                    part(
                        partition_index=3,
                        error_code=0,
                        high_watermark=2**40,
                        last_stable_offset=2**39,
                        aborted_transactions=[
                            part.AbortedTransaction(producer_id=n, first_offset=n * 2**33) for n in range(3)
                        ],
                        records=b"r" * 40_000,
                        **none,
                    ),
                    part(
                        partition_index=0,
                        error_code=6,
                        high_watermark=-1,
                        last_stable_offset=-1,
                        aborted_transactions=None,
                        records=None,
                        **none,
                    ),
                ],
            ),
            topic(
                topic="grüße",
                topic_id=IDS["grüße"],
                partitions=[
                    part(
                        partition_index=1,
                        error_code=0,
                        high_watermark=9,
                        last_stable_offset=8,
                        aborted_transactions=[],
                        records=b"",
                        **({"diverging_epoch": part.EpochEndOffset(epoch=4, end_offset=77)} if version >= 12 else {}),
                        **none,
                    ),
                    *(
                        part(
                            partition_index=index,
                            error_code=0,
                            high_watermark=5,
                            last_stable_offset=4,
                            aborted_transactions=aborted,
                            records=b"",
                            **none,
                        )
                        for index, aborted in ((2, []), (3, None))
                    ),
                ],
            ),
        ],
    )
    response.with_header(correlation_id=12)
    return bytes(response.encode(header=True))


def _read(version: int, data: bytes):
    frame, header = KafkaBytes(len(data)), _asked(version).header
    frame.write(data)
    frame.seek(0)
    assert header is not None
    assert header.get_response_class().parse_header(frame).correlation_id == 12
    return header.decode(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_read_as_they_are_written(version: int) -> None:
    response = _read(version, _response(version))
    assert response.throttle_time_ms == 1_234
    assert response.answers == [
        Fetched(TopicPartition("orders", 3), 0, b"r" * 40_000, 2**40, 2**39, 1, None, ((0, 0), (1, 2**33), (2, 2**34))),
        Fetched(TopicPartition("orders", 0), 6, b"", -1, -1, 1, None),
        Fetched(TopicPartition("grüße", 1), 0, b"", 9, 8, 1, 77 if version >= 12 else None),
        Fetched(TopicPartition("grüße", 2), 0, b"", 5, 4, 1, None),
        Fetched(TopicPartition("grüße", 3), 0, b"", 5, 4, 1, None),
    ]


@pytest.mark.parametrize("version", [11, 12, VERSIONS[-1]])
def test_a_response_that_ends_early_or_names_another_topic_is_refused(version: int) -> None:
    whole = _response(version)
    for size in [*range(5, 300), *range(len(whole) - 300, len(whole))]:
        with pytest.raises(kafka_errors.KafkaProtocolError, match="ends early"):
            _read(version, whole[:size])
    if version > 12:
        with pytest.raises(kafka_errors.KafkaProtocolError, match="nobody asked"):
            _read(version, whole.replace(IDS["orders"].bytes, uuid.UUID(int=9).bytes))


def test_what_cannot_be_read_is_not_told_to_the_log() -> None:
    """Records may be private."""
    with pytest.raises(kafka_errors.KafkaProtocolError) as raised:
        _read(12, _response(12)[:20_000])
    assert "rrr" not in str(raised.value)


def test_error_of_the_whole_response_is_one_of_each_partition() -> None:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=3,
        error_code=0,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=[],
        preferred_read_replica=-1,
        records=b"",
    )
    response = FetchResponse(
        version=12,
        throttle_time_ms=0,
        error_code=70,
        session_id=0,
        responses=[topic(topic="orders", partitions=[part])],
    )
    response.with_header(correlation_id=12)
    assert [it.error for it in _read(12, bytes(response.encode(header=True))).answers] == [70]


def test_topics_go_by_name_if_one_of_them_has_no_id() -> None:
    assert LeanFetchRequest(WANTED, TopicIds(IDS), OPTIONS).max_version == LeanFetchRequest.NEWEST
    assert LeanFetchRequest(WANTED, TopicIds({**IDS, "orders": uuid.UUID(int=0)}), OPTIONS).max_version == 12
