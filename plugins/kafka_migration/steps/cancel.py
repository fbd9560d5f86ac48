"""Cancel: end a migration before any client moved, and remove what it made, and nothing else.

The mirror is ended and the link fenced, so that a mirror that wakes later writes nothing; the topics that this
migration created are deleted, its locks given up. Adopted topics stay as they are. The journal keeps its history, with
who cancelled, when and why; whatever else is run of the migration is refused from then on.

Refused, before anything is changed: once a group was moved or is being moved, while the source is fenced, once topics
are served by the target or were given up, and where somebody else uses a topic that would be deleted. All of that is
asked again after the record stands, and right before each topic.

Undo: nothing brings back what was deleted; `create` (after `approve plan`) begins again, and copies everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.access import grants
from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import Desired, Halt
from kafka_migration.fence import fence
from kafka_migration.fence.bans import EARLY_WRITES, REHEARSALS
from kafka_migration.groups.looks import subscribed_topics
from kafka_migration.groups.record import GroupRecord
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.renamed import other_names
from kafka_migration.link import lifecycle, reverse, seal
from kafka_migration.link.claim import claimed
from kafka_migration.migration import cancellation
from kafka_migration.migration.cancellation import Cancellation, State
from kafka_migration.migration.history import KIND as PHASE
from kafka_migration.migration.history import phase
from kafka_migration.overview import notices
from kafka_migration.schemas.difference import Made
from kafka_migration.state.link import Wish
from kafka_migration.steps import draining, recopy
from kafka_migration.steps.fence import run_hooks
from kafka_migration.steps.release import left_open
from kafka_migration.steps.step import Decision
from kafka_migration.topics import delete, keeping
from kafka_migration.topics.declared import AGAIN, INTENT, KIND
from kafka_migration.topics.delete import Action, Outgoing
from kafka_migration.validation.record import KIND as VERDICT
from kafka_migration.validation.record import LATEST

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: A fence on the source's producers, as the journal keeps it, and its state once producers may write again.
_FENCE, _LIFTED = "fence", "lifted"

_SERVED = (TopicState.FENCED, TopicState.SERVED, TopicState.REVERSED, TopicState.COMPLETED)
_KEEP = "or keep the topics (--keep-topics)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What was done (or, in a dry run, would be). ``is_new`` is False if the migration was cancelled before."""

    topics: tuple[Outgoing, ...]
    cancellation: Cancellation | None
    is_new: bool = True
    dry_run: bool = False

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "dry_run": self.dry_run,
            "is_new": self.is_new,
            "topics": [one.as_dict() for one in self.topics],
            "cancellation": None if self.cancellation is None else self.cancellation.as_dict(),
        }


def check(ctx: Context, *, keep_topics: bool = False) -> tuple[Outgoing, ...]:
    """What becomes of each topic; nothing for a migration that is cancelled already. Changes nothing.

    Raises Refused, with all that is in the way by name; and what the target raises.
    """
    ctx.require_whole("cancelling")
    # Also what an earlier plan selected.
    ctx.link.select_also(lambda _topic: True)
    if not is_left_to_do(ctx):
        return ()
    if not any(ctx.journal.all(kind) for kind in (PHASE, KIND, INTENT, AGAIN, "approval")):
        raise Refused(
            f"migration {ctx.plan.name} has not begun, so there is nothing to cancel",
            remedy="check the name in the plan; `status` shows what is recorded of it",
        )
    todo = delete.check(ctx, keep=keep_topics)
    _refuse(ctx, [*_irrevocable(ctx), *_used_by_others(ctx, todo), *_not_deletable(ctx, todo)])
    return todo


