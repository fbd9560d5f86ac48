"""Holding a mirror back and letting it go on: pause, resume, throttle. Its tasks obey within two seconds.

They stand in the link's state, so that they also hold for a mirror which is started, or takes over, later.

And resuming where a partition has halted: at an offset that a person names, or after what the source has lost. The halt
is lifted, and the mirror (the one that runs, or the next) fences the partition and resumes. What is given up is kept in
the link's state with offsets, reason and name: the offset map has a gap there, and the report lists it. Where the
target's log is not what the link wrote, or the source's log is another one now, the topic can only be copied again
(:mod:`kafka_migration.steps.recopy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.copy.driver.survey import BY_METADATA
from kafka_migration.domain.controls import Controls, Pause, Throttle, rate_text
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.held_open import KEEPS_RECORDS
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Halt, PartitionEnds, TopicPartition
from kafka_migration.inventory import plan_changes
from kafka_migration.link import halts as meanings
from kafka_migration.link import reverse, seal
from kafka_migration.migration import completion
from kafka_migration.topics.declared import KIND, topic_ids

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.link import HaltRecord


def pause(ctx: Context, *, by: str, reason: str = "") -> Controls:
    """Stop fetching and sending; the mirror's processes stay. A second pause keeps the first one's name and time.

    Raises Refused before there is anything to mirror.
    """
    _require(ctx)
    if ctx.link.controls().pause is None:
        ctx.log(f"pause {_name(ctx)}: it neither fetches nor sends until `resume{_option(ctx)}`")
        if not ctx.dry_run:
            ctx.link.pause(Pause(by=by, at=ctx.stamp(), reason=reason))
    return ctx.link.controls()


def resume(ctx: Context, *, by: str) -> Controls:
    """Go on. Nothing happens if nobody has paused it. Raises Refused before there is anything to mirror."""
    _require(ctx)
    if ctx.link.controls().pause is not None:
        ctx.log(f"resume {_name(ctx)}")
        if not ctx.dry_run:
            ctx.link.resume(by=by, at=ctx.stamp())
    return ctx.link.controls()


def throttle(ctx: Context, bytes_per_second: int | None, *, by: str) -> Controls:
    """Send at most so much, over all tasks; None takes every throttle back. Raises Refused before there is anything."""
    _require(ctx)
    mirror = _name(ctx)
    off = f"take the throttle off {mirror}"
    ctx.log(off if bytes_per_second is None else f"throttle {mirror} to {rate_text(bytes_per_second)}")
    if not ctx.dry_run:
        ctx.link.throttle(Throttle(bytes_per_second=bytes_per_second, by=by, at=ctx.stamp()))
    return ctx.link.controls()


def _require(ctx: Context) -> None:
    """The reverse mirror needs no lock on topics: it runs also where they were released."""
    if ctx.direction is Direction.REVERSE:
        reverse.check(ctx)
        completion.require_none(ctx)
    else:
        plan_changes.to_mirror(ctx)


def _name(ctx: Context) -> str:
    return "the mirror" if ctx.direction is Direction.FORWARD else "the reverse mirror"


def _option(ctx: Context) -> str:
    return "" if ctx.direction is Direction.FORWARD else " --reverse"


def _again(ctx: Context, topic: str) -> str:
    if ctx.direction is Direction.REVERSE:
        return meanings.NOT_BACK
    if not ctx.is_first:
        return "exclude the topic from the plan, and migrate it by a plan of its own"
    return f"copy it again: `mirror --again {topic}`, or exclude it from the plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A partition whose halt is lifted: it stood at offset ``stands`` of the link's origin ``side``, and resumes at
    ``at``.

    ``still_there`` are the offsets in between that the origin has not lost.
    """

    tp: TopicPartition
    side: Side
    halt: str
    detail: str
    stands: int
    at: int
    still_there: int

    @property
    def given_up(self) -> int:
        """Offsets of the origin that are never copied: as many records at most."""
        return self.at - self.stands

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        where = f"{self.tp}: resume at {self.side} offset {self.at} (halted: {self.halt} at {self.stands})"
        if not self.given_up:
            return f"{where}; nothing is given up"
        there = f", {self.still_there:,} of them still on the {self.side}" if self.still_there else ""
        return f"{where}; offsets {self.stands}..{self.at} are given up: {self.given_up:,}{there}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "side": self.side,
            "halt": self.halt,
            "stands": self.stands,
            "at": self.at,
            "given_up": self.given_up,
            "still_there": self.still_there,
        }


