"""What is wrong with a copy, from what an independent reader found on both sides. No code of the mirror."""

import random
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Translate = Callable[[int], int]


@dataclass
class Log:
    """One partition as a consumer sees it: its records' offsets, and a digest of each (key, value, headers, timestamp).

    `start` and `end` are the log's. Of a topic that is compacted also the keys.
    """

    start: int
    end: int
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    digests: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass
class Found:
    """Records compared, and what is wrong, in records: `foreign` ones are on the target, and were never on the source.
    `translated` is how many offsets were."""

    records: int = 0
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    reordered: int = 0
    mistranslated: int = 0
    translated: int = 0

    def add(self, other: "Found") -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.foreign or self.reordered or self.mistranslated)


def records(source: Log, target: Log) -> Found:
    """Compare one partition, record by record.

    A record that was altered counts as lost, and as a foreign one. Of those that stand on both sides, reordered are the
    fewest that would have to be moved. Of equal records the first is taken for the first, and so on.
    """
    found = Found(records=len(source))
    if source.digests == target.digests:
        return found
    _count(found, list(_numbered(source.digests)), list(_numbered(target.digests)), set(source.digests))
    return found


def compacted(source: Log, target: Log, held: Container[int] | None = None) -> Found:
    """Compare a partition whose source is compacted, at any time before or after its records were copied.

    What was compacted away on the source after it was copied may stand on the target, but only before a later record
    of the same key. What stands on the source must stand on the target, which is not compacted while it is mirrored.

    `held` are the offsets that every replica of the source held once the mirror had ended; None where there is one
    replica. Replicas are compacted each by itself, so that a later leader may have what the one that was read from had
    not any more: that may be missing, if a later record of the same key stands on the target. What all of them still
    held the mirror was shown, whoever led.
    """
    found = Found(records=len(source))
    if source.digests == target.digests:
        return found
    if source.keys is None or target.keys is None:
        raise ValueError("logs of a compacted topic are compared by their keys")
    last = {key: at for at, key in enumerate(target.keys)}
    here, there = list(_numbered(source.digests)), list(_numbered(target.digests))
    known = set(here)
    superseded = {
        label
        for at, (label, key) in enumerate(zip(there, target.keys, strict=True))
        if label not in known and key is not None and last[key] > at and label[1] == 0
    }
    kept = [label for label in there if label not in superseded]
    seen = [held is None or offset in held for offset in source.offsets]
    _count(found, list(_expected(here, source.keys, seen, there, last)), kept, set(source.digests))
    return found


def _expected(
    here: Sequence[tuple[bytes, int]],
    keys: Sequence[bytes | None],
    seen: Sequence[bool],
    there: Sequence[tuple[bytes, int]],
    last: Mapping[bytes | None, int],
) -> Iterator[tuple[bytes, int]]:
    """Those of `here` that stand on the target, or should. `seen` says which ones the mirror was shown for certain,
    `last` is the place of each key's last record there."""
    place, before = {label: at for at, label in enumerate(there)}, -1
    for label, key, was_seen in zip(here, keys, seen, strict=True):
        if label in place:
            before = place[label]
            yield label
        elif was_seen or key is None or last.get(key, -1) <= before:
            yield label


def _numbered(digests: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Each digest with how many like it came before."""
    seen: Counter[bytes] = Counter()
    for digest in digests:
        yield digest, seen[digest]
        seen[digest] += 1


def _count(
    found: Found, here: Sequence[tuple[bytes, int]], there: Sequence[tuple[bytes, int]], known: set[bytes]
) -> None:
    place: dict[Hashable, int] = {label: at for at, label in enumerate(here)}
    both = [place[label] for label in there if label in place]
    found.lost = len(here) - len(both)
    found.foreign = sum(digest not in known for digest, _ in there)
    found.doubled = len(there) - len(both) - found.foreign
    found.reordered = len(both) - _longest_rise(both)


def _longest_rise(numbers: Sequence[int]) -> int:
    """The length of the longest rising subsequence."""
    ends: list[int] = []
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)


def translations(
    source: Log, target: Log, to_target: Translate, to_source: Translate, chance: random.Random, count: int
) -> Found:
    """Translate `count` random offsets of either side, gaps and ends among them, and look where a consumer that stands
    there goes on: at the very record, or, where there is none, at the next one. A translator that raises is wrong."""
    pairs = _pairs(source, target)
    back = [(after, before) for before, after in pairs]
    wrong = _wrong(source, target, pairs, to_target, _drawn(source, chance, count))
    wrong += _wrong(target, source, back, to_source, _drawn(target, chance, count))
    return Found(mistranslated=wrong, translated=2 * count)


def _drawn(log: Log, chance: random.Random, count: int) -> list[int]:
    """Random offsets of `log`, its end included; the ends themselves always."""
    return [log.start, log.end, *(chance.randint(log.start, log.end) for _ in range(count - 2))]


def _pairs(source: Log, target: Log) -> list[tuple[int, int]]:
    """The offsets of every record that stands on both sides, rising on both."""
    if source.digests == target.digests:
        return list(zip(source.offsets, target.offsets, strict=True))
    places = defaultdict(list)
    for label, offset in zip(_numbered(target.digests), target.offsets, strict=True):
        places[label].append(offset)
    return [
        (offset, places[label][0])
        for label, offset in zip(_numbered(source.digests), source.offsets, strict=True)
        if label in places
    ]


def _wrong(here: Log, there: Log, pairs: Sequence[tuple[int, int]], translate: Translate, drawn: Sequence[int]) -> int:
    """How many of the offsets `drawn` from `here` do not lead to where they should `there`."""
    known = [offset for offset, _ in pairs]
    wrong = 0
    for offset in drawn:
        at = bisect_left(known, offset)
        try:
            translated = translate(offset)
        except Exception:
            # Whatever it was: a committed offset would not have been translated.
            wrong += 1
            continue
        if at < len(pairs) and known[at] == offset:
            wrong += translated != pairs[at][1]
        else:
            # Behind the last record at or before it, and not behind the next one.
            lowest = pairs[at - 1][1] + 1 if at else 0
            highest = pairs[at][1] if at < len(pairs) else there.end
            wrong += not lowest <= translated <= highest
    return wrong
