"""The last validation's verdict, for those who build on it: the cutover gate, status and report.

One place, so that whoever asks gets the same answer: a verdict that is not "equal" never opens a gate, and neither
does one that was never given, is of a weaker level than the plan's or of other topics than those that stand under these
names now, or is too old; nor one that a later validation, which has not come to a verdict or never will, has found
something against.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.explain.result import masked
from kafka_migration.compare.result import Coverage, Equality, worst
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.levels import Level
from kafka_migration.domain.listing import listed
from kafka_migration.topics import handling
from kafka_migration.topics.declared import mirrored
from kafka_migration.validation.record import compared, kept, notes, rewound_since, which

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


EQUAL_BACK = "what was mirrored back is equal"


def latest(ctx: Context) -> dict[str, Any] | None:
    """The newest validation's record (``Validation.as_dict``, without equal segments), or None if there was none.

    An EQUAL that another validation contradicts since, ended or not, is none any more: ``against`` is why. Without
    bytes of payloads, if they are private now: they may not have been when it was recorded.
    """
    found = kept(ctx)
    if found is None:
        return None
    if ctx.plan.validation.private_payloads:
        found = {**found, "partitions": [_without_payloads(partition) for partition in found["partitions"]]}
    against = [(note.objection, note.text) for note in notes(ctx).values() if note.objection is not None]
    if found["verdict"] != Equality.EQUAL or not against:
        return found
    texts = [text for _, text in against]
    ours = {"verdict": str(worst(verdict for verdict, _ in against)), "passed": False, "against": texts}
    return {**found, **ours, "hints": [*found.get("hints", ()), *texts]}


def _without_payloads(partition: dict[str, Any]) -> dict[str, Any]:
    drilled = partition.get("drilled")
    return partition | {"drilled": masked(drilled) if drilled else None}


def check_back(back: Context) -> CheckResult:
    """The verdict on what the reverse link copied, as a named check of the rollback gate.

    Who has to go back may have no time for a validation: only a difference that was found shuts it.
    """
    found, last = check(back), latest(back)
    # Also of a run over some topics, or one that died.
    is_noted = any(note.objection is Equality.DIFFERENT for note in notes(back).values())
    is_different = is_noted or (last is not None and last["verdict"] == Equality.DIFFERENT)
    mild = Verdict.PASS if found.verdict is Verdict.PASS else Verdict.WARN
    return replace(
        found,
        name=EQUAL_BACK,
        verdict=Verdict.FAIL if is_different else mild,
        remedy=found.remedy.replace("`validate`", "`validate --reverse`"),
    )


#: What speaks against an EQUAL: a verdict, what to add to the evidence, and a remedy.
_Doubt = tuple[Verdict, str, str]


def check(ctx: Context) -> CheckResult:
    """The verdict as a named check of the cutover gate."""
    name = "source and target are equal"
    found = latest(ctx)
    if found is None:
        return CheckResult.failed(name, "nothing was validated yet", remedy="run `validate` first")
    against, level = found.get("against", ()), found.get("level")
    ended = f"validation ended {Equality.EQUAL if against else found['verdict']} at {found['at']}"
    evidence = "; ".join([f"{ended}, at level {level}" if level else ended, *against])
    for doubt_of in (_unequal, _too_weak, _too_few, _of_others, _of_earlier_link, _before_a_loss, _too_old, _under_way):
        if doubt := doubt_of(ctx, found):
            verdict, more, remedy = doubt
            return CheckResult(name=name, verdict=verdict, evidence=f"{evidence}{more}", remedy=remedy)
    return CheckResult.passed(name, f"{evidence}, of {found['totals']['partitions']} partitions")


def _unequal(_ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    if found["verdict"] == Equality.EQUAL:
        return None
    # Expired or unread is not a difference, and no equality either.
    verdict = Verdict.FAIL if found["verdict"] == Equality.DIFFERENT else Verdict.UNCHECKED
    return verdict, "", "see what differs in `report` and in the Data Docs, then run `validate` again"


def _too_weak(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    level, wanted = found.get("level"), Level(ctx.plan.validation.level)
    if level == Level.RECORD or (level is not None and wanted is Level.BATCH):
        return None
    weak = f", and the plan asks for {wanted}" if level else ", but not at which level"
    return Verdict.UNCHECKED, weak, "run `validate` again, at the level of the plan"


def _too_few(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    # A validation may have been asked for some topics only: it proves nothing of the others.
    seen = compared(found)
    wanted = {name: topic["spec"]["partitions"] for name, topic in sorted(mirrored(ctx).items())}
    has = {name: min(count, seen[name].partitions) if name in seen else 0 for name, count in wanted.items()}
    if has == wanted:
        return None
    short = listed(f"{name} ({has[name]} of {count})" for name, count in wanted.items() if has[name] < count)
    remedy = "run `validate` for all topics of the plan"
    counts = f"{sum(has.values())} of {sum(wanted.values())} partitions"
    return Verdict.UNCHECKED, f", of {counts}; what it lacks: {short}", remedy


def _of_others(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    if "topics" not in found and "topic_ids" not in found:
        return Verdict.UNCHECKED, ", but not of which topics, by their ids", "run `validate` again"
    now, seen = handling.topic_ids(ctx, mirrored(ctx)), compared(found)
    others = [name for name, ids in sorted(now.items()) if name in seen and seen[name].which != which(ids)]
    if not others:
        return None
    remedy = "validate them again; if they were recreated, find out who did so, and mirror them first"
    return Verdict.FAIL, f", of other topics than are there now, or by other handlers: {listed(others)}", remedy


def _of_earlier_link(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    # What this link copied was not there yet.
    seal = None if ctx.is_first else ctx.before().link.seal()
    if seal is None or datetime.fromisoformat(found["at"]) > datetime.fromisoformat(seal.at):
        return None
    return Verdict.FAIL, f", before link {ctx.link.name} began (at {seal.at})", "run `validate` again"


def _before_a_loss(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    # It has not seen the second copy of what the target lost, or read some of the first one.
    lost = sorted(tp for tp in rewound_since(ctx, found["at"]) if ctx.selects_topic(tp.topic))
    if not lost:
        return None
    return (
        Verdict.FAIL,
        f", before the target lost records that were copied again: {listed(lost)}",
        "run `validate` again",
    )


def _too_old(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    age, limit = ctx.clock.now() - datetime.fromisoformat(found["at"]), ctx.plan.validation.max_age_seconds
    if age.total_seconds() <= limit:
        return None
    old = f", {timedelta(seconds=round(age.total_seconds()))} ago; max_age_seconds is {limit:g}"
    return Verdict.FAIL, old, "run `validate` again (or raise validation.max_age_seconds of the plan)"


def _under_way(ctx: Context, found: dict[str, Any]) -> _Doubt | None:
    # It has found nothing against this one, and may end in an hour: that is no reason to hold a cutover up.
    under_way = [note.text for note in notes(ctx).values() if note.objection is None]
    if not under_way:
        return None
    more = "; ".join([f", of {found['totals']['partitions']} partitions", *under_way])
    return Verdict.WARN, more, "wait for its verdict, or run `validate` again if it was killed"


def coverage(ctx: Context) -> CheckResult:
    """Whether enough was compared, as a named check of the cutover gate: what expired on the source before any
    validation read it is on the target, and nobody has looked at it."""

    def result(verdict: Verdict, evidence: str, remedy: str = "") -> CheckResult:
        return CheckResult(name="coverage", verdict=verdict, evidence=evidence, remedy=remedy)

    found = latest(ctx)
    if found is None or "coverage" not in found:
        why = "nothing was validated yet" if found is None else "the last validation did not count what it covers"
        return result(Verdict.UNCHECKED, why, "run `validate`")
    totals, floor = found["coverage"], ctx.plan.validation.least_coverage
    least = [Coverage(**topic) for topic in totals["least"]]
    evidence = f"{totals['compared']:,} source offsets were compared"
    if totals["never"]:
        evidence += f", {totals['never']:,} expired before any validation read them"
    below = [topic for topic in least if topic.share < floor]
    if below:
        rows = listed(f"{topic.topic} {topic.share:.0%} ({topic.never:,} never compared)" for topic in below)
        return result(
            Verdict.FAIL,
            f"{evidence}; validation.least_coverage is {floor:.0%}, and these topics are below: {rows}",
            "validate before the source's retention takes records, which later runs count; or lower"
            " validation.least_coverage of the plan, if nobody needs what expired to be compared",
        )
    return result(Verdict.PASS, evidence)
