"""Records of every topic carry an id that a consumer finds, in the shapes that a copy must keep."""

import pytest
from confluent_kafka import Message

from demo.clients.records import TOMBSTONE_EVERY, RecordError, RecordMaker, id_reader
from demo.clients.scenarios import BY_TOPIC
from demo.clients.topics import TOPICS, TopicSpec

MAKER = RecordMaker(seed="producer-1")
EACH_TOPIC = pytest.mark.parametrize("spec", TOPICS, ids=lambda spec: spec.name)


def message(spec: TopicSpec, n: int, *, large: bool = False) -> Message:
    key, value, headers = MAKER.make(spec, f"producer-1-{n}", n, n, large=large)
    return Message(topic=spec.name, partition=0, offset=n, key=key, value=value, headers=headers)


@EACH_TOPIC
def test_id_of_every_record_is_read_back(spec: TopicSpec) -> None:
    read = id_reader(spec)
    for n in range(3 * TOMBSTONE_EVERY):
        assert read(message(spec, n)) == f"producer-1-{n}"


@EACH_TOPIC
def test_record_that_no_producer_made_has_no_id(spec: TopicSpec) -> None:
    foreign = Message(topic=spec.name, partition=0, offset=7, value=b"{}", headers=[("other", b"1")])
    with pytest.raises(RecordError, match="7"):
        id_reader(spec)(foreign)


@EACH_TOPIC
def test_keys_are_there_as_often_as_the_topic_says(spec: TopicSpec) -> None:
    keys = [message(spec, n).key() for n in range(60)]
    absent = sum(key is None for key in keys)
    assert absent == {"always": 0, "never": 60, "sometimes": 20}[spec.keys]
    if spec.keys == "sometimes":
        assert b"" in keys


def test_compacted_topic_with_headers_gets_tombstones() -> None:
    values = [message(BY_TOPIC["demo.profiles"], n).value() for n in range(2 * TOMBSTONE_EVERY)]
    assert sum(value is None for value in values) == 2


def test_records_are_of_200_to_300_bytes_and_large_ones_above_the_default_limit() -> None:
    assert 200 <= len(message(BY_TOPIC["demo.clicks"], 1).value() or b"") <= 300
    assert len(message(BY_TOPIC["demo.audit"], 1, large=True).value() or b"") > 1_048_588


def test_topics_cover_every_codec_and_shape() -> None:
    assert len(TOPICS) >= 8
    assert {spec.codec for spec in TOPICS} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {spec.keys for spec in TOPICS} == {"always", "sometimes", "never"}
    assert {spec.headers for spec in TOPICS} == {True, False}
    assert len({spec.partitions for spec in TOPICS}) >= 5
    assert sum(spec.share for spec in TOPICS) == 1500
    configured = {name for spec in TOPICS for name in spec.configs}
    assert {"retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas"} <= configured


def test_topic_that_its_broker_would_refuse_is_refused_here() -> None:
    shape = {"name": "demo.x", "partitions": 1, "codec": "none", "share": 1, "burst": 1}
    with pytest.raises(ValueError, match="needs headers"):
        TopicSpec(keys="always", headers=False, tombstones=True, **shape)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a key"):
        TopicSpec(keys="never", headers=False, configs={"cleanup.policy": "compact"}, **shape)  # type: ignore[arg-type]
