"""Two logs side by side: what one has and the other has not, though everything behind it is shifted.

A record that was dropped shifts all that follow, so places alone would call every later record wrong. Here the two
sequences are followed by content, as ``diff`` does: whole batches by their bytes, records where batches differ, and
where records differ what lies ahead is searched for the nearest point from which both go on alike
(:func:`nearest`, :func:`anchors`), up to a million records away. Memory is bounded by that window, of which digests are
held, and by :class:`Leftovers`.

Of compacted logs that is impossible, since too little of what follows is alike; they are followed by place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import is_likely_the_same
from kafka_migration.compare.explain.left import Left, Leftovers
from kafka_migration.compare.explain.log import Chunk, Entry
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.stream import Stream

if TYPE_CHECKING:
    import numpy as np

    from kafka_migration.compare.explain.stream import Digests

    Indices = np.ndarray[tuple[int], np.dtype[np.int64]]
    Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

_SMALLEST_WINDOW, _LARGEST_WINDOW = 64, 1 << 20
#: Of a long row of records that one side has alone, so many are kept whole: these, or as many as have so many bytes.
_WHOLE, _WHOLE_BYTES = 1_000, 4 << 20
_REFINED = 4_000_000
_TRIED_PER_RECORD = 16
#: So many records in a row must be alike for both to go on from there; single ones may be alike by chance.
_ALIKE = 8
#: Of equal records on one side, so many are tried as where to go on.
_TRIED_TO_GO_ON = 16


class Apart(Exception):
    """Both sides go on differently, for as long as was looked: nobody knows what is missing there, and where."""


class Follower(ABC):
    """Follows two logs by their content, to their ends: what is alike on both sides, and what has no equal there."""

    def __init__(self, source: Stream, target: Stream, *, goes_on: bool = False) -> None:
        """``goes_on``: the target is no copy of the source's end yet, so what the source has behind the target's last
        record is no difference."""
        self._source, self._target, self._goes_on = source, target, goes_on
        # Nothing is alike yet, behind what nobody can read: that one side has more may be due to what is lost there.
        self._is_open = False

    @abstractmethod
    def _twins(self, one: Chunk, other: Chunk) -> None:
        """Two whole batches hold the same bytes."""

    @abstractmethod
    def _stood(self, mine: Entry, its: Entry) -> None:
        """Two records are equal."""

    @abstractmethod
    def _keep(self, ones: Sequence[Entry], others: Sequence[Entry]) -> None:
        """What each side has alone, between two records that are equal."""

    @abstractmethod
    def _one_after_the_other(self, ones: Iterator[Entry], others: Iterator[Entry]) -> None:
        """The same of rows that may be long."""

    def by_content(self, *, opens_unread: bool = False, ends_unread: bool = False) -> None:
        """Follow both to their ends.

        Something that cannot be read lies before the beginning (``opens_unread``) or behind the end (``ends_unread``):
        there, records may have shifted over the border, and what one side has more is not kept.
        Raises TooMany and Apart, and what reading raises.
        """
        mine, theirs = self._source, self._target
        self._is_open = opens_unread
        while True:
            self._pass_twins()
            has_mine, has_theirs = mine.fill(1), theirs.fill(1)
            if not has_theirs and (self._goes_on or not has_mine):
                return
            self._pass_alike()
            if mine.ready and theirs.ready:
                self._resync()
            elif (mine.ready and theirs.is_over and not self._goes_on) or (theirs.ready and mine.is_over):
                if ends_unread:
                    return
                self._one_after_the_other(mine.each(), theirs.each())

    def _pass_twins(self) -> None:
        """Move past whole batches that are the same on both sides."""
        while True:
            one, other = self._source.peek(), self._target.peek()
            if one is None or other is None or not one.is_twin(other):
                return
            self._twins(one, other)
            self._is_open = False
            self._source.skip()
            self._target.skip()

    def _pass_alike(self) -> None:
        """Move past records that are the same on both sides."""
        one, other = self._source.ready, self._target.ready
        while one and other:
            a, b = one[0], other[0]
            if a.digest != b.digest:
                return
            one.popleft()
            other.popleft()
            self._is_open = False
            self._stood(a, b)

    def _resync(self) -> None:
        """Go on to where both are alike again. Raises Apart."""
        window, ahead, ahead_there = _SMALLEST_WINDOW, self._source.look(), self._target.look()
        while True:
            (ones, is_end), (others, is_end_there) = ahead.first(window), ahead_there.first(window)
            found = nearest(ones, others, (is_end, is_end_there))
            if found is not None:
                self._leave_behind(ones[: found[0]], others[: found[1]])
                return
            is_largest = window >= _LARGEST_WINDOW
            if self._goes_on and is_end_there and (is_end or is_largest):
                # What the source has behind the last record of both is not copied yet.
                last = anchors(ones, others)[-1:]
                self._gap(ones[: last[0][0] + 1 if last else 0], others)
                return
            if (is_end and is_end_there) or (is_largest and _are_altered(self._source.ready, self._target.ready)):
                self._gap(ones, others)
                return
            if is_largest:
                raise Apart
            window *= 4

    def _leave_behind(self, ones: Digests, others: Digests) -> None:
        """What stands before the point from which both go on alike."""
        self._gap(ones, others)

    def _gap(self, ones: Digests, others: Digests) -> None:
        """Between two points where both are alike: what is next on each side, by its digests."""
        if self._is_small(len(ones), len(others)):
            self._differ(*self._take(len(ones), len(others)))
            return
        at = there = 0
        for one, other in [*anchors(ones, others), (len(ones), len(others))]:
            self._piece(one - at, other - there)
            if one < len(ones):
                self._stood(*self._source.take(1), *self._target.take(1))
            at, there = one + 1, other + 1

    def _piece(self, count: int, count_there: int) -> None:
        if self._is_small(count, count_there):
            self._differ(*self._take(count, count_there))
        elif count == count_there:
            # As many: each is in the stead of its fellow.
            while count:
                lot = min(count, _SMALLEST_WINDOW)
                self._differ(*self._take(lot, lot))
                count -= lot
        else:
            self._one_after_the_other(*self._each(count, count_there))

    def _take(self, count: int, count_there: int) -> tuple[list[Entry], list[Entry]]:
        return self._source.take(count), self._target.take(count_there)

    def _each(self, count: int, count_there: int) -> tuple[Iterator[Entry], Iterator[Entry]]:
        return self._source.each(count), self._target.each(count_there)

    def _is_small(self, count: int, count_there: int) -> bool:
        """Whether so many are in memory, and can be compared each with each."""
        if count > len(self._source.ready) or count_there > len(self._target.ready):
            return False
        return count * count_there <= _REFINED and (bool(count and count_there) or max(count, count_there) <= _WHOLE)

    def _differ(self, ones: Sequence[Entry], others: Sequence[Entry]) -> None:
        """Neither of both is where the other is; between them there may be records that are alike."""
        if not ones or not others or len(ones) * len(others) > _REFINED:
            self._keep(ones, others)
        elif swapped := _swapped(ones, others):
            self._keep([ones[n] for n in swapped], [others[n] for n in swapped])
        else:
            self._refine(ones, others)

    def _refine(self, ones: Sequence[Entry], others: Sequence[Entry]) -> None:
        contents = [entry.digest for entry in ones], [entry.digest for entry in others]
        for tag, low, high, low_there, high_there in SequenceMatcher(None, *contents, autojunk=False).get_opcodes():
            if tag != "equal":
                self._keep(ones[low:high], others[low_there:high_there])
                continue
            for mine, its in zip(ones[low:high], others[low_there:high_there], strict=True):
                self._stood(mine, its)


class Aligner(Follower):
    """Follows one unequal region of a partition, of which ``source`` and ``target`` begin where both stood alike, and
    puts what has no equal into ``left``."""

    def __init__(self, places: Places, left: Leftovers, source: Stream, target: Stream) -> None:
        super().__init__(source, target)
        self._places, self._left = places, left
        self._tp = places.range.tp
        # By how many records the target is ahead: shifted records are a consequence, and no finding of their own.
        self._ahead = 0
        self._is_misplaced = False

    def by_place(self) -> None:
        """The same of compacted logs, which have gaps everywhere."""
        mine, theirs = self._source, self._target
        while mine.fill(1) | theirs.fill(1):
            here = mine.ready[0].offset if mine.ready else math.inf
            there = self._place_of_next()
            if here == there:
                one, other = mine.ready.popleft(), theirs.ready.popleft()
                if one.digest != other.digest:
                    self._keep([one], [other])
            elif here < there:
                self._keep(mine.take(1), [])
            else:
                self._keep([], theirs.take(1))

    def _place_of_next(self) -> float:
        """Where the target's next record stands on the source: before all others if the map has none there."""
        if not self._target.ready:
            return math.inf
        place = self._places.source_of(self._target.ready[0].offset)
        return -1 if place is None else place

    def _twins(self, one: Chunk, other: Chunk) -> None:
        last = one.count - 1
        if self._stands(one.first, other.first) and self._stands(one.first + last, other.first + last):
            self._is_misplaced = False
            return
        for mine, its in zip(one.entries(), other.entries(), strict=True):
            self._stood(mine, its)

    def _stands(self, source: int, target: int) -> bool:
        return self._places.source_of(target) == source

    def _stood(self, mine: Entry, its: Entry) -> None:
        """Both are equal: check that they stand where the map has them."""
        if self._stands(mine.offset, its.offset):
            self._is_misplaced = False
        elif not self._ahead and not self._is_misplaced:
            self._is_misplaced = True
            pair = Left.of(SOURCE, mine.record, self._places), Left.of(TARGET, its.record, self._places)
            self._left.misplaced.append(pair)

    def _leave_behind(self, ones: Digests, others: Digests) -> None:
        """What stands before the point from which both go on alike."""
        if not self._is_open or len(ones) == len(others):
            super()._leave_behind(ones, others)
            return
        count, count_there = (sum(1 for _ in records) for records in self._each(len(ones), len(others)))
        self._ahead += count_there - count

    def _one_after_the_other(self, ones: Iterator[Entry], others: Iterator[Entry]) -> None:
        """Long rows that each side has alone: their first records whole, of the others only that there are such."""
        self._keep(_first_of(ones), _first_of(others))
        for side, entries, step in ((SOURCE, ones, -1), (TARGET, others, 1)):
            for entry in entries:
                self._left.add_to_row(side, self._tp, entry)
                self._ahead += step

    def _keep(self, ones: Sequence[Entry], others: Sequence[Entry]) -> None:
        mine = [Left.of(SOURCE, entry.record, self._places) for entry in ones]
        theirs = [Left.of(TARGET, entry.record, self._places) for entry in others]
        for one, other in _pairs(mine, theirs):
            one.twin, other.twin = other, one
        self._ahead += len(others) - len(ones)
        for left in (*mine, *theirs):
            self._left.add(left)