def check_halted(
    ctx: Context, *, at: Sequence[tuple[TopicPartition, int]] = (), accept_loss: Sequence[str] = ()
) -> tuple[Resumed, ...]:
    """What would be done. Changes nothing.

    ``at``: where to resume, by partition; ``accept_loss``: TOPIC or TOPIC:PARTITION, whose halts of DATA_LOSS resume at
    the origin's log start. Raises BadInput for a partition that is named twice, or an offset that the origin does not
    have, Refused for one that is not halted, or that can only be copied again.
    """
    if ctx.direction is Direction.FORWARD:
        plan_changes.to_mirror(ctx)
    else:
        reverse.check(ctx)
    seal.check(ctx)
    halts = ctx.link.halts()
    wanted: dict[TopicPartition, int | None] = {}
    for tp, offset in (*at, *((tp, None) for text in accept_loss for tp in _lossy(halts, text))):
        if tp in wanted:
            raise BadInput(
                "this partition is named twice", field="resume", value=str(tp), remedy="name it once, with one offset"
            )
        wanted[tp] = offset
    for tp in wanted:
        _require_resumable(ctx, halts, tp)
    _refuse_others(ctx, wanted)
    _refuse_unproved(ctx, {tp.topic for tp in wanted if halts[tp].reason in BY_METADATA})
    _refuse_drifted(ctx, sorted(tp for tp in wanted if halts[tp].reason == Halt.CONFIG_DRIFT))
    ends, positions = ctx.origin.ends(wanted), ctx.link.positions()
    stands = {tp: positions[tp].source if tp in positions else ends[tp].start for tp in wanted}
    return tuple(_one(ctx, tp, halts[tp], ends[tp], stands[tp], wanted[tp]) for tp in sorted(wanted))


def _require_resumable(ctx: Context, halts: Mapping[TopicPartition, HaltRecord], tp: TopicPartition) -> None:
    if tp not in halts:
        raise Refused(f"{tp} is not halted, so there is nothing to resume", remedy="run `status`: it names halted ones")
    reason, (here, there) = halts[tp].reason, (ctx.direction.origin, ctx.direction.destination)
    if not meanings.is_resumed(reason, ctx.direction):
        why = f"the {there}'s log no longer belongs to the {here}'s"
        raise Refused(
            f"{tp} is halted for {reason}" + (f": {why}" if reason in meanings.COPY_AGAIN else ""),
            remedy=_again(ctx, tp.topic),
        )


def resume_halted(
    ctx: Context, *, at: Sequence[tuple[TopicPartition, int]] = (), accept_loss: Sequence[str] = (), by: str
) -> tuple[Resumed, ...]:
    """Lift the halts, and record what is given up. Killed anywhere, the partition is still halted or resumes."""
    todo = check_halted(ctx, at=at, accept_loss=accept_loss)
    keys = {name: topic.key for name, topic in ctx.link.topics().items()}
    for resumed in todo:
        ctx.log(str(resumed))
    if not ctx.dry_run:
        ctx.link.lift({r.tp: _skip(r, by=by, at=ctx.stamp(), topic_key=keys.get(r.tp.topic, "")) for r in todo})
    return todo


def _skip(resumed: Resumed, *, by: str, at: str, topic_key: str) -> Skip | None:
    if not resumed.given_up:
        return None
    return Skip(
        start=resumed.stands,
        end=resumed.at,
        halt=resumed.halt,
        detail=resumed.detail,
        by=by,
        at=at,
        topic_key=topic_key,
    )


