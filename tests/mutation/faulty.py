"""Rounds of faulty copies: dozens of topics at once, one fault in each, validated together and looked at one by one."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.result import Equality, PartitionResult
from tests.mutation.copies import Original, written
from tests.mutation.faults import FAULTS, Expected, right
from tests.mutation.logs import Log
from tests.mutation.validator import Validator


@dataclass
class Faults:
    """How many there were, and what was said of them. `wrong` says of each that was not named right what was said."""

    faults: int = 0
    detected: int = 0
    class_right: int = 0
    offset_right: int = 0
    others_equal: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.faults == self.detected == self.class_right == self.offset_right == self.others_equal


@dataclass(frozen=True)
class Fault:
    """One of a run: what, into which codec's copy, and by what chance."""

    number: int
    kind: str
    codec: str
    seed: int


def faults(count: int, seed: int, kinds: Sequence[str], codecs: Sequence[str]) -> Iterator[Fault]:
    """Every kind in turn, and every codec of each: as many rounds over the kinds as there are codecs hold all pairs."""
    for n in range(count):
        turn, which = divmod(n, len(kinds))
        yield Fault(n, kinds[which], codecs[(which + turn) % len(codecs)], seed)


def run(
    validator: Validator,
    source: str,
    target: str,
    originals: Sequence[Original],
    wanted: Sequence[Fault],
    *,
    segment_records: int,
    at_once: int,
    tell: Callable[[str], None],
) -> Faults:
    """Put each fault into a copy of its own, and validate `at_once` of them together."""
    found, by_codec = Faults(), {it.codec: it for it in originals}
    for start in range(0, len(wanted), at_once):
        some, began = wanted[start : start + at_once], time.monotonic()
        copies: dict[str, tuple[Original, dict[int, Log]]] = {}
        expected: dict[str, tuple[Fault, Expected]] = {}
        for fault in some:
            original = by_codec[fault.codec]
            logs = {n: log.copy() for n, log in original.target.items()}
            it = FAULTS[fault.kind](logs, random.Random(f"{fault.seed} {fault.number}"))
            name = f"faulty-{fault.number}-{uuid.uuid4().hex[:6]}"
            copies[name] = (original, logs)
            expected[name] = (fault, _on_source(it, original))
        with written(source, target, copies) as link:
            wrote = time.monotonic()
            topics = {name: len(original.source) for name, (original, _) in copies.items()}
            result = validator.validate(link, topics, segment_records=segment_records).result
        results = {it.tp: it for it in result.partitions}
        for name, (fault, wanted_of) in expected.items():
            _judge(found, fault, wanted_of, {n: results[TopicPartition(name, n)] for n in topics_of(copies, name)})
        tell(
            f"{len(some)} faults; so far {found.detected} of {found.faults} detected,"
            f" {found.class_right} classes and {found.offset_right} offsets right; {wrote - began:.0f} s to write,"
            f" {time.monotonic() - wrote:.0f} s to validate {result.totals.source_records:,} records"
        )
    return found


def topics_of(copies: dict[str, tuple[Original, dict[int, Log]]], name: str) -> list[int]:
    """The partitions of a copy."""
    return sorted(copies[name][1])


def _on_source(it: Expected, original: Original) -> Expected:
    """`it`, whose place counts records, with the source's offset."""
    if it.source is None:
        return it
    return replace(it, source=next(at for n, at in enumerate(original.source[0].offsets()) if n == it.source))


def _judge(found: Faults, fault: Fault, expected: Expected, results: dict[int, PartitionResult]) -> None:
    it = results[expected.partition]
    concerned = {expected.partition, *([expected.found_in] if expected.found_in is not None else [])}
    is_detected = it.verdict is Equality.DIFFERENT
    examples = it.drilled.examples if it.drilled is not None else ()
    class_right, offset_right = right(expected, examples)
    # Of a lost tail, each record is counted.
    class_right = class_right and it.drilled is not None and it.drilled.counts == {expected.fault: expected.count}
    others = all(other.verdict is Equality.EQUAL for n, other in results.items() if n not in concerned)
    found.faults += 1
    found.pairs[fault.kind, fault.codec] += 1
    found.detected += is_detected
    found.class_right += class_right
    found.offset_right += offset_right
    found.others_equal += others
    if not (is_detected and class_right and offset_right and others):
        said = it.drilled.text if it.drilled is not None else "nothing"
        first = examples[0].text if examples else "no example"
        found.wrong.append(
            f"fault {fault.number} ({fault.kind}, {fault.codec}): expected {expected}; {it.verdict}, {it.detail};"
            f" {said}; first {first}; others equal: {others}"
        )
