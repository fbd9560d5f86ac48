"""The report of a migration: ``report.json`` for machines, ``report.html`` for people.

Made of the journal and the link's state, so it can be written at any time, by anyone who reaches the target. Only
whether moved groups are active on the source again, and which ones were left there, is asked there; if the source does
not answer, the report has that as unknown. It holds no properties of connections, hence no secret.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals import record as approval_record
from kafka_migration.approvals import waves
from kafka_migration.compare.result import Equality
from kafka_migration.domain import digest
from kafka_migration.domain.direction import TARGET
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError, Refused
from kafka_migration.fence import record as fence_record
from kafka_migration.groups import sides
from kafka_migration.groups.record import GroupRecord, Step, commits_from_evidence
from kafka_migration.kafka.renamed import other_names
from kafka_migration.link import stragglers, switched
from kafka_migration.link.flight import was_drained
from kafka_migration.link.losses import all_losses, sentence
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import cancellation, completion
from kafka_migration.migration.cancellation import Cancellation, State
from kafka_migration.migration.history import KIND as PHASE
from kafka_migration.migration.joined import joined
from kafka_migration.migration.reports import Place, is_file, write_text
from kafka_migration.migration.signing import HOW_TO_SET, Keyring
from kafka_migration.overview import status
from kafka_migration.overview.html import rendered
from kafka_migration.overview.plots import plots
from kafka_migration.steps.step import Decision
from kafka_migration.topics.declared import mirrored
from kafka_migration.validation import verdict
from kafka_migration.validation.record import compared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Version of the JSON's shape. It grows when a field changes its meaning or goes; new fields do not count.
FORMAT = 1

_TEMPLATE = "report.html.j2"

#: The section with the digest of all others, and its signature.
_SEALED = "sealed"
_REMEDY_FILE = "give the report.json of this migration, written by this version or a later one"

#: Where validation puts its Data Docs, beside the report.
_DATA_DOCS = "data_docs/index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The report as a value, and where it stands."""

    report: Mapping[str, Any]
    json_path: Place
    html_path: Place

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"json": str(self.json_path), "html": str(self.html_path), "exceptions": self.report["exceptions"]}


def build(ctx: Context, *, extra: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The report as JSON types. ``extra`` are further sections, by names that the report does not use itself.

    Raises Refused if the migration has left no trace yet, ValueError for an extra section's name that is taken.
    """
    topics = ctx.journal.all("topic")
    phases = _phases(ctx)
    if not topics and not phases:
        raise Refused(
            f"migration {ctx.plan.name} has not begun, so there is nothing to report",
            remedy="see `status`; `create` is the first step that leaves a trace",
        )
    groups = _groups(ctx)
    halts = [status.as_fields(halt) for halt in status.halts(ctx)]
    validation = verdict.latest(ctx)
    cancelled = cancellation.read(ctx)
    found: dict[str, Any] = {
        "format": FORMAT,
        "migration": ctx.plan.name,
        "target": ctx.target.cluster_id(),
        "written_at": ctx.stamp(),
        "plan": _plan(ctx),
        "inventory": ctx.journal.read("inventory", "source"),
        "phases": phases,
        "approvals": approval_record.history(ctx),
        "topics": [_topic(name, value) for name, value in sorted(topics.items())],
        "mirror": _mirror(ctx),
        "halts": halts,
        "losses": all_losses(ctx),
        "validation": validation and {**validation, "topics": _compared(validation)},
        "data_docs": None,
        "groups": groups,
        "groups_left": _groups_left(ctx),
        "waves": [wave.as_dict() for wave in waves.standings(ctx)],
        "cancelled": None if cancelled is None else cancelled.as_dict(),
        "completed": None if (completed := completion.read(ctx)) is None else completed.as_dict(),
        "fence": fence_record.describe(ctx),
        "stragglers": _stragglers(ctx),
    }
    if (switch := switched.last(ctx)) is not None:
        found["switch"] = {"producers": str(switch), **switch.as_dict()}
    found["exceptions"] = _exceptions(found)
    for name, section in (extra or {}).items():
        if name in found:
            raise ValueError(f"the report has a section {name} of its own")
        found[name] = dict(section)
    return found


def sealed(ctx: Context, report: Mapping[str, Any]) -> dict[str, str]:
    """The digest of all of ``report`` but this section itself, and its signature, "" where there is no approval key."""
    try:
        keys = ctx.approval_keys()
    except BadInput as error:
        # Whoever only reports need not have one that works.
        ctx.log(f"the report is not signed: {error.message}")
        keys = Keyring(())
    return {"digest": digest_of(report), "signature": keys.sign(_signed(report)) if keys else ""}


def digest_of(report: Mapping[str, Any]) -> str:
    """Of all of ``report`` but the section ``sealed``."""
    return digest.digest_of({name: section for name, section in report.items() if name != _SEALED})


def _signed(report: Mapping[str, Any]) -> dict[str, str]:
    # An answer that was signed with the same key is none of these, and none of these an answer.
    names = {"of": "report", "migration": str(report["migration"]), "target": str(report["target"])}
    return {**names, "digest": digest_of(report)}


def verified(migration: str, keys: Keyring, path: Path) -> str:
    """That the report in the file ``path`` is as it was written, and how that is known.

    Raises Refused if it is not so or not known, BadInput if it is no report of ``migration``.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=digest.without_twins)
        found = digest_of(report) if isinstance(report, dict) else ""
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"cannot be read: {error}", field="--verify", value=str(path), remedy=_REMEDY_FILE) from error
    seal = report.get(_SEALED) if isinstance(report, dict) else None
    is_whole = isinstance(seal, dict) and set(seal) == {"digest", "signature"} and "target" in report
    if seal is None or not is_whole or report.get("migration") != migration:
        what = f"no report with a digest, of migration {migration}"
        raise BadInput(what, field="--verify", value=str(path), remedy=_REMEDY_FILE)
    signature = str(seal["signature"])
    if found != seal["digest"]:
        raise Refused(
            f"the report was changed after it was written: its digest is {found}, and it names {seal['digest']}",
            remedy="run `report` again: it is written from the journal",
        )
    if not signature.isascii() or not keys.has_signed(signature, _signed(report)):
        why = "no approval key of this process has signed it" if signature else "nobody has signed it"
        raise Refused(f"whether the report was changed cannot be known: {why}", remedy=HOW_TO_SET)
    at, target = report["written_at"], report["target"]
    return f"unchanged since {at}, on target {target}: {found}, signed by an approval key"