def _lossy(halts: Mapping[TopicPartition, HaltRecord], text: str) -> list[TopicPartition]:
    topic, _, partition = text.partition(":")
    if partition and not partition.isdecimal():
        raise BadInput("is not TOPIC or TOPIC:PARTITION", field="--accept-loss", value=text, remedy="write orders:0")
    named = {tp: halts[tp].reason for tp in sorted(halts) if tp.topic == topic and partition in ("", str(tp.partition))}
    lossy = [tp for tp, reason in named.items() if reason == Halt.DATA_LOSS]
    if not lossy:
        seen = ", ".join(f"{tp} {reason}" for tp, reason in named.items()) or "not halted"
        raise Refused(
            f"no records of {text} were lost before they were copied ({seen})",
            remedy="for other halts name the offset to resume at: `resume --at TOPIC:PARTITION:OFFSET`; see `status`",
        )
    return lossy


def _refuse_others(ctx: Context, wanted: dict[TopicPartition, int | None]) -> None:
    """A topic that is another one now, or gone, would only halt again."""
    pinned = _pinned_ids(ctx)
    for name, ids in topic_ids(ctx, {tp.topic for tp in wanted}).items():
        for side, now, then in zip(("source", "target"), ids, pinned.get(name, ids), strict=True):
            if now is None or (now and then and now != then):
                raise Refused(
                    f"topic {name} on the {side} is {'gone' if now is None else 'another one'} now",
                    remedy=_again(ctx, name),
                )


def _refuse_unproved(ctx: Context, topics: set[str]) -> None:
    """What was gone, or another one, resumes where both clusters have the pinned topic: an id is given only once."""
    pinned = _pinned_ids(ctx)
    for name, ids in topic_ids(ctx, topics).items():
        expected = pinned.get(name, ())
        if ids != [*expected] or not all(expected):
            raise Refused(
                f"topic {name}: nothing proves that source and target have the topics that were mirrored",
                remedy=_again(ctx, name),
            )


def _pinned_ids(ctx: Context) -> dict[str, tuple[str, str]]:
    """On source and target, whichever way the link copies."""
    pins = {name: pin.ids for name, pin in ctx.link.topics().items()}
    return pins if ctx.direction is Direction.FORWARD else {name: (to, of) for name, (of, to) in pins.items()}


def _refuse_drifted(ctx: Context, halted: Sequence[TopicPartition]) -> None:
    """While the config is what it is they would only halt again. Afterwards records may be gone already, and a running
    mirror takes the destination's log as it finds it."""
    for topic, configs in ctx.destination.topic_configs(sorted({tp.topic for tp in halted})).items():
        wrong = [f"{n}={v}" for n, v in KEEPS_RECORDS.items() if n in configs and configs[n].value != v]
        if wrong:
            raise Refused(
                f"topic {topic} on the {ctx.direction.destination} has configs under which copied records are deleted"
                " or altered",
                remedy=f"set {', '.join(wrong)} on it, then run this again",
            )
    _refuse_lost_copies(ctx, halted)


def _refuse_lost_copies(ctx: Context, halted: Sequence[TopicPartition]) -> None:
    openings, ends = ctx.link.openings(), ctx.destination.ends(halted)
    for tp in halted:
        mine = openings.get(tp, ())
        # What expired on the target after restoring was meant to.
        is_restored = ctx.direction is Direction.FORWARD and "restored_at" in (ctx.journal.read(KIND, tp.topic) or {})
        if mine and ends[tp].start > mine[0].target and not is_restored:
            raise Refused(
                f"{tp}: records are gone on the {ctx.direction.destination}: its log begins at {ends[tp].start}, and"
                f" what was copied at {mine[0].target}",
                remedy=_again(ctx, tp.topic),
            )


def _one(
    ctx: Context, tp: TopicPartition, halt: HaltRecord, ends: PartitionEnds, stands: int, offset: int | None
) -> Resumed:
    side = ctx.direction.origin
    at = max(stands, ends.start) if offset is None else offset
    if at < stands:
        raise BadInput(
            f"{tp} is copied up to {side} offset {stands} already",
            field="--at",
            value=at,
            remedy=f"resume at {stands} (nothing is given up) or later",
        )
    if not ends.start <= at <= ends.end:
        raise BadInput(
            f"{tp} has {side} offsets {ends.start}..{ends.end}",
            field="--at",
            value=at,
            remedy=f"resume at {max(stands, ends.start)} or later, up to {ends.end}",
        )
    there = max(0, at - max(stands, ends.start))
    return Resumed(tp=tp, side=side, halt=halt.reason, detail=halt.detail, stands=stands, at=at, still_there=there)
