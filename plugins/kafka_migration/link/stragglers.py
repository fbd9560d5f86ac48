"""What somebody writes to the source behind the cut: named, kept, and left for a person to decide about.

Who decides that it is needed has it forwarded: copied to the same partition of the target, behind what stands there,
each record once. How far that went is committed on the target with the records; the decision in the journal follows
from it, so a process that died in between leaves one that the next call writes down.

Behind the cut nobody but the reverse link writes to the source: not for want of a fence alone, but since nothing copies
what others write there. What the reverse link's tasks have confirmed is its own; of what stands behind that, each batch
is judged by its producer's id. Markers are no records, whoever's they are. A producer without an id is a stranger.

Nothing is deleted: what was given up stays on the source for as long as its retention keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.handlers import Handle, HandlerFailed
from kafka_migration.domain.handlers import Record as Handed
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.forwarding import Forwarder, Record
from kafka_migration.link import lifecycle, reverse, switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import cancellation
from kafka_migration.topics import handling
from kafka_migration.wire import fetch

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.wire.batch import BatchHeader

KIND = "straggler"
#: Where the source may be written to again, as far as the migration goes.
_OVER = (TopicState.REVERSED, TopicState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Records that stand on the source behind the cut, and are not the reverse link's: ``records`` of them, at source
    offsets ``start`` up to ``end`` (not included), among which may be others'. ``producers`` are their ids, sorted; -1
    for producers that are not idempotent. Those of an aborted transaction count as well. ``batches``: the offsets of
    these records alone, from and to (not included), in order."""

    tp: TopicPartition
    start: int
    end: int
    records: int
    producers: tuple[int, ...]
    batches: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        ids = listed(sorted(str(one) if one >= 0 else "none (not idempotent)" for one in self.producers))
        return (
            f"{self.tp}: {self.records:,} records at source offsets {self.start} to {self.end - 1}, producer ids: {ids}"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "start": self.start,
            "end": self.end,
            "records": self.records,
            "producers": list(self.producers),
        }


def look(ctx: Context) -> tuple[Stray, ...]:
    """What nobody has decided about yet, by partition; nothing before the cut, or once the source is written to again.
    Only reads.

    Raises CouldNotFindOut, or NotAuthorized, where the source cannot be read.
    """
    found = _undecided(ctx)
    if found is None:
        return ()
    newest, since = found
    ends = {tp: log.end for tp, log in ctx.source.ends(since, skip_starts_of=since).items()}
    grown = {tp: at for tp, at in since.items() if ends[tp] > at}
    if not grown:
        return ()
    there = fetch.read_headers(ctx.source.wire(), ctx.source.role, grown, ends)
    # Behind the reading: a producer is noted before its first record is sent.
    own = {identity.producer_id for identity in newest.link.fences().values()}
    is_reverse = newest.direction is Direction.REVERSE
    strays = (_stray(tp, seen, own if is_reverse else (), grown[tp]) for tp, seen in sorted(there.items()))
    return tuple(stray for stray in strays if stray is not None)


def require_none(ctx: Context) -> None:
    """Raise Refused while somebody has to decide about one: once topics are given up, nobody is asked any more."""
    if found := look(ctx):
        raise Refused(
            f"records were written to the source behind the cut, and nobody has decided about them:"
            f" {listed(map(str, found))}",
            remedy="`stragglers --forward` copies them to the target, `stragglers --give-up` leaves them",
        )


def _undecided(ctx: Context) -> tuple[Context, dict[TopicPartition, int]] | None:
    """As :func:`_since`, without topics that are over or gone, and behind what was decided about."""
    found = _since(ctx)
    if found is None:
        return None
    newest, since = found
    over = {topic for topic, state in lifecycle.read(ctx).items() if state in _OVER}
    # One that is gone has nothing, and hides nothing of others.
    there_are = ctx.source.topics({tp.topic for tp in since} - over)
    decided = decisions(ctx)
    return newest, {
        tp: max([at, *(one["end"] for one in decided.get(tp, ()))]) for tp, at in since.items() if tp.topic in there_are
    }


def _since(ctx: Context) -> tuple[Context, dict[TopicPartition, int]] | None:
    """The newest link, and from where on of the source each partition's batches have to be looked at; None without a
    cut behind which the source rests."""
    *_, newest = reverse.all_begun(ctx)
    seal = newest.link.seal()
    if newest.direction is Direction.REVERSE:
        # Sealed, producers go back to the source.
        return None if seal else (newest, {tp: at.target for tp, at in newest.link.positions().items()})
    if seal is None or not seal.is_complete:
        return None
    return newest, {tp: at.source for tp, at in newest.link.positions().items() if tp in seal.ends}


