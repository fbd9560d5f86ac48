"""Two logs side by side: what one has and the other has not, though everything behind it is shifted.

A record that was dropped shifts all that follow, so places alone would call every later record wrong. Here the two
sequences are followed by content, as ``diff`` does: whole batches by their bytes, records where batches differ, and
where records differ a window is searched for the nearest point from which both go on alike. Memory is bounded by that
window and by :class:`Leftovers`.

Of compacted logs that is impossible, since too little of what follows is alike; they are followed by place.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice

from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.drill_fields import Record, is_likely_the_same
from kafka_migration.validation.drill_log import Chunk, Chunks, Old
from kafka_migration.validation.drill_places import Places

_SMALLEST_WINDOW, _LARGEST_WINDOW = 64, 32_768
_WINDOW_BYTES = 32 << 20
#: So many records in a row must be alike for both to go on from there; single ones may be alike by chance.
_ALIKE = 8
_REFINED = 4_000_000
_TRIED_PER_RECORD = 16

Content = tuple[int, bytes]


class TooMany(Exception):
    """More records differ than are kept: what follows is not looked at."""


@dataclass(slots=True, eq=False)
class Left:
    """A record that has no equal on the other side, where it should be.

    ``place`` is its offset on the source, or where the map puts a record of the target; ``in_run`` whether the map has
    one there. ``twin`` stands in its stead on the other side, if anything does.
    """

    tp: TopicPartition
    record: Record
    place: int
    in_run: bool = True
    twin: Left | None = None


@dataclass(frozen=True, slots=True)
class Misplaced:
    """``count`` records in a row that are equal, and in order, but not where the map says: the first of them."""

    tp: TopicPartition
    source: Record
    target: Record
    expected: int | None


class Leftovers:
    """What is left of a topic's partitions, at most so many records and bytes."""

    def __init__(self, *, most: int = 20_000, most_bytes: int = 64 << 20) -> None:
        self.source: list[Left] = []
        self.target: list[Left] = []
        self.misplaced: list[Misplaced] = []
        self._most, self._room = most, most_bytes

    def add(self, to: list[Left], left: Left) -> None:
        """Keep one. Raises TooMany."""
        self._room -= len(left.record.rest)
        if len(self.source) + len(self.target) >= self._most or self._room < 0:
            raise TooMany
        to.append(left)


class _Stream:
    """One side: chunks, and records of those that had to be decoded."""

    def __init__(self, chunks: Chunks, watch: Callable[[], None]) -> None:
        self._chunks, self._watch = iter(chunks), watch
        self._next: Chunk | Old | None = None
        self.ready: deque[Record] = deque()
        self.is_over = False

    def _take(self) -> Chunk | Old | None:
        chunk, self._next = self._next, None
        if chunk is None:
            self._watch()
            chunk = next(self._chunks, None)
        return chunk

    def peek(self) -> Chunk | None:
        """The next chunk, if it stands at its beginning, and is whole."""
        if self.ready:
            return None
        self._next = self._take()
        return self._next if isinstance(self._next, Chunk) and self._next.is_whole else None

    def skip(self) -> None:
        """Move past what :meth:`peek` gave."""
        self._next = None

    def fill(self, count: int) -> bool:
        """Decode until so many records are ready; whether they are."""
        while len(self.ready) < count and not self.is_over:
            chunk = self._take()
            if chunk is None:
                self.is_over = True
            else:
                self.ready.extend(chunk.records())
        return len(self.ready) >= count

    def take(self, count: int) -> list[Record]:
        """The next so many."""
        return [self.ready.popleft() for _ in range(count)]


