"""Adopt: topics that MirrorMaker 2 has filled are taken over with their records, and the mirror goes on behind them.

Both logs of each partition are compared record by record; that yields the offset map which the mirror itself would have
written (docs/adr/0018-adopting-a-copy.md). It is written a topic at a time, and the topic counts as this migration's
last, so a call that was killed is made again: it compares again what it had not finished, and voids what it had written
of that. Where the copy differs, nothing is written without a choice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from kafka_migration.approvals.evidence import GateName
from kafka_migration.compare.explain import matching
from kafka_migration.compare.explain.log import LogReader, open_logs
from kafka_migration.compare.explain.matching import Match, Mismatch, Span
from kafka_migration.domain.errors import BadInput, NotAuthorized, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.logs import is_compacted
from kafka_migration.domain.openings import openings_of
from kafka_migration.domain.skips import START, Skip
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.inventory import plan_changes
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.link import seal
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.migration import cancellation
from kafka_migration.migration.history import phase, remember_beginning
from kafka_migration.state.link import LinkTopic
from kafka_migration.steps import outlook
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create, delete, handling
from kafka_migration.topics.declared import INTENT, Action, TopicStep, steps

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.types import TopicDescription
    from kafka_migration.migration.context import Context

_PHASE = "adopt"
_PROGRESS_SECONDS = 10.0
#: Of a partition, so many stretches of records that the source has not are kept: each is left out of every comparison.
_MOST_KEPT = 100
_KEEPABLE = frozenset({Mismatch.DOUBLED, Mismatch.ABORTED, Mismatch.FOREIGN})
_AGAIN = "`--copy-again` deletes the topic on the target, and the mirror copies all of it"
_RUN_AGAIN = "run this again, which compares what is there now"


class Fate(enum.StrEnum):
    """What becomes of a topic. ``LEFT``: nothing, until a person decides."""

    ADOPTED = "adopted"
    COPIED_AGAIN = "copied again"
    LEFT = "left"

    @property
    def in_words(self) -> str:
        """For people: what was done, and what is still to be."""
        return "deleted, to be copied again" if self is Fate.COPIED_AGAIN else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a person decides on copies that differ: records that the source has not stay on the target (``keep_extra``);
    those that the target has deleted stay away (``accept_expired``); and a copy that differs still is deleted, and made
    again by the mirror (``copy_again``)."""

    keep_extra: bool = False
    accept_expired: bool = False
    copy_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What becomes, or would become, of one topic; ``why`` and ``remedy`` of one that is not adopted. ``here`` is what
    the target calls it; ``matches`` has its partitions, if they were compared, and ``ids`` those of the topics on
    source and target."""

    topic: str
    here: str
    fate: Fate
    why: str = ""
    remedy: str = ""
    matches: tuple[Match, ...] = ()
    ids: tuple[str, str] = ("", "")

    @property
    def records(self) -> int:
        """How many records both clusters have."""
        return sum(match.records for match in self.matches)

    def __str__(self) -> str:
        """One line for people."""
        called = self.topic if self.here == self.topic else f"{self.topic} ({self.here})"
        why = f": {self.why}" if self.why else ""
        return f"{called} {self.fate.in_words}{why}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "on_target": self.here,
            "outcome": str(self.fate),
            "why": self.why,
            "remedy": self.remedy,
            "records": self.records,
            "partitions": [_as_dict(match) for match in self.matches],
        }


def _as_dict(match: Match) -> dict[str, Any]:
    return {
        "partition": match.tp.partition,
        "records": match.records,
        "runs": len(match.runs),
        "goes_on_at": match.source_at,
        "trouble": match.trouble,
        "differences": {str(kind): [span._asdict() for span in spans] for kind, spans in match.differences.items()},
    }


def run(
    ctx: Context,
    *,
    choices: Choices,
    only: Collection[str] = (),
    seconds: float,
    may_delete: Callable[[Sequence[Adoption]], object] = lambda _doomed: None,
) -> Decision:
    """Compare the topics that the plan adopts (of these, ``only`` some, if any are given), and adopt them, behind the
    plan's gate; in a dry run only compare. ``value`` is what becomes of each.

    Their ends on the target must stand still for ``seconds``. ``may_delete`` is asked before topics are deleted, and
    raises if they may not be. Raises Refused where no topic can be adopted now, or by this plan; BadInput for a topic
    that the plan does not adopt; and what reading raises.
    """
    ctx.require_whole("adopting topics")
    plan_changes.require(ctx, joins=True)
    cancellation.require_none(ctx)
    _require_first(ctx)
    _require_no_mirror(ctx)
    wanted = _wanted(ctx, only)
    passed = outlook.ask_gate(ctx, GateName.PLAN)
    ctx.make_state()
    with phase(ctx, _PHASE) as account:
        if passed is not None:
            approved_by = passed.approval.approver if passed.approval else ""
            remember_beginning(ctx, passed.evidence.inventory, approved_by=approved_by)
        found = list(_each(ctx, wanted, choices, seconds))
        if doomed := [one for one in found if one.fate is Fate.COPIED_AGAIN]:
            _require_unread(ctx, doomed)
            if not ctx.dry_run:
                may_delete(doomed)
                _delete(ctx, doomed)
            for one in doomed:
                ctx.log(str(one))
        decision = _decision(found)
        account.ends(decision.exit_code, decision.message, **decision.facts)
    return decision


def _require_first(ctx: Context) -> None:
    seal.check(ctx)
    if not ctx.is_first:
        raise Refused(
            f"link {ctx.link.name} goes on behind an earlier cut, and topics that MirrorMaker has filled have none",
            remedy="migrate them by a plan of their own",
        )


def _require_no_mirror(ctx: Context) -> None:
    """Raises Refused while the link's mirror runs: it would copy into a topic once it is pinned."""
    if not ctx.dry_run and mirror_state(ctx)[0] == "running":
        raise Refused(
            f"the mirror of {ctx.plan.name} is running, and would copy into topics that are not adopted yet",
            remedy="stop the mirror first (`stop --now`), run this again, and then `create` and `mirror`",
        )


