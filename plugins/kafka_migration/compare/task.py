"""A task of a validation: both sides of some segments, compared record by record or by batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from kafka.net.selector import NetworkSelector

from kafka_migration.compare import batches
from kafka_migration.compare.decode.columns import Columns, kernel
from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile, Wires
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.reader.client import Client
from kafka_migration.compare.reader.handled import Handled
from kafka_migration.compare.reader.side import Side
from kafka_migration.compare.reading import LONG_SECONDS, CannotRead, Unanswered
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.errors import ClusterUnreachable, MigrationError
from kafka_migration.domain.levels import Level

#: Gives the clients of both clusters, by side, for as long as its block runs.
Reach = Callable[[Wires], AbstractContextManager[dict[str, Client]]]


@contextmanager
def clients(wires: Wires, *, seconds: float = LONG_SECONDS) -> Iterator[dict[str, Client]]:
    """Both clusters, on one loop, reached within ``seconds``. Raises ClusterUnreachable, and AuthenticationFailed."""
    net = NetworkSelector()
    with ExitStack() as stack:
        stack.callback(net.close)
        found = {}
        for role, wire in wires.items():
            found[role] = client = Client(net, wire, role)
            stack.callback(client.close)
            client.connect(seconds)
        yield found


class Connections:
    """Clients of a process that goes from task to task, those of the task before as long as they do. To connect, and
    to ask who leads, takes as long as to compare 30 MB."""

    def __init__(self) -> None:
        self._wires: Wires = {}
        self._both: dict[str, Client] = {}
        self._open = ExitStack()

    @contextmanager
    def reach(self, wires: Wires) -> Iterator[dict[str, Client]]:
        """As :func:`clients`. A cluster that once gave no answer is connected to again, and so known to be gone."""
        if wires != self._wires or any(client.has_failed for client in self._both.values()):
            self._wires = {}
            self._open.close()
            self._both = self._open.enter_context(clients(wires))
            self._wires = wires
        yield self._both


#: Of this process.
CONNECTIONS = Connections()


def obey(orders: Orders, tiles: Sequence[Tile], reach: Reach = clients) -> Answer:
    """Compare ``tiles``, by clients that ``reach`` gives. Never raises for what cannot be read: that is in the
    answer."""
    answer = Answer(kernel=kernel() if orders.level is Level.RECORD else "")
    try:
        with reach(orders.wires) as both:
            for number, tile in tiles:
                answer.outcomes.append(_outcome(orders, both, number, tile, answer))
    except ClusterUnreachable as error:
        answer.unreachable = error.message
        answer.fail(orders, tiles[len(answer.outcomes) :], error.message)
    except MigrationError as error:
        answer.fail(orders, tiles[len(answer.outcomes) :], error.message)
    return answer


def _outcome(
    orders: Orders, both: dict[str, Client], number: int, tile: PartitionRange, answer: Answer
) -> SegmentOutcome:
    if tile.tp in answer.unanswered:
        return orders.failure((number, tile), answer.unanswered[tile.tp])
    try:
        sides = (side_of(SOURCE, tile, both[SOURCE], orders), side_of(TARGET, tile, both[TARGET], orders))
        source, target, traits = (batches.compare if orders.level is Level.BATCH else compare)(tile, sides)
    except CannotRead as error:
        if isinstance(error, Unanswered):
            answer.unanswered[tile.tp] = error.message
        return orders.failure((number, tile), error.message)
    except MigrationError:
        raise
    except Exception as error:
        # What nobody thought of is the trouble of this segment, not of its neighbours.
        return orders.failure((number, tile), f"{type(error).__name__}: {error}")
    return SegmentOutcome.of(number, tile, orders.level, source=source, target=target, traits=traits)


def side_of(
    role: str, tile: PartitionRange, client: Client, orders: Orders, *, span: tuple[int, int] | None = None
) -> Side:
    """One side of ``tile``, or of other offsets of its log (``span``: from, and up to without). Of the target also what
    is not committed: whatever stands there must be explained. Raises CannotRead where the source's handler is not
    here."""
    is_source = role == SOURCE
    start, end = span or ((tile.source_start, tile.source_end) if is_source else (tile.target_start, tile.target_end))
    # Of what stands elsewhere the keys are looked at, which a handler leaves as they are where topics are compacted.
    as_they_are = span is not None and tile.handler is not None and tile.handler.keeps_keys
    left_out = () if span else tile.left_out if is_source else tile.target_left_out
    return Side(
        client,
        tile.tp,
        start,
        end,
        committed=is_source and orders.committed,
        seconds=orders.seconds,
        may_lack=tile.source_may_lack if is_source else tile.target_may_lack,
        left_out=left_out,
        handled=Handled.of(tile, start, end, left_out) if is_source and not as_they_are else None,
    )


def in_turns(sides: Sequence[Side]) -> Iterator[tuple[int, Columns]]:
    """All records of ``sides``, as they are answered, with the place of their side among these: in turns, so that all
    clusters read ahead. Raises CannotRead."""
    left = list(enumerate(sides))
    try:
        for side in sides:
            side.begin()
        while left:
            for which, side in tuple(left):
                records = side.next()
                if records is None:
                    left.remove((which, side))
                else:
                    yield which, records
    finally:
        for side in sides:
            side.drop()


def compare(tile: PartitionRange, both: tuple[Side, Side]) -> tuple[Digest, Digest, int]:
    """The digests of both sides of ``tile``, and traits of the source's batches. Raises CannotRead."""
    sums = SourceSums(tile), TargetSums(tile)
    for which, records in in_turns(both):
        sums[which].add(records)
    sums[1].see(both[1].attributes)
    source = sums[0].digest()
    return both[0].handled.counted(source) if both[0].handled else source, sums[1].digest(), both[0].traits