def _swapped(ones: Sequence[Entry], others: Sequence[Entry]) -> list[int]:
    """Which two changed places, if nothing else differs: both are out of order, while a matcher would see one that
    moved."""
    if len(ones) != len(others):
        return []
    differ = [n for n, (mine, its) in enumerate(zip(ones, others, strict=True)) if mine.digest != its.digest]
    return differ if len(differ) == 2 and ones[differ[0]].digest == others[differ[1]].digest else []


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


def _first_of(entries: Iterator[Entry]) -> list[Entry]:
    found, size = list[Entry](), 0
    while len(found) < _WHOLE and size < _WHOLE_BYTES:
        entry = next(entries, None)
        if entry is None:
            break
        found.append(entry)
        size += entry.record.size
    return found


def _are_altered(ones: Iterable[Entry], others: Iterable[Entry]) -> bool:
    """Whether most records are, in their places, those of the other side but for a part."""
    pairs = list(islice(zip(ones, others, strict=False), _SMALLEST_WINDOW))
    return 2 * sum(is_likely_the_same(one.record, other.record) for one, other in pairs) > len(pairs)


def nearest(ones: Digests, others: Digests, are_ends: tuple[bool, bool]) -> tuple[int, int] | None:
    """How many of each to leave behind, so that both go on alike; the fewest in all. None if nothing here shows where.

    ``are_ends``: whether the log of each ends with it. There is nothing more to compare there, while at the end of a
    window nobody knows.
    """
    import numpy as np  # only who drills down pays for it

    order = np.argsort(others, kind="stable")
    ranked = others[order]
    first = np.searchsorted(ranked, ones)
    best: tuple[int, int] | None = None
    for turn in range(_TRIED_TO_GO_ON):
        mine = np.flatnonzero(first + turn < len(others))
        mine = mine[ranked[first[mine] + turn] == ones[mine]]
        if not len(mine):
            break
        theirs = order[first[mine] + turn]
        good = _go_on(ones, others, mine, theirs, are_ends)
        mine, theirs = mine[good], theirs[good]
        if len(mine):
            n = int(np.argmin(mine + theirs))
            found = int(mine[n]), int(theirs[n])
            if best is None or (sum(found), found[0]) < (sum(best), best[0]):
                best = found
    return best


