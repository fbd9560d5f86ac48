"""What each replica of a log has, out of its broker's own files: consumers are shown the leader's only.

Replicas are compacted each by itself. What another one has lost already a mirror may never have seen.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kafka.record import MemoryRecords

from tests.chaos.reader import Place
from tests.waiting import wait_until

#: Of a segment that takes another one's place, too; not of one that is about to be deleted.
_SEGMENTS = (".log", ".log.swap")
_AGREE_SECONDS = 60.0


def data_folders(cluster: Path, nodes: int) -> list[Path]:
    """Where the brokers of an embedded cluster keep their logs."""
    return [cluster / f"node-{node}" / "data" for node in range(1, nodes + 1)]


def held_by_all(folders: Sequence[Path], topics: Mapping[str, int]) -> dict[Place, frozenset[int]]:
    """The offsets that every replica of a partition holds, of `topics` (name to partition count). Each is in one of
    `folders`. Raises AssertionError if they do not come to the same end within a minute."""
    return {
        (name, partition): _held([it for folder in folders if (it := folder / f"{name}-{partition}").is_dir()])
        for name, count in topics.items()
        for partition in range(count)
    }


def _held(replicas: Collection[Path]) -> frozenset[int]:
    found: list[frozenset[int]] = []

    def agree() -> bool:
        # One that lags behind has lost nothing: it must not look as if it had.
        found[:] = [_offsets(folder) for folder in replicas]
        return len({max(offsets, default=-1) for offsets in found}) == 1

    wait_until(agree, f"replicas end at one offset: {sorted(map(str, replicas))}", deadline_seconds=_AGREE_SECONDS)
    return functools.reduce(frozenset.intersection, found)


def _offsets(folder: Path) -> frozenset[int]:
    """Of all records in one replica's segments."""
    while True:
        # The cleaner puts segments in others' places: what is read is of before it or after it, and not in between.
        before = _segments(folder)
        try:
            read = [(folder / name).read_bytes() for name, _ in before]
        except FileNotFoundError:
            continue
        if _segments(folder) == before:
            return frozenset(record.offset for data in read for batch in MemoryRecords(data) for record in batch)


def _segments(folder: Path) -> list[tuple[str, int]]:
    while True:
        try:
            return sorted((it.name, it.stat().st_size) for it in folder.iterdir() if it.name.endswith(_SEGMENTS))
        except FileNotFoundError:
            continue
