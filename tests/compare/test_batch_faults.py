"""Faults in copies of logs of every kind (transactions, LogAppendTime, old formats, thinned by compaction), at batch
level: each makes a difference, and what is no fault makes none. Without brokers, so that there may be many."""

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import crc32c
import pytest

from kafka_migration.compare.digests import is_same
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, parse_header
from tests.compare.test_batches import Log, _copied, _digested, _placed, _range
from tests.mutation.faults import off_by_one_runs
from tests.wire.logs import made_log

_SEEDS = range(30)


def _moved(log: Log, behind: int, by: int) -> Log:
    """The batches from place `behind` on stand further on, or back."""
    return [_placed(batch, parse_header(batch).base_offset + (by if n >= behind else 0)) for n, batch in enumerate(log)]


def _data(log: Log) -> list[int]:
    return [n for n, batch in enumerate(log) if not parse_header(batch).is_control]


def _count(batch: bytes) -> int:
    return parse_header(batch).records


def _summed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def _drop(log: Log, chance: random.Random) -> Log:
    n = chance.choice(_data(log))
    gone = _count(log[n])
    return _moved([*log[:n], *log[n + 1 :]], n, -gone)


def _double(log: Log, chance: random.Random) -> Log:
    n = chance.choice(_data(log))
    again = _placed(log[n], parse_header(log[n]).next_offset)
    return [*log[: n + 1], again, *_moved(log[n + 1 :], 0, _count(log[n]))]


def _swap(log: Log, chance: random.Random) -> Log:
    pairs = [n for n in _data(log) if n + 1 < len(log) and not parse_header(log[n + 1]).is_control]
    n = chance.choice(pairs)
    first = parse_header(log[n]).base_offset
    return [
        *log[:n],
        _placed(log[n + 1], first),
        _placed(log[n], first + _count(log[n + 1])),
        *log[n + 2 :],
    ]


def _later(log: Log, chance: random.Random) -> Log:
    n = chance.choice(_data(log))
    batch = bytearray(log[n])
    header = parse_header(batch)
    struct.pack_into(">q", batch, 27, header.base_timestamp + 1)
    struct.pack_into(">q", batch, 35, header.max_timestamp + 1)
    return [*log[:n], _summed(batch), *log[n + 1 :]]


def _marked(bit: int) -> Callable[[Log, random.Random], Log]:
    def mark(log: Log, chance: random.Random) -> Log:
        n = chance.choice(_data(log))
        batch = bytearray(log[n])
        struct.pack_into(">H", batch, 21, parse_header(batch).attributes | bit)
        return [*log[:n], _summed(batch), *log[n + 1 :]]

    return mark


def _flipped(log: Log, chance: random.Random) -> Log:
    """A bit of a record, where nothing is compressed, so that the batch can still be read."""
    n = chance.choice([n for n in _data(log) if parse_header(log[n]).codec == 0])
    batch = bytearray(log[n])
    batch[-2] ^= 1
    return [*log[:n], _summed(batch), *log[n + 1 :]]


def _recompressed(log: Log, chance: random.Random) -> Log:
    n = chance.choice(_data(log))
    header = parse_header(log[n])
    data = codecs.decompress(header.codec, log[n][HEADER_BYTES:])
    codec = (header.codec + chance.randrange(1, 5)) % 5
    batch = bytearray(log[n][:HEADER_BYTES] + codecs.compress(codec, data))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">H", batch, 21, header.attributes & ~7 | codec)
    return [*log[:n], _summed(batch), *log[n + 1 :]]


FAULTS: dict[str, Callable[[Log, random.Random], Log]] = {
    "drop a batch": _drop,
    "double a batch": _double,
    "swap two batches": _swap,
    "shift a batch's base timestamp": _later,
    "flip a bit": _flipped,
    "LogAppendTime's bit": _marked(0x08),
    "transactional bit": _marked(0x10),
    "control bit": _marked(0x20),
    "delete horizon's bit": _marked(0x40),
    "bit 7": _marked(0x80),
}


def _copy(seed: int, join_bytes: int = 1_000) -> tuple[Log, PartitionRange]:
    target, runs, end = _copied(made_log(seed), join_bytes)
    return target, _range(made_log(seed), runs, end)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_in_a_copy_of_any_log_makes_a_difference(fault: str) -> None:
    tried: Counter[str] = Counter()
    for seed in _SEEDS:
        target, it = _copy(seed)
        try:
            wrong = FAULTS[fault](target, random.Random(seed))
        except IndexError:
            continue  # no batch is like that
        end = max(parse_header(batch).next_offset for batch in wrong)
        one, other = _digested(made_log(seed), wrong, replace(it, target_end=max(end, 1)))
        assert not is_same(one, other), seed
        tried[fault] += 1
    assert tried[fault] >= len(_SEEDS) // 4


@pytest.mark.parametrize("seed", _SEEDS)
def test_map_that_leads_one_further_makes_a_difference_though_no_record_is_wrong(seed: int) -> None:
    target, it = _copy(seed)
    runs = off_by_one_runs(it.runs, it.target_start + (it.target_end - it.target_start) // 2)
    one, other = _digested(made_log(seed), target, replace(it, runs=Runs(runs)))
    assert not is_same(one, other)


def test_aborted_records_that_were_copied_and_mapped_make_a_difference() -> None:
    tried = 0
    for seed in _SEEDS:
        log = made_log(seed)
        right, _, right_end = _copied(log, 0)
        target, runs, end = _copied(log, 0, takes_aborted=True)
        if end - right_end == len(target) - len(right):
            continue  # nothing was aborted that holds records
        one, other = _digested(log, target, _range(log, runs, end))
        assert not is_same(one, other), seed
        tried += 1
    assert tried >= len(_SEEDS) // 4


@pytest.mark.parametrize("seed", _SEEDS)
def test_batch_in_another_codec_makes_none(seed: int) -> None:
    target, it = _copy(seed)
    one, other = _digested(made_log(seed), _recompressed(target, random.Random(seed)), it)
    assert is_same(one, other)
    assert one.rows == len(made_log(seed).rows)