def _wanted(ctx: Context, only: Collection[str]) -> list[str]:
    adopts = ctx.plan.topics.adopt
    for topic in only:
        if topic not in adopts:
            raise BadInput(
                "is not a topic that the plan adopts",
                field="--topic",
                value=topic,
                remedy="list it under topics.adopt of the plan",
            )
    if not adopts:
        source = ctx.plan.topics.select(ctx.source.topic_names())
        there = sorted(ctx.target.topics(source).keys() - ctx.journal.all("topic").keys())
        raise Refused(
            "the plan adopts no topic",
            remedy=f"list those that MirrorMaker has filled under topics.adopt; the target has {listed(there)}"
            if there
            else "the target has none of the plan's topics: `create` makes them",
        )
    return sorted(only or adopts)


# -- what is looked at before ---------------------------------------------------------------------------------------


def _each(ctx: Context, wanted: Sequence[str], choices: Choices, seconds: float) -> Iterator[Adoption]:
    """What becomes of each topic: those that are to be adopted are, one after the other."""
    found = {step.name: step for step in steps(ctx, only=wanted)}
    missing = [topic for topic in wanted if topic not in found]
    if missing:
        raise Refused(
            f"source: topics that the plan adopts are missing: {listed(missing)}", remedy="correct topics.adopt"
        )
    candidates = [name for name, step in found.items() if step.is_filled]
    wrong = _wrong(ctx, candidates, seconds)
    result = partial(_left, ctx)
    for name, step in found.items():
        if not step.problem:
            ctx.log(_without_records(step))
        elif not step.is_filled:
            yield result(name, step.problem, step.remedy)
        elif name in wrong:
            yield result(name, *wrong[name])
        elif obstacle := _obstacle(step, logs := _Logs.of(ctx, name)):
            yield result(name, *obstacle)
        else:
            adoption = _judged(ctx, name, logs.ids, _compared(ctx, logs), choices)
            if adoption.fate is Fate.ADOPTED and not ctx.dry_run:
                _take(ctx, adoption)
            if adoption.fate is not Fate.COPIED_AGAIN:
                ctx.log(str(adoption))
            yield adoption


