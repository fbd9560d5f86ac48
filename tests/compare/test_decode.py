"""Records sections, whole and damaged: the compiled kernel and Python's own decoder find the same, or refuse alike."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from kafka_migration.compare.decode import columns, compiled, plain
from kafka_migration.compare.decode.columns import COMPILED, NO_STAMP, PLAIN, Columns, Damaged, Section, columns_of
from kafka_migration.compare.record_digest import KEY_IS_NULL, SEED, record_hashes
from kafka_migration.wire.records import write_varint
from tests.wire.made import field

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
DECODERS = {COMPILED: compiled.decode, PLAIN: plain.decode}


def _some(dice: random.Random, mean: int) -> bytes | None:
    return None if dice.random() < 0.1 else dice.randbytes(int(dice.expovariate(1 / mean)))


def _section(dice: random.Random) -> tuple[Section, list[columns.Record]]:
    """A section, and what is in it."""
    offset, base = dice.randrange(10**12), dice.choice((0, 1_700_000_000_000, -5))
    stamp = dice.choice((NO_STAMP, NO_STAMP, 77))
    raw, records, delta = list[tuple[int, int, bytes]](), list[columns.Record](), -1
    for _ in range(dice.randrange(1, 40)):
        delta += dice.choice((1, 1, 2, 300))
        key, value, time = _some(dice, 10), _some(dice, dice.choice((5, 60, 600))), dice.randrange(-9, 10**9)
        headers = [(dice.randbytes(dice.randrange(40)), _some(dice, 6)) for _ in range(dice.choice((0, 0, 1, 70)))]
        rest = field(key) + field(value) + write_varint(len(headers))
        rest += b"".join(write_varint(len(name)) + name + field(held) for name, held in headers)
        raw.append((delta, time, rest))
        records.append((offset + delta, base + time if stamp == NO_STAMP else stamp, key, value, headers))
    return Section(_encoded(raw), len(raw), offset, delta, base, stamp), records


def _encoded(records: list[tuple[int, int, bytes]]) -> bytes:
    """Records by their offset and timestamp deltas, and what stands behind these."""
    bodies = [b"\0" + write_varint(time) + write_varint(delta) + rest for delta, time, rest in records]
    return b"".join(write_varint(len(body)) + body for body in bodies)


def _decoded(name: str, sections: list[Section]) -> Columns:
    facts = np.array([section[1:] for section in sections], np.int64).reshape(-1, columns.FACTS)
    data = np.frombuffer(b"".join([*(section.data for section in sections), bytes(columns.SPARE)]), np.uint8)
    return DECODERS[name](data, np.cumsum([len(section.data) for section in sections], dtype=np.int64), facts)


def _lists(found: Columns) -> dict[str, Any]:
    return {one.name: (str(getattr(found, one.name).dtype), getattr(found, one.name).tolist()) for one in fields(found)}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_decoded_is_what_was_encoded(name: str, seed: int) -> None:
    dice = random.Random(seed)
    made = [_section(dice) for _ in range(dice.randrange(6))]
    expected = _lists(columns_of(record for _, records in made for record in records))
    assert _lists(_decoded(name, [section for section, _ in made])) == expected


@pytest.mark.parametrize("seed", range(20))
def test_damaged_sections_are_read_alike_or_refused_alike(seed: int) -> None:
    """Of what a checksum lets pass, too: no byte makes the kernel read beyond its section."""
    dice = random.Random(f"damaged {seed}")
    refused = 0
    for _ in range(300):
        section, _ = _section(dice)
        data = bytearray(section.data)
        for _ in range(dice.choice((1, 1, 3))):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        if dice.random() < 0.2:
            del data[dice.randrange(len(data)) :]
        broken = section._replace(data=bytes(data), records=section.records + dice.choice((0, 0, 0, 1, -1)))
        found: list[Any] = []
        for name in DECODERS:
            try:
                found.append(_lists(_decoded(name, [broken])))
            except Damaged as error:
                found.append(str(error).partition(":")[0])
        assert found[0] == found[1], bytes(data).hex()
        refused += found[0] == f"batch at offset {broken.offset}"
    assert 50 < refused < 300


@pytest.mark.parametrize("size", [*range(70), 500, 1023])
def test_hash_of_the_kernel_is_xxhash(size: int) -> None:
    data = random.Random(size).randbytes(size)
    value = field(data)
    section = Section(_encoded([(0, 0, field(None) + value + write_varint(0))]), 1, 0, 0, 0)
    (found,) = _decoded(COMPILED, [section]).hashes.tolist()
    content = np.array([xxhash.xxh64_intdigest(data, SEED)], np.uint64)
    assert found == record_hashes(content, np.zeros(1, np.int64), np.full(1, KEY_IS_NULL)).item()


def test_last_bytes_of_a_section_are_not_those_of_its_neighbour() -> None:
    """A load of eight bytes reaches into the next section, and must not count what is there."""
    one, other = (
        Section(_encoded([(0, 0, field(b"k") + field(b"v" * 5) + write_varint(0))]), 1, n, 0, 0) for n in (0, 1)
    )
    both = _decoded(COMPILED, [one, other])
    assert both.hashes[0] == both.hashes[1] == _decoded(COMPILED, [one]).hashes[0]


def test_python_decodes_where_numba_is_not_installed_or_not_wanted() -> None:
    ask = "from kafka_migration.compare.decode.columns import kernel; print(kernel())"
    without = "import sys, importlib.util; real = importlib.util.find_spec\n"
    without += "importlib.util.find_spec = lambda name, *more: None if name == 'numba' else real(name, *more)\n"

    def answer(code: str, wanted: str | None = None) -> str:
        environ = {name: value for name, value in os.environ.items() if name != columns.KERNEL_VARIABLE}
        environ |= {"PYTHONPATH": str(PLUGINS)} | ({columns.KERNEL_VARIABLE: wanted} if wanted else {})
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.strip() or done.stderr

    assert answer(ask) == COMPILED
    assert answer(without + ask) == PLAIN
    # As for a user without a home, and a package that is another's.
    nowhere = "from numba.core import caching; caching.CacheImpl._locator_classes = []; "
    assert answer(nowhere + ask) == PLAIN
    assert answer(ask, PLAIN) == PLAIN
    assert f"{columns.KERNEL_VARIABLE} is 'fast': set numba or python, or nothing" in answer(ask, "fast")
