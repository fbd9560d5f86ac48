"""One fault at a time, at a place by chance, and what must be said of it: class, field, and where it is."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_migration.compare.explain.result import Example, Fault, Part
from kafka_migration.domain.offset_map import OffsetMap, Run
from tests.mutation.logs import Content, Log

_FAR, _MOST_TRUNCATED = 1000, 400
_TRIES = 100_000


@dataclass(frozen=True)
class Expected:
    """What must be found: in `partition`, first at `source` and `target` (offsets; None: there is none on that side).

    `found_in` is the partition where a misrouted record stands.
    """

    fault: Fault
    partition: int
    source: int | None
    target: int | None
    part: Part | None = None
    found_in: int | None = None
    count: int = 1
    is_null: bool = False
    #: Of other classes, if the fault has several, how many records.
    besides: Mapping[Fault, int] = field(default_factory=dict)
    #: What may be said instead, where one thing can be said in several ways.
    instead: tuple["Expected", ...] = ()
    #: The map that the mirror would have left, if it is the map that is wrong.
    map: OffsetMap | None = None

    def on_source(self, offsets: Sequence[int]) -> "Expected":
        """The same, with the source's `offsets` for places, which count records."""
        source = None if self.source is None else offsets[self.source]
        return replace(self, source=source, instead=tuple(one.on_source(offsets) for one in self.instead))

    @property
    def counts(self) -> dict[Fault, int]:
        """How many records of each class."""
        return {self.fault: self.count, **self.besides}

    def is_class(self, it: Example) -> bool:
        """Whether class and field are right."""
        if it.fault is not self.fault:
            return False
        if self.part is None:
            return True
        return [one.part for one in it.altered] == [self.part] and it.altered[0].is_null_against_empty is self.is_null

    def is_place(self, it: Example) -> bool:
        """Whether offsets are right."""
        return (it.source_offset, it.target_offset, it.found_in) == (self.source, self.target, self.found_in)


Logs = dict[int, Log]
#: Given both partitions' logs on the target, and how many records the source has of the first.
Mutate = Callable[[Logs, random.Random], Expected]


def _any(logs: Logs, chance: random.Random) -> int:
    return chance.randrange(len(logs[0]))


def _which(logs: Logs, chance: random.Random, is_it: Callable[[Content], bool]) -> int:
    for _ in range(_TRIES):
        n = _any(logs, chance)
        if is_it(logs[0].peek(n)):
            return n
    raise ValueError("no record is like that")


def drop(logs: Logs, chance: random.Random) -> Expected:
    n = _any(logs, chance)
    logs[0].remove(n)
    return Expected(Fault.LOSS, 0, n, None)


def duplicate(logs: Logs, chance: random.Random) -> Expected:
    """Once more: right behind itself, or anywhere later."""
    n = _any(logs, chance)
    at = n + 1 if chance.random() < 0.5 else chance.randrange(n + 1, len(logs[0]) + 1)
    logs[0].insert(at, logs[0].raw(n))
    return Expected(Fault.DUPLICATE, 0, n, logs[0].offset(at))


def _swap(logs: Logs, n: int, m: int) -> Expected:
    log = logs[0]
    one, other = log.raw(n), log.raw(m)
    log[n], log[m] = other, one
    return Expected(Fault.REORDER, 0, n, log.offset(m), count=2)


def swap_neighbours(logs: Logs, chance: random.Random) -> Expected:
    n = chance.randrange(len(logs[0]) - 1)
    return _swap(logs, n, n + 1)


def swap_far(logs: Logs, chance: random.Random) -> Expected:
    n = chance.randrange(len(logs[0]) - _FAR)
    return _swap(logs, n, chance.randrange(n + _FAR, len(logs[0])))


def _flipped(data: bytes, chance: random.Random) -> bytes:
    bit = chance.randrange(len(data) * 8)
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def _mutated(logs: Logs, n: int, content: Content, part: Part, *, is_null: bool = False) -> Expected:
    logs[0][n] = content
    return Expected(Fault.MUTATION, 0, n, logs[0].offset(n), part=part, is_null=is_null)