def _without_records(step: TopicStep) -> str:
    if step.action is Action.KEEP:
        return f"{step.name} is this migration's already"
    return f"{step.name} has no records on the target: `create` sees to it"


def _left(ctx: Context, topic: str, why: str, remedy: str) -> Adoption:
    return Adoption(topic=topic, here=ctx.target.topic_here(topic), fate=Fate.LEFT, why=why, remedy=remedy)


def _wrong(ctx: Context, topics: Sequence[str], seconds: float) -> dict[str, tuple[str, str]]:
    """Why topics cannot be compared now, with what helps."""
    if not topics:
        return {}
    wrong = _by_configs(ctx, topics) | {
        topic: (
            f"its handler ({handler.function}) drops or changes records, and MirrorMaker's copy is of all as they are",
            "delete it on the target, and let the mirror copy it; or have no handler match it",
        )
        for topic, handler in handling.used(ctx, topics).items()
    }
    pinned, intents = ctx.link.topics(), ctx.journal.all(INTENT)
    for topic in set(topics) & pinned.keys() - intents.keys():
        wrong[topic] = (f"link {ctx.link.name} has copied it before", "`status` shows where it stands")
    tps = [tp for topic in ctx.target.topics(topics).values() for tp in topic.topic_partitions]
    before = ctx.target.ends(tps)
    with suppress(NotSupported, NotAuthorized):
        for tp, producers in ctx.target.producers(tps).items():
            if any(producer.in_transaction for producer in producers):
                why = f"a transaction is open in partition {tp.partition} on the target"
                wrong[tp.topic] = (why, "stop MirrorMaker, and wait until its transaction has ended")
    ctx.log(f"looking for {seconds:g} s whether anybody still writes to {len(topics)} topics on the target")
    ctx.clock.sleep(seconds)
    for tp, ends in sorted(ctx.target.ends(tps).items()):
        if ends.end != before[tp].end:
            why = f"somebody writes to partition {tp.partition} on the target: it has grown by"
            wrong[tp.topic] = (
                f"{why} {ends.end - before[tp].end} offsets in {seconds:g} s",
                "stop MirrorMaker, and whatever else writes there",
            )
    return wrong


def _by_configs(ctx: Context, topics: Sequence[str]) -> dict[str, tuple[str, str]]:
    wrong = {}
    for side, cluster in (("source", ctx.source), ("target", ctx.target)):
        for topic, configs in cluster.topic_configs(topics).items():
            values = {name: config.value or "" for name, config in configs.items()}
            if is_compacted(values):
                wrong[topic] = (
                    f"it is compacted on the {side}, so that both logs have gaps of their own everywhere",
                    "delete it on the target, and let the mirror copy it: compacted topics are not adopted",
                )
            elif side == "target" and values.get("message.timestamp.type") == "LogAppendTime":
                wrong[topic] = (
                    "the target has stamped its records with times of its own (LogAppendTime)",
                    "delete it on the target, and let the mirror copy it with the source's timestamps",
                )
    return wrong


