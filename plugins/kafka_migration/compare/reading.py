"""What readers at either level share: how they fail, and how much they ask for at once."""

from __future__ import annotations

from kafka_migration.domain.errors import CouldNotFindOut

#: A reader waits so long for an answer while it may go on with other partitions, and at the last.
SHORT_SECONDS, LONG_SECONDS = 10.0, 30.0
#: Traits of the source's batches (:class:`kafka_migration.compare.digests.SegmentOutcome`), behind those of codecs.
OLD, IN_TRANSACTION, STAMPED = 1 << 8, 1 << 9, 1 << 10
_MOST_BYTES, _FIRST_BYTES, _LEAST_BYTES = 8 * 1024 * 1024, 1024 * 1024, 64 * 1024
_MARGIN = 1.1


class CannotRead(CouldNotFindOut):
    """Offsets that were pinned cannot be read: expired, truncated, damaged, or not permitted."""


class Unanswered(CannotRead):
    """The brokers that lead this partition gave no answer: nor would they for its other segments. Other partitions have
    other leaders, and these may answer later."""


def fetch_size(done: int, left: int, read: int) -> int:
    """Bytes to ask for where ``done`` offsets were ``read`` bytes, and ``left`` offsets are to come: about what is
    left, as far as that can be estimated. The rest would be read in vain."""
    if not done:
        return _FIRST_BYTES
    return int(min(_MOST_BYTES, max(_LEAST_BYTES, left * read / done * _MARGIN)))
