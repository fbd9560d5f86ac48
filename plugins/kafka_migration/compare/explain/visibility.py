"""Batches of the target whose attributes the mirror never writes: how many records stand in them, and the first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafka_migration.compare.digests import Digest
from kafka_migration.compare.explain.log import Chunk, Chunks
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Drilled, Example, Fault
from kafka_migration.compare.placing import usual_attributes


@dataclass(slots=True)
class Visibility:
    """Of one partition: what the headers of its batches say, each counted once however often it is read."""

    places: Places
    examples: int
    _count: int = 0
    _highest: int = -1
    _found: list[tuple[int, int]] = field(default_factory=list)

    def watched(self, chunks: Chunks) -> Chunks:
        """``chunks`` of the target, each looked at as it passes."""
        usual = usual_attributes(self.places.range)
        for chunk in chunks:
            if isinstance(chunk, Chunk) and chunk.first > self._highest:
                self._highest = chunk.first
                odd = chunk.header.attributes & ~usual & 0xFFFF
                if odd:
                    self._count += chunk.header.records
                    if len(self._found) < self.examples:
                        self._found.append((chunk.first, odd))
            yield chunk

    def added_to(self, it: Drilled) -> Drilled:
        """``it``, and what was seen. A batch is one example, at its first record."""
        if not self._count:
            return it
        examples = [self._example(it, first, odd) for first, odd in self._found]
        return replace(
            it,
            counts={**it.counts, Fault.VISIBILITY: self._count},
            examples=(*it.examples, *examples)[: self.examples],
        )

    def _example(self, it: Drilled, first: int, odd: int) -> Example:
        return Example(
            fault=Fault.VISIBILITY,
            topic=it.topic,
            partition=it.partition,
            source_offset=self.places.source_of(first),
            target_offset=first,
            detail=f"the batch that begins here has attributes that the mirror never writes:"
            f" {Digest(attributes=odd).attribute_names}",
        )
