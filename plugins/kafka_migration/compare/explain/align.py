"""Two logs side by side: what one has and the other has not, though everything behind it is shifted.

A record that was dropped shifts all that follow, so places alone would call every later record wrong. Here the two
sequences are followed by content, as ``diff`` does: whole batches by their bytes, records where batches differ, and
where records differ what lies ahead is searched for the nearest point from which both go on alike, up to a million
records away. Memory is bounded by that window, of which digests are held, and by :class:`Leftovers`.

Of compacted logs that is impossible, since too little of what follows is alike; they are followed by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import Record, is_likely_the_same
from kafka_migration.compare.explain.left import Left, Leftovers, Misplaced, left_of
from kafka_migration.compare.explain.log import Chunk
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.resync import anchors, nearest
from kafka_migration.compare.explain.stream import OpenAt, Stream

if TYPE_CHECKING:
    from kafka_migration.compare.explain.stream import Digests

_SMALLEST_WINDOW, _LARGEST_WINDOW = 64, 1 << 20
#: Of a long row of records that one side has alone, so many are kept whole: these, or as many as have so many bytes.
_WHOLE, _WHOLE_BYTES = 1_000, 4 << 20
_REFINED = 4_000_000
_TRIED_PER_RECORD = 16


class Apart(Exception):
    """Both sides go on differently, for as long as was looked: nobody knows what is missing there, and where."""


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
        # Nothing is alike yet, behind what nobody can read: that one side has more may be due to what is lost there.
        self._is_open = False

    def by_content(
        self, source: OpenAt, start: int, target: OpenAt, low: int, *, are_open: tuple[bool, bool] = (False, False)
    ) -> None:
        """Follow both to their ends, from ``start`` and ``low`` on, where both stood alike.

        ``are_open`` tells of beginning and end whether something lies beyond them that cannot be read: there, records
        may have shifted over the border, and what one side has more is not kept.
        Raises TooMany and Apart, and what reading raises.
        """
        mine, theirs = Stream(source, start, self._watch), Stream(target, low, self._watch)
        self._ahead, self._is_misplaced, self._is_open = 0, False, are_open[0]
        while True:
            one, other = mine.peek(), theirs.peek()
            if one is not None and other is not None and one.is_twin(other):
                self._twins(one, other)
                self._is_open = False
                mine.skip()
                theirs.skip()
                continue
            if not (mine.fill(1) | theirs.fill(1)):
                return
            self._alike(mine, theirs)
            if mine.ready and theirs.ready:
                self._resync(mine, theirs)
            elif (mine.ready and theirs.is_over) or (theirs.ready and mine.is_over):
                if are_open[1]:
                    return
                self._one_after_the_other(mine.each(), theirs.each())

    def by_place(self, source: OpenAt, start: int, target: OpenAt, low: int) -> None:
        """The same of compacted logs, which have gaps everywhere."""
        mine, theirs = Stream(source, start, self._watch), Stream(target, low, self._watch)
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

    def _alike(self, mine: Stream, theirs: Stream) -> None:
        one, other = mine.ready, theirs.ready
        while one and other:
            a, b = one[0], other[0]
            if a[1] != b[1] or a[2] != b[2]:
                return
            one.popleft()
            other.popleft()
            self._is_open = False
            self._stood(a, b)

    def _resync(self, mine: Stream, theirs: Stream) -> None:
        """Go on to where both are alike again."""
        window, ahead, ahead_there = _SMALLEST_WINDOW, mine.look(), theirs.look()
        while True:
            (ones, is_end), (others, is_end_there) = ahead.first(window), ahead_there.first(window)
            found = nearest(ones, others, (is_end, is_end_there))
            if found is not None and self._is_open and found[0] != found[1]:
                self._ahead += sum(1 for _ in theirs.each(found[1])) - sum(1 for _ in mine.each(found[0]))
                return
            if found is not None:
                self._gap(mine, theirs, ones[: found[0]], others[: found[1]])
                return
            if (is_end and is_end_there) or (window >= _LARGEST_WINDOW and _are_altered(mine.ready, theirs.ready)):
                self._gap(mine, theirs, ones, others)
                return
            if window >= _LARGEST_WINDOW:
                raise Apart
            window *= 4

    def _gap(self, mine: Stream, theirs: Stream, ones: Digests, others: Digests) -> None:
        """Between two points where both are alike: what is next on each side, by its digests."""
        if self._is_small(mine, theirs, len(ones), len(others)):
            self._differ(mine.take(len(ones)), theirs.take(len(others)))
            return
        at = there = 0
        for one, other in [*anchors(ones, others), (len(ones), len(others))]:
            self._piece(mine, theirs, one - at, other - there)
            if one < len(ones):
                self._stood(*mine.take(1), *theirs.take(1))
            at, there = one + 1, other + 1

    def _piece(self, mine: Stream, theirs: Stream, count: int, count_there: int) -> None:
        if self._is_small(mine, theirs, count, count_there):
            self._differ(mine.take(count), theirs.take(count_there))
        elif count == count_there:
            # As many: each is in the stead of its fellow.
            while count:
                lot = min(count, _SMALLEST_WINDOW)
                self._differ(mine.take(lot), theirs.take(lot))
                count -= lot
        else:
            self._one_after_the_other(mine.each(count), theirs.each(count_there))

    def _is_small(self, mine: Stream, theirs: Stream, count: int, count_there: int) -> bool:
        """Whether so many are in memory, and can be compared each with each."""
        if count > len(mine.ready) or count_there > len(theirs.ready):
            return False
        return count * count_there <= _REFINED and (bool(count and count_there) or max(count, count_there) <= _WHOLE)

    def _one_after_the_other(self, ones: Iterator[Record], others: Iterator[Record]) -> None:
        """Long rows that each side has alone: their first records whole, of the others only that there are such."""
        self._keep(_first_of(ones), _first_of(others))
        for side, them, step in ((SOURCE, ones, -1), (TARGET, others, 1)):
            for record in them:
                self._left.add_thin(side, self._tp, record)
                self._ahead += step

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
        mine = [left_of(SOURCE, it, self._places) for it in ones]
        theirs = [left_of(TARGET, it, self._places) for it in others]
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


def _first_of(records: Iterator[Record]) -> list[Record]:
    found, size = list[Record](), 0
    while len(found) < _WHOLE and size < _WHOLE_BYTES:
        record = next(records, None)
        if record is None:
            break
        found.append(record)
        size += len(record.rest)
    return found


def _are_altered(ones: Iterable[Record], others: Iterable[Record]) -> bool:
    """Whether most records are, in their places, those of the other side but for a part."""
    pairs = list(islice(zip(ones, others, strict=False), _SMALLEST_WINDOW))
    return 2 * sum(is_likely_the_same(one, other) for one, other in pairs) > len(pairs)