def _stray(tp: TopicPartition, seen: Sequence[BatchHeader], own: Collection[int], since: int) -> Stray | None:
    """What of ``seen`` stands at offset ``since`` or behind it: a decision may end within a batch."""
    foreign = [header for header in seen if not header.is_control and header.producer_id not in own]
    if not foreign:
        return None
    return Stray(
        tp=tp,
        start=max(since, foreign[0].base_offset),
        end=foreign[-1].next_offset,
        records=sum(min(header.records, header.next_offset - since) for header in foreign),
        producers=tuple(sorted({header.producer_id for header in foreign})),
        batches=tuple(_joined((max(since, header.base_offset), header.next_offset) for header in foreign)),
    )


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def decisions(ctx: Context) -> Mapping[TopicPartition, Sequence[Mapping[str, Any]]]:
    """What people decided about earlier ones, by partition, in order."""
    return {tp: value["decided"] for tp, value in _journal(ctx).items()}


def sentence(decision: Mapping[str, Any]) -> str:
    """A decision in words, with who made it."""
    to = decision.get("target")
    where = f" to target offsets {to['first']} to {to['last']}" if to else ""
    return (
        f"{decision['topic']}-{decision['partition']}: {decision['records']:,} records that were written to the source"
        f" behind the cut, at offsets {decision['start']} to {decision['end'] - 1}, were {decision['what']}{where}"
        f" by {decision['by']} at {decision['at']}"
    )


def _journal(ctx: Context) -> dict[TopicPartition, dict[str, Any]]:
    """By partition what was ``decided``, and what is ``forwarding``: begun, and not known to have ended."""
    found = {}
    for place, value in ctx.journal.all(KIND).items():
        topic, partition = place.rsplit("/", 1)
        found[TopicPartition(topic, int(partition))] = value
    return found


def _note(ctx: Context, values: Mapping[TopicPartition, dict[str, Any]]) -> None:
    ctx.journal.record_all(KIND, {f"{tp.topic}/{tp.partition}": value for tp, value in sorted(values.items())})


def give_up(ctx: Context, shown: Sequence[Stray], *, by: str, reason: str = "") -> tuple[Stray, ...]:
    """Note that nobody needs ``shown``, as :func:`look` has found it: it is neither copied nor named from then on.
    Returns what nobody else has decided about meanwhile; what was written since is named as before. In a dry run
    nothing is noted. What a forwarding that died has copied was forwarded.

    Raises what :func:`look` raises, and where a forwarding was begun, what :func:`forward` raises.
    """
    if not ctx.dry_run and is_forwarding(ctx):
        forwarder = _forwarder(ctx, ())
        forwarder.take_over()
        _settle(ctx, _progress(ctx, forwarder))
    asked, before = {stray.tp: stray for stray in shown}, decisions(ctx)
    # As it was shown; or less of it, where somebody has decided about its beginning meanwhile.
    found = tuple(
        asked[now.tp] if now.start == asked[now.tp].start else now
        for now in look(ctx)
        if now.tp in asked and (now.start == asked[now.tp].start or now.end == asked[now.tp].end)
    )
    if found and not ctx.dry_run:
        decision = {"what": "given up", "by": by, "reason": reason, "at": ctx.stamp()}
        _note(
            ctx,
            {stray.tp: {"decided": [*before.get(stray.tp, ()), {**stray.as_dict(), **decision}]} for stray in found},
        )
    return found