# -- comparing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """A topic as it is before it is compared: its ids on source and target, and where its partitions end here and
    there."""

    ids: tuple[str, str]
    here: Mapping[TopicPartition, PartitionEnds]
    there: Mapping[TopicPartition, PartitionEnds]

    @classmethod
    def of(cls, ctx: Context, topic: str) -> Self:
        """As it is now. Raises Refused if it is gone."""
        source, target = (_described(side, cluster, topic) for side, cluster in _sides(ctx))
        # The target first: what it has by now, the source has had before.
        there = ctx.target.ends(target.topic_partitions)
        here = ctx.source.ends(target.topic_partitions, committed=True)
        return cls(ids=(source.topic_id, target.topic_id), here=here, there=there)


def _sides(ctx: Context) -> tuple[tuple[str, Cluster], ...]:
    return ("source", ctx.source), ("target", ctx.target)


def _described(side: str, cluster: Cluster, topic: str) -> TopicDescription:
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise Refused(f"topic {topic} was deleted on the {side} just now", remedy=_RUN_AGAIN)
    return found


def _obstacle(step: TopicStep, logs: _Logs) -> tuple[str, str] | None:
    """Why a topic cannot be compared, though it stands still, with what helps."""
    if step.declared.source_topic_id != logs.ids[0]:
        return (
            "the source's topic was recreated since an earlier run was about to adopt its copy",
            "delete it on the target, and let the mirror copy it: what it holds is of the topic that is gone",
        )
    for tp, ends in sorted(logs.here.items()):
        if ends.undecided:
            # What MirrorMaker copied from behind it would look like records of somebody else.
            return (
                f"a transaction is open in partition {tp.partition} on the source, from offset {ends.end} on",
                "wait until it ends, then run this again",
            )
    return None


def _compared(ctx: Context, logs: _Logs) -> tuple[Match, ...]:
    here, there = logs.here, logs.there
    progress = _Progress(ctx, sum(ends.end - ends.start for ends in there.values()))
    wires = [
        {**cluster.wire(), "client_id": f"{ctx.link.transactional_id}.adopt"} for cluster in (ctx.source, ctx.target)
    ]

    def one(tp: TopicPartition, source: LogReader, target: LogReader) -> Match:
        start = there[tp].start
        found = matching.match(
            tp,
            source,
            target,
            with_aborted=source.uncommitted(),
            ends=(here[tp], there[tp]),
            begins_late=ctx.plan.mirror.start != "earliest",
            watch=lambda at: progress.reached(tp, at - start),
        )
        progress.done += there[tp].end - start
        return found

    with open_logs(*wires) as (source, target):
        return tuple(one(tp, source, target) for tp in sorted(there))


class _Progress:
    """Shows how far a topic is compared: now and then."""

    def __init__(self, ctx: Context, offsets: int) -> None:
        self._ctx, self._offsets, self._shown = ctx, offsets, ctx.clock.monotonic()
        self.done = 0

    def reached(self, tp: TopicPartition, offsets: int) -> None:
        """So many offsets of a partition are behind."""
        now = self._ctx.clock.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            self._ctx.log(f"{tp}: {self.done + offsets:,} of {self._offsets:,} offsets of its topic compared")


def _judged(ctx: Context, topic: str, ids: tuple[str, str], matches: tuple[Match, ...], choices: Choices) -> Adoption:
    here = ctx.target.topic_here(topic)
    found = partial(Adoption, topic=topic, here=here, matches=matches, ids=ids)
    troubles = [f"partition {match.tp.partition}: {why}" for match in matches if (why := _trouble(match))]
    counts = {kind: sum(match.counts().get(kind, 0) for match in matches) for kind in Mismatch}
    open_ = {kind: count for kind, count in counts.items() if count and kind is not Mismatch.OLDER}
    if ctx.plan.mirror.start != "earliest" or choices.accept_expired:
        open_.pop(Mismatch.EXPIRED, None)
    if choices.keep_extra:
        open_ = {kind: count for kind, count in open_.items() if kind not in _KEEPABLE}
    if not (troubles or open_):
        return found(fate=Fate.ADOPTED)
    why = "; ".join([*troubles, *(f"{count:,} records {kind}" for kind, count in open_.items())])
    again = _AGAIN
    if not _is_copy(matches):
        why += "; too little of it is the source's to be a copy that may be deleted here"
        again = f"delete {here} on the target by hand if nobody needs it: `create` and `mirror` then copy the topic"
    elif choices.copy_again:
        return found(fate=Fate.COPIED_AGAIN, why=why)
    remedies = []
    if not troubles and open_.keys() <= {*_KEEPABLE, Mismatch.EXPIRED}:
        if open_.keys() & _KEEPABLE:
            remedies.append("`--keep-extra` leaves on the target what the source has not, and its consumers get it")
        if Mismatch.EXPIRED in open_:
            remedies.append("`--accept-expired` goes on without what the target has deleted")
    return found(fate=Fate.LEFT, why=why, remedy="; or ".join([" and ".join(remedies), again] if remedies else [again]))


def _trouble(match: Match) -> str:
    if match.trouble or (stretches := len(_kept(match))) <= _MOST_KEPT:
        return match.trouble
    return f"the target has {stretches} stretches beside the copy, and at most {_MOST_KEPT} are kept"


def _is_copy(matches: Sequence[Match]) -> bool:
    """Whether a topic may be deleted as a copy: it has records of the source, and not more of somebody else. Where a
    partition has no map, all that is in no run counts as somebody else's."""
    shared = sum(match.records for match in matches)
    foreign = sum(
        match.target.end - match.target.start - match.records
        if match.trouble
        else match.counts().get(Mismatch.FOREIGN, 0)
        for match in matches
    )
    return 0 < shared >= foreign