def flip_key(logs: Logs, chance: random.Random) -> Expected:
    n = _which(logs, chance, lambda it: bool(it.key))
    it = logs[0][n]
    return _mutated(logs, n, it._replace(key=_flipped(it.key or b"", chance)), Part.KEY)


def flip_value(logs: Logs, chance: random.Random) -> Expected:
    n = _which(logs, chance, lambda it: bool(it.value))
    it = logs[0][n]
    return _mutated(logs, n, it._replace(value=_flipped(it.value or b"", chance)), Part.VALUE)


def _with_header(it: Content, at: int, header: tuple[bytes, bytes | None]) -> Content:
    return it._replace(headers=(*it.headers[:at], header, *it.headers[at + 1 :]))


def flip_header_name(logs: Logs, chance: random.Random) -> Expected:
    n = _which(logs, chance, lambda it: any(name for name, _ in it.headers))
    it = logs[0][n]
    at = chance.choice([at for at, (name, _) in enumerate(it.headers) if name])
    name, value = it.headers[at]
    return _mutated(logs, n, _with_header(it, at, (_flipped(name, chance), value)), Part.HEADER_NAME)


def flip_header_value(logs: Logs, chance: random.Random) -> Expected:
    n = _which(logs, chance, lambda it: any(value for _, value in it.headers))
    it = logs[0][n]
    at = chance.choice([at for at, (_, value) in enumerate(it.headers) if value])
    name, value = it.headers[at]
    return _mutated(logs, n, _with_header(it, at, (name, _flipped(value or b"", chance))), Part.HEADER_VALUE)


def flip_timestamp(logs: Logs, chance: random.Random) -> Expected:
    n = _any(logs, chance)
    it = logs[0][n]
    return _mutated(logs, n, it._replace(timestamp=it.timestamp ^ 1 << chance.randrange(40)), Part.TIMESTAMP)


def header_order(logs: Logs, chance: random.Random) -> Expected:
    n = _which(logs, chance, lambda it: len(set(it.headers)) > 1)
    it = logs[0][n]
    a, b = chance.choice(
        [
            (a, b)
            for a in range(len(it.headers))
            for b in range(a + 1, len(it.headers))
            if it.headers[a] != it.headers[b]
        ]
    )
    one, other = it.headers[a], it.headers[b]
    return _mutated(logs, n, _with_header(_with_header(it, a, other), b, one), Part.HEADER_ORDER)


def null_or_empty(logs: Logs, chance: random.Random) -> Expected:
    """Null where it was empty, or empty where it was null: key, value, or a header's value."""

    def parts(it: Content) -> list[Part]:
        found = [part for part, data in ((Part.KEY, it.key), (Part.VALUE, it.value)) if not data]
        return [*found, *([Part.HEADER_VALUE] if any(not value for _, value in it.headers) else [])]

    n = _which(logs, chance, lambda it: bool(parts(it)))
    it = logs[0][n]
    part = chance.choice(parts(it))
    if part is Part.KEY:
        new = it._replace(key=b"" if it.key is None else None)
    elif part is Part.VALUE:
        new = it._replace(value=b"" if it.value is None else None)
    else:
        at = chance.choice([at for at, (_, value) in enumerate(it.headers) if not value])
        name, value = it.headers[at]
        new = _with_header(it, at, (name, b"" if value is None else None))
    return _mutated(logs, n, new, part, is_null=True)


def misroute(logs: Logs, chance: random.Random) -> Expected:
    n = _any(logs, chance)
    at = chance.randrange(len(logs[1]) + 1)
    logs[1].insert(at, logs[0].remove(n))
    return Expected(Fault.MISROUTE, 0, n, logs[1].offset(at), found_in=1)


