"""validate, parity, approve: whether both clusters hold the same, and the approvals of a person."""

from __future__ import annotations

import os
import pwd
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.approvals.evidence import GateName
from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Groups, Json, Master, PlanFile, ReportsDirectory, Wave
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
        typer.Option(help="How closely: batch or record. (default: the plan's level)", show_default=False),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read everything, also what was found equal before and has not changed."),
    ] = False,
    reverse: Annotated[
        bool,
        typer.Option("--reverse", help="What was mirrored back: from the target to the source, since the cut."),
    ] = False,
    master: Master = None,
    output_directory: ReportsDirectory = "reports",
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Read both clusters again, and compare them by digests; only what is new since the last time."""
    from kafka_migration.cli.render.evidence import validation as shown
    from kafka_migration.migration.reports import place_of
    from kafka_migration.steps import runner

    output, place = Output(as_json=as_json), place_of(output_directory, field="--output")
    with opened(plan, output, dry_run=dry_run) as ctx:
        seen = ctx.reverse() if reverse else ctx
        result = runner.run(
            seen,
            "validate",
            part=seen.direction.own(""),
            spark_master=master,
            reports=place,
            topics=topic or (),
            level=level,
            full=full,
        ).value
    output.result(result.as_dict(with_segments=False), shown(result))
    raise typer.Exit(result.exit_code)


def parity(plan: PlanFile, group: Groups = None, as_json: Json = False, debug: Debug = False) -> None:
    """Compare both clusters beside their records: groups' offsets through the map, topics, ACLs."""
    from kafka_migration.cli.render.groups import side_by_side
    from kafka_migration.groups import parity as phase_parity

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx:
        found = phase_parity.read(ctx, group or None)
    output.result(found.as_dict(), side_by_side(found))
    raise typer.Exit(found.exit_code)


def approve(
    gate: Annotated[
        GateName,
        typer.Argument(help="Which gate: plan (before create), cutover, producers or rollback.", show_default=False),
    ],
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
    wave: Wave = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the evidence of a gate and its digest, and ask for an answer."""
    from kafka_migration.approvals import approvals, record

    output = Output(as_json=as_json)
    _require_one_answer(receipt=receipt, yes=yes, show=show, reject=reject, revoke=revoke, reason=reason)
    if wave is not None and gate not in (GateName.CUTOVER, GateName.ROLLBACK):
        raise typer.BadParameter(
            f"{gate} is of the whole plan; waves have a cutover and a rollback gate", param_hint="--wave"
        )
    if reject or revoke:
        _close(gate, plan, output, wave=wave, reject=reject, reason=reason, yes=yes)
        return
    if receipt is None:
        seen = _show(gate, plan, output, wave=wave, and_ask=not show)
        if show:
            return
        digest, seen_at = seen.digest, seen.taken_at
    name = answering()
    with opened(plan, output, wave=wave) as ctx:
        if receipt is not None:
            digest, seen_at = approvals.shown_by(ctx, gate, receipt)
        # Not even the internal topics are made for an answer that does not count.
        now = approvals.evidence(ctx, gate)
        approvals.examine(ctx, gate, digest, name, seen_at=seen_at, now=now)
    with opened(plan, output, make_state=True, wave=wave) as ctx:
        approval = approvals.record(ctx, gate, digest, name, seen_at=seen_at, now=now, via=record.COMMAND)
    output.result(approval.as_dict(), f"approved by {approval.approver}: {approval.digest}")


def answering() -> str:
    """Who runs this command, by the password database: no variable of the environment changes that."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _require_one_answer(*, receipt: str | None, yes: bool, show: bool, reject: bool, revoke: bool, reason: str) -> None:
    if reject or revoke:
        if sum((reject, revoke, show, receipt is not None)) > 1:
            raise typer.BadParameter(
                "give one answer: a receipt, --reject or --revoke", param_hint="--reject and --revoke"
            )
        return
    if reason:
        raise typer.BadParameter("a reason belongs to --reject or --revoke", param_hint="--reason")
    if yes and receipt is None:
        raise typer.BadParameter("--yes needs --receipt: nobody approves what was not seen", param_hint="--yes")
    if receipt is not None and not yes:
        raise typer.BadParameter("--receipt is for answering without being asked: add --yes", param_hint="--receipt")


def _show(gate: GateName, plan: Path, output: Output, *, wave: str | None, and_ask: bool) -> Evidence:
    """Show the evidence: with a receipt for it, or ``and_ask`` for an approval. Raises NotApproved unless it is yes."""
    from kafka_migration.approvals import approvals, passing
    from kafka_migration.cli.render.evidence import evidence as shown
    from kafka_migration.steps import outlook

    with opened(plan, output, wave=wave) as ctx:
        seen = outlook.evidence(ctx, gate)
        asked = passing.is_asked(ctx, gate)
        receipt = approvals.receipt(ctx, seen)
    if not output.as_json:
        output.out.print(shown(seen))
    if not and_ask:
        line = f"receipt {receipt}" if receipt else "no receipt: there is no approval key here"
        if output.as_json:
            output.json({**seen.as_dict(), "receipt": receipt})
        else:
            output.out.print(line)
        return seen
    if not asked:
        output.log(f"the plan asks nobody here: approvals.{gate} is false")
    demand_yes(
        output,
        f"Approve the {gate} of {seen.migration}{f', wave {wave},' if wave else ''} on this evidence?",
        declined="not approved",
        unasked="no answer: nobody can be asked here, and no answer is never an approval",
        remedy=f"answer at a terminal, or give --receipt {receipt or 'RECEIPT, as --show gives it,'} --yes",
        refused=partial(passing.NotApproved, gate, digest=seen.digest, wave=seen.scope),
    )
    return seen


def _close(
    gate: GateName, plan: Path, output: Output, *, wave: str | None, reject: bool, reason: str, yes: bool
) -> None:
    """Reject or revoke, once a person confirmed it. No internal topics are made for it."""
    from kafka_migration.approvals import approvals, passing, record

    what, name = "Reject" if reject else "Revoke the approval of", answering()
    if not yes:
        demand_yes(
            output,
            f"{what} the {gate} gate{f' of wave {wave}' if wave else ''}?",
            declined="nothing was changed",
            remedy="answer at a terminal, or add --yes",
            refused=partial(passing.NotApproved, gate, wave=wave or ""),
        )
    with opened(plan, output, wave=wave) as ctx:
        if reject:
            newest = record.answers(ctx).get(gate)
            digest = newest.digest if newest else ""
            answer = approvals.reject(ctx, gate, digest, name, reason=reason, via=record.COMMAND)
        else:
            answer = approvals.revoke(ctx, gate, name, reason=reason, via=record.COMMAND)
    output.result(answer.as_dict(), f"{answer.answer} by {answer.approver}: no further step is made under this gate")