class Aligner:
    """Follows the unequal regions of one partition, and puts what is left into ``left``.

    ``watch`` is called now and then, and may raise to end it.
    """

    def __init__(self, places: Places, left: Leftovers, watch: Callable[[], None] = lambda: None) -> None:
        self._places, self._left, self._watch = places, left, watch
        self._tp = places.range.tp
        # By how many records the target is ahead: shifted records are a consequence, and no finding of their own.
        self._ahead = 0
        self._is_misplaced = False

    def by_content(self, source: Chunks, target: Chunks) -> None:
        """Follow both to their ends, from places where both stood alike."""
        mine, theirs = _Stream(source, self._watch), _Stream(target, self._watch)
        self._ahead, self._is_misplaced = 0, False
        while True:
            one, other = mine.peek(), theirs.peek()
            if one is not None and other is not None and one.is_twin(other):
                self._twins(one, other)
                mine.skip()
                theirs.skip()
                continue
            if not (mine.fill(1) | theirs.fill(1)):
                return
            self._alike(mine, theirs)
            if mine.ready and theirs.ready:
                self._resync(mine, theirs)
            elif (mine.ready and theirs.is_over) or (theirs.ready and mine.is_over):
                self._differ(mine.take(len(mine.ready)), theirs.take(len(theirs.ready)))

    def by_place(self, source: Chunks, target: Chunks) -> None:
        """The same of compacted logs, which have gaps everywhere."""
        mine, theirs = _Stream(source, self._watch), _Stream(target, self._watch)
        while mine.fill(1) | theirs.fill(1):
            place = self._places.source_of(theirs.ready[0].offset) if theirs.ready else None
            if theirs.ready and place is None:
                self._differ([], theirs.take(1))
            elif place is not None and mine.ready and mine.ready[0].offset == place:
                one, other = mine.ready.popleft(), theirs.ready.popleft()
                if one.content != other.content:
                    self._differ([one], [other], is_pair=True)
            elif mine.ready and (place is None or mine.ready[0].offset < place):
                self._differ(mine.take(1), [])
            else:
                self._differ([], theirs.take(1))

    def _twins(self, one: Chunk, other: Chunk) -> None:
        last = one.header.records - 1
        if not (self._stands(one.first, other.first) and self._stands(one.first + last, other.first + last)):
            for mine, its in zip(one.records(), other.records(), strict=True):
                self._stood(mine, its)
        else:
            self._is_misplaced = False

    def _stands(self, source: int, target: int) -> bool:
        return self._places.source_of(target) == source

    def _stood(self, mine: Record, its: Record) -> None:
        """Both are equal: whether they stand where the map says."""
        if self._stands(mine.offset, its.offset):
            self._is_misplaced = False
        elif not self._ahead and not self._is_misplaced:
            self._is_misplaced = True
            self._left.misplaced.append(Misplaced(self._tp, mine, its, self._places.target_of(mine.offset)))

    def _alike(self, mine: _Stream, theirs: _Stream) -> None:
        one, other = mine.ready, theirs.ready
        while one and other:
            a, b = one[0], other[0]
            if a[1] != b[1] or a[2] != b[2]:
                return
            one.popleft()
            other.popleft()
            self._stood(a, b)

    def _resync(self, mine: _Stream, theirs: _Stream) -> None:
        """Go on to where both are alike again."""
        window = _SMALLEST_WINDOW
        while True:
            mine.fill(window)
            theirs.fill(window)
            ones, others = list(islice(mine.ready, window)), list(islice(theirs.ready, window))
            ends = (
                mine.is_over and len(ones) == len(mine.ready),
                theirs.is_over and len(others) == len(theirs.ready),
            )
            found = _nearest([it.content for it in ones], [it.content for it in others], ends)
            if found is not None:
                self._differ(mine.take(found[0]), theirs.take(found[1]))
                return
            size = sum(len(it.rest) for it in ones) + sum(len(it.rest) for it in others)
            if all(ends) or window >= _LARGEST_WINDOW or size > _WINDOW_BYTES:
                self._differ(mine.take(len(ones)), theirs.take(len(others)))
                return
            window *= 4

    def _differ(self, ones: Sequence[Record], others: Sequence[Record], *, is_pair: bool = False) -> None:
        """Neither of both is where the other is; between them there may be records that are alike."""
        if is_pair or not ones or not others or len(ones) * len(others) > _REFINED:
            self._keep(ones, others)
            return
        if len(ones) == len(others):
            moved = [n for n, (mine, its) in enumerate(zip(ones, others, strict=True)) if mine.content != its.content]
            if len(moved) == 2 and ones[moved[0]].content == others[moved[1]].content:
                # Two that changed places: both are out of order, while a matcher would see one that moved.
                self._keep([ones[n] for n in moved], [others[n] for n in moved])
                return
        matcher = SequenceMatcher(None, [it.content for it in ones], [it.content for it in others], autojunk=False)
        for tag, low, high, low_there, high_there in matcher.get_opcodes():
            if tag != "equal":
                self._keep(ones[low:high], others[low_there:high_there])
                continue
            for mine, its in zip(ones[low:high], others[low_there:high_there], strict=True):
                self._stood(mine, its)

    def _keep(self, ones: Sequence[Record], others: Sequence[Record]) -> None:
        places = self._places
        mine = [Left(self._tp, it, it.offset, places.target_of(it.offset) is not None) for it in ones]
        theirs = [
            Left(self._tp, it, places.place_of(it.offset), places.source_of(it.offset) is not None) for it in others
        ]
        for one, other in _pairs(mine, theirs):
            one.twin, other.twin = other, one
        self._ahead += len(others) - len(ones)
        for left in mine:
            self._left.add(self._left.source, left)
        for left in theirs:
            self._left.add(self._left.target, left)


def _pairs(ones: Sequence[Left], others: Sequence[Left]) -> Iterator[tuple[Left, Left]]:
    """Who stands in whose stead: one after the other if there are as many, else those that are likely the same."""
    if len(ones) == len(others):
        yield from zip(ones, others, strict=True)
        return
    at = 0
    for one in ones:
        for n in range(at, min(len(others), at + _TRIED_PER_RECORD)):
            if is_likely_the_same(one.record, others[n].record):
                yield one, others[n]
                at = n + 1
                break


def _nearest(ones: Sequence[Content], others: Sequence[Content], are_ends: tuple[bool, bool]) -> tuple[int, int] | None:
    """How many of each to leave behind, so that both go on alike; the fewest in all. None if nothing here says so."""
    there: defaultdict[Content, list[int]] = defaultdict(list)
    for at, content in enumerate(others):
        there[content].append(at)
    best: tuple[int, int] | None = None
    for at, content in enumerate(ones):
        if best is not None and at >= sum(best):
            break
        for there_at in there.get(content, ())[:_TRIED_PER_RECORD]:
            if best is not None and at + there_at >= sum(best):
                break
            if _goes_on(ones, others, at, there_at, are_ends):
                best = at, there_at
    return best


def _goes_on(
    ones: Sequence[Content], others: Sequence[Content], at: int, there_at: int, are_ends: tuple[bool, bool]
) -> bool:
    for n in range(_ALIKE):
        over = at + n >= len(ones), there_at + n >= len(others)
        if any(over):
            # At the end of a log there is nothing more to compare; at the end of a window nobody knows.
            return all(is_end for is_over, is_end in zip(over, are_ends, strict=True) if is_over)
        if ones[at + n] != others[there_at + n]:
            return False
    return True
