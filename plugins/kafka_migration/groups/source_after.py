"""Whether groups that were moved have gone on on the source since: what both clusters' consumers read is read twice.

A group that lives on the target may come back on the source at any time, by a deployment that nobody thought of. So
its source commits and members are compared with those at its move, as often as somebody asks, until the mirror ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord, Step, Translation
from kafka_migration.kafka.types import CommittedOffset, GroupState

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

CHECK = "moved groups rest on the source"
REMEDY = (
    "stop its consumers on the source for good, and see to what was processed twice; then delete the group on the"
    " source (kafka-consumer-groups.sh --delete --group NAME)"
)


def gone_on(ctx: Context, records: Sequence[GroupRecord] | None = None) -> dict[str, str]:
    """Group -> what it does, or did, on the source since its move; groups that rest are left out.

    ``records``: of which groups (by default, of all); those that were not moved are not looked at. A few requests for
    all of them. Raises CouldNotFindOut if the source does not answer.
    """
    every = list(GroupRecord.all(ctx.journal).values()) if records is None else records
    moved = {it.group: it for it in every if it.is_moved and not it.has(Step.UNDOING)}
    if not moved:
        return {}
    states, commits = ctx.source.group_states(list(moved)), ctx.source.committed_of(list(moved))
    found = {group: _said(it, states[group], commits.get(group, {})) for group, it in sorted(moved.items())}
    return {group: said for group, said in found.items() if said}


def check(ctx: Context) -> CheckResult:
    """No moved group has gone on on the source, as a named check."""
    try:
        found = gone_on(ctx)
    except CouldNotFindOut as error:
        return CheckResult(name=CHECK, verdict=Verdict.UNCHECKED, evidence=error.message, remedy=error.remedy)
    if found:
        evidence = listed(f"{group} {said}" for group, said in found.items())
        return CheckResult(name=CHECK, verdict=Verdict.FAIL, evidence=evidence, remedy=REMEDY)
    return CheckResult(name=CHECK, verdict=Verdict.PASS, evidence="no commit and no member since they were moved")


def went_on(
    translations: Sequence[Translation], commits: Mapping[TopicPartition, CommittedOffset]
) -> list[TopicPartition]:
    """Partitions whose commit on the source is another one than was translated.

    A missing one is none: the source forgets a group that is long gone.
    """
    return [it.tp for it in translations if it.tp in commits and commits[it.tp].offset != it.source]


def _said(record: GroupRecord, state: GroupState, commits: Mapping[TopicPartition, CommittedOffset]) -> str:
    said = []
    if state.members:
        said.append(f"has {len(state.members)} members on the source")
    then = {it.tp: it.source for it in record.translations}
    moved = [f"{tp} ({then[tp]} -> {commits[tp].offset})" for tp in went_on(record.translations, commits)]
    if moved:
        said.append(f"committed again on the source: {listed(moved)}")
    return " and ".join(said)
