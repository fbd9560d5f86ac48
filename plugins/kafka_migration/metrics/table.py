"""Every metric: what it is called, what it is, and how it is read off a migration's status page.

Names and labels follow Prometheus' conventions: base units, ``_total`` for what only grows, and one series for each
state that a thing is in, with the value 1. docs/metrics.md shows the same table to people.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import Direction

if TYPE_CHECKING:
    from kafka_migration.steps.status import Status, WayBack

PREFIX = "kafka_migration_"
#: The first label of every metric: the name of the plan.
MIGRATION = "migration"

#: The values of the other labels, and the metric's.
Sample = tuple[tuple[str, ...], float]


class Kind(enum.StrEnum):
    """What Prometheus does with a metric's values."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. ``labels`` are those besides the migration; ``read`` gives one sample for each of their values."""

    name: str
    help: str
    read: Callable[[Status], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE


def _links(page: Status) -> Iterator[tuple[str, Status | WayBack]]:
    yield str(Direction.FORWARD), page
    if page.way_back is not None:
        yield str(Direction.REVERSE), page.way_back


def _per_link(value: Callable[[Status | WayBack], float | None]) -> Callable[[Status], Iterator[Sample]]:
    """One sample for each link whose ``value`` is known."""

    def read(page: Status) -> Iterator[Sample]:
        for direction, link in _links(page):
            found = value(link)
            if found is not None:
                yield (direction,), found

    return read


def _one(value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield (), value


def _moment(text: str | None) -> float | None:
    """Seconds since 1970."""
    return datetime.fromisoformat(text).timestamp() if text else None


def _lag(page: Status) -> Iterator[Sample]:
    for direction, link in _links(page):
        for topic, offsets in (link.lag.topics if link.lag else {}).items():
            yield (direction, topic), offsets


def _halted(page: Status) -> Iterator[Sample]:
    for direction, link in _links(page):
        for reason, count in Counter(halt.reason for halt in link.halts).items():
            yield (direction, reason), count


def _drifted(page: Status) -> Iterator[Sample]:
    if "drift" not in page.unknown:
        for endangers in (True, False):
            found = {one.topic for one in page.drift if one.endangers is endangers}
            yield ("yes" if endangers else "no",), len(found)


def _approvals(page: Status) -> Iterator[Sample]:
    of_waves = (wave.approval for wave in page.waves if wave.approval is not None)
    # A series may appear once only.
    found = {(str(one.gate), one.scope, one.answer): one.at.timestamp() for one in (*page.approvals, *of_waves)}
    yield from found.items()


def _stragglers(page: Status) -> Iterator[Sample]:
    if "stragglers" not in page.unknown:
        yield (), sum(stray.records for stray in page.stragglers)


_LINK = ("direction",)

#: By what they are about.
METRICS: tuple[Metric, ...] = (
    Metric(
        name="phase_outcome",
        help="1 for how the last run of a phase ended: done, running (or killed), refused, failed, bad input.",
        labels=("phase", "outcome"),
        read=lambda page: (((one.name, one.outcome), 1) for one in page.phases),
    ),
    Metric(
        name="phase_started_timestamp_seconds",
        help="When the last run of a phase began.",
        labels=("phase",),
        read=lambda page: (((one.name,), _moment(one.started) or 0.0) for one in page.phases),
    ),
    Metric(
        name="phase_duration_seconds",
        help="How long the last run of a phase took, once it has ended.",
        labels=("phase",),
        read=lambda page: (((one.name,), one.seconds) for one in page.phases if one.seconds is not None),
    ),
    Metric(
        name="phase_runs_total",
        help="Runs of a phase so far.",
        labels=("phase",),
        kind=Kind.COUNTER,
        read=lambda page: (((one.name,), one.runs) for one in page.phases),
    ),
    Metric(
        name="topics",
        help="Topics made or adopted on the target.",
        read=lambda page: _one(page.topics),
    ),
    Metric(
        name="topics_by_state",
        help="Topics by state: mirroring, fenced, drained, sealed, served by the target, reversed, completed.",
        labels=("state",),
        read=lambda page: (((state,), count) for state, count in page.topics_by_state.items()),
    ),
    Metric(
        name="topics_drifted",
        help="Topics that changed since they were made, by whether that endangers records (yes, no).",
        labels=("endangers_records",),
        read=_drifted,
    ),
    Metric(
        name="mirror_state",
        help="1 for what the mirror is: not started, running, silent (it has probably died), ended.",
        labels=("direction", "state"),
        read=lambda page: (((direction, link.mirror.state), 1) for direction, link in _links(page)),
    ),
    Metric(
        name="mirror_desired",
        help="1 for what the mirror is asked to do: run, drain (end once all is copied), stop.",
        labels=("direction", "desired"),
        read=lambda page: (((direction, link.mirror.desired), 1) for direction, link in _links(page)),
    ),
    Metric(
        name="mirror_heartbeat_timestamp_seconds",
        help="When the mirror's last heartbeat was.",
        labels=_LINK,
        read=_per_link(lambda link: _moment(link.mirror.last_word)),
    ),
    Metric(
        name="mirror_paused",
        help="1 while somebody has paused the mirror, else 0.",
        labels=_LINK,
        read=_per_link(lambda link: link.mirror.controls.pause is not None),
    ),
    Metric(
        name="mirror_throttle_bytes_per_second",
        help="The rate that somebody has set for the mirror, while there is one.",
        labels=_LINK,
        read=_per_link(lambda link: link.mirror.controls.rate()),
    ),
    Metric(
        name="mirror_partitions",
        help="Partitions that the mirror copies.",
        labels=_LINK,
        read=_per_link(lambda link: link.mirror.partitions),
    ),
    Metric(
        name="mirror_records_total",
        help="Records copied so far.",
        labels=_LINK,
        kind=Kind.COUNTER,
        read=_per_link(lambda link: link.mirror.records),
    ),
    Metric(
        name="mirror_fences_total",
        help="Times that a start of the mirror took partitions over.",
        labels=_LINK,
        kind=Kind.COUNTER,
        read=_per_link(lambda link: link.mirror.fences),
    ),
    Metric(
        name="mirror_rewound",
        help="Partitions' tails that the target lost, and that were copied again.",
        labels=_LINK,
        read=_per_link(lambda link: len(link.mirror.rewound)),
    ),
    Metric(
        name="lag_offsets",
        help="Offsets that the mirror has still to copy, of the cluster that it reads.",
        labels=("direction", "topic"),
        read=_lag,
    ),
    Metric(
        name="halted_partitions",
        help="Partitions that the mirror does not touch any more, by why.",
        labels=("direction", "reason"),
        read=_halted,
    ),
    Metric(
        name="skipped_offsets",
        help="Offsets that a person, or the plan, gave up: they are not copied.",
        read=lambda page: _one(sum(int(loss["offsets"]) for loss in page.losses)),
    ),
    Metric(
        name="groups",
        help="Consumer groups by the step of their move that they reached last.",
        labels=("step",),
        read=lambda page: (((step,), count) for step, count in page.groups_by_step.items()),
    ),
    Metric(
        name="groups_astray",
        help="Consumer groups that run on both clusters, or on neither, where it should be one.",
        read=lambda page: _one(None if "groups" in page.unknown else sum(1 for group in page.groups if group.astray)),
    ),
    Metric(
        name="groups_longest_pause_seconds",
        help="The longest time for which a group's move kept it from reading.",
        read=lambda page: _one(
            max((group.pause_seconds for group in page.groups if group.pause_seconds is not None), default=None)
        ),
    ),
    Metric(
        name="approval_timestamp_seconds",
        help="When the answer that counts was given, by gate, wave and answer (approved, rejected, revoked).",
        labels=("gate", "wave", "answer"),
        read=_approvals,
    ),
    Metric(
        name="validation_verdict",
        help="1 for what the last validation found: EQUAL, DIFFERENT or another verdict.",
        labels=("verdict",),
        read=lambda page: [((str(page.validation["verdict"]),), 1)] if page.validation else [],
    ),
    Metric(
        name="validation_timestamp_seconds",
        help="When the last validation ended.",
        read=lambda page: _one(_moment(page.validation["at"]) if page.validation else None),
    ),
    Metric(
        name="validation_unequal_partitions",
        help="Partitions that the last validation did not find equal.",
        read=lambda page: _one(len(page.validation["unequal"]) if page.validation else None),
    ),
    Metric(
        name="fence_standing",
        help="1 for each fence that keeps clients out, also in part: writes, back-writes, early-writes, group-reads.",
        labels=("fence",),
        read=lambda page: (((key,), 1) for key in page.fences),
    ),
    Metric(
        name="straggler_records",
        help="Records that somebody wrote to the source behind the cut, and nobody decided about.",
        read=_stragglers,
    ),
    Metric(
        name="over",
        help="1 once the migration is completed, or cancelled and not begun again, else 0.",
        read=lambda page: _one(page.is_over),
    ),
    Metric(
        name="unknown",
        help="1 for each part of the status page that could not be read: what it would say is missing here.",
        labels=("part",),
        read=lambda page: (((part,), 1) for part in page.unknown),
    ),
)