def _go_on(ones: Digests, others: Digests, mine: Indices, theirs: Indices, are_ends: tuple[bool, bool]) -> Flags:
    """Of each pair of places, whether both sides are alike from there on."""
    import numpy as np

    good, is_open = np.ones(len(mine), bool), np.ones(len(mine), bool)
    for n in range(_ALIKE):
        over, over_there = mine + n >= len(ones), theirs + n >= len(others)
        inside = ~(over | over_there)
        same = inside.copy()
        same[inside] = ones[mine[inside] + n] == others[theirs[inside] + n]
        at_ends = (~over | are_ends[0]) & (~over_there | are_ends[1])
        good &= ~is_open | np.where(inside, same, at_ends)
        is_open &= inside
    return good


def anchors(ones: Digests, others: Digests) -> list[tuple[int, int]]:
    """The longest row of records that each side has once, and both in this order: their places."""
    import numpy as np

    def single(digests: Digests) -> tuple[Digests, Indices]:
        found, at, counts = np.unique(digests, return_index=True, return_counts=True)
        return found[counts == 1], at[counts == 1]

    (mine, at), (theirs, there) = single(ones), single(others)
    _, which, which_there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    at, there = at[which], there[which_there]
    order = np.argsort(at)
    pairs = list(zip(at[order].tolist(), there[order].tolist(), strict=True))
    # Longest increasing subsequence: by length, the pair that ends such a row soonest.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for n, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [place], [n]
    found, n = [], last[-1] if last else -1
    while n >= 0:
        found.append(pairs[n])
        n = before[n]
    return found[::-1]