def foreign(logs: Logs, chance: random.Random) -> Expected:
    """A record of somebody else's behind the last."""
    logs[0].append(
        Content(chance.randbytes(8), chance.randbytes(60), (), logs[0].peek(0).timestamp + chance.randrange(10**6))
    )
    return Expected(Fault.FOREIGN, 0, None, logs[0].offset(len(logs[0]) - 1))


def truncate(logs: Logs, chance: random.Random) -> Expected:
    count = chance.randrange(1, _MOST_TRUNCATED)
    for _ in range(count):
        logs[0].remove(len(logs[0]) - 1)
    return Expected(Fault.LOSS, 0, len(logs[0]), None, count=count)


# -- whole batches, whose bytes stay as they were stored ---------------------------------------------------------------


def drop_batch(logs: Logs, chance: random.Random) -> Expected:
    batch, first = logs[0].batch(_any(logs, chance))
    logs[0].drop_batch(first)
    return Expected(Fault.LOSS, 0, first, None, count=batch.count)


def double_batch(logs: Logs, chance: random.Random) -> Expected:
    batch, first = logs[0].batch(_any(logs, chance))
    logs[0].double_batch(first)
    return Expected(Fault.DUPLICATE, 0, first, logs[0].offset(first + batch.count), count=batch.count)


def swap_batches(logs: Logs, chance: random.Random) -> Expected:
    """Either of two neighbours may be said to have moved over the other."""
    log = logs[0]
    while True:
        batch, first = log.batch(_any(logs, chance))
        other = log.swap_batch(first)
        if other is not None:
            break
    forth = Expected(Fault.REORDER, 0, first, log.offset(first + other.count), count=batch.count)
    back = Expected(Fault.REORDER, 0, first + batch.count, log.offset(first), count=other.count)
    both = Expected(Fault.REORDER, 0, first, log.offset(first + other.count), count=batch.count + other.count)
    return replace(forth if batch.count <= other.count else back, instead=(forth, back, both))


def later_batch(logs: Logs, chance: random.Random) -> Expected:
    """Only the base timestamp of its header is another: all of its records are later by that."""
    batch, first = logs[0].batch(_any(logs, chance))
    batch.later = chance.randrange(1, 10_000)
    return Expected(Fault.MUTATION, 0, first, logs[0].offset(first), part=Part.TIMESTAMP, count=batch.count)


def _marked(bit: int) -> Mutate:
    def mark(logs: Logs, chance: random.Random) -> Expected:
        batch, first = logs[0].batch(_any(logs, chance))
        batch.attributes |= bit
        return Expected(Fault.VISIBILITY, 0, first, logs[0].offset(first), count=batch.count)

    return mark


# -- what adds up to the same ------------------------------------------------------------------------------------------


def exchange_values(logs: Logs, chance: random.Random) -> Expected:
    """Two records exchange their values: no count and no sum over values changes."""
    log = logs[0]
    n = _which(logs, chance, lambda it: bool(it.key) and bool(it.value))
    m = _which(logs, chance, lambda it: bool(it.key) and bool(it.value) and it.value != log.peek(n).value)
    n, m = sorted((n, m))
    one, other = log.peek(n), log.peek(m)
    log[n], log[m] = one._replace(value=other.value), other._replace(value=one.value)
    return Expected(Fault.MUTATION, 0, n, log.offset(n), part=Part.VALUE, count=2)


def drop_and_double(logs: Logs, chance: random.Random) -> Expected:
    """One record less, another one more: the count stays."""
    log = logs[0]
    n = chance.randrange(len(log) - _FAR)
    m = chance.randrange(n + _FAR, len(log))
    log.insert(m + 1, log.raw(m))
    log.remove(n)
    return Expected(Fault.LOSS, 0, n, None, besides={Fault.DUPLICATE: 1})


# -- the map ----------------------------------------------------------------------------------------------------------


