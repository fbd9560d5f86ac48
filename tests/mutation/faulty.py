"""Rounds of faulty copies: dozens of topics at once, one fault in each, validated together at every level, and looked
at one by one."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_migration.compare.result import Equality, PartitionResult
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.store import SegmentStore
from tests.mutation.copies import Original, append, written
from tests.mutation.faults import CONTROLS, FAULTS, OF_BOTH, OF_THE_MAP, Expected, foreign, right
from tests.mutation.logs import Log
from tests.mutation.validator import Validator

LEVELS = (Level.RECORD, Level.BATCH)
AFTER_KEPT = "append behind what was found equal"


@dataclass
class Faults:
    """How many there were, and what was said of them. `wrong` says of each that was not named right what was said.

    `detected` at all levels; a contradiction is a fault of which levels say different things. Controls are copies of
    which nothing is wrong, though their batches are others than the source's.
    """

    faults: int = 0
    detected: int = 0
    class_right: int = 0
    offset_right: int = 0
    others_equal: int = 0
    controls: int = 0
    control_alarms: int = 0
    contradictions: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return (
            self.faults == self.detected == self.class_right == self.offset_right == self.others_equal
            and not self.control_alarms
            and not self.contradictions
        )


@dataclass(frozen=True)
class Fault:
    """One of a run: what, into which codec's copy, and by what chance."""

    number: int
    kind: str
    codec: str
    seed: int


@dataclass(frozen=True)
class _Copy:
    """One topic of a round: `expected` is None of a control."""

    fault: Fault
    original: Original
    logs: dict[int, Log]
    expected: Expected | None


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
    log: Callable[[str], None],
) -> Faults:
    """Put each fault into a copy of its own, and validate `at_once` of them together."""
    found, by_codec = Faults(), {item.codec: item for item in originals}
    for start in range(0, len(wanted), at_once):
        began = time.monotonic()
        copies = {
            f"faulty-{fault.number}-{uuid.uuid4().hex[:6]}": _made(fault, by_codec[fault.codec])
            for fault in wanted[start : start + at_once]
        }
        with written(source, target, {name: (item.original, item.logs) for name, item in copies.items()}) as link:
            for name, item in copies.items():
                if item.expected is not None and item.expected.map is not None:
                    link.maps[TopicPartition(name, 0)] = item.expected.map
            wrote = time.monotonic()
            topics = {name: len(item.original.source) for name, item in copies.items()}
            results: dict[Level, dict[TopicPartition, PartitionResult]] = {}
            for level in LEVELS:
                validated = validator.validate(link, topics, segment_records=segment_records, level=level).result
                results[level] = {one.tp: one for one in validated.partitions}
        for name, item in copies.items():
            mine = {
                level: {n: by_tp[TopicPartition(name, n)] for n in sorted(item.logs)}
                for level, by_tp in results.items()
            }
            _judge(found, item, mine)
        log(
            f"{len(copies)} faults and controls; so far {found.detected} of {found.faults} detected,"
            f" {found.class_right} classes and {found.offset_right} offsets right, {found.contradictions}"
            f" contradictions, {found.control_alarms} of {found.controls} controls alarmed; {wrote - began:.0f} s to"
            f" write, {time.monotonic() - wrote:.0f} s to validate {validated.totals.source_records:,} records at"
            f" {len(LEVELS)} levels"
        )
    return found


def after_kept(
    validator: Validator,
    source: str,
    target: str,
    originals: Sequence[Original],
    found: Faults,
    *,
    seed: int,
    segment_records: int,
) -> None:
    """Clean copies that are found equal and kept; then a record of somebody else's behind the last of each, which a
    validation that reads only what is new must see."""
    copies = {f"kept-{item.codec}-{uuid.uuid4().hex[:6]}": item for item in originals}
    kept = SegmentStore()
    with written(source, target, {name: (item, item.target) for name, item in copies.items()}) as link:
        topics = {name: len(item.source) for name, item in copies.items()}
        first = validator.validate(link, topics, segment_records=segment_records, kept=kept)
        if first.verdict is not Equality.EQUAL:
            found.wrong.append(
                f"clean copies: {first.verdict}: {[partition.detail for partition in first.result.partitions]}"
            )
        made: dict[str, _Copy] = {}
        for number, (name, original) in enumerate(copies.items()):
            logs = {n: log.copy() for n, log in original.target.items()}
            expected = foreign(logs, random.Random(f"{seed} kept {number}"))
            append(target, TopicPartition(name, 0), logs[0].sections[-1][-1])
            made[name] = _Copy(Fault(number, AFTER_KEPT, original.codec, seed), original, logs, expected)
        again = validator.validate(link, topics, segment_records=segment_records, kept=kept).result
    results = {one.tp: one for one in again.partitions}
    for name, copy in made.items():
        mine = {n: results[TopicPartition(name, n)] for n in sorted(copy.logs)}
        _judge(found, copy, dict.fromkeys(LEVELS, mine))