def apply(
    ctx: Context, directory: Place = Path("reports"), *, extra: Mapping[str, Mapping[str, Any]] | None = None
) -> Written:
    """Write the report below ``directory``, in a folder named after the plan; an earlier one is replaced.

    Raises what ``build`` raises, and CouldNotFindOut if the files cannot be written.
    """
    report = build(ctx, extra=extra)
    folder = directory / ctx.plan.name
    if is_file(folder / _DATA_DOCS):
        report["data_docs"] = _DATA_DOCS
    report[_SEALED] = sealed(ctx, report)
    written = Written(report=report, json_path=folder / "report.json", html_path=folder / "report.html")
    if not ctx.dry_run:
        try:
            # It names topics, groups and people, and may hold payloads: nothing for every user of the machine.
            if isinstance(folder, Path):
                folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            write_text(written.json_path, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
            write_text(written.html_path, as_html(report))
        except OSError as error:
            raise CouldNotFindOut(
                f"the report cannot be written to {folder}: {error.strerror or error}",
                remedy="choose another directory, or free some space, and run this again",
            ) from error
    ctx.log(f"report: {written.html_path}")
    return written


def as_html(report: Mapping[str, Any]) -> str:
    """The page: one file without references to others, readable on light and dark screens."""
    own = {
        "format", "migration", "target", "written_at", "plan", "inventory", "phases", "approvals", "topics", "mirror",
        "halts",
        "losses", "validation", "data_docs", "groups", "groups_left", "waves", "exceptions", "cancelled",
        "completed",
    }  # fmt: skip
    extra = {name: section for name, section in report.items() if name not in own | {_SEALED}}
    known = {name: report[name] for name in own}
    return rendered(_TEMPLATE, **known, sealed=report.get(_SEALED), extra=extra, plots=plots(report))


# -- sections -------------------------------------------------------------------------------------------------------


def _plan(ctx: Context) -> dict[str, Any]:
    last = joined(ctx)
    history = last.history if last else ()
    return {
        "name": ctx.plan.name,
        "digest": ctx.plan.digest,
        "digest_at_beginning": history[0]["digest"] if history else None,
        "history": list(history),
        "source": ctx.plan.source,
        "target": ctx.plan.target,
        "topics": {"include": list(ctx.plan.topics.include), "exclude": list(ctx.plan.topics.exclude)},
        "groups": {"include": list(ctx.plan.groups.include), "exclude": list(ctx.plan.groups.exclude)},
        "names_on_target": other_names(ctx.target, sorted(mirrored(ctx))),
    }


def _phases(ctx: Context) -> list[dict[str, Any]]:
    """Each phase with its last run; ``seconds_in_all`` adds up the earlier ones whose end is known."""
    found = []
    for phase in status.phases(ctx):
        value = ctx.journal.read(PHASE, phase.name) or {}
        runs = [*value.get("earlier", []), value]
        known = [run["seconds"] for run in runs if run.get("seconds") is not None]
        found.append(
            status.as_fields(phase) | {"seconds_in_all": round(sum(known), 3), "evidence": value.get("evidence", {})}
        )
    return found


def _topic(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """What the journal keeps of a topic, without what only a later run needs."""
    return {"topic": name} | {key: value[key] for key in value if key != "topic"}


def _mirror(ctx: Context) -> dict[str, Any]:
    """Totals over all runs, by the offset maps (which are exact), and what the last run recorded of itself."""
    maps = ctx.link.offset_maps()
    by_topic: Counter[str] = Counter()
    for tp, offsets in maps.items():
        by_topic[tp.topic] += offsets.records
    return {
        "records": sum(by_topic.values()),
        "partitions": len(maps),
        "fences": len(ctx.link.fences()),
        "runs_of_offsets": sum(len(offsets) for offsets in maps.values()),
        "records_by_topic": dict(sorted(by_topic.items())),
        "last_run": ctx.link.run(),
        "seal": None if (seal := ctx.link.seal()) is None else seal.as_dict(),
        "drained": was_drained(ctx) and cancellation.read(ctx) is None,
    }


def _groups(ctx: Context) -> list[dict[str, Any]]:
    records = [record for _, record in sorted(GroupRecord.all(ctx.journal).items()) if record.steps]
    try:
        came_back = sides.back_where_they_left(ctx, records)
        unknown = ""
    except MigrationError as error:
        came_back, unknown = {}, error.message
    return [
        {
            **_group(record),
            "since_on_source": came_back.get(record.group, ""),
            "source_unknown": unknown if record.leg.is_done else "",
        }
        for record in records
    ]


def _groups_left(ctx: Context) -> dict[str, str]:
    """Groups that the plan selects and that were not moved, above all those that came late; empty if unknown."""
    try:
        return {group: str(left) for group, left in sides.unmoved(ctx).items()}
    except MigrationError:
        # That the source does not answer is reported with the groups that were moved.
        return {}


def _stragglers(ctx: Context) -> dict[str, list[Any]]:
    """What stands on the source behind the cut, in words, and what was decided about such records."""
    try:
        found = [f"written to the source behind the cut: {stray}" for stray in stragglers.look(ctx)]
    except MigrationError as error:
        found = [f"whether anybody wrote to the source behind the cut is unknown: {error.message}"]
    decided = [one for _, these in sorted(stragglers.decisions(ctx).items()) for one in these]
    return {"undecided": found, "decided": decided}


def _group(record: GroupRecord) -> dict[str, Any]:
    """A group's newest move: each position with the commit, its translation, and what was read back; and all its moves
    in order."""
    read = commits_from_evidence(record.evidence(Step.READ_BACK, "offsets") or ())
    return {
        "group": record.group,
        "step": str(status.last_step(record)),
        "moved": record.is_moved,
        "alive": record.has(Step.ALIVE),
        "sign_of_life": record.evidence(Step.ALIVE, "sign"),
        "pause_seconds": record.evidence(Step.ALIVE, "pause_seconds"),
        "read_back_at": record.evidence(Step.READ_BACK, "at"),
        "steps": {str(step): record.steps[step]["at"] for step in Step if record.has(step)},
        "positions": [
            {
                "topic": move.tp.topic,
                "partition": move.tp.partition,
                "source": move.source,
                "target": move.target,
                "policy": move.policy,
                "read_back": read.get(move.tp),
            }
            for move in record.translations
        ],
        "target_before": record.forward.evidence(Step.TRANSLATED, "target_before") or [],
        "flags": record.evidence(Step.TRANSLATED, "flags") or [],
        "earlier_attempts": len(record.earlier),
        "rolled_back": record.was_rolled_back,
        "legs": [
            {
                "direction": str(leg.direction),
                "generation": leg.generation,
                "steps": {str(step): leg.steps[step]["at"] for step in Step if leg.has(step)},
                "positions": [move.as_dict() for move in leg.translations],
            }
            for leg in record.legs
        ],
    }


def _exceptions(found: Mapping[str, Any]) -> list[str]:
    """What a person should look at, in words; an empty list is the good end."""
    plan, validation = found["plan"], found["validation"]
    if (cancelled := found["cancelled"]) is not None and cancelled["state"] != State.BEGUN_AGAIN:
        # It was to end so: that nothing was validated or moved is no exception.
        left = [f"{topic}: {what}" for topic, what in cancelled["topics"].items() if what != "deleted"]
        return [f"the migration was {Cancellation.from_dict(cancelled)}", *left, *cancelled["left"]]
    lines = []
    if plan["history"] and plan["history"][-1]["digest"] != plan["digest"]:
        lines.append("the plan is not the one that joined the migration last")
    lines += [
        f"phase {phase['name']} ended as {phase['outcome']}: {phase['detail']}"
        for phase in found["phases"]
        if phase["outcome"] not in ("done", "running")
    ]
    lines += [
        f"{halt['partition']} is halted: {halt['reason']} at source offset {halt['source_offset']}: {halt['detail']}"
        for halt in found["halts"]
    ]
    if found["fence"] and not _is_meant(found):
        lines.append(found["fence"])
    lines += found["stragglers"]["undecided"]
    lines += [stragglers.sentence(one) for one in found["stragglers"]["decided"]]
    lines += [sentence(loss) for loss in found["losses"]]
    if validation is None:
        lines.append("nothing was validated")
    elif validation["verdict"] != Equality.EQUAL:
        lines.append(f"the verdict of the validation is {validation['verdict']}")
    return lines + _exceptions_of_groups(found)


def _is_meant(found: Mapping[str, Any]) -> bool:
    """Whether the fences are to stand: behind a finished switch they keep clients from where they were. Once the
    migration is completed, nobody needs them."""
    is_switched = found.get("switch", {}).get("state") == SwitchState.DONE and found["completed"] is None
    return is_switched and all(" is fenced since " in fence for fence in found["fence"].split("; "))


def _exceptions_of_groups(found: Mapping[str, Any]) -> list[str]:
    groups = found["groups"]
    begun = {group["group"] for group in groups}
    unknown = [group["source_unknown"] for group in groups if group["source_unknown"]]
    lines = [line for group in groups for line in _exceptions_of_group(group)]
    lines += [
        f"group {name} is selected by the plan and was never moved: {what}"
        for name, what in sorted(found["groups_left"].items())
        if name not in begun
    ]
    # Once the stop gate has seen them rest and ended the mirror, the source may be switched off.
    if unknown and not found["mirror"]["drained"]:
        lines.append(f"whether {len(unknown)} moved groups are active on the source again is unknown: {unknown[0]}")
    return lines


def _exceptions_of_group(group: Mapping[str, Any]) -> Iterator[str]:
    name = group["group"]
    if group["rolled_back"]:
        yield f"group {name} was moved back to the source (last step: {group['step']})"
    elif not group["moved"]:
        yield f"group {name} is not moved (last step: {group['step']})"
    elif not group["alive"]:
        yield f"group {name} was moved, and has not been active on the target yet"
    if group["since_on_source"]:
        yield f"group {name} was moved, and {group['since_on_source']}: processed twice"


def _compared(validation: Mapping[str, Any]) -> dict[str, Any]:
    """By topic; the journal has them packed."""
    return {name: topic._asdict() for name, topic in compared(validation).items()}


def run(ctx: Context, *, reports: Place) -> Decision:
    """Write the report below ``reports``, as a step of the workflow."""
    written = apply(ctx, reports)
    exceptions = written.report["exceptions"]
    facts = {"html": str(written.html_path), "exceptions": len(exceptions)}
    return Decision(facts=facts, notes=(*exceptions, *_left(ctx)), value=written)


def _left(ctx: Context) -> tuple[str, ...]:
    """What is for a person to do after the last step."""
    if (served := switched.served(ctx)) is None or completion.read(ctx) is not None:
        return ()
    where = "`rollback` and `switch --back`" if served.to == TARGET else "`mirror`, then `switch`"
    return (f"producers: {served}; {where} would move them again, until `complete` gives that up and releases topics",)
