"""The life of one topic within a migration: who writes where, and what can come next."""

from __future__ import annotations

import enum
from collections.abc import Mapping

#: Kinds of the journal's records of topics: that were created or adopted, that were about to be, and that are being
#: copied again.
CREATED, INTENDED, COPIED_AGAIN = "topic", "topic-intent", "again"


class TopicState(enum.StrEnum):
    """How far a topic came. The names are part of the journal's format, and shown to people.

    ``MIRRORING``: the mirror copies it. ``FENCED``: its producers are kept from writing to the source. ``DRAINED``:
    everything is copied, and nobody writes. ``SEALED``: the mirror has no right to write any more. ``SERVED``: its
    producers write to the target. ``REVERSED``: they write to the source again, after a rollback. ``COMPLETED``: the
    migration has given it up, and there is no way back.
    """

    MIRRORING = "mirroring"
    FENCED = "fenced"
    DRAINED = "drained"
    SEALED = "sealed"
    SERVED = "served by the target"
    REVERSED = "reversed"
    COMPLETED = "completed"

    def may_become(self, other: TopicState) -> bool:
        """Whether ``other`` may come next. A state may always stay."""
        return other is self or other in _NEXT[self]


_S = TopicState
_NEXT: Mapping[TopicState, frozenset[TopicState]] = {
    # Without a fence where producers were stopped by their owners.
    _S.MIRRORING: frozenset({_S.FENCED, _S.DRAINED}),
    # A switch of producers drains and seals while the fence stands, and notes neither: until its point of no return a
    # rerun begins with the fence.
    _S.FENCED: frozenset({_S.DRAINED, _S.MIRRORING, _S.SERVED}),
    _S.DRAINED: frozenset({_S.SEALED, _S.MIRRORING}),
    # Back: unsealed, before producers were let onto the target; or reversed, where their owners had moved them there.
    _S.SEALED: frozenset({_S.SERVED, _S.REVERSED, _S.COMPLETED, _S.MIRRORING}),
    # Never back to mirroring: that would write old records behind new ones.
    _S.SERVED: frozenset({_S.REVERSED, _S.COMPLETED}),
    _S.REVERSED: frozenset({_S.MIRRORING, _S.COMPLETED}),
    # A released topic may be taken again with `create`, and mirrored once it is unsealed.
    _S.COMPLETED: frozenset({_S.MIRRORING}),
}
