"""The hash of a record: no two records have the same links in its chain."""

import numpy as np
import pytest

from kafka_migration.compare.decode.columns import columns_of
from kafka_migration.compare.record_digest import record_hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(b"a", None)], [(b"a", b"\0\0\0\0")]),
        ([(b"a", None), (b"b", b"v")], [(b"a", b"b"), (b"v", b"\0\0\0\0")]),
        ([(b"a", b"x"), (b"b", None)], [(b"a", b"x"), (b"b", b"\1\0\0\0")]),
        ([(b"a", b"\0\0\0\0"), (b"\0\0\0\0", None)], [(b"a", None), (b"\0\0\0\0", None)]),
        ([(b"a", None), (b"b", b"")], [(b"a", b""), (b"b", None)]),
    ],
)
def test_links_of_the_chain_are_not_taken_for_one_another(one, other):
    first, second = columns_of((0, 0, b"k", b"v", headers) for headers in (one, other)).hashes.tolist()
    assert first != second


def test_times_that_differ_in_their_highest_bits_hash_apart():
    times = np.array([5, 5 + 2**61, 5 - 2**62], np.int64)
    assert len(set(record_hashes(np.zeros(3, np.uint64), times, np.zeros(3, np.int64)).tolist())) == 3
