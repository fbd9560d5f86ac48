"""Moving one consumer group: stop, prove it stopped, translate, write, read back, start.

From the origin of the context's link to its destination: to the target, or back to the source. Each such move is a leg
of the group's record.

What can go wrong, and what closes it:

- *The process dies anywhere.* Every step is in the journal before and after; :meth:`Mover.move` resumes from there.
  What can go stale in the meantime (empty, commits unchanged) is proved again, so a run never writes on what an older
  one saw.
- *A group without members is not yet stopped:* its consumers may be restarting, or commit without being members. So
  the commits of one that was never seen with members must stay unchanged for a while, too, and all of this is proved
  once more right before the write and right after it.
- *The group runs on the destination already* when a later run finds it. Its offsets are not touched again then; Kafka
  itself refuses to write the offsets of a group with members.
- *Somebody else moves the same group.* Whoever claimed it last owns it: the claim is looked at right before every hook,
  commit and entry, and who lost it ends there (docs/adr/0010).
- *The group is up on the other side* when it is to be started: that is proved right before every start
  (:mod:`kafka_migration.groups.proof`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import looks
from kafka_migration.groups.hooks import HookCall, HookRun, HookUnanswered, Phase, require_runnable, run_hook
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Commits, Look
from kafka_migration.groups.proof import (
    CommitsWithoutMembers,
    CommittedSince,
    GroupNotEmpty,
    WouldRewind,
    accept_if_written,
    before_key,
    beyond,
    must_move_again,
    require_alone_at_destination,
    require_empty,
    require_unused_at_destination,
)
from kafka_migration.groups.record import GroupRecord, Step, Translation, commits_as_evidence, offsets_of
from kafka_migration.groups.translate import (
    REMEDY_SHARED,
    GroupView,
    Positions,
    UncommittedPartitions,
    current_positions,
    shared_with_others,
    view_groups,
)
from kafka_migration.kafka.types import CommittedOffset, GroupState
from kafka_migration.link.ready import NotCopied
from kafka_migration.migration import completion
from kafka_migration.plans.hooks import Hook

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

T = TypeVar("T")
Proof = Callable[["Context", GroupRecord], None]

#: The longest time between two looks while waiting, in seconds. The first come sooner: a group stands still meanwhile.
POLL_SECONDS = 0.25
_FIRST_POLL_SECONDS = 0.02

#: For how long a cluster that does not answer is asked again, and a hook without an answer called again, while a group
#: stands still. Giving up at the first hiccup (a coordinator that moves) would leave its consumers stopped until a
#: person looks.
PATIENCE_SECONDS = 30.0
HOOK_AGAIN_SECONDS = 1.0


def phase_of(ctx: Context) -> Phase:
    """What a move the way of the context's link is called, for hooks and people; it is a command's name, too."""
    return "cutover" if ctx.direction is Direction.FORWARD else "rollback"


class Mover:
    """Moves groups the way of the context's link, one at a time, and each from wherever its record has it.

    ``tick`` is called while it waits. ``environ`` is what hooks are allowed by (default: the process's environment).
    """

    def __init__(
        self, ctx: Context, *, environ: Mapping[str, str] | None = None, tick: Callable[[], None] = lambda: None
    ) -> None:
        self.ctx, self._environ, self._tick = ctx, environ, tick
        self._ticked = float("-inf")
        self.here, self.there = ctx.direction.origin, ctx.direction.destination
        self.phase = phase_of(ctx)
        self._before = before_key(ctx.direction)

    def move(self, group: str) -> GroupRecord:
        """Move a group from wherever its record has it, up to started. Raises with nothing half-written.

        The group is this mover's from here on; whoever moved it before ends, by TakenOver, before it touches anything.
        """
        # Before the claim, which would end the undo, or the other move, that is under way.
        self.require_turn(GroupRecord.load(self.ctx.journal, group))
        record = GroupRecord.own(self.ctx.journal, group, at=self.ctx.stamp())
        record.take_leg(self.ctx.direction, self.ctx.generation)
        if record.has(Step.UNDOING) and not record.has(Step.UNDONE):
            # Begun between that look and the claim, which has ended it: so it is finished here.
            self.move_back(record)
            raise Refused(
                f"group {group} was being moved back to the {self.here} by another command; this run has finished that",
                remedy=f"run this again if the group is to be moved to the {self.there}",
            )
        if record.has(Step.UNDONE):
            record.restart()
        view = self._view(group, is_stable=False)
        accept_if_written(self.ctx, record, view)
        if record.has(Step.READ_BACK):
            if not must_move_again(self.ctx, record, view):
                self._start(record)
                return record
            if record.steps:
                # Nobody started it for so long that both clusters may have forgotten it.
                self._commit_again(record)
                record.restart()
                view = self._view(group)
        look = self._asked(lambda: looks.take(self.ctx, [group])[group])
        try:
            if record.is_stopped:
                # By an earlier try: it stands still, so a cluster that does not answer is worth waiting for.
                self._asked(lambda: self.require_movable(view, look))
            else:
                self.require_movable(view, look)
            self._require_copied(view)
            commits = self._stop(record, view, look)
            # Members of before are gone: what they subscribed to is known from the look.
            view = self._view(group)
            translations = self._translate(record, view)
            self._write(record, commits, translations)
        except TakenOver:
            raise
        except MigrationError as error:
            self._start_again(record, error)
            raise
        except KeyboardInterrupt:
            self._start_again(record, Refused("the move was interrupted", remedy="run this again"))
            raise
        self._start(record)
        return record

    def leave_running(self, group: str, because: MigrationError) -> None:
        """Start a group that an earlier run left stopped, where its record has it, and move it no further."""
        found = GroupRecord.load(self.ctx.journal, group)
        if found.leg.is_of(self.ctx.direction, self.ctx.generation) and found.is_stopped:
            record = GroupRecord.own(self.ctx.journal, group, at=self.ctx.stamp())
            # The other way may have taken it up between that look and the claim.
            record.require_leg(self.ctx.direction, self.ctx.generation)
            if record.has(Step.READ_BACK):
                self._start(record)
            else:
                self._start_again(record, because)

    def move_back(self, record: GroupRecord) -> None:
        """Return a group that this mover owns to where it came from: stop it on the destination, prove that, start it
        on the origin.

        If it has committed on the destination since, it is left running there, and CommittedSince is raised.
        """
        group, plan = record.group, self.ctx.plan
        stop, start = plan.stop_hooks(group), plan.start_hooks(group)
        runs_there = not self._asked(lambda: self.ctx.destination.group_state(group)).is_empty
        self._begin_undo(record)
        if runs_there or record.has(Step.STARTING):
            self._run_hooks(record, stop, self.there, "undo")
        rest = 0.0 if runs_there else plan.cutover.rest_seconds
        self._wait_until_at_rest(self.there, group, plan.consumers.wait_seconds if stop else 0.0, rest)
        self._commit_again(record)
        try:
            runs = self._run_hooks(record, start, self.here, "undo", prove=require_unused_at_destination)
        except CommittedSince:
            record.forget(Step.UNDOING, Step.STARTING, Step.STARTED)
            if record.has(Step.READ_BACK):
                self.ctx.log(f"{group}: not moved back, so its consumers are started on the {self.there} again")
                self._start(record)
            raise
        record.mark(Step.UNDONE, self.ctx.clock.now(), hooks=[run.as_dict() for run in runs])

    def _begin_undo(self, record: GroupRecord) -> None:
        is_new = not record.has(Step.UNDOING)
        record.mark(Step.UNDOING, self.ctx.clock.now())
        if is_new and self.ctx.direction is Direction.FORWARD:
            self._require_not_completed(record, Step.UNDOING)

    def _require_not_completed(self, record: GroupRecord, begun: Step) -> None:
        """Behind the record that ``begun`` is reached: one of both, this and the completion, sees what the other does.
        Nothing was done then."""
        try:
            completion.require_none(self.ctx)
        except Refused:
            record.forget(begun)
            raise

    def _commit_again(self, record: GroupRecord) -> None:
        """Write where the group stood on the origin again, as far as that has forgotten it: Kafka lets the offsets of a
        group expire that is empty for long (``offsets.retention.minutes``, 7 days)."""
        group, here = record.group, self._asked(lambda: self.ctx.origin.committed(record.group))
        gone = {
            move.tp: CommittedOffset(offset=move.origin, metadata=move.metadata)
            for move in record.translations
            if move.origin is not None and move.tp not in here
        }
        if gone:
            self.ctx.log(f"{group}: its offsets of {listed(gone)} have expired on the {self.here}: write them again")
            record.require_owner()
            self.ctx.origin.commit(group, gone)

    # -- before anything is stopped ---------------------------------------------------------------------------------

    def _view(self, group: str, *, is_stable: bool = True) -> GroupView:
        return self._asked(lambda: view_groups(self.ctx, [group], is_stable=is_stable)[group])

    def require_turn(self, record: GroupRecord) -> None:
        """Refuse a group that another move, or an undo, has to leave first."""
        record.require_leg(self.ctx.direction, self.ctx.generation)
        if record.has(Step.UNDOING) and not record.has(Step.UNDONE):
            raise Refused(
                f"group {record.group} is being moved back to the {record.leg.direction.origin}",
                remedy=f"finish that first: `undo --group {record.group}`",
            )

    def require_movable(self, view: GroupView, look: Look | None = None) -> None:
        """Refuse, before its consumers are stopped for nothing, a group that could not be moved anyway."""
        self.require_protocol(view)
        plan, group = self.ctx.plan, view.group
        if not self.ctx.is_first:
            self._require_its_own(view)
        if not view.state.is_empty and not plan.stop_hooks(group):
            raise GroupNotEmpty(self.here, view.state)
        require_empty(self.ctx, group, self.there)
        if view.is_concerned and self.ctx.direction is Direction.FORWARD:
            self._require_alone(view, look)
        if view.uncommitted and plan.cutover.uncommitted == "refuse":
            raise UncommittedPartitions(group, view.uncommitted)
        self._refuse_commits_without_members(group, look)
        there = self.ctx.destination.committed(group)
        self._require_not_ahead(group, there, current_positions(self.ctx, view).translations)
        self.require_hooks(group, stop_on=self.here, start_on=self.there, phase=self.phase)

    def _require_alone(self, view: GroupView, look: Look | None) -> None:
        outside = view.outside_now(look.subscription if look else frozenset())
        if shared := shared_with_others(self.ctx, {view.group: outside}):
            raise Refused(
                f"{shared[0]}, which another migration mirrors: it would go on there without its positions",
                remedy=REMEDY_SHARED,
            )

    def require_protocol(self, view: GroupView) -> None:
        """Refuse a group that is more than what it committed, or does not exist."""
        if view.state.protocol not in MOVABLE_PROTOCOLS:
            raise Refused(
                f"group {view.group} uses protocol {view.state.protocol}, whose state is not only committed offsets",
                remedy="move its application by its own procedure, and exclude the group from the plan",
            )
        if not view.is_concerned and not view.state.exists:
            raise Refused(
                f"group {view.group} does not exist on the {self.here}",
                remedy="check its name; a group is forgotten when its last committed offset has expired",
            )

    def _require_its_own(self, view: GroupView) -> None:
        """On the way back: refuse a group whose commits here are not known to be where it stands."""
        record = GroupRecord.load(self.ctx.journal, view.group)
        if not any(leg.steps for leg in record.legs) and self.ctx.destination.committed(view.group):
            raise Refused(
                f"group {view.group} was not moved to the {self.here} by this migration, and has offsets on the"
                f" {self.there}",
                remedy=f"leave it on the {self.there}; what was committed for it on the {self.here} is not its own",
            )
        last = next((leg for leg in reversed(record.legs) if leg.is_done), None)
        moved = [move.tp for move in (last.translations if last else ())]
        left_out = sorted({tp.topic for tp in moved if not self.ctx.plan.topics.matches(tp.topic)})
        if left_out:
            raise Refused(
                f"group {view.group} was moved to the {self.here} with topics that the plan does not select now:"
                f" {listed(left_out)}; on the {self.there} it would go on there where it left",
                remedy="have topics.include, topics.exclude and topics.internal of the plan select them again",
            )
        self._require_link_copies(view.group, moved)
        lost = [tp for tp in moved if tp not in view.committed]
        if lost:
            raise Refused(
                f"group {view.group} was moved to the {self.here}, and has no commit there any more of {listed(lost)}",
                remedy=f"commit for it on the {self.here} where it is to go on, then run this again",
            )

    def _require_link_copies(self, group: str, moved: list[TopicPartition]) -> None:
        """Refuse a group of topics that are not copied back, since the plan did not select them when the link began."""
        left_out = sorted(set(moved) - self.ctx.link.offset_maps(moved).keys())
        if not left_out:
            return
        seal = self.ctx.earlier[-1][1].seal()
        if uncut := [tp for tp in left_out if seal is None or tp not in seal.ends]:
            raise Refused(
                f"group {group} reads {listed(uncut)}, which the plan did not select when the link before was sealed:"
                f" there is no place from which their records go back to the {self.there}",
                remedy=f"leave it on the {self.here}; or start it on the {self.there} by hand, at offsets of your own",
            )
        raise Refused(
            f"group {group} reads {listed(left_out)}, which the {self.ctx.direction} link does not copy: the plan did"
            " not select them when it began",
            remedy="start `mirror --reverse` again, which takes them up at their cut; then run this again",
        )

    def require_hooks(self, group: str, *, stop_on: Side, start_on: Side, phase: Phase) -> None:
        """Refuse before anything is stopped, if a hook that stops it, or starts it later, may not run here."""
        calls = [self.call(hook, group, stop_on, phase) for hook in self.ctx.plan.stop_hooks(group)]
        calls += [self.call(hook, group, start_on, phase) for hook in self.ctx.plan.start_hooks(group)]
        for call in calls:
            require_runnable(call, environ=self._environ)

    def _refuse_commits_without_members(self, group: str, look: Look | None) -> None:
        plan = self.ctx.plan
        look = Look.load(self.ctx.journal, group, self.ctx.direction) if look is None else look
        is_declared = plan.stop_hooks(group) or group in plan.cutover.stopped_groups
        if look is not None and look.moved_seconds is not None and not is_declared:
            raise CommitsWithoutMembers(group, self.here, look.moved_seconds)

    def _require_not_ahead(self, group: str, there: Commits, translations: Iterable[Translation]) -> None:
        ahead = beyond(translations, there)
        if ahead and not self.ctx.plan.cutover.rewind:
            raise WouldRewind(group, self.there, ahead, there)

    def _require_copied(self, view: GroupView) -> None:
        """Before the group is stopped: wait until the mirror has copied up to what it has committed by now.

        It continues meanwhile, so what is left to copy once it has stopped is little.
        """
        if self.ctx.plan.stop_hooks(view.group):
            self._copied(view, {}, "no consumer was stopped")

    # -- stop -------------------------------------------------------------------------------------------------------

    def _stop(self, record: GroupRecord, view: GroupView, look: Look) -> Commits:
        group, now, hooks = view.group, self.ctx.clock.now, self.ctx.plan.stop_hooks(view.group)
        is_active = not view.state.is_empty
        if is_active and record.has(Step.STOPPED):
            # It was stopped, and came back before it was moved: what was found out then is void.
            record.restart()
        runs: list[HookRun] = []
        active_at = now().isoformat() if is_active else record.evidence(Step.STOPPING, "active_at")
        if not record.has(Step.STOPPED):
            before = record.evidence(Step.STOPPING, self._before)
            if before is None:
                before = commits_as_evidence(self._asked(lambda: self.ctx.destination.committed(group)))
            members = len(view.state.members)
            record.mark(Step.STOPPING, now(), active_at=active_at, members=members, **{self._before: before})
            if self.ctx.direction is Direction.REVERSE:
                self._require_not_completed(record, Step.STOPPING)
            runs = self._run_hooks(record, hooks, self.here, self.phase)
        patience = self.ctx.plan.consumers.wait_seconds if hooks else 0.0
        commits, last_active = self._wait_until_at_rest(self.here, group, patience, look.rest_seconds(self.ctx.plan))
        record.mark(
            Step.STOPPED,
            now(),
            active_at=last_active.isoformat() if last_active else active_at,
            hooks=[run.as_dict() for run in runs],
        )
        return commits

    def _wait_until_at_rest(
        self, side: Side, group: str, patience: float, rest: float
    ) -> tuple[Commits, datetime | None]:
        """Wait until a group is empty and two reads of its commits, ``rest`` seconds apart, are equal.

        Returns the commits, and when the group was last seen to do something. Raises GroupNotEmpty or Refused once
        ``patience`` seconds are over; one try is made in any case.
        """
        ctx, last_active = self.ctx, None
        deadline = ctx.clock.monotonic() + patience
        pauses = _polls()
        while True:
            state, before, after = self._commits_at_rest(side, group, rest)
            if state.is_empty and before == after:
                return after, last_active
            last_active = ctx.clock.now()
            if ctx.clock.monotonic() >= deadline:
                if not state.is_empty:
                    raise GroupNotEmpty(side, state)
                moved = sorted(tp for tp in {*before, *after} if before.get(tp) != after.get(tp))
                raise Refused(
                    f"group {group} has no members on the {side}, but still commits: {listed(moved)} changed within"
                    f" {rest:g} s",
                    remedy="find the client that commits for this group without being a member, and stop it",
                )
            self.sleep(next(pauses))

    def _commits_at_rest(self, side: Side, group: str, rest: float) -> tuple[GroupState, Commits, Commits]:
        """The group's state now, and its commits ``rest`` seconds ago and now; none if it is not empty."""
        cluster = self.ctx.cluster(side)
        state = self._asked(lambda: cluster.group_state(group))
        if not state.is_empty:
            return state, {}, {}
        before = self._asked(lambda: cluster.committed(group))
        if rest:
            self.sleep(rest)
        # The state last: a consumer that comes, commits and is still there shows in either.
        after = self._asked(lambda: cluster.committed(group))
        return self._asked(lambda: cluster.group_state(group)), before, after

    # -- translate and write ----------------------------------------------------------------------------------------

    def _translate(self, record: GroupRecord, view: GroupView) -> tuple[Translation, ...]:
        ctx = self.ctx
        kept = {move.tp: move for move in record.translations}
        positions = self._copied(view, kept, "its consumers are stopped")
        there = self._asked(lambda: ctx.destination.committed(view.group))
        self._require_not_ahead(view.group, there, positions.translations)
        before = record.evidence(Step.TRANSLATED, self._before)
        if before is None:
            before = commits_as_evidence(there)
        # A write of an earlier translation shows nothing about this one.
        record.forget(Step.WRITING, Step.WRITTEN)
        record.mark(
            Step.TRANSLATED,
            ctx.clock.now(),
            positions=[move.as_dict() for move in positions.translations],
            flags=list(view.flags),
            **{self._before: before},
        )
        return positions.translations

    def _copied(self, view: GroupView, kept: Mapping[TopicPartition, Translation], meanwhile: str) -> Positions:
        """The group's positions, as soon as the mirror has copied up to all of its commits as ``view`` has them."""
        ctx = self.ctx
        deadline = ctx.clock.monotonic() + ctx.plan.consumers.wait_seconds
        pauses = _polls()
        while True:
            positions = self._asked(lambda: current_positions(ctx, view, kept=kept))
            if not positions.pending:
                return positions
            self._refuse_hopeless(view, positions)
            if ctx.clock.monotonic() >= deadline:
                why = listed(f"{tp}: {reason}" for tp, reason in sorted(positions.pending.items()))
                ends = ctx.origin.ends(list(positions.pending), committed=True)
                # Readers of uncommitted records go on there; the mirror does not, before the transaction has ended.
                undecided = [f"{tp} from {log.end} on" for tp, log in sorted(ends.items()) if log.undecided]
                why += f"; behind open transactions: {listed(undecided)}" if undecided else ""
                raise NotCopied(
                    f"group {view.group}: the mirror has not copied up to its commits within"
                    f" {ctx.plan.consumers.wait_seconds:g} s ({why}); {meanwhile}",
                    remedy="check that the mirror runs and that its lag falls (`status`), then run this again",
                )
            self.sleep(next(pauses))

    def _refuse_hopeless(self, view: GroupView, positions: Positions) -> None:
        """Refuse at once what no waiting changes: the group stands still meanwhile."""
        halts = self.ctx.link.halts()
        halted = [f"{tp} ({halts[tp].reason})" for tp in sorted(positions.pending) if tp in halts]
        if halted:
            raise Refused(
                f"group {view.group}: the mirror halted before its commits of {listed(halted)}",
                remedy="resolve the halt (`status` shows how, such as `mirror --again TOPIC`), then run this again",
            )
        absent = [tp for tp in sorted(positions.pending) if tp not in view.committed]
        if absent:
            raise Refused(
                f"group {view.group} reads {listed(absent)}, which do not exist on the {self.there}",
                remedy="run `create` first",
            )
        ends = self.ctx.origin.ends(list(positions.pending))
        beyond_end = [
            f"{tp} (committed {view.committed[tp].offset}, end {ends[tp].end})"
            for tp in sorted(ends)
            if view.committed[tp].offset > ends[tp].end
        ]
        if beyond_end:
            raise Refused(
                f"group {view.group} committed beyond the {self.here}'s log end: {listed(beyond_end)}",
                remedy="the topic was recreated or truncated under the group; correct its commit on the"
                f" {self.here} first",
            )

    def _write(self, record: GroupRecord, commits: Commits, translations: tuple[Translation, ...]) -> None:
        ctx, group = self.ctx, record.group
        # The wait for the mirror may have been long: what was proved before it is proved again.
        self._require_still(group, commits)
        self._asked(lambda: require_empty(ctx, group, self.there))
        wanted = {move.tp: CommittedOffset(offset=move.destination, metadata=move.metadata) for move in translations}
        now_there = self._asked(lambda: ctx.destination.committed(group))
        self._require_not_ahead(group, now_there, translations)
        changes = {tp: commit for tp, commit in wanted.items() if now_there.get(tp) != commit}
        record.mark(Step.WRITING, ctx.clock.now(), **{self._before: commits_as_evidence(now_there)})

        def commit() -> None:
            record.require_owner()
            ctx.destination.commit(group, changes)

        # The same offsets again are no harm, and what a failure left is read back below.
        self._asked(commit)
        record.mark(Step.WRITTEN, ctx.clock.now(), partitions=len(changes))
        found = self._asked(lambda: ctx.destination.committed(group))
        different = [
            f"{tp} (written {_in_words(commit)}, read {_in_words(found.get(tp))})"
            for tp, commit in sorted(wanted.items())
            if found.get(tp) != commit
        ]
        if different:
            # Nor may a later run take what stands there for the group's own progress.
            record.forget(Step.WRITING, Step.WRITTEN)
            raise Refused(
                f"group {group}: the {self.there}'s commits differ from what was written: {listed(different)}",
                remedy=f"find out who else commits for this group on the {self.there}, then run this again",
            )
        self._require_still(group, commits)
        record.mark(Step.READ_BACK, ctx.clock.now(), offsets=offsets_of(found, translations))

    def _require_still(self, group: str, commits: Commits) -> None:
        self._asked(lambda: require_empty(self.ctx, group, self.here))
        if self._asked(lambda: self.ctx.origin.committed(group)) != commits:
            raise Refused(
                f"group {group} committed on the {self.here} again while it was moved",
                remedy="stop all of its consumers for good, then run this again",
            )

    # -- start ------------------------------------------------------------------------------------------------------

    def _start(self, record: GroupRecord) -> None:
        """Run the start hooks, unless they ran and the group shows life."""
        ctx, group = self.ctx, record.group
        if group in ctx.plan.cutover.stopped_groups:
            return
        if record.has(Step.STARTED) and (record.has(Step.ALIVE) or not ctx.destination.group_state(group).is_empty):
            return
        record.mark(Step.STARTING, ctx.clock.now())
        hooks = ctx.plan.start_hooks(group)
        runs = self._run_hooks(record, hooks, self.there, self.phase, prove=require_alone_at_destination)
        record.mark(Step.STARTED, ctx.clock.now(), hooks=[run.as_dict() for run in runs])

    def _start_again(self, record: GroupRecord, error: MigrationError) -> None:
        """Start a group on the origin again that was stopped and could not be moved, rather than leave it stopped.

        Only if it is proved empty on the destination, and not ahead there. What cannot be proved, or a hook that fails,
        leaves it stopped, as its record then has it: a later run tries again.
        """
        plan, group = self.ctx.plan, record.group
        by_hooks = all(
            any(not hook.wait for hook in hooks) for hooks in (plan.stop_hooks(group), plan.start_hooks(group))
        )
        if not record.has(Step.STOPPING) or not by_hooks:
            return
        try:
            self._asked(lambda: require_unused_at_destination(self.ctx, record))
            self._commit_again(record)
            # First, so that a run which is killed in the middle is followed by one that stops it anew.
            record.forget(Step.STOPPED, Step.TRANSLATED, Step.WRITING, Step.WRITTEN)
            self.ctx.log(f"{group}: not moved, so its consumers are started on the {self.here} again")
            hooks = plan.start_hooks(group)
            runs = self._run_hooks(record, hooks, self.here, "undo", prove=require_unused_at_destination)
            record.mark(Step.UNDONE, self.ctx.clock.now(), because=error.message, hooks=[run.as_dict() for run in runs])
        except TakenOver:
            raise
        except MigrationError as failed:
            self.ctx.log(f"{group}: its consumers stay stopped: {failed.message}")

    # -- hooks, and clusters that may need to be asked again --------------------------------------------------------

    def call(self, hook: Hook, group: str, cluster: Side, phase: Phase) -> HookCall:
        """``hook`` for one group."""
        return HookCall(hook=hook, group=group, migration=self.ctx.plan.name, cluster=cluster, phase=phase)

    def _run_hooks(
        self,
        record: GroupRecord,
        hooks: tuple[Hook, ...],
        cluster: Side,
        phase: Phase,
        *,
        prove: Proof = lambda _ctx, _record: None,
    ) -> list[HookRun]:
        """Run hooks in order, each right after ``prove`` and a look at the claim; one without an answer is run again.

        A hook is the one effect that nothing undoes, so nothing stands between that look and the call. ``wait`` runs
        nothing: whoever stops waits for rest, whoever starts is watched.
        """
        calls = [self.call(hook, record.group, cluster, phase) for hook in hooks if not hook.wait]
        if not calls:
            prove(self.ctx, record)
        return [self._run_hook(record, call, prove) for call in calls]

    def _run_hook(self, record: GroupRecord, call: HookCall, prove: Proof) -> HookRun:
        clock = self.ctx.clock
        deadline = clock.monotonic() + min(PATIENCE_SECONDS, self.ctx.plan.consumers.wait_seconds)
        while True:
            self._asked(lambda: prove(self.ctx, record))
            record.require_owner()
            try:
                return run_hook(call, environ=self._environ)
            except HookUnanswered:
                if clock.monotonic() >= deadline:
                    raise
            self.sleep(HOOK_AGAIN_SECONDS)

    def _asked(self, ask: Callable[[], T]) -> T:
        """The answer of a cluster that may need to be asked again."""
        deadline = self.ctx.clock.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except CouldNotFindOut:
                if self.ctx.clock.monotonic() >= deadline:
                    raise
            self.sleep(POLL_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Wait, and tick meanwhile."""
        clock = self.ctx.clock
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0:
            if clock.monotonic() >= self._ticked + POLL_SECONDS:
                self._tick()
                self._ticked = clock.monotonic()
            clock.sleep(min(left, POLL_SECONDS))


def _polls() -> Iterator[float]:
    """How long to wait before each next look: short first, since most of what is waited for happens soon."""
    seconds = _FIRST_POLL_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, POLL_SECONDS)


def _in_words(commit: CommittedOffset | None) -> str:
    return "nothing" if commit is None else f"{commit.offset} {commit.metadata!r}"
