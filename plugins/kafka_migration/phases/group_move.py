"""Moving one consumer group: stop, prove it stopped, translate, write, read back, start.

What can go wrong, and what closes it:

- *The process dies anywhere.* Every step is in the journal before and after; :meth:`Mover.move` goes on from there.
  What can go stale in the meantime (empty, at rest) is proved again, so a run never writes on the word of an old one.
- *A group without members is not yet stopped:* its consumers may be restarting, or commit without being members. So
  its commits must rest, too, and all of it is looked at once more right before the write and right after it.
- *The group runs on the target already* when a later run finds it. Its offsets are not touched again then; Kafka
  itself refuses to write the offsets of a group with members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from kafka_migration.clusters.types import CommittedOffset
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.phases.group_record import GroupRecord, Step, Translation, commits_as_evidence, offsets_of
from kafka_migration.phases.group_refusals import GroupLives, Side, WouldRewind
from kafka_migration.phases.group_resume import accept_if_written, came_back
from kafka_migration.phases.hooks import HookCall, HookRun, require_runnable, run_hook
from kafka_migration.phases.mirror_ready import NotCopied
from kafka_migration.phases.translate import (
    MOVABLE_PROTOCOLS,
    GroupView,
    Positions,
    UncommittedPartitions,
    current_positions,
    listed,
    subscribed_topics,
    view_groups,
)
from kafka_migration.plans.hooks import Hook

if TYPE_CHECKING:
    from kafka_migration.phases.context import Context

T = TypeVar("T")
Commits = Mapping[TopicPartition, CommittedOffset]

#: Seconds between two looks while waiting: it is also how exact a measured pause is.
POLL_SECONDS = 0.25

#: For how long a cluster that does not answer is asked again while a group stands still. Giving up at the first
#: hiccup (a coordinator that moves) would leave its consumers stopped until a person looks.
PATIENCE_SECONDS = 30.0


class Mover:
    """Moves groups, one at a time.

    ``tick`` is called while it waits. ``environ`` is what hooks are allowed by (default: the process's environment).
    """

    def __init__(
        self, ctx: Context, *, environ: Mapping[str, str] | None = None, tick: Callable[[], None] = lambda: None
    ) -> None:
        self.ctx, self._environ, self._tick = ctx, environ, tick

    def move(self, view: GroupView) -> GroupRecord:
        """Move a group from wherever its record says it is, up to started. Raises with nothing half-written.

        ``view`` is the group as seen just now.
        """
        record = GroupRecord.load(self.ctx.journal, view.group)
        if record.has(Step.UNDONE):
            record.restart()
        if record.has(Step.UNDOING):
            raise Refused(
                f"group {view.group} is being moved back to the source",
                remedy=f"finish that first: `undo --group {view.group}`",
            )
        accept_if_written(self.ctx, record, view)
        if record.has(Step.READ_BACK) and not came_back(self.ctx, record, view):
            self._start(record)
            return record
        try:
            self.require_movable(view)
            self._require_copied(view)
            commits = self._stop(record, view)
            # Members of before are gone: what they subscribed to is known from the record now.
            view = self._asked(lambda: view_groups(self.ctx, [view.group])[view.group])
            translations = self._translate(record, view)
            self._write(record, commits, translations)
        except TakenOver:
            raise
        except MigrationError as error:
            self._start_again(record, error)
            raise
        self._start(record)
        return record

    def require_movable(self, view: GroupView) -> None:
        """Refuse, before its consumers are stopped for nothing, a group that could not be moved anyway."""
        self.require_protocol(view)
        if not view.state.is_empty and not self.ctx.plan.stop_hooks(view.group):
            raise GroupLives("source", view.state)
        there = self.ctx.target.group_state(view.group)
        if not there.is_empty:
            raise GroupLives("target", there)
        if view.uncommitted and self.ctx.plan.cutover.uncommitted == "refuse":
            raise UncommittedPartitions(view.group, view.uncommitted)
        self.require_hooks(view.group, stop_on="source", start_on="target", phase="cutover")

    def require_hooks(self, group: str, *, stop_on: Side, start_on: Side, phase: Literal["cutover", "undo"]) -> None:
        """Refuse before anything is stopped, if a hook that stops it, or starts it later, may not run here."""
        calls = [self.call(hook, group, stop_on, phase) for hook in self.ctx.plan.stop_hooks(group)]
        calls += [self.call(hook, group, start_on, phase) for hook in self.ctx.plan.start_hooks(group)]
        for call in calls:
            require_runnable(call, environ=self._environ)

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

    def _stop(self, record: GroupRecord, view: GroupView) -> Commits:
        group, now = view.group, self.ctx.clock.now
        live = not view.state.is_empty
        if live and record.has(Step.STOPPED):
            # It was stopped, and came back before it was moved: what was found out then is void.
            record.restart()
        record.remember_subscription(subscribed_topics(view.state))
        runs: list[HookRun] = []
        active_at = now().isoformat() if live else record.evidence(Step.STOPPING, "active_at")
        if not record.has(Step.STOPPED):
            record.mark(Step.STOPPING, now(), active_at=active_at, members=len(view.state.members))
            runs = self.run_hooks(self.ctx.plan.stop_hooks(group), group, "source", "cutover")
        patience = self.ctx.plan.consumers.wait_seconds if self.ctx.plan.stop_hooks(group) else 0.0
        commits, last_active = self.wait_for_rest("source", group, patience)
        record.mark(
            Step.STOPPED,
            now(),
            active_at=last_active.isoformat() if last_active else active_at,
            hooks=[run.as_dict() for run in runs],
        )
        return commits

    def wait_for_rest(self, side: Side, group: str, patience: float) -> tuple[Commits, datetime | None]:
        """Wait until a group is empty and two reads of its commits, ``rest_seconds`` apart, are equal.

        Returns the commits, and when the group was last seen to do something. Raises GroupLives or Refused once
        ``patience`` seconds are over; one try is made in any case.
        """
        ctx, last_active = self.ctx, None
        cluster = ctx.source if side == "source" else ctx.target
        rest = ctx.plan.cutover.rest_seconds
        deadline = ctx.clock.monotonic() + patience
        while True:
            moved: tuple[TopicPartition, ...] = ()
            state = self._asked(lambda: cluster.group_state(group))
            if state.is_empty:
                before = self._asked(lambda: cluster.committed(group))
                self.sleep(rest)
                # The state last: a consumer that comes, commits and is still there shows in either.
                after = self._asked(lambda: cluster.committed(group))
                state = self._asked(lambda: cluster.group_state(group))
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
            self.sleep(POLL_SECONDS)

    # -- translate and write ----------------------------------------------------------------------------------------

    def _translate(self, record: GroupRecord, view: GroupView) -> tuple[Translation, ...]:
        ctx = self.ctx
        positions = self._copied(view, {it.tp: it for it in record.translations}, "its consumers stand still")
        there = self._asked(lambda: ctx.target.committed(view.group))
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
        while True:
            positions = self._asked(lambda: current_positions(ctx, view, kept=kept))
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
            self.sleep(POLL_SECONDS)

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
        there = self._asked(lambda: ctx.target.group_state(group))
        if not there.is_empty:
            raise GroupLives("target", there)
        wanted = {it.tp: CommittedOffset(offset=it.target, metadata=it.metadata) for it in translations}
        now_there = self._asked(lambda: ctx.target.committed(group))
        self._require_not_ahead(group, now_there, translations)
        changes = {tp: commit for tp, commit in wanted.items() if now_there.get(tp) != commit}
        record.mark(Step.WRITING, ctx.clock.now(), target_before=commits_as_evidence(now_there))
        # The same offsets again are no harm, and what a failure left is read back below.
        self._asked(lambda: ctx.target.commit(group, changes))
        record.mark(Step.WRITTEN, ctx.clock.now(), partitions=len(changes))
        found = self._asked(lambda: ctx.target.committed(group))
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
        state = self._asked(lambda: self.ctx.source.group_state(group))
        if not state.is_empty:
            raise GroupLives("source", state)
        if self._asked(lambda: self.ctx.source.committed(group)) != commits:
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
        runs = self.run_hooks(ctx.plan.start_hooks(group), group, "target", "cutover")
        record.mark(Step.STARTED, ctx.clock.now(), hooks=[run.as_dict() for run in runs])

    def _start_again(self, record: GroupRecord, error: MigrationError) -> None:
        """Start a group on the source again that was stopped and could not be moved, rather than leave it stopped.

        Not once a write was begun, and not if it runs on the target: it could go on from there. A hook that fails
        leaves it stopped, as the record then says.
        """
        plan, group = self.ctx.plan, record.group
        lives_there = isinstance(error, GroupLives) and error.side == "target"
        by_hooks = all(
            any(not hook.wait for hook in hooks) for hooks in (plan.stop_hooks(group), plan.start_hooks(group))
        )
        if not record.has(Step.STOPPING) or record.has(Step.WRITING) or lives_there or not by_hooks:
            return
        try:
            # First, so that a run which is killed in the middle is followed by one that stops it anew.
            record.forget(Step.STOPPED, Step.TRANSLATED)
            self.ctx.tell(f"{group}: not moved, so its consumers are started on the source again")
            runs = self.run_hooks(plan.start_hooks(group), group, "source", "undo")
            record.mark(Step.UNDONE, self.ctx.clock.now(), because=error.message, hooks=[run.as_dict() for run in runs])
        except TakenOver:
            raise
        except MigrationError as failed:
            self.ctx.tell(f"{group}: its consumers were not started again: {failed.message}")

    # -- hooks and waiting ------------------------------------------------------------------------------------------

    def run_hooks(
        self, hooks: tuple[Hook, ...], group: str, cluster: Side, phase: Literal["cutover", "undo"]
    ) -> list[HookRun]:
        """Run hooks in order. ``wait`` runs nothing: whoever stops waits for rest, whoever starts is watched."""
        runs = []
        for hook in hooks:
            if not hook.wait:
                runs.append(run_hook(self.call(hook, group, cluster, phase), environ=self._environ))
        return runs

    def call(self, hook: Hook, group: str, cluster: Side, phase: Literal["cutover", "undo"]) -> HookCall:
        """``hook`` for one group."""
        return HookCall(hook=hook, group=group, migration=self.ctx.plan.name, cluster=cluster, phase=phase)

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
        end = self.ctx.clock.monotonic() + seconds
        while (left := end - self.ctx.clock.monotonic()) > 0:
            self._tick()
            self.ctx.clock.sleep(min(left, POLL_SECONDS))


def _said(commit: CommittedOffset | None) -> str:
    return "nothing" if commit is None else f"{commit.offset} {commit.metadata!r}"