# -- forwarding -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a partition was forwarded: from source offset ``start`` up to ``end`` (not included) of the topic with
    id ``topic_id``, ``records`` in all, which stand on the target from offset ``first`` to ``last`` (None for no
    record). Fewer than were written, where transactions were aborted."""

    topic_id: str
    start: int
    end: int
    records: int = 0
    first: int | None = None
    last: int | None = None

    def further(self, end: int, offsets: Sequence[int]) -> Progress:
        """With records more, which stand on the target at ``offsets``."""
        first, last = (min(offsets), max(offsets)) if offsets else (None, self.last)
        return replace(
            self,
            end=end,
            records=self.records + len(offsets),
            first=first if self.first is None else self.first,
            last=last,
        )

    @classmethod
    def read(cls, key: bytes, data: bytes) -> Progress:
        """As it stands beside the records. Raises StateConflict for what this version does not know."""
        return cls(**ledger.decode(data, where=f"{ledger.STRAGGLERS_TOPIC} {key.decode()}"))


def is_forwarding(ctx: Context) -> bool:
    """Whether a forwarding was begun, and it is not known how far it came."""
    return any("forwarding" in value for value in _journal(ctx).values())


def forwarded_behind(ctx: Context) -> tuple[TopicPartition, ...]:
    """Partitions of the target that hold forwarded records behind what ``ctx``'s forward link copied, or may."""
    if ctx.direction is not Direction.FORWARD:
        return ()
    stand, found = ctx.link.positions(), []
    for tp, value in _journal(ctx).items():
        forwarded = (one["end"] for one in value["decided"] if one["what"] == "forwarded")
        is_behind = tp in stand and any(end > stand[tp].source for end in forwarded)
        if is_behind or "forwarding" in value:
            found.append(tp)
    return tuple(sorted(found))


def check_forward(ctx: Context, found: Collection[Stray]) -> None:
    """Raises Refused where the source is written to by its own producers, or the target has no place for a record;
    CouldNotFindOut while it is open whether a record counts; and what :func:`handling.require` raises."""
    cancellation.require_none(ctx)
    last = switched.last(ctx)
    if last is not None and last.state is SwitchState.SWITCHING:
        raise Refused(
            "a switch of producers is not over: given up, the mirror itself copies what stands on the source",
            remedy=f"run `{last.command}` again, which goes on or gives up; then look again",
        )
    undecided = _undecided(ctx)
    if undecided is None or not undecided[1]:
        raise Refused(
            f"the source of migration {ctx.plan.name} does not rest behind a cut: its link is not sealed, its reverse"
            " link is, or its topics are released; what stands there is no straggler's",
            remedy="see `status` for where each topic stands; the mirror copies what is written before the seal",
        )
    handling.require(ctx, {stray.tp.topic for stray in found})
    _require_places(ctx, found)


def _require_places(ctx: Context, found: Iterable[Stray]) -> None:
    strays = {stray.tp: stray for stray in found}
    there = ctx.target.topics({tp.topic for tp in strays}) if strays else {}
    for tp in strays:
        if tp.topic not in there or tp.partition >= there[tp.topic].partitions:
            raise Refused(
                f"target: there is no {tp}, to which {strays[tp].records:,} records of the source are to be forwarded",
                remedy=f"create topic {ctx.target.topic_here(tp.topic)} with that partition, or give the records up"
                " (--give-up)",
            )
    for tp, log in (ctx.source.ends(strays, committed=True) if strays else {}).items():
        if log.undecided and log.end < strays[tp].end:
            raise CouldNotFindOut(
                f"source: a transaction is open on {tp} from offset {log.end} on, and a straggler's records stand up to"
                f" {strays[tp].end - 1}",
                remedy="run this again once it has ended; one whose producer is gone: kafka-transactions.sh abort",
            )


def forward(ctx: Context, *, by: str, reason: str = "") -> tuple[Mapping[str, Any], ...]:
    """Copy what :func:`look` finds to the target, each record once, and note it; returns the decisions. Killed
    anywhere, the next call goes on where this one came to; a second call copies nothing. Not for a dry run.

    Of two processes the one that began later goes on, and the other one ends with TakenOver. Raises besides what
    :func:`look`, :func:`check_forward` and :class:`Forwarder` raise.
    """
    found = look(ctx)
    check_forward(ctx, found)
    journal = _journal(ctx)
    if not found and not is_forwarding(ctx):
        return ()
    begun = {"by": by, "reason": reason, "at": ctx.stamp()}
    _note(
        ctx,
        {
            stray.tp: {
                "decided": journal.get(stray.tp, {}).get("decided", []),
                "forwarding": {**begun, "producers": list(stray.producers)},
            }
            for stray in found
        },
    )
    forwarder = _forwarder(ctx, found)
    forwarder.take_over()
    progress = _progress(ctx, forwarder)
    # Again: the process before may have noted what it forwarded, until it was taken over.
    strays = [stray for stray in look(ctx) if stray.tp in {one.tp for one in found}]
    _require_places(ctx, strays)
    for stray in strays:
        progress[stray.tp] = _copy(ctx, forwarder, stray, progress.get(stray.tp))
    return _settle(ctx, progress)