def apply(ctx: Context, *, by: str, reason: str = "", keep_topics: bool = False) -> Cancelled:
    """Cancel; a second call changes nothing. Killed anywhere, the next call goes on.

    Raises Refused as :func:`check` does, CouldNotFindOut if the mirror does not end, a partition cannot be fenced, or a
    deleted topic does not go.
    """
    todo, before = check(ctx, keep_topics=keep_topics), cancellation.read(ctx)
    if not is_left_to_do(ctx):
        ctx.log(f"nothing to do: migration {ctx.plan.name} was {before}")
        return Cancelled(topics=(), cancellation=before, is_new=False, dry_run=ctx.dry_run)
    for line in steps(ctx, todo):
        ctx.log(line)
    if ctx.dry_run:
        return Cancelled(topics=todo, cancellation=None, dry_run=True)
    begun = cancellation.begin(ctx, by=by, reason=reason)
    try:
        # Once more: whoever looked for a cancellation just before it was recorded has written down what it does.
        check(ctx, keep_topics=keep_topics)
        # No mirror begins by it from here on: neither link may write.
        reverse.disarm(ctx)
    except Refused:
        if before is None or not before.holds:
            cancellation.take_back(ctx, before)
        raise
    _end_mirror(ctx)
    records = sum(ctx.link.records().values())
    _cut_off(ctx, keep_topics=keep_topics)
    # The mirror may have created topics until it ended.
    todo = check(ctx, keep_topics=keep_topics)
    begun = replace(
        begun,
        topics={**begun.topics, **_became(todo, begun)},
        left=left_open(ctx, [one.topic for one in todo if one.action is Action.LEAVE]) or begun.left,
        records=max(records, begun.records),
    )
    cancellation.write(ctx, begun)
    fence.let_in_on_target(ctx, run_hooks(ctx, None, "target"))
    fence.end_rehearsals(ctx)
    # Of a reverse mirror that ended before it ran.
    keeping.give_back(ctx)
    _delete(ctx, [one for one in todo if one.action is Action.DELETE])
    for text in begun.left:
        ctx.log(text)
    if grants.made(ctx.journal):
        ctx.log("ACLs, quotas and SCRAM users that `access --apply` made stay: `access PLAN --undo` removes them")
    if Made.all(ctx.journal):
        ctx.log("schemas that were copied stay: `schemas PLAN --undo` deletes them")
    return Cancelled(topics=todo, cancellation=_forget(ctx, begun))


def is_left_to_do(ctx: Context) -> bool:
    """Whether the migration is not cancelled yet, or not completely."""
    found = cancellation.read(ctx)
    return found is None or found.state is not State.CANCELLED


def steps(ctx: Context, todo: Iterable[Outgoing]) -> list[str]:
    """What is done, in words for people: the same in a dry run and in earnest."""
    return [
        f"end the mirror of {ctx.plan.name}, and fence it: it may not write any more",
        *map(str, todo),
        f"give up the locks of {ctx.plan.name} on its topics; its history stays in the journal",
    ]


def begin_again(ctx: Context, *, run_began: str = "") -> None:
    """Take away what keeps a cancelled migration from beginning again. Nothing if it was not cancelled; killed
    anywhere, the next call goes on. Raises what :func:`cancellation.require_may_begin` raises."""
    cancellation.require_may_begin(ctx, run_began=run_began)
    found = cancellation.read(ctx)
    if found is None or found.state is not State.CANCELLED:
        return
    ctx.log(f"the migration was {found}, and begins again")
    if ctx.dry_run:
        return
    seal.undo(ctx)
    # It was about records that are gone.
    ctx.journal.forget(VERDICT, LATEST)
    if ctx.journal.read(notices.KIND, notices.NAME) is not None:
        # What stood then is no news any more, nor is its end.
        ctx.journal.forget(notices.KIND, notices.NAME)
    cancellation.begin_again(ctx)


# -- what is in the way ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Refusal:
    message: str
    remedy: str


def _refuse(ctx: Context, found: Sequence[_Refusal]) -> None:
    if found:
        raise Refused(
            f"migration {ctx.plan.name} cannot be cancelled: {listed((one.message for one in found), separator='; ')}",
            remedy="; ".join(dict.fromkeys(one.remedy for one in found)),
        )


def _irrevocable(ctx: Context) -> list[_Refusal]:
    """What the journal knows of clients that have moved, or are being moved."""
    found = []
    if moved := _moved(ctx):
        remedy = f"move each back (`undo --group {moved[0]}`), then run this again; or go on with the migration"
        found.append(_Refusal(f"groups were moved, or are being moved: {listed(moved)}", remedy))
    if fences := _fences(ctx):
        remedy = "lift the fence, so that producers write to the source again; or go on with the migration"
        found.append(_Refusal(f"producers of the source are fenced: {listed(fences)}", remedy))
    back = reverse.begun(ctx)
    if back is not None and reverse.has_run(back):
        remedy = "go on with the migration, or roll back: what was copied to the source cannot be taken back"
        found.append(_Refusal(f"a mirror has run by the reverse link {back.link.name}", remedy))
    states = lifecycle.read(ctx)
    if served := [f"{topic} is {state}" for topic, state in states.items() if state in _SERVED]:
        remedy = "there is no way back by cancelling: clients may use these topics on the target"
        found.append(_Refusal(listed(served), remedy))
    return found


