"""Moving one consumer group: stop, prove it stopped, translate, write, read back, start.

What can go wrong, and what closes it:

- *The process dies anywhere.* Every step is in the journal before and after; :meth:`Mover.move` goes on from there.
  What can go stale in the meantime (empty, at rest) is proved again, so a run never writes on the word of an old one.
- *A group without members is not yet stopped:* its consumers may be restarting, or commit without being members. So
  commits of one that was never seen with members must rest, too, and all of it is looked at once more right before the
  write and right after it.
- *The group runs on the target already* when a later run finds it. Its offsets are not touched again then; Kafka
  itself refuses to write the offsets of a group with members.
- *Somebody else moves the same group.* Whoever claimed it last owns it: the claim is looked at right before every hook,
  commit and entry, and who lost it ends there (docs/adr/0010).
- *The group is up on the other side* when it is to be started: that is proved right before every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import MigrationError, Refused, TakenOver
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import looks
from kafka_migration.groups.hands import Hands, polls
from kafka_migration.groups.hooks import HookRun
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Look
from kafka_migration.groups.proof import (
    require_left_on_source,
    require_unused_on_target,
    require_written_on_target,
)
from kafka_migration.groups.record import GroupRecord, Step, Translation, commits_as_evidence, offsets_of
from kafka_migration.groups.refusals import CommitsAlone, GroupLives, Side, WentOn, WouldRewind
from kafka_migration.groups.resume import accept_if_written, came_back
from kafka_migration.groups.translate import (
    GroupView,
    Positions,
    UncommittedPartitions,
    current_positions,
    view_groups,
)
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.link.ready import NotCopied

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

Commits = Mapping[TopicPartition, CommittedOffset]


class Mover(Hands):
    """Moves groups, one at a time, and each from wherever its record says it is."""

    def move(self, group: str) -> GroupRecord:
        """Move a group from wherever its record says it is, up to started. Raises with nothing half-written.

        The group is this mover's from here on; whoever moved it before ends, by TakenOver, before it touches anything.
        """
        # Before the claim, which would end the undo that is under way.
        self._refuse_undoing(GroupRecord.load(self.ctx.journal, group))
        record = GroupRecord.own(self.ctx.journal, group, at=self.ctx.stamp())
        if record.has(Step.UNDOING) and not record.has(Step.UNDONE):
            # Begun between that look and the claim, which has ended it: so it is finished here.
            self.move_back(record)
            raise Refused(
                f"group {group} was being moved back to the source, and that is done now",
                remedy="run this again, if it is to be moved",
            )
        if record.has(Step.UNDONE):
            record.restart()
        view = self._view(group)
        accept_if_written(self.ctx, record, view)
        if record.has(Step.READ_BACK) and not came_back(self.ctx, record, view):
            self._start(record)
            return record
        look = self.asked(lambda: looks.take(self.ctx, [group])[group])
        try:
            if record.is_stopped:
                # By an earlier try: it stands still, so a cluster that does not answer is worth waiting for.
                self.asked(lambda: self.require_movable(view, look))
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
        self._start(record)
        return record

    def leave_running(self, group: str, because: MigrationError) -> None:
        """Start a group that an earlier run left stopped, where its record says it is, and move it no further."""
        if GroupRecord.load(self.ctx.journal, group).is_stopped:
            record = GroupRecord.own(self.ctx.journal, group, at=self.ctx.stamp())
            if record.has(Step.READ_BACK):
                self._start(record)
            else:
                self._start_again(record, because)

    def move_back(self, record: GroupRecord) -> None:
        """Have the source go on with a group that this mover owns: stop it on the target, prove that, start it there.

        If it has gone on on the target, it is left running there, and WentOn is raised.
        """
        group, plan = record.group, self.ctx.plan
        stop, start = plan.stop_hooks(group), plan.start_hooks(group)
        runs_there = not self.asked(lambda: self.ctx.target.group_state(group)).is_empty
        record.mark(Step.UNDOING, self.ctx.clock.now())
        if runs_there or record.has(Step.STARTING):
            self.run_hooks(record, stop, "target", "undo")
        rest = 0.0 if runs_there else plan.cutover.rest_seconds
        self.wait_for_rest("target", group, plan.consumers.wait_seconds if stop else 0.0, rest)
        try:
            runs = self.run_hooks(record, start, "source", "undo", prove=require_unused_on_target)
        except WentOn:
            record.forget(Step.UNDOING, Step.STARTING, Step.STARTED)
            if record.has(Step.READ_BACK):
                self.ctx.tell(f"{group}: not moved back, so its consumers are started on the target again")
                self._start(record)
            raise
        record.mark(Step.UNDONE, self.ctx.clock.now(), hooks=[run.as_dict() for run in runs])

    def _view(self, group: str) -> GroupView:
        return self.asked(lambda: view_groups(self.ctx, [group])[group])

    def _refuse_undoing(self, record: GroupRecord) -> None:
        if record.has(Step.UNDOING) and not record.has(Step.UNDONE):
            raise Refused(
                f"group {record.group} is being moved back to the source",
                remedy=f"finish that first: `undo --group {record.group}`",
            )

    def require_movable(self, view: GroupView, look: Look | None = None) -> None:
        """Refuse, before its consumers are stopped for nothing, a group that could not be moved anyway."""
        self.require_protocol(view)
        plan, group = self.ctx.plan, view.group
        if not view.state.is_empty and not plan.stop_hooks(group):
            raise GroupLives("source", view.state)
        there = self.ctx.target.group_state(group)
        if not there.is_empty:
            raise GroupLives("target", there)
        if view.uncommitted and plan.cutover.uncommitted == "refuse":
            raise UncommittedPartitions(group, view.uncommitted)
        look = Look.load(self.ctx.journal, group) if look is None else look
        is_declared = plan.stop_hooks(group) or group in plan.cutover.stopped_groups
        if look is not None and look.moved_seconds is not None and not is_declared:
            raise CommitsAlone(group, look.moved_seconds)
        self._require_not_ahead(group, self.ctx.target.committed(group), current_positions(self.ctx, view).translations)
        self.require_hooks(view.group, stop_on="source", start_on="target", phase="cutover")

    def require_protocol(self, view: GroupView) -> None:
        """Refuse a group that is more than what it committed, or does not exist."""
        if view.state.protocol not in MOVABLE_PROTOCOLS:
            raise Refused(
                f"group {view.group} is of protocol {view.state.protocol}: it is more than its committed offsets",
                remedy="move its application by its own procedure, and exclude the group from the plan",
            )
        if not view.is_concerned and not view.state.exists:
            raise Refused(
                f"group {view.group} does not exist on the source",
                remedy="check its name; a group is forgotten when its last committed offset has expired",
            )

    def _require_copied(self, view: GroupView) -> None:
        """Before the group is stopped: wait until the mirror has copied up to what it has committed by now.

        It goes on meanwhile, so what is left to copy once it has stopped is little.
        """
        if self.ctx.plan.stop_hooks(view.group):
            self._copied(view, {}, "no consumer was stopped")

    # -- stop -------------------------------------------------------------------------------------------------------

    def _stop(self, record: GroupRecord, view: GroupView, look: Look) -> Commits:
        group, now = view.group, self.ctx.clock.now
        live = not view.state.is_empty
        if live and record.has(Step.STOPPED):
            # It was stopped, and came back before it was moved: what was found out then is void.
            record.restart()
        runs: list[HookRun] = []
        active_at = now().isoformat() if live else record.evidence(Step.STOPPING, "active_at")
        if not record.has(Step.STOPPED):
            before = record.evidence(Step.STOPPING, "target_before")
            if before is None:
                before = commits_as_evidence(self.asked(lambda: self.ctx.target.committed(group)))
            members = len(view.state.members)
            record.mark(Step.STOPPING, now(), active_at=active_at, members=members, target_before=before)
            runs = self.run_hooks(record, self.ctx.plan.stop_hooks(group), "source", "cutover")
        patience = self.ctx.plan.consumers.wait_seconds if self.ctx.plan.stop_hooks(group) else 0.0
        commits, last_active = self.wait_for_rest("source", group, patience, look.rest_seconds(self.ctx.plan))
        record.mark(
            Step.STOPPED,
            now(),
            active_at=last_active.isoformat() if last_active else active_at,
            hooks=[run.as_dict() for run in runs],
        )
        return commits

    def wait_for_rest(self, side: Side, group: str, patience: float, rest: float) -> tuple[Commits, datetime | None]:
        """Wait until a group is empty and two reads of its commits, ``rest`` seconds apart, are equal.

        Returns the commits, and when the group was last seen to do something. Raises GroupLives or Refused once
        ``patience`` seconds are over; one try is made in any case.
        """
        ctx, last_active = self.ctx, None
        cluster = ctx.source if side == "source" else ctx.target
        deadline = ctx.clock.monotonic() + patience
        pauses = polls()
        while True:
            moved: tuple[TopicPartition, ...] = ()
            state = self.asked(lambda: cluster.group_state(group))
            if state.is_empty:
                before = self.asked(lambda: cluster.committed(group))
                if rest:
                    self.sleep(rest)
                # The state last: a consumer that comes, commits and is still there shows in either.
                after = self.asked(lambda: cluster.committed(group))
                state = self.asked(lambda: cluster.group_state(group))
                if state.is_empty and before == after:
                    return after, last_active
                moved = tuple(tp for tp in {*before, *after} if before.get(tp) != after.get(tp))
            last_active = ctx.clock.now()
            if ctx.clock.monotonic() >= deadline:
                if not state.is_empty:
                    raise GroupLives(side, state)
                raise Refused(
                    f"group {group} has no members on the {side}, but still commits: {listed(sorted(moved))}"
                    f" moved within {rest:g} s",
                    remedy="find the client that commits for this group without being a member, and stop it",
                )
            self.sleep(next(pauses))

    # -- translate and write ----------------------------------------------------------------------------------------

    def _translate(self, record: GroupRecord, view: GroupView) -> tuple[Translation, ...]:
        ctx = self.ctx
        positions = self._copied(view, {it.tp: it for it in record.translations}, "its consumers stand still")
        there = self.asked(lambda: ctx.target.committed(view.group))
        self._require_not_ahead(view.group, there, positions.translations)
        before = record.evidence(Step.TRANSLATED, "target_before")
        if before is None:
            before = commits_as_evidence(there)
        # A write of an earlier translation says nothing about this one.
        record.forget(Step.WRITING, Step.WRITTEN)
        record.mark(
            Step.TRANSLATED,
            ctx.clock.now(),
            positions=[it.as_dict() for it in positions.translations],
            target_before=before,
            flags=list(view.flags),
        )
        return positions.translations

    def _copied(self, view: GroupView, kept: Mapping[TopicPartition, Translation], meanwhile: str) -> Positions:
        """The group's positions, as soon as the mirror has copied up to all of its commits as ``view`` has them."""
        ctx = self.ctx
        deadline = ctx.clock.monotonic() + ctx.plan.consumers.wait_seconds
        pauses = polls()
        while True:
            positions = self.asked(lambda: current_positions(ctx, view, kept=kept))
            if not positions.pending:
                return positions
            self._refuse_hopeless(view, positions)
            if ctx.clock.monotonic() >= deadline:
                why = listed(f"{tp}: {reason}" for tp, reason in sorted(positions.pending.items()))
                ends = ctx.source.ends(list(positions.pending), committed=True)
                # Readers of uncommitted records go on there; the mirror does not, before the transaction has ended.
                undecided = [f"{tp} from {log.end} on" for tp, log in sorted(ends.items()) if log.undecided]
                why += f"; behind open transactions: {listed(undecided)}" if undecided else ""
                raise NotCopied(
                    f"group {view.group}: the mirror has not copied up to its commits within"
                    f" {ctx.plan.consumers.wait_seconds:g} s ({why}); {meanwhile}",
                    remedy="see that the mirror runs and its lag falls, then run this again",
                )
            self.sleep(next(pauses))

    def _require_not_ahead(self, group: str, there: Commits, translations: tuple[Translation, ...]) -> None:
        ahead = {
            it.tp: (there[it.tp].offset, it.target)
            for it in translations
            if it.tp in there and there[it.tp].offset > it.target
        }
        if ahead and not self.ctx.plan.cutover.rewind:
            raise WouldRewind(group, ahead)

    def _refuse_hopeless(self, view: GroupView, positions: Positions) -> None:
        """Refuse at once what no waiting changes: the group stands still meanwhile."""
        halts = self.ctx.link.halts()
        halted = [f"{tp} ({halts[tp].reason})" for tp in sorted(positions.pending) if tp in halts]
        if halted:
            raise Refused(
                f"group {view.group}: the mirror halted before its commits of {listed(halted)}",
                remedy="resolve the halt (`status` says how, such as `mirror --again TOPIC`), then run this again",
            )
        absent = [tp for tp in sorted(positions.pending) if tp not in view.committed]
        if absent:
            raise Refused(
                f"group {view.group}: {listed(absent)} does not exist on the target",
                remedy="run `create` first",
            )
        ends = self.ctx.source.ends(list(positions.pending))
        beyond = [
            f"{tp} (committed {view.committed[tp].offset}, end {ends[tp].end})"
            for tp in sorted(ends)
            if view.committed[tp].offset > ends[tp].end
        ]
        if beyond:
            raise Refused(
                f"group {view.group} committed beyond the source's log end: {listed(beyond)}",
                remedy="the topic was recreated or truncated under the group; correct its commit on the source first",
            )

    def _write(self, record: GroupRecord, commits: Commits, translations: tuple[Translation, ...]) -> None:
        ctx, group = self.ctx, record.group
        # The wait for the mirror may have been long: what was proved before it is proved again.
        self._require_still(group, commits)
        there = self.asked(lambda: ctx.target.group_state(group))
        if not there.is_empty:
            raise GroupLives("target", there)
        wanted = {it.tp: CommittedOffset(offset=it.target, metadata=it.metadata) for it in translations}
        now_there = self.asked(lambda: ctx.target.committed(group))
        self._require_not_ahead(group, now_there, translations)
        changes = {tp: commit for tp, commit in wanted.items() if now_there.get(tp) != commit}
        record.mark(Step.WRITING, ctx.clock.now(), target_before=commits_as_evidence(now_there))

        def commit() -> None:
            record.require_owner()
            ctx.target.commit(group, changes)

        # The same offsets again are no harm, and what a failure left is read back below.
        self.asked(commit)
        record.mark(Step.WRITTEN, ctx.clock.now(), partitions=len(changes))
        found = self.asked(lambda: ctx.target.committed(group))
        different = [
            f"{tp} (written {commit.offset} {commit.metadata!r}, read {_said(found.get(tp))})"
            for tp, commit in sorted(wanted.items())
            if found.get(tp) != commit
        ]
        if different:
            # Nor may a later run take what stands there for the group's own progress.
            record.forget(Step.WRITING, Step.WRITTEN)
            raise Refused(
                f"group {group}: what the target has is not what was written: {listed(different)}",
                remedy="find out who else commits for this group on the target, then run this again",
            )
        self._require_still(group, commits)
        record.mark(Step.READ_BACK, ctx.clock.now(), offsets=offsets_of(found, translations))

    def _require_still(self, group: str, commits: Commits) -> None:
        state = self.asked(lambda: self.ctx.source.group_state(group))
        if not state.is_empty:
            raise GroupLives("source", state)
        if self.asked(lambda: self.ctx.source.committed(group)) != commits:
            raise Refused(
                f"group {group} committed on the source again while it was moved",
                remedy="stop all of its consumers for good, then run this again",
            )

    # -- start ------------------------------------------------------------------------------------------------------

    def _start(self, record: GroupRecord) -> None:
        """Run the start hooks, unless they ran and the group shows life."""
        ctx, group = self.ctx, record.group
        if group in ctx.plan.cutover.stopped_groups:
            return
        if record.has(Step.STARTED) and (record.has(Step.ALIVE) or not ctx.target.group_state(group).is_empty):
            return
        record.mark(Step.STARTING, ctx.clock.now())
        runs = self.run_hooks(record, ctx.plan.start_hooks(group), "target", "cutover", prove=_require_target_alone)
        record.mark(Step.STARTED, ctx.clock.now(), hooks=[run.as_dict() for run in runs])

    def _start_again(self, record: GroupRecord, error: MigrationError) -> None:
        """Start a group on the source again that was stopped and could not be moved, rather than leave it stopped.

        Only if it is proved empty on the target, and not ahead there. What cannot be proved, or a hook that fails,
        leaves it stopped, as the record then says: a later run tries again.
        """
        plan, group = self.ctx.plan, record.group
        by_hooks = all(
            any(not hook.wait for hook in hooks) for hooks in (plan.stop_hooks(group), plan.start_hooks(group))
        )
        if not record.has(Step.STOPPING) or not by_hooks:
            return
        try:
            self.asked(lambda: require_unused_on_target(self.ctx, record))
            # First, so that a run which is killed in the middle is followed by one that stops it anew.
            record.forget(Step.STOPPED, Step.TRANSLATED, Step.WRITING, Step.WRITTEN)
            self.ctx.tell(f"{group}: not moved, so its consumers are started on the source again")
            runs = self.run_hooks(record, plan.start_hooks(group), "source", "undo", prove=require_unused_on_target)
            record.mark(Step.UNDONE, self.ctx.clock.now(), because=error.message, hooks=[run.as_dict() for run in runs])
        except TakenOver:
            raise
        except MigrationError as failed:
            self.ctx.tell(f"{group}: its consumers stay stopped: {failed.message}")


def _require_target_alone(ctx: Context, record: GroupRecord) -> None:
    require_left_on_source(ctx, record)
    require_written_on_target(ctx, record)


def _said(commit: CommittedOffset | None) -> str:
    return "nothing" if commit is None else f"{commit.offset} {commit.metadata!r}"
