"""What every replica holds, out of the files of brokers."""

import uuid
from pathlib import Path

from kafka.record import MemoryRecordsBuilder

from tests.chaos.reader import read
from tests.chaos.replicas import data_folders, held_by_all
from tests.chaos.topics import KEPT, KINDS
from tests.kafka_tools import ToSend, create_topics, produce
from tests.waiting import wait_until


def segment(folder: Path, name: str, *batches: tuple[int, int]) -> None:
    """A segment of batches, each from a first offset up to another one."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b""
    for first, end in batches:
        builder = MemoryRecordsBuilder(magic=2, compression_type=3, batch_size=10_000)
        for n in range(first, end):
            builder.append(timestamp=n, key=b"k", value=b"x" * 50)
        builder.close()
        # The first offset is outside of what a batch's checksum covers.
        data += first.to_bytes(8, "big") + bytes(builder.buffer())[8:]
    (folder / name).write_bytes(data)


def test_only_offsets_that_no_replica_lacks_are_held_by_all(tmp_path):
    one, other, third = (tmp_path / f"node-{node}" / "data" for node in (1, 2, 3))
    assert data_folders(tmp_path, 3) == [one, other, third]
    segment(one / "t-0", "0.log", (0, 10), (10, 20))
    segment(one / "t-0", "20.log", (20, 30))
    # Half compacted, by a segment that is just put in another one's place; and what is about to be deleted.
    segment(other / "t-0", "0.log.swap", (5, 8), (15, 20))
    segment(other / "t-0", "0.log.deleted", (0, 20))
    segment(other / "t-0", "20.log", (20, 30))
    segment(third / "t-1", "0.log", (0, 3))
    assert held_by_all([one, other, third], {"t": 2}) == {
        ("t", 0): frozenset({5, 6, 7, *range(15, 30)}),
        ("t", 1): frozenset({0, 1, 2}),
    }


def test_files_of_a_broker_that_compacts_hold_what_a_consumer_reads(compacting):
    servers, name = compacting.bootstrap_servers, f"replicas-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {name: 2}, {**KEPT, **KINDS["compacted"].configs, "segment.ms": "200"})

    def is_compacted() -> bool:
        # Each time a segment more, which closes the one before.
        rows = [ToSend(b"x" * 100, b"%d" % (n % 20), n % 2) for n in range(200)]
        produce(servers, name, rows, **{"compression.type": "zstd", "batch.num.messages": 10})
        return any(log.end - log.start > 2 * len(log) for log in read(servers, {name: 2}).values())

    wait_until(is_compacted, "the cleaner was there")

    def is_the_same() -> bool:
        # Between one and the other the cleaner may come by.
        held = held_by_all(data_folders(compacting.data_dir, 1), {name: 2})
        return held == {place: frozenset(log.offsets) for place, log in read(servers, {name: 2}).items()}

    wait_until(is_the_same, "files and consumer agree")