def _moved(ctx: Context) -> list[str]:
    records = sorted(GroupRecord.all(ctx.journal).items())
    # Not one that was rolled back, and stands on the source.
    return [group for group, record in records if record.is_moved or record.leg.is_unfinished]


def _fences(ctx: Context) -> list[str]:
    """Fences that were begun and not lifted: whatever is recorded of one, unless it is known to be lifted. A rehearsal
    keeps no producer out, and one that keeps clients off the target is lifted by the cancellation."""
    others = {ban.key for ban in (*REHEARSALS, EARLY_WRITES)}
    return [
        name
        for name, value in sorted(ctx.journal.all(_FENCE).items())
        if value.get("state") != _LIFTED and name not in others
    ]


def _named(ctx: Context, topics: Iterable[str]) -> str:
    """What the target calls ``topics``, where it has other names for them: what is done by hand goes by these."""
    named = [ctx.called_on_target(topic) for topic in other_names(ctx.target, sorted(topics))]
    return f" ({listed(named)})" if named else ""


def _used_by_others(ctx: Context, todo: Iterable[Outgoing]) -> list[_Refusal]:
    """Topics that would be deleted and that somebody else writes to, or reads."""
    going = {one.topic: one for one in todo if one.action is Action.DELETE}
    if not going:
        return []
    found = []
    if readers := sorted({*recopy.positions_on_target(ctx, going), *_readers(ctx, going)}):
        remedy = "stop them on the target and delete their offsets there (kafka-consumer-groups.sh --delete-offsets)"
        evidence = f"groups use these topics on the target: {listed(readers)}"
        found.append(_Refusal(evidence, f"{remedy}{_named(ctx, going)}; {_KEEP}"))
    if written := _written_by_others(ctx, going.values()):
        remedy = "find out who writes there; if nobody needs that, delete these topics by hand and run this again"
        evidence = f"somebody else wrote to the target: {listed(written)}"
        found.append(_Refusal(evidence, f"{remedy}{_named(ctx, going)}; {_KEEP}"))
    return found


def _not_deletable(ctx: Context, todo: Iterable[Outgoing]) -> list[_Refusal]:
    """What a migration needs no ACL for until it is cancelled."""
    going = sorted(one.topic for one in todo if one.action is Action.DELETE)
    allowed = ctx.target.topic_operations(going, ())
    if not (denied := [topic for topic in going if "DELETE" not in allowed[topic]]):
        return []
    remedy = f"grant it on the target (`acls PLAN` prints it as optional), {_KEEP}"
    return [_Refusal(f"missing ACL: Delete on {len(denied)} topics of the target: {listed(denied)}", remedy)]


def _readers(ctx: Context, topics: Iterable[str]) -> set[str]:
    """Groups with members that read ``topics`` on the target."""
    wanted = set(topics)
    states = ctx.target.group_states(list(ctx.target.groups()))
    return {group for group, state in states.items() if wanted & subscribed_topics(state)}


def _written_by_others(ctx: Context, going: Iterable[Outgoing]) -> list[str]:
    """What shows without reading records; the fence reads what the mirror did not confirm."""
    tps = [tp for one in going for tp in one.topic_partitions]
    topics = {tp.topic for tp in tps}
    found = {
        str(tp): f"{tp} at offset {halt.target_offset}"
        for tp, halt in ctx.link.halts().items()
        if tp.topic in topics and halt.reason == Halt.FOREIGN_WRITER
    }
    pinned = ctx.link.topics()
    fresh = [tp for tp in tps if tp.topic not in pinned]
    for tp, ends in ctx.target.ends(fresh).items():
        if ends.end > ends.start:
            found.setdefault(str(tp), f"{tp} holds {ends.end - ends.start} records, and was never mirrored")
    ours = {identity.producer_id for identity in ctx.link.fences().values()}
    with suppress(NotSupported, NotAuthorized):
        for tp, producers in ctx.target.producers([tp for tp in tps if tp.topic in pinned]).items():
            if foreign := sorted({producer.producer_id for producer in producers} - ours):
                found.setdefault(str(tp), f"{tp} (producers {listed(foreign)})")
    return [found[tp] for tp in sorted(found)]