def _kept(match: Match) -> list[tuple[int, int]]:
    """Where the target holds what no run covers, in order, neighbours and overlapping ones joined."""
    spans = sorted(span for kind in (*_KEEPABLE, Mismatch.OLDER) for span in match.differences.get(kind, ()))
    joined: list[tuple[int, int]] = []
    for span in spans:
        if joined and joined[-1][1] >= span.start:
            start, end = joined.pop()
            joined.append((start, max(end, span.end)))
        else:
            joined.append((span.start, span.end))
    return joined


# -- what is written ------------------------------------------------------------------------------------------------


def _take(ctx: Context, adoption: Adoption) -> None:
    # One may have been started since.
    _require_no_mirror(ctx)
    (step,) = steps(ctx, only=[adoption.topic], compared=[adoption.topic])
    if step.problem:
        raise Refused(f"{step.name}: {step.problem}", remedy=step.remedy)
    _require_same(ctx, adoption)
    create.take_filled(ctx, step, partial(_note, ctx, adoption, step))


def _require_same(ctx: Context, adoption: Adoption) -> None:
    """Raises Refused if either topic is not the one that was compared, or its log has changed since."""
    name, tps = adoption.topic, {match.tp for match in adoption.matches}
    for (side, cluster), compared in zip(_sides(ctx), adoption.ids, strict=True):
        topic = _described(side, cluster, name)
        if topic.topic_id != compared:
            raise Refused(f"topic {name} was recreated on the {side} while it was compared", remedy=_RUN_AGAIN)
        if {*topic.topic_partitions} != tps:
            raise Refused(f"topic {name} was given partitions on the {side} while it was compared", remedy=_RUN_AGAIN)
    now = ctx.target.ends(tps)
    changed = [str(match.tp) for match in adoption.matches if now.get(match.tp) != match.target]
    if changed:
        raise Refused(
            f"records were written, or deleted, on the target while it was compared: {listed(changed)}",
            remedy="see that MirrorMaker is stopped, then run this again",
        )
    here = ctx.source.ends(tps, committed=True)
    if lost := [str(match.tp) for match in adoption.matches if here[match.tp].end < match.source.end]:
        raise Refused(f"the source lost records while it was compared: {listed(lost)}", remedy=_RUN_AGAIN)


