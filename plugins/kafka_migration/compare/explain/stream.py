"""One side of a drill-down: records in order, and what lies far ahead of them as digests only.

Two logs that went apart are searched for where they go on alike, and that may be a million records away. So many are
not held, whatever their size: of those beyond a few megabytes only a 64-bit hash is, and they are read once more when
their turn comes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_migration.compare.explain.log import Chunk, Chunks, Entry

if TYPE_CHECKING:
    import numpy as np

    Digests = np.ndarray[tuple[int], np.dtype[np.uint64]]

#: Of a side, so many records are held while it is searched, of so many bytes.
_HELD, _HELD_BYTES = 200_000, 16 << 20

#: What stands at an offset and behind it, up to the end of what is followed.
OpenAt = Callable[[int], Chunks]


class Stream:
    """One side: chunks, and records of those that had to be decoded."""

    def __init__(self, open_at: OpenAt, start: int, watch: Callable[[], None]) -> None:
        self._open, self._watch = open_at, watch
        self._chunks = iter(open_at(start))
        self._next: Chunk | None = None
        self.ready: deque[Entry] = deque()
        self.is_over = False
        #: So many records were decoded into ``ready``, or skipped.
        self.read = 0

    def _take(self) -> Chunk | None:
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
        return self._next if self._next is not None and self._next.is_whole else None

    def skip(self) -> None:
        """Move past what :meth:`peek` gave."""
        if self._next is not None:
            self.read += self._next.count
        self._next = None

    def fill(self, count: int) -> bool:
        """Decode until so many records are ready; whether they are."""
        while len(self.ready) < count and not self.is_over:
            chunk = self._take()
            if chunk is None:
                self.is_over = True
            else:
                before = len(self.ready)
                self.ready.extend(chunk.entries())
                self.read += len(self.ready) - before
        return len(self.ready) >= count

    def take(self, count: int) -> list[Entry]:
        return [*self.each(count)]

    def each(self, count: int | None = None) -> Iterator[Entry]:
        """The same (None: all that are left), one by one."""
        taken = 0
        while taken != count and self.fill(1):
            taken += 1
            yield self.ready.popleft()

    def look(self) -> Lookahead:
        """From here on. It is over with the next record that is taken."""
        return Lookahead(self._look())

    def find(self, row: Sequence[int]) -> int | None:
        """How many records come before the first ``row`` of these digests, however far away; None if there is none, or
        the row is empty."""
        if not row:
            return None
        latest: deque[int] = deque(maxlen=len(row))
        for count, found in enumerate(self._look(), 1):
            latest.append(found)
            if found == row[-1] and [*latest] == [*row]:
                return count - len(row)
        return None

    def _look(self) -> Iterator[int]:
        count = size = 0
        while count < len(self.ready) or (count < _HELD and size < _HELD_BYTES and self.fill(count + 1)):
            entry = self.ready[count]
            count, size = count + 1, size + entry.size
            yield entry.digest
        if not self.is_over:
            for chunk in self._open(self.ready[-1].offset + 1):
                self._watch()
                yield from chunk.columns().hashes.tolist()


class Lookahead:
    """Digests of what comes next in a stream, as far as they are asked for."""

    def __init__(self, digests: Iterator[int]) -> None:
        self._digests = digests
        self._found = array("Q")

    def first(self, count: int) -> tuple[Digests, bool]:
        """The first ``count``, fewer if there are no more; and whether the log ends with the last of them."""
        import numpy as np  # only who drills down pays for it

        # One more than asked for, to know whether there is one.
        for found in self._digests:
            self._found.append(found)
            if len(self._found) > count:
                break
        return np.array(self._found[:count], dtype=np.uint64), len(self._found) <= count
