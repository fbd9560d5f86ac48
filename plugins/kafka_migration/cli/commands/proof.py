"""validate, approve: what a cutover rests on."""

from __future__ import annotations

import getpass
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, Master, PlanFile, ReportsDirectory
from kafka_migration.cli.output import Output
from kafka_migration.domain.levels import Level
from kafka_migration.phases.evidence import GateName

if TYPE_CHECKING:
    from kafka_migration.phases.evidence import Evidence


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
    from kafka_migration.phases import validate as phase_validate
    from kafka_migration.phases.record import phase

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx, phase(ctx, "validate") as run:
        result = phase_validate.apply(
            ctx,
            spark_master=master,
            reports=output_directory,
            topics=topic or (),
            level=level,
            full=full,
        )
        run.ends(result.exit_code, f"{result.verdict}" if result.exit_code else "")
    output.result(result.as_dict(with_segments=False), shown(result))
    raise typer.Exit(result.exit_code)


def approve(
    gate: Annotated[GateName, typer.Argument(help="Which gate: plan (before create) or cutover.", show_default=False)],
    plan: PlanFile,
    digest: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Approve this evidence and no other; with --yes.", show_default=False),
    ] = None,
    seen_at: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            help="When that evidence was taken, as --show tells it (taken_at); with --digest.",
            formats=["%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M:%S%z"],
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Answer without being asked; needs --digest.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the evidence, and ask nothing.")] = False,
    approver: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Who answers. (default: the user of this terminal)", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the evidence of a gate and its digest, and ask for an answer."""
    from kafka_migration.cli.render.evidence import evidence as shown
    from kafka_migration.phases import approvals

    output = Output(as_json=as_json)
    if yes and digest is None:
        raise typer.BadParameter("--yes needs --digest: nobody approves what was not seen", param_hint="--yes")
    if digest is not None and not yes:
        raise typer.BadParameter("--digest is for answering without being asked: add --yes", param_hint="--digest")
    if (digest is None) != (seen_at is None):
        raise typer.BadParameter(
            "evidence is approved by its digest and the time at which it was taken: an old one may not be approved",
            param_hint="--digest and --seen-at",
        )
    if digest is None or seen_at is None:
        with opened(plan, output) as ctx:
            seen = approvals.evidence(ctx, gate)
            asked = approvals.is_asked(ctx, gate)
        if not as_json:
            output.out.print(shown(seen))
        elif show:
            output.json(seen.as_dict())
        if show:
            return
        if not asked:
            output.tell(f"the plan asks nobody here: approvals.{gate} is false")
        digest, seen_at = _answer(output, seen), seen.taken_at
    name = approver or getpass.getuser()
    with opened(plan, output) as ctx:
        # Not even the internal topics are made for an answer that does not count.
        now = approvals.evidence(ctx, gate)
        approvals.examine(ctx, gate, digest, name, seen_at=seen_at, now=now)
    with opened(plan, output, make_state=True) as ctx:
        # Whatever name is given by --as, who ran the command stands beside it.
        approval = approvals.record(ctx, gate, digest, name, seen_at=seen_at, now=now, os_user=getpass.getuser())
    output.result(approval.as_dict(), f"approved by {approval.approver}: {approval.digest}")


def can_be_asked() -> bool:
    """Whether a person sits at standard input."""
    return sys.stdin.isatty()


def _answer(output: Output, seen: Evidence) -> str:
    """The digest that the person at the terminal approves. Raises NotApproved unless they say yes, in full."""
    from kafka_migration.phases.approvals import NotApproved

    if output.as_json or not can_be_asked():
        raise NotApproved(
            seen.gate,
            "no answer: nobody can be asked here, and no answer is never an approval",
            digest=seen.digest,
            remedy=f"answer at a terminal, or give --digest {seen.digest}"
            f" --seen-at {seen.taken_at.isoformat(timespec='milliseconds')} --yes",
        )
    answer = typer.prompt(f"Approve the {seen.gate} of {seen.migration} on this evidence? Type yes", default="no")
    if answer.strip().lower() != "yes":
        raise NotApproved(seen.gate, "not approved", digest=seen.digest)
    return seen.digest