def _note(ctx: Context, adoption: Adoption, step: TopicStep, _topic: TopicDescription) -> None:
    """Note the map, and then the topic, in the link. Raises Refused if either topic has changed since it was
    compared."""
    _require_same(ctx, adoption)
    pin = LinkTopic.of(step.name, *adoption.ids)
    keys = {pin.name: pin.key}
    note_pins = partial(
        ctx.link.pin,
        source_cluster=ctx.source.cluster_id(),
        target_cluster=ctx.target.cluster_id(),
        at=ctx.stamp(),
    )
    note_pins(topics=())
    # What a call wrote that was killed is void.
    before = ctx.link.openings(topic_keys=keys)
    for match in adoption.matches:
        known = before.get(match.tp)
        openings = openings_of(
            match.runs,
            first_fence=known.first_of_newest().fence + 1 if known else 0,
            source_end=match.source_at,
            target_end=match.target.end,
        )
        ctx.link.record_openings(((match.tp, opening) for opening in openings), keys)
    ctx.link.record_extras({match.tp: _kept(match) for match in adoption.matches}, pin.key)
    ctx.link.leave_out(dict(_expired(ctx, adoption.matches, pin.key)))
    # Last: without its openings, a topic that is pinned is copied from the beginning.
    note_pins(topics=[pin])


def _expired(ctx: Context, matches: Iterable[Match], key: str) -> Iterator[tuple[TopicPartition, Skip]]:
    for match in matches:
        spans: Sequence[Span] = match.differences.get(Mismatch.EXPIRED, ())
        if spans:
            yield (
                match.tp,
                Skip(
                    start=match.source.start,
                    end=spans[-1].end,
                    halt=START,
                    detail="the target had no such records when MirrorMaker's copy was adopted",
                    by="adopt",
                    at=ctx.stamp(),
                    topic_key=key,
                ),
            )


def _require_unread(ctx: Context, doomed: Sequence[Adoption]) -> None:
    """Raises Refused if members of groups read topics on the target that are to be deleted."""
    topics = {one.topic for one in doomed}
    readers: dict[str, Any] = {
        group: sorted({tp.topic for member in state.members for tp in member.partitions} & topics)
        for group, state in ctx.target.group_states(ctx.target.groups()).items()
    }
    reading: Mapping[str, list[str]] = {group: read for group, read in readers.items() if read}
    if reading:
        raise Refused(
            "groups read on the target what is to be deleted there: "
            + listed(f"{group} ({listed(read)})" for group, read in sorted(reading.items())),
            remedy="stop their consumers on the target, or leave --copy-again out",
        )


def _delete(ctx: Context, doomed: Sequence[Adoption]) -> None:
    _require_no_mirror(ctx)
    topics = [one.topic for one in doomed]
    create.lock(ctx, topics)
    try:
        outgoing = [
            delete.Outgoing(topic=one.topic, action=delete.Action.DELETE, topic_id=one.ids[1]) for one in doomed
        ]
        for one, out in zip(doomed, outgoing, strict=True):
            cancellation.require_none(ctx)
            _require_same(ctx, one)
            # Before: what a killed run has pinned would halt the mirror once the topic is another one.
            ctx.link.unpin([one.topic])
            delete.delete(ctx, out)
        delete.await_gone(ctx, outgoing)
        ctx.journal.forget_all(INTENT, topics)
    finally:
        # `release` knows of no topic that has neither a record nor an intent.
        ctx.journal.unlock(sorted({*topics} - ctx.journal.all(INTENT).keys()))


def _decision(found: Sequence[Adoption]) -> Decision:
    counts = {fate: sum(one.fate is fate for one in found) for fate in Fate}
    parts = [f"{count} topics {fate.in_words}" for fate, count in counts.items() if count]
    return Decision(
        exit_code=1 if counts[Fate.LEFT] else 0,
        message=", ".join(parts) or "no topic to adopt",
        facts={str(fate).replace(" ", "_"): count for fate, count in counts.items()},
        value=tuple(found),
    )
