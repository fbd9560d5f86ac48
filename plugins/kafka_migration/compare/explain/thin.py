"""Classes of records of which only a digest is kept: long rows that one side has alone. Pure.

What of them has an equal on the other side has changed places; the rest is lost, written twice, or foreign, as in
:mod:`kafka_migration.compare.explain.classes`. Since none is kept whole, none can be seen to be altered.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.left import Leftovers, Thin, left_of
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.explain.stream import digest
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.compare.explain.resync import Flags
    from kafka_migration.compare.explain.stream import Digests

Counts = Mapping[TopicPartition, Counter[Fault]]

_GOLDEN = 0x9E3779B97F4A7C15


def thicken(left: Leftovers, places: Mapping[TopicPartition, Places]) -> None:
    """Make whole again what equals a whole record of the other side: by that, its content is known."""
    import numpy as np  # only who drills down pays for it

    for (side, tp), thin in left.thin.items():
        others = [(digest(it.record), it.record) for it in left.of(TARGET if side == SOURCE else SOURCE)]
        records, open_ones = dict(others), Counter(one for one, _ in others)
        out = []
        for n in np.flatnonzero(np.isin(_digests(thin), np.array([*records], dtype=np.uint64))).tolist():
            one = thin.digests[n]
            if open_ones[one]:
                open_ones[one] -= 1
                out.append(n)
                left.of(side).append(left_of(side, records[one]._replace(offset=thin.offsets[n]), places[tp]))
        stay = np.ones(len(thin.digests), bool)
        stay[out] = False
        _keep(thin, stay)


def moved(left: Leftovers) -> Counts:
    """Take out what both sides have: in one partition out of order, in two misrouted, which counts in both."""
    found: defaultdict[TopicPartition, Counter[Fault]] = defaultdict(Counter)
    source, target = left.thin_of(SOURCE), left.thin_of(TARGET)
    for tp in source.keys() & target.keys():
        found[tp][Fault.REORDER] += _matched(source[tp], target[tp])
    for tp, mine in source.items():
        for there, its in target.items():
            count = _matched(mine, its) if there != tp else 0
            found[tp][Fault.MISROUTE] += count
            found[there][Fault.MISROUTE] += count
    return found


def with_rest(left: Leftovers, found: Counts, on_source: Collection[int]) -> Counts:
    """``found``, and what is left after it: lost; or on the target only, and ``on_source`` are digests of those that
    the source has as well."""
    import numpy as np

    counts = defaultdict[TopicPartition, Counter[Fault]](Counter, found)
    for tp, thin in left.thin_of(SOURCE).items():
        counts[tp][Fault.LOSS] += len(thin.digests)
    known = np.array([*on_source], dtype=np.uint64)
    for tp, thin in left.thin_of(TARGET).items():
        doubled = int(np.isin(_digests(thin), known).sum())
        counts[tp][Fault.DUPLICATE] += doubled
        counts[tp][Fault.FOREIGN] += len(thin.digests) - doubled
    return counts


def _matched(mine: Thin, its: Thin) -> int:
    """Take out of both what both have, each as often as both do; how many."""
    import numpy as np

    ones, others = _numbered(_digests(mine)), _numbered(_digests(its))
    is_there, is_here = np.isin(ones, others), np.isin(others, ones)
    _keep(mine, ~is_there)
    _keep(its, ~is_here)
    return int(is_there.sum())


def _numbered(digests: Digests) -> Digests:
    """Digests, of which equal ones are told apart by which of them it is."""
    import numpy as np

    order = np.argsort(digests, kind="stable")
    ranked, places = digests[order], np.arange(len(digests))
    is_first = np.ones(len(digests), bool)
    is_first[1:] = ranked[1:] != ranked[:-1]
    nth = places - np.maximum.accumulate(np.where(is_first, places, 0))
    found = np.empty_like(digests)
    found[order] = ranked ^ (nth.astype(np.uint64) * np.uint64(_GOLDEN))
    return found


def _digests(thin: Thin) -> Digests:
    import numpy as np

    return np.array(thin.digests, dtype=np.uint64)


def _keep(thin: Thin, stay: Flags) -> None:
    import numpy as np

    offsets, digests = np.array(thin.offsets)[stay], _digests(thin)[stay]
    thin.offsets, thin.digests = array("q", offsets.tobytes()), array("Q", digests.tobytes())
