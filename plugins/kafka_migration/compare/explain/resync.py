"""Where two sequences of digests that went apart are alike again. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from kafka_migration.compare.explain.stream import Digests

    Places = np.ndarray[tuple[int], np.dtype[np.int64]]
    Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: So many records in a row must be alike for both to go on from there; single ones may be alike by chance.
_ALIKE = 8
#: Of equal records on one side, so many are tried as where to go on.
_TRIED_PER_RECORD = 16


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
    for turn in range(_TRIED_PER_RECORD):
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


def _go_on(ones: Digests, others: Digests, mine: Places, theirs: Places, are_ends: tuple[bool, bool]) -> Flags:
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

    def single(digests: Digests) -> tuple[Digests, Places]:
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
