"""A gate that waits for a person, who sees the evidence and answers for exactly that (docs/behaviours.md, 4 and 27)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from kafka_migration.airflow.base import WorksFromSnapshot, explained
from kafka_migration.airflow.links import DocsLink, ReportLink

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.execution_time.hitl import HITLUser

    from kafka_migration.steps.step import ApprovalGate


class ApproveGateOperator(WorksFromSnapshot, ApprovalOperator):
    """Asks for an approval of the evidence as it is when asked, and records the answer in the journal.

    It holds no slot while it waits, and has no default: no answer is never an approval. A question that grows older
    than the evidence may be, or whose evidence changed before the answer came, fails this try; the next one asks anew.
    """

    # Not the body: evidence holds names from the clusters, and none of them is a template.
    template_fields = ("snapshot", "subject")
    operator_extra_links = (ReportLink(), DocsLink())
    ui_color = "#fdf3d8"

    def __init__(
        self, *, snapshot: Any, gate: ApprovalGate, approvers: Sequence[str], max_age_seconds: float, **kwargs: Any
    ) -> None:
        """``approvers`` may answer, by their names in Airflow; if there are none, whoever may answer at all."""
        super().__init__(
            body="",
            fail_on_reject=True,
            assigned_users=_assigned(approvers),
            response_timeout=timedelta(seconds=max_age_seconds),
            **kwargs,
        )
        self.snapshot, self.gate = snapshot, gate

    def execute(self, context: Context) -> None:
        """Take the evidence and ask."""
        from kafka_migration.approvals import passing
        from kafka_migration.approvals.evidence import GateName
        from kafka_migration.steps import outlook

        with self.opened() as ctx:
            # Before anybody is asked for an answer that could not be signed.
            passing.require_key(ctx)
            seen = outlook.evidence(ctx, GateName(self.gate))
        self.body = seen.as_markdown()
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            # Airflow keeps it beside the question: the answer is for this digest, whatever is shown elsewhere.
            waiting.kwargs = {"digest": seen.digest, "seen_at": seen.taken_at.isoformat()}
            raise

    def execute_complete(
        self, context: Context, event: dict[str, Any], digest: str = "", seen_at: str = ""
    ) -> dict[str, str]:
        """Record the answer: the approval, or the rejection, which fails the task for good."""
        from kafka_migration.approvals import approvals, passing
        from kafka_migration.approvals.evidence import GateName

        rejected = False
        try:
            super().execute_complete(context, event)
        except HITLRejectException:
            rejected = True
        gate, approver = GateName(self.gate), self._approver(event)
        if rejected:
            # Not made for this: a rejected plan leaves no trace on the target, not even internal topics.
            with self.opened() as ctx, explained(retry=(passing.NotApproved,)):
                approvals.reject(ctx, gate, digest, approver)
            mirror = "; the mirror was asked to stop, no group was moved" if gate is GateName.CUTOVER else ""
            raise AirflowFailException(
                f"{approver} rejected the {gate} gate{mirror}\n  remedy: to continue after all, clear this task"
                + (" and mirror" if mirror else "")
            )
        with self.opened(make_state=True) as ctx, explained(retry=(passing.NotApproved,)):
            approval = approvals.record(ctx, gate, digest, approver, seen_at=datetime.fromisoformat(seen_at))
        self.log.info("%s approved the %s gate for %s", approver, gate, digest)
        return {"gate": self.gate, "digest": approval.digest, "approver": approver}

    def _approver(self, event: dict[str, Any]) -> str:
        """Who answered, as the plan names them: some user managers number their users, and have names beside."""
        user = event["responded_by_user"] or {}
        given = [str(user[key]) for key in ("id", "name") if user.get(key)]
        wanted = [name for name in given if name in self.plan().approvals.approvers]
        return (wanted or given[::-1] or ["unknown"])[0]


def _assigned(approvers: Sequence[str]) -> list[HITLUser] | None:
    """Whose answer Airflow's server is to take: it compares user ids, which are names with SimpleAuthManager alone.

    Elsewhere (FAB's ids are numbers of its database) nobody could answer at all. There the server takes the answer of
    whoever may answer tasks of the DAG, and this task refuses one of somebody else than the approvers, and asks anew.
    """
    manager = conf.get("core", "auth_manager", fallback="")
    if not approvers or manager.rpartition(".")[2] != "SimpleAuthManager":
        return None
    return [{"id": user, "name": user} for user in approvers]
