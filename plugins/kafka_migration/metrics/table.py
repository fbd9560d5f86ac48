"""Every metric: what it is called, what it is, and how it is read off a migration's status page.

Names and labels follow Prometheus' conventions: base units, and a series with the value 1 for the state that a thing is
in. All are gauges: whatever is counted may fall, by a rewind or a new generation. docs/metrics.md has the same table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import Direction

if TYPE_CHECKING:
    from kafka_migration.overview.status import Status, WayBack

PREFIX = "kafka_migration_"
#: The first label of every metric: the name of the plan.
MIGRATION = "migration"

#: The values of the other labels, and the metric's.
Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. ``labels`` are those besides the migration; ``read`` gives one sample for each of their values."""

    name: str
    help: str
    read: Callable[[Status], Iterable[Sample]]
    labels: tuple[str, ...] = ()


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


def _state(link: Status | WayBack) -> str:
    """Behind a seal nothing is copied any more, however the mirror ended."""
    return "sealed" if link.mirror.is_sealed else link.mirror.state


def _lag(page: Status) -> Iterator[Sample]:
    # Behind a seal, what is written where the link read is none of its affair.
    for direction, link in ((direction, link) for direction, link in _links(page) if not link.mirror.is_sealed):
        for topic, offsets in (link.lag.topics if link.lag else {}).items():
            yield (direction, topic), offsets


def _halted(page: Status) -> Iterator[Sample]:
    for direction, link in _links(page):
        for reason, count in Counter(halt.reason for halt in link.halts).items():
            yield (direction, reason), count


def _verdicts(page: Status) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """By direction, what was validated last."""
    for direction, link in _links(page):
        if link.validation is not None:
            yield direction, link.validation


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
        help="1 for how the last run of a phase ended: done, running (or killed), refused, failed, bad input, ...",
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
        help="1 for what the mirror is: not started, running, silent (it has probably died), ended, sealed.",
        labels=("direction", "state"),
        read=lambda page: (((direction, _state(link)), 1) for direction, link in _links(page)),
    ),
    Metric(
        name="mirror_ended",
        help="1 for how the mirror ended, where it has: caught_up, drained, stopped, failed.",
        labels=("direction", "reason"),
        read=lambda page: (
            ((direction, link.mirror.ended_as), 1) for direction, link in _links(page) if link.mirror.ended_as
        ),
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
        name="mirror_records",
        help="Records copied so far, as far as they count: fewer after a rewind, none in a new generation.",
        labels=_LINK,
        read=_per_link(lambda link: link.mirror.records),
    ),
    Metric(
        name="mirror_fences",
        help="Fences of this generation: each start of the mirror has one at the least.",
        labels=_LINK,
        read=_per_link(lambda link: link.mirror.fences),
    ),
    Metric(
        name="mirror_rewound_timestamp_seconds",
        help="When confirmed records that the destination had lost were copied again last.",
        labels=_LINK,
        read=_per_link(lambda link: _moment(link.mirror.rewound_at)),
    ),
    Metric(
        name="lag_offsets",
        help="Offsets that the mirror has still to copy, of the cluster that it reads; none behind a seal.",
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
        help="1 for what the last validation of all topics found: EQUAL, DIFFERENT, EXPIRED, INCONCLUSIVE.",
        labels=("direction", "verdict"),
        read=lambda page: (((direction, str(found["verdict"])), 1) for direction, found in _verdicts(page)),
    ),
    Metric(
        name="validation_timestamp_seconds",
        help="When what that validation compared was pinned.",
        labels=_LINK,
        read=lambda page: (((direction,), _moment(found["at"]) or 0.0) for direction, found in _verdicts(page)),
    ),
    Metric(
        name="validation_unequal_partitions",
        help="Partitions that it did not find equal, as far as the journal keeps them one by one.",
        labels=_LINK,
        read=lambda page: (((direction,), len(found["unequal"])) for direction, found in _verdicts(page)),
    ),
    Metric(
        name="switch_unfinished",
        help="1 while a switch of producers is under way, or was broken off: they may be shut out. Else 0.",
        labels=("to",),
        read=lambda page: [((str(page.switch.to),), page.switch.is_unfinished)] if page.switch else [],
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
        help="1 once the migration has been completed, or cancelled and not begun again, else 0.",
        read=lambda page: _one(page.is_over),
    ),
    Metric(
        name="unknown",
        help="1 for each part of the status page that could not be read: its values are missing.",
        labels=("part",),
        read=lambda page: (((part,), 1) for part in page.unknown),
    ),
)
