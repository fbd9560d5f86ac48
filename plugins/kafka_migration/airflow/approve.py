"""A gate that waits for a person, who sees the evidence and answers for exactly that (docs/behaviours.md, 4 and 27)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskAwaitingInput

from kafka_migration.airflow.base import WorksFromSnapshot, explained
from kafka_migration.airflow.links import DocsLink, ReportLink
from kafka_migration.domain.errors import MigrationError, Retryable

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.execution_time.hitl import HITLUser

    from kafka_migration.approvals.evidence import Evidence
    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.steps.step import ApprovalGate


#: Until the next look, while a cluster is away.
_OUTAGE = timedelta(minutes=5)
#: Characters of a digest that tell two questions apart.
_TAG = 8


class ApproveGateOperator(WorksFromSnapshot, ApprovalOperator):
    """Asks for an approval of the evidence as it is when asked, and records the answer in the journal.

    It holds no slot while it waits, and has no default: no answer is never an approval. As often as evidence may grow
    old, it compares the evidence with what the question shows, and waits on if nothing changed. An answer that is
    refused (of a stranger, say) is asked for again. All that is one try of the task.

    Other evidence needs another try: Airflow keeps the text of a question for as long as the task instance is the
    same, and only takes the response out of it (``upsert_hitl_detail`` of its execution API, 3.3). Each try has an
    instance of its own. The option that approves names the digest, so that Airflow's server refuses what a page that
    shows earlier evidence sends.
    """

    # Not the body: evidence holds names from the clusters, and none of them is a template.
    template_fields = ("subject",)
    operator_extra_links = (ReportLink(), DocsLink())
    ui_color = "#fdf3d8"

    def __init__(
        self,
        *,
        plan_file: str,
        gate: ApprovalGate,
        migration: Sequence[str] = (),
        wave: str = "",
        **kwargs: Any,
    ) -> None:
        """Who may answer, and for how long a question waits, is found out when somebody is asked. For the rest see
        :class:`WorksFromSnapshot`."""
        super().__init__(body="", fail_on_reject=True, **kwargs)
        self.plan_file, self.migration, self.gate, self.wave = plan_file, migration, gate, wave

    def execute(self, context: Context) -> None:
        """Take the evidence and ask."""
        self._ask(context, self._evidence(context), asked=1)

    def execute_complete(
        self, context: Context, event: dict[str, Any], digest: str = "", seen_at: str = "", asked: int = 1
    ) -> dict[str, str]:
        """Record the answer: the approval, or the rejection, which fails the task for good.

        ``digest`` is of the evidence that the question shows, ``seen_at`` when it was last found to be so, ``asked``
        how often somebody was asked. Without an answer, or with one that is refused, wait on.
        """
        if event.get("error_type") == "timeout":
            self._wait_on(context, digest, seen_at, asked)
        try:
            found = self._answered(context, event, digest, seen_at)
            self.publish(context)
            return found
        except AirflowFailException:
            self.publish(context)
            raise
        except AirflowException as error:
            if not isinstance(error.__cause__, MigrationError):
                raise
            refused = error
        self.log.warning("%s", refused)
        seen = self._evidence(context)
        self._require_shown(seen, digest)
        for alert in self.on_retry_callback or ():
            alert(_counted(context, asked, exception=refused))
        return self._ask(context, seen, asked=asked + 1)

    def _evidence(self, context: Context) -> Evidence:
        from kafka_migration.approvals import passing
        from kafka_migration.approvals.evidence import GateName
        from kafka_migration.steps import outlook

        with self.opened(context) as ctx:
            # Before anybody is asked for an answer that could not be signed.
            passing.require_key(ctx)
            gate = GateName(self.gate)
            # Not those of the file, which may have been edited since the run began.
            self.assigned_users = _assigned(passing.approvers(ctx, gate))
            self.response_timeout = timedelta(seconds=ctx.plan.approvals.max_age_seconds)
            return outlook.evidence(ctx, gate)

    def _ask(self, context: Context, seen: Evidence, *, asked: int) -> NoReturn:
        """Ask, and take an earlier response out of the question."""
        self.body = seen.as_markdown()
        self.options = [_approves(seen.digest), self.REJECT]
        with suppress(TaskAwaitingInput):
            super().execute(_counted(context, asked))
        raise self._waiting(seen.digest, seen.taken_at.isoformat(), asked)

    def _wait_on(self, context: Context, digest: str, seen_at: str, asked: int) -> NoReturn:
        """Wait on for an answer to the question as it stands; raise for a new try if its evidence is another now."""
        try:
            seen = self._evidence(context)
        except AirflowException as error:
            if not isinstance(error.__cause__, Retryable):
                raise
            self.log.warning("%s", error)
            # As old as it is: if an answer comes before the clusters do, it is asked for once more.
            raise self._waiting(digest, seen_at, asked, most=_OUTAGE) from None
        self._require_shown(seen, digest)
        self.log.info("nobody has answered yet, and the evidence is as shown: waiting on")
        for notifier in self.notifiers:
            notifier(_counted(context, asked + 1))
        # The question itself is left as it is: a response that has just come in counts.
        raise self._waiting(digest, seen.taken_at.isoformat(), asked + 1)

    def _waiting(self, digest: str, seen_at: str, asked: int, *, most: timedelta = timedelta.max) -> TaskAwaitingInput:
        # Airflow keeps it beside the question: the answer is for this digest, whatever is shown elsewhere.
        kwargs = {"digest": digest, "seen_at": seen_at, "asked": asked}
        timeout = min(self.response_timeout or most, most)
        return TaskAwaitingInput(method_name="execute_complete", kwargs=kwargs, timeout=timeout)

    def _require_shown(self, seen: Evidence, digest: str) -> None:
        from kafka_migration.approvals.passing import NotApproved

        if seen.digest != digest:
            with explained(retry=(NotApproved,)):
                raise NotApproved(
                    seen.gate,
                    f"the evidence is {seen.digest} now, and the question shows {digest}",
                    remedy="answer the next question, which shows the evidence as it is now",
                )

    def _answered(self, context: Context, event: dict[str, Any], digest: str, seen_at: str) -> dict[str, str]:
        from kafka_migration.approvals import approvals, passing
        from kafka_migration.approvals.evidence import GateName

        if event.get("chosen_options") == [_approves(digest)]:
            event = {**event, "chosen_options": [self.APPROVE]}
        rejected = False
        try:
            super().execute_complete(context, event)
        except HITLRejectException:
            rejected = True
        gate = GateName(self.gate)
        if rejected:
            # Not made for this: a rejected plan leaves no trace on the target, not even internal topics.
            with self.opened(context) as ctx, explained(retry=(passing.NotApproved,)):
                approver = _approver(event, passing.approvers(ctx, gate))
                approvals.reject(ctx, gate, digest, approver)
                then, also = self._rejected(ctx, approver)
            raise AirflowFailException(
                f"{approver} rejected the {gate} gate{then}\n  remedy: to continue after all, clear this task{also}"
            )
        with self.opened(context, make_state=True) as ctx, explained(retry=(passing.NotApproved,)):
            approver = _approver(event, passing.approvers(ctx, gate))
            approval = approvals.record(ctx, gate, digest, approver, seen_at=datetime.fromisoformat(seen_at))
        self.log.info("%s approved the %s gate for %s", approver, gate, digest)
        return {"gate": self.gate, "digest": approval.digest, "approver": approver}

    def _rejected(self, ctx: MigrationContext, approver: str) -> tuple[str, str]:
        """What a rejection leads to, and what else is to be cleared to go on after it."""
        from kafka_migration.link import reverse
        from kafka_migration.steps import mirror_watch

        if self.wave:
            return f" of wave {self.wave}; the mirror runs on, and no group of it or of a later wave is moved", ""
        if self.gate == "cutover":
            return "; the mirror was asked to stop, no group was moved", " and mirror"
        if self.gate == "rollback":
            if mirror_watch.stop_submitted(reverse.way_back(ctx), f"{approver} rejected the rollback gate"):
                return "; the reverse mirror was asked to stop, nothing was moved back", " and reverse_mirror"
            # Somebody has started it to keep the way back open.
            return "; nothing was moved back, and the reverse mirror is as it was", ""
        return "", ""


def _approver(event: dict[str, Any], approvers: Sequence[str]) -> str:
    """Who answered, as the plan names them: some user managers number their users, and have names beside."""
    user = event["responded_by_user"] or {}
    given = [str(user[key]) for key in ("id", "name") if user.get(key)]
    wanted = [name for name in given if name in approvers]
    return (wanted or given[::-1] or ["unknown"])[0]


def _approves(digest: str) -> str:
    """The option that approves evidence with ``digest``. Until the version before: without it."""
    return f"{ApprovalOperator.APPROVE} {digest.removeprefix('sha256:')[:_TAG]}"


def _counted(context: Context, asked: int, **more: Any) -> Context:
    """``context`` for alerts, with how often somebody was asked in this try."""
    return cast("Context", {**context, "asked": asked, **more})


def _assigned(approvers: Sequence[str]) -> list[HITLUser] | None:
    """Whose answer Airflow's server is to take: it compares user ids, which are names with SimpleAuthManager alone.

    Elsewhere (FAB's ids are numbers of its database) nobody could answer at all. There the server takes the answer of
    whoever may answer tasks of the DAG, and this task refuses one of somebody else than the approvers, and asks anew.
    """
    manager = conf.get("core", "auth_manager", fallback="")
    if not approvers or manager.rpartition(".")[2] != "SimpleAuthManager":
        return None
    return [{"id": user, "name": user} for user in approvers]