# -- what is done ---------------------------------------------------------------------------------------------------


def _end_mirror(ctx: Context) -> None:
    if ctx.link.run() is not None:
        wish = Wish(desired=Desired.STOP, reason="the migration is cancelled", at=ctx.stamp())
        draining.end_mirror(ctx, wish, draining.NOW_SECONDS)


def _cut_off(ctx: Context, *, keep_topics: bool) -> None:
    """No mirror of the link writes from here on. What one may have sent before it died has landed, if a topic is to be
    deleted: a topic of the same name could not be distinguished from it by old brokers."""
    with claimed(ctx) as claim:
        todo = delete.check(ctx, keep=keep_topics)
        pinned = ctx.link.topics()
        left = [one for one in todo if one.topic in pinned and one.topic_id == pinned[one.topic].ids[1]]
        foreign = seal.cut_off(ctx, [tp for one in left for tp in one.topic_partitions])
        going = {one.topic for one in todo if one.action is Action.DELETE}
        if seen := [f"{tp}: {detail}" for tp, detail in sorted(foreign.items()) if tp.topic in going]:
            raise Refused(
                f"migration {ctx.plan.name} is fenced, and no topic was deleted, as somebody else wrote to the target:"
                f" {listed(seen, separator='; ')}",
                remedy="find out who writes there; if nobody needs that, delete these topics by hand and run this"
                f" again{_named(ctx, going)}; {_KEEP}",
            )
        if going:
            claim.await_landing()


def _became(todo: Iterable[Outgoing], begun: Cancellation) -> dict[str, str]:
    """What becomes of each topic, in words; of one that an earlier call deleted, that."""
    texts = {Action.DELETE: "deleted", Action.GONE: "was gone from the target"}
    return {
        one.topic: texts.get(one.action) or f"left: {one.why}"
        for one in todo
        if one.action is not Action.GONE or one.topic not in begun.topics
    }


def _delete(ctx: Context, going: Sequence[Outgoing]) -> None:
    for one in going:
        _refuse(ctx, [*_irrevocable(ctx), *_used_by_others(ctx, [one])])
        delete.delete(ctx, one)
    delete.await_gone(ctx, going)


def _forget(ctx: Context, begun: Cancellation) -> Cancellation:
    """Remove the records by which topics belong to this migration, give up the locks, and record that it is done."""
    topics = sorted(begun.topics)
    ctx.link.record_run({"state": "ended", "reason": "cancelled", "at": ctx.stamp(), "records": begun.records})
    ctx.link.unpin({*topics, *ctx.link.topics()})
    kinds = (lifecycle.KIND, KIND, INTENT, AGAIN)
    kept = {kind: ctx.journal.all(kind) for kind in kinds}
    ctx.journal.write({(kind, name): None for kind in kinds for name in kept[kind]})
    ctx.journal.unlock([topic for topic, by in ctx.journal.holders(topics).items() if by == ctx.journal.migration])
    done = replace(begun, state=State.CANCELLED, ended=ctx.stamp())
    cancellation.write(ctx, done)
    return done


def run(ctx: Context, *, by: str, reason: str = "", keep_topics: bool = False) -> Decision:
    """Cancel, and record in the journal that and how it was done; ``value`` is the result."""
    # A refusal, and a call that has nothing to do, leave no trace.
    todo = check(ctx, keep_topics=keep_topics)
    if not is_left_to_do(ctx):
        return Decision(value=apply(ctx, by=by, reason=reason, keep_topics=keep_topics))
    ctx.make_state()
    with phase(ctx, "cancel") as account:
        result = apply(ctx, by=by, reason=reason, keep_topics=keep_topics)
        done = result.cancellation
        left = [one.topic for one in result.topics if one.action is Action.LEAVE]
        detail = "" if done is None else str(done)
        account.ends(0, detail, topics=len(todo), left=left)
    return Decision(facts={"topics": len(result.topics)}, notes=() if done is None else done.left, value=result)
