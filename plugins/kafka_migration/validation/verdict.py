"""What the last validation said, for those who build on it: the cutover gate, status and report.

One place, so that whoever asks gets the same answer: a verdict that is not "equal" never opens a gate, and neither
does one that was never given, is of a weaker level than the plan's or of other topics than those that stand under these
names now, or is too old; nor one that a later validation, which has not come to a verdict or never will, has heard
something against.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.explain.result import masked
from kafka_migration.compare.result import Coverage, Equality, worst
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.levels import Level
from kafka_migration.domain.listing import listed
from kafka_migration.topics.declared import mirrored
from kafka_migration.validation.record import KIND, LATEST, notes
from kafka_migration.validation.validate import topic_ids

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def latest(ctx: Context) -> dict[str, Any] | None:
    """The newest validation's record (``Validation.as_dict``, without equal segments), or None if there was none.

    An EQUAL that another validation contradicts since, ended or not, is none any more: ``against`` says why. Without
    bytes of payloads, if they are private now: they may not have been when it was recorded.
    """
    found = ctx.journal.read(KIND, LATEST)
    if found is None:
        return None
    if ctx.plan.validation.private_payloads:
        found = {**found, "partitions": [_without_payloads(it) for it in found["partitions"]]}
    against = [(it.says, it.text) for it in notes(ctx).values() if it.says is not None]
    if found["verdict"] != Equality.EQUAL or not against:
        return found
    said = [text for _, text in against]
    ours = {"verdict": str(worst(says for says, _ in against)), "passed": False, "against": said}
    return {**found, **ours, "hints": [*found.get("hints", ()), *said]}


def _without_payloads(partition: dict[str, Any]) -> dict[str, Any]:
    drilled = partition.get("drilled")
    return partition | {"drilled": masked(drilled) if drilled else None}


def check(ctx: Context) -> CheckResult:
    """The verdict as a named check of the cutover gate."""
    name = "source and target are equal"

    def result(verdict: Verdict, evidence: str, remedy: str = "") -> CheckResult:
        return CheckResult(name=name, verdict=verdict, evidence=evidence, remedy=remedy)

    found = latest(ctx)
    if found is None:
        return result(Verdict.FAIL, "nothing was validated yet", "run `validate` first")
    against = found.get("against", ())
    said = Equality.EQUAL if against else found["verdict"]
    level, wanted = found.get("level"), Level(ctx.plan.validation.level)
    of_level = f", at level {level}" if level else ""
    evidence = "; ".join([f"validation said {said} at {found['at']}{of_level}", *against])
    if found["verdict"] != Equality.EQUAL:
        # Expired or unread is not a difference, and no equality either.
        is_difference = found["verdict"] == Equality.DIFFERENT
        remedy = "see what differs in `report` and in the Data Docs, then run `validate` again"
        return result(Verdict.FAIL if is_difference else Verdict.UNCHECKED, evidence, remedy)
    if level is None or not Level(level).covers(wanted):
        weak = f"{evidence}, and the plan says {wanted}" if level else f"{evidence}, but not at which level"
        return result(Verdict.UNCHECKED, weak, "run `validate` again, at the level of the plan")
    # A validation may have been asked for some topics only: it says nothing of the others.
    topics = mirrored(ctx)
    declared = sum(it["spec"]["partitions"] for it in topics.values())
    compared = found["totals"]["partitions"]
    missing = sorted(set(topics) - {it["topic"] for it in found["partitions"]}) if not found["left_out"] else []
    if missing or compared < declared:
        said = f"{evidence}, of {compared} of {declared} partitions"
        said += f", without topics {listed(missing)}" if missing else ""
        return result(Verdict.UNCHECKED, said, "run `validate` for all topics of the plan")
    if "topic_ids" not in found:
        return result(Verdict.UNCHECKED, f"{evidence}, but not of which topics, by their ids", "run `validate` again")
    others = _others(found["topic_ids"], topic_ids(ctx, topics))
    if others:
        said = f"{evidence}, of other topics than those that are there now: {listed(others)}"
        return result(Verdict.FAIL, said, "find out who recreated them; they are to be mirrored and validated anew")
    age, limit = ctx.clock.now() - datetime.fromisoformat(found["at"]), ctx.plan.validation.max_age_seconds
    if age.total_seconds() > limit:
        said = f"{evidence}, {timedelta(seconds=round(age.total_seconds()))} ago; max_age_seconds is {limit:g}"
        return result(Verdict.FAIL, said, "run `validate` again (or raise validation.max_age_seconds of the plan)")
    evidence = f"{evidence}, of {compared} partitions"
    under_way = [it.text for it in notes(ctx).values() if it.says is None]
    if under_way:
        # It has heard nothing against this one, and may end in an hour: that is no reason to hold a cutover up.
        said = "; ".join([evidence, *under_way])
        return result(Verdict.WARN, said, "wait for its verdict, or run `validate` again if it was killed")
    return result(Verdict.PASS, evidence)


def coverage(ctx: Context) -> CheckResult:
    """Whether enough was compared, as a named check of the cutover gate: what expired on the source before any
    validation read it is on the target, and nobody has looked at it."""

    def result(verdict: Verdict, evidence: str, remedy: str = "") -> CheckResult:
        return CheckResult(name="coverage", verdict=verdict, evidence=evidence, remedy=remedy)

    found = latest(ctx)
    if found is None or "coverage" not in found:
        said = "nothing was validated yet" if found is None else "the last validation did not count what it covers"
        return result(Verdict.UNCHECKED, said, "run `validate`")
    totals, floor = found["coverage"], ctx.plan.validation.least_coverage
    least = [Coverage(**it) for it in totals["least"]]
    evidence = f"{totals['compared']:,} source offsets were compared"
    if totals["never"]:
        evidence += f", {totals['never']:,} expired before any validation read them"
    below = [it for it in least if it.share < floor]
    if below:
        rows = listed(f"{it.topic} {it.share:.0%} ({it.never:,} never compared)" for it in below)
        return result(
            Verdict.FAIL,
            f"{evidence}; validation.least_coverage is {floor:.0%}, and these topics are below: {rows}",
            "validate before the source's retention takes records, which later runs count; or lower"
            " validation.least_coverage of the plan, if nobody needs what expired to be compared",
        )
    return result(Verdict.PASS, evidence)


def _others(validated: dict[str, list[str | None]], now: dict[str, list[str | None]]) -> Iterable[str]:
    return [name for name, ids in sorted(now.items()) if validated.get(name) != ids]
