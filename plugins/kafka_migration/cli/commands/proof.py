"""validate, approve: what a cutover rests on."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.approvals.evidence import GateName
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, Master, PlanFile, ReportsDirectory
from kafka_migration.cli.output import Output
from kafka_migration.domain.levels import Level

if TYPE_CHECKING:
    from kafka_migration.approvals.evidence import Evidence


def validate(
    plan: PlanFile,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="This topic only; may be given again. (default: all)", show_default=False),
    ] = None,
    level: Annotated[
        Level | None,
        typer.Option(help="How closely: batch, record, or sampled. (default: as the plan says)", show_default=False),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read everything, also what was found equal before and stands unchanged.")
    ] = False,
    master: Master = None,
    output_directory: ReportsDirectory = Path("reports"),
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Read both clusters again, and compare them by digests; only what is new since the last time."""
    from kafka_migration.cli.render.validation import validation as shown
    from kafka_migration.steps import runner

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        result = runner.run(
            ctx,
            "validate",
            spark_master=master,
            reports=output_directory,
            topics=topic or (),
            level=level,
            full=full,
        ).value
    output.result(result.as_dict(with_segments=False), shown(result))
    raise typer.Exit(result.exit_code)


def approve(
    gate: Annotated[GateName, typer.Argument(help="Which gate: plan (before create) or cutover.", show_default=False)],
    plan: PlanFile,
    receipt: Annotated[
        str | None,
        typer.Option(
            metavar="RECEIPT",
            help="Approve the evidence that --show gave this receipt for, and no other; with --yes.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Answer without being asked; needs --receipt, --reject or --revoke.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show the evidence and a receipt for it, and ask nothing.")
    ] = False,
    reject: Annotated[
        bool, typer.Option("--reject", help="Reject: void what was approved; at the cutover gate, stop the mirror.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take an approval back: no further step is made under it.")
    ] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, with --reject or --revoke.", show_default=False)
    ] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the evidence of a gate and its digest, and ask for an answer."""
    from kafka_migration.approvals import approvals, record
    from kafka_migration.cli.render.evidence import evidence as shown
    from kafka_migration.steps import outlook

    output = Output(as_json=as_json)
    _require_one_answer(receipt=receipt, yes=yes, show=show, reject=reject, revoke=revoke, reason=reason)
    if reject or revoke:
        _close(gate, plan, output, reject=reject, reason=reason, yes=yes)
        return
    if receipt is None:
        with opened(plan, output) as ctx:
            seen = outlook.evidence(ctx, gate)
            asked = approvals.is_asked(ctx, gate)
            given = approvals.receipt(ctx, seen)
        if not as_json:
            output.out.print(shown(seen))
        elif show:
            output.json({**seen.as_dict(), "receipt": given})
        if show:
            if not as_json:
                output.out.print(f"receipt {given}" if given else "no receipt: there is no approval key here")
            return
        if not asked:
            output.tell(f"the plan asks nobody here: approvals.{gate} is false")
        digest, seen_at = _answer(output, seen, given), seen.taken_at
    name = answering()
    with opened(plan, output) as ctx:
        if receipt is not None:
            digest, seen_at = approvals.shown_by(ctx, gate, receipt)
        # Not even the internal topics are made for an answer that does not count.
        now = approvals.evidence(ctx, gate)
        approvals.examine(ctx, gate, digest, name, seen_at=seen_at, now=now)
    with opened(plan, output, make_state=True) as ctx:
        approval = approvals.record(ctx, gate, digest, name, seen_at=seen_at, now=now, via=record.COMMAND)
    output.result(approval.as_dict(), f"approved by {approval.approver}: {approval.digest}")


def answering() -> str:
    """Who runs this command, by the password database: no variable of the environment changes that."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _require_one_answer(*, receipt: str | None, yes: bool, show: bool, reject: bool, revoke: bool, reason: str) -> None:
    closes = reject or revoke
    if (reject and revoke) or (closes and (receipt is not None or show)):
        raise typer.BadParameter("give one answer: a receipt, --reject or --revoke", param_hint="--reject and --revoke")
    if reason and not closes:
        raise typer.BadParameter("a reason stands beside --reject or --revoke", param_hint="--reason")
    if yes and receipt is None and not closes:
        raise typer.BadParameter("--yes needs --receipt: nobody approves what was not seen", param_hint="--yes")
    if receipt is not None and not yes:
        raise typer.BadParameter("--receipt is for answering without being asked: add --yes", param_hint="--receipt")


def _close(gate: GateName, plan: Path, output: Output, *, reject: bool, reason: str, yes: bool) -> None:
    """Reject or revoke, once somebody said yes. No internal topics are made for it."""
    from kafka_migration.approvals import approvals, record

    what, name = "Reject" if reject else "Revoke the approval of", answering()
    if not yes:
        if output.as_json or not can_be_asked():
            raise approvals.NotApproved(gate, "nobody can be asked here", remedy="answer at a terminal, or add --yes")
        if typer.prompt(f"{what} the {gate} gate? Type yes", default="no").strip().lower() != "yes":
            raise approvals.NotApproved(gate, "nothing was changed", remedy="answer yes, or leave it as it is")
    with opened(plan, output) as ctx:
        if reject:
            newest = record.answers(ctx).get(gate)
            digest = newest.digest if newest else ""
            answer = approvals.reject(ctx, gate, digest, name, reason=reason, via=record.COMMAND)
        else:
            answer = approvals.revoke(ctx, gate, name, reason=reason, via=record.COMMAND)
    output.result(answer.as_dict(), f"{answer.answer} by {answer.approver}: no further step is made under this gate")


def can_be_asked() -> bool:
    """Whether a person sits at standard input."""
    return sys.stdin.isatty()


def _answer(output: Output, seen: Evidence, receipt: str) -> str:
    """The digest that the person at the terminal approves. Raises NotApproved unless they say yes, in full."""
    from kafka_migration.approvals.approvals import NotApproved

    if output.as_json or not can_be_asked():
        raise NotApproved(
            seen.gate,
            "no answer: nobody can be asked here, and no answer is never an approval",
            digest=seen.digest,
            remedy=f"answer at a terminal, or give --receipt {receipt or 'RECEIPT, as --show gives it,'} --yes",
        )
    answer = typer.prompt(f"Approve the {seen.gate} of {seen.migration} on this evidence? Type yes", default="no")
    if answer.strip().lower() != "yes":
        raise NotApproved(seen.gate, "not approved", digest=seen.digest)
    return seen.digest