def _forwarder(ctx: Context, found: Iterable[Stray]) -> Forwarder:
    configs = ctx.target.topic_configs({stray.tp.topic for stray in found}).values()
    limits = [int(found["max.message.bytes"].value or 0) for found in configs if "max.message.bytes" in found]
    return Forwarder(
        ctx.source, ctx.target, ledger.stragglers_id(ctx.plan.name), largest=min(limits, default=1_000_000)
    )


def _progress(ctx: Context, forwarder: Forwarder) -> dict[TopicPartition, Progress]:
    """How far each partition was forwarded that is not decided up to there."""
    _, since = _undecided(ctx) or (ctx, {})
    ids = {name: topic.topic_id for name, topic in ctx.source.topics({tp.topic for tp in since}).items()}
    found = {}
    stored = forwarder.progress()
    for tp, at in since.items():
        if (data := stored.get(key := _key(ctx, tp))) is not None:
            progress = Progress.read(key, data)
            if progress.topic_id == ids[tp.topic] and progress.end > at:
                found[tp] = progress
    return found


def _key(ctx: Context, tp: TopicPartition) -> bytes:
    return ledger.link_key(ctx.plan.name, tp.topic, str(tp.partition))


def _copy(ctx: Context, forwarder: Forwarder, stray: Stray, before: Progress | None) -> Progress:
    tp = stray.tp
    if before is None:
        topic_id = ctx.source.topics([tp.topic])[tp.topic].topic_id
        before = Progress(topic_id=topic_id, start=stray.start, end=stray.start)
    progress = before
    handle = None if (handler := ctx.plan.handler_of(tp.topic)) is None else handler.load()
    for read, end in forwarder.read(tp, max(before.end, stray.start), stray.end, stray.batches):
        records = read if handle is None else _handled(tp, read, handle)
        offsets = forwarder.commit(tp, records, _key(ctx, tp), partial(_stored, progress, end))
        progress = progress.further(end, offsets)
        ctx.log(f"{tp}: {progress.records:,} records forwarded, up to source offset {progress.end}")
    return progress


def _handled(tp: TopicPartition, records: Iterable[Record], handle: Handle) -> list[Record]:
    """As the mirror would have copied them."""
    found = []
    for record in records:
        # Where there is none, this is 0 here, and -1 for handlers.
        before = Handed(record.key, record.value, tuple(record.headers), record.timestamp or -1, record.offset)
        try:
            after = handle(before)
        except HandlerFailed as error:
            raise Refused(f"{tp}: {error}", remedy="correct the handler, or give the records up (--give-up)") from error
        if after is not None:
            found.append(
                record._replace(
                    key=after.key, value=after.value, headers=[*after.headers], timestamp=max(0, after.timestamp)
                )
            )
    return found


def _stored(progress: Progress, end: int, offsets: Sequence[int]) -> bytes:
    return ledger.encode(asdict(progress.further(end, offsets)))


def _settle(ctx: Context, progress: Mapping[TopicPartition, Progress]) -> tuple[Mapping[str, Any], ...]:
    """Note as decided what was forwarded, and that nothing is under way."""
    journal, made, values = _journal(ctx), list[Mapping[str, Any]](), dict[TopicPartition, dict[str, Any]]()
    for tp in sorted(progress.keys() | journal.keys()):
        value = journal.get(tp, {"decided": []})
        decided, done = value["decided"], progress.get(tp)
        # The process before may have noted it meanwhile.
        is_new = done is not None and not any(one["end"] >= done.end for one in decided)
        if done is not None and is_new:
            made.append(_forwarded(ctx, tp, done, value.get("forwarding", {})))
            decided = [*decided, made[-1]]
        if is_new or "forwarding" in value:
            values[tp] = {"decided": decided}
    _note(ctx, values)
    return tuple(made)


def _forwarded(ctx: Context, tp: TopicPartition, done: Progress, begun: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decision, with what was noted as it was ``begun``."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "start": done.start,
        "end": done.end,
        "records": done.records,
        "producers": begun.get("producers", []),
        "target": None if done.first is None else {"first": done.first, "last": done.last},
        "what": "forwarded",
        "by": begun.get("by", ""),
        "reason": begun.get("reason", ""),
        "at": ctx.stamp(),
    }