def _made(fault: Fault, original: Original) -> _Copy:
    logs = {n: log.copy() for n, log in original.target.items()}
    chance = random.Random(f"{fault.seed} {fault.number}")
    if fault.kind in CONTROLS:
        CONTROLS[fault.kind](logs, chance)
        return _Copy(fault, original, logs, None)
    if fault.kind in OF_BOTH:
        original = replace(original, source={n: log.copy() for n, log in original.source.items()})
        expected = OF_BOTH[fault.kind](original.source, logs, chance)
    elif fault.kind in OF_THE_MAP:
        expected = OF_THE_MAP[fault.kind](logs, original.maps[0], chance)
    else:
        expected = FAULTS[fault.kind](logs, chance)
    return _Copy(fault, original, logs, expected.on_source(list(original.source[0].offsets())))


def _judge(found: Faults, copy: _Copy, results: Mapping[Level, Mapping[int, PartitionResult]]) -> None:
    fault, expected = copy.fault, copy.expected
    said = _contradictions(results)
    found.contradictions += bool(said)
    if expected is None:
        alarms = [
            f"{level}: {item.detail}" for level, by in results.items() for item in by.values() if not _is_equal(item)
        ]
        found.controls += 1
        found.control_alarms += bool(alarms)
        if alarms or said:
            found.wrong.append(f"control {fault.number} ({fault.kind}, {fault.codec}): {alarms}; {said}")
        return
    concerned = {expected.partition, *([expected.found_in] if expected.found_in is not None else [])}
    detected, classes, offsets, others = True, True, True, True
    texts = []
    for level, by in results.items():
        it = by[expected.partition]
        is_detected = it.verdict is Equality.DIFFERENT
        examples = it.drilled.examples if it.drilled is not None else ()
        class_right, offset_right = right(expected, examples)
        # Of a lost tail, each record is counted.
        counts = it.drilled.counts if it.drilled is not None else {}
        class_right = class_right and counts in [one.counts for one in (expected, *expected.instead)]
        found.levels[str(level)] += is_detected
        detected, classes, offsets = detected and is_detected, classes and class_right, offsets and offset_right
        others = others and all(_is_equal(other) for n, other in by.items() if n not in concerned)
        texts.append(
            f"{level}: {it.verdict}, {it.detail}; {it.drilled.text if it.drilled is not None else 'nothing'};"
            f" first {examples[0].text if examples else 'no example'}"
        )
    found.faults += 1
    found.pairs[fault.kind, fault.codec] += 1
    found.detected += detected
    found.class_right += classes
    found.offset_right += offsets
    found.others_equal += others
    if not (detected and classes and offsets and others) or said:
        found.wrong.append(
            f"fault {fault.number} ({fault.kind}, {fault.codec}): expected {replace(expected, map=None)};"
            f" {'; '.join(texts)}; others equal: {others}; {said}"
        )


def _is_equal(it: PartitionResult) -> bool:
    return it.verdict is Equality.EQUAL


def _contradictions(results: Mapping[Level, Mapping[int, PartitionResult]]) -> list[str]:
    """Partitions whose verdicts at the levels are not the same."""
    said = []
    for n in next(iter(results.values())):
        verdicts = {str(level): str(by[n].verdict) for level, by in results.items()}
        if len(set(verdicts.values())) > 1:
            said.append(f"partition {n}: {verdicts}")
    return said