def off_by_one_runs(found: Iterable[Run], at: int) -> list[Run]:
    """`found`, but from target offset `at` on each place is one further on the source. The last record has none."""
    runs = list[Run]()
    for run in found:
        before = max(0, min(run.length, at - run.target))
        if before:
            runs.append(Run(run.source, run.target, before))
        if before < run.length:
            runs.append(Run(run.source + before + 1, run.target + before, run.length - before))
    last = runs.pop()
    if last.length > 1:
        runs.append(Run(last.source, last.target, last.length - 1))
    return runs


def off_by_one(logs: Logs, found: OffsetMap, chance: random.Random) -> Expected:
    """From one record on, the map leads to the one behind it: nothing is wrong with any record."""
    n = chance.randrange(1, len(logs[0]) - 1)
    at = logs[0].offset(n)
    runs = off_by_one_runs(found.runs(), at)
    wrong = OffsetMap(runs, source_end=found.source_end, target_end=found.target_end)
    return Expected(Fault.MISPLACED, 0, n, at, map=wrong)


# -- records that no one can tell apart -------------------------------------------------------------------------------


def drop_identical(source: Logs, logs: Logs, chance: random.Random) -> Expected:
    """Of three records in a row that are the same on the source, one is lost: any of them, nobody can say which."""
    n = chance.randrange(len(logs[0]) - 3)
    content = logs[0].peek(n)
    for log in (source[0], logs[0]):
        for at in range(n, n + 3):
            log[at] = content
    logs[0].remove(n + 1)
    first, *others = (Expected(Fault.LOSS, 0, at, None) for at in range(n, n + 3))
    return replace(first, instead=tuple(others))


# -- nothing is wrong -------------------------------------------------------------------------------------------------


def recompressed(logs: Logs, chance: random.Random) -> None:
    """A batch in another codec: its records are what they were."""
    batch, _ = logs[0].batch(_any(logs, chance))
    batch.open()
    batch.codec = (batch.codec + chance.randrange(1, 5)) % 5


def rebatched(logs: Logs, chance: random.Random) -> None:
    """One batch as two: the mirror might have joined less."""
    logs[0].split_batch(chance.choice([n for n, count in logs[0].batches() if count > 1]))


CONTROLS: dict[str, Callable[[Logs, random.Random], None]] = {
    "recompress a batch": recompressed,
    "split a batch": rebatched,
}

OF_BOTH: dict[str, Callable[[Logs, Logs, random.Random], Expected]] = {"drop one of the same": drop_identical}

OF_THE_MAP: dict[str, Callable[[Logs, OffsetMap, random.Random], Expected]] = {"move the map by one": off_by_one}

FAULTS: dict[str, Mutate] = {
    "drop": drop,
    "duplicate": duplicate,
    "swap neighbours": swap_neighbours,
    "swap far apart": swap_far,
    "flip a bit of the key": flip_key,
    "flip a bit of the value": flip_value,
    "flip a bit of a header's name": flip_header_name,
    "flip a bit of a header's value": flip_header_value,
    "flip a bit of the timestamp": flip_timestamp,
    "exchange headers": header_order,
    "null against empty": null_or_empty,
    "move to another partition": misroute,
    "append a foreign record": foreign,
    "truncate the tail": truncate,
    "drop a batch": drop_batch,
    "double a batch": double_batch,
    "swap two batches": swap_batches,
    "shift a batch's base timestamp": later_batch,
    "set the delete horizon's bit": _marked(0x40),
    "set bit 7": _marked(0x80),
    "exchange two values": exchange_values,
    "drop one and double another": drop_and_double,
}
#: All that is tried.
KINDS = (*FAULTS, *OF_THE_MAP, *OF_BOTH)


def right(expected: Expected, examples: Sequence[Example]) -> tuple[bool, bool]:
    """Whether the first of `examples` has the right class (and field), and the right offsets."""
    if not examples:
        return False, False
    may_be = (expected, *expected.instead)
    placed = [one for one in may_be if one.is_place(examples[0])]
    return any(one.is_class(examples[0]) for one in placed or may_be), bool(placed)
