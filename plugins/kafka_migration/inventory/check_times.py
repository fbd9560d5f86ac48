"""Checks of records' timestamps: whether the target accepts them, and how long it remembers who wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.inventory.facts import Facts, Finding, failed, passed, warned
from kafka_migration.kafka.types import TimeSpan
from kafka_migration.topics.declared import KIND, Action, is_restored
from kafka_migration.topics.specs import BOUNDS, LONG_MAX, OLD_BOUND, restorable

_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS
_EXPIRATION_AT_LEAST_MS = 7 * _DAY_MS
#: The config is an INT of the brokers: 24.9 days.
_EXPIRATION_AT_MOST_MS = 2**31 - 1
_BEFORE, _AFTER = BOUNDS


def record_times(facts: Facts) -> Finding:
    """The target accepts records with the timestamps that the source's have.

    A topic that is to be created or adopted accepts every timestamp while it is mirrored; one that exists may have been
    changed since. What lies ahead of the clock is copied, and refused again once `restore` has set the bounds.
    """
    why = facts.inventory.unchecked.get("timestamps")
    if why is not None:
        return warned(
            f"UNCHECKED: {why}", "nothing to do: target topics accept every timestamp while they are mirrored"
        )
    now = _now(facts)
    spans = {topic.name: topic.span for topic in facts.inventory.topics.values() if topic.span is not None}
    refused = {
        topic: _refusal(spans[topic], configs, now)
        for topic, configs in _target_configs(facts).items()
        if topic in spans
    }
    if any(refused.values()):
        return failed(
            listed(f"{topic}: {why}" for topic, why in refused.items() if why),
            f"set these configs of the target's topics back to {LONG_MAX} until the migration is completed",
        )
    ahead = _ahead(facts, {topic: span.latest for topic, span in spans.items() if span.latest is not None}, now)
    if ahead:
        return warned(
            f"records lie further ahead of the clock than the target accepts after `restore`: {listed(ahead)}; they are"
            " copied, but later the target refuses producers that write such timestamps",
            f"correct the clocks or time units of their producers, or set {_AFTER} on these source topics: `restore`"
            " carries that over",
        )
    return passed(f"{_covered(spans.values())}; target topics accept every timestamp while they are mirrored")


def _covered(spans: Iterable[TimeSpan]) -> str:
    known = [at for span in spans for at in (span.earliest, span.latest) if at is not None]
    return f"from {_day(min(known))} to {_day(max(known))}" if known else "unknown"


def _refusal(span: TimeSpan, configs: Mapping[str, str], now: int) -> str:
    """The config that refuses a record of ``span``, with the record's day; empty if none does."""
    for at, sign, bound in ((span.earliest, -1, _BEFORE), (span.latest, 1, _AFTER)):
        for name in (bound, OLD_BOUND):
            limit = configs.get(name)
            if at is not None and limit is not None and sign * (at - now) > int(limit):
                return f"{name}={limit}, with records of {_day(at)}"
    return ""


def _target_configs(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Topic -> its configs on the target while it is mirrored: as they are there, or would be made. Without topics that
    were restored: nothing is copied to them any more."""
    restored = {name for name, record in facts.ctx.journal.all(KIND).items() if is_restored(record)}
    steps = [step for step in facts.steps if step.name not in restored]
    found: dict[str, Mapping[str, str]] = {step.name: step.declared.spec.configs for step in steps}
    kept = facts.ctx.target.topics([step.name for step in steps if step.action is Action.KEEP])
    for topic, configs in facts.ctx.target.topic_configs(kept).items():
        found[topic] = {name: config.value for name, config in configs.items() if config.value is not None}
    return found


def _ahead(facts: Facts, latest: Mapping[str, int], now: int) -> list[str]:
    """Topics with records further ahead of ``now`` than their target accepts in the end, with the latest time."""
    try:
        default = facts.target_config(f"log.{_AFTER}")
    except NotAuthorized:
        default = None
    found = []
    for step in facts.steps:
        topic, at = facts.inventory.topics.get(step.name), latest.get(step.name)
        if topic is None or at is None or topic.timestamp_type == "LogAppendTime":
            continue
        own = restorable(step.declared.configs_source, step.declared.left_out).get(_AFTER)
        bound = default if own is None else int(own)
        if bound is not None and at - now > bound:
            found.append(f"{step.name} ({_day(at)}, {bound / _HOUR_MS:,.0f} h are taken)")
    return found


def producer_id_expiration(facts: Facts) -> Finding:
    """The target remembers the mirror's producer id for as long as the copy of old records may take.

    A broker forgets a producer id by the *timestamp* of its last record (docs/adr/0006-leases-and-the-hold.md).
    Mirrored records are as old as the source's, so with the default of one day it forgets while the mirror still
    writes, and only the mirror's own rules guard against a doubled batch. The longer memory is a second guard: as
    long as the oldest record is old, and at least the 7 days after which a transactional id is forgotten anyway; at
    most what the config can hold.
    """
    try:
        has = facts.target_config("producer.id.expiration.ms")
    except NotAuthorized as error:
        # Advice only: not worth a closed gate.
        return warned(f"UNCHECKED: {error.message}", error.remedy)
    if has is None:
        return warned("the target does not report producer.id.expiration.ms (before Kafka 3.5)", "nothing to do")
    topics = facts.inventory.topics.values()
    oldest = min(
        (topic.span.earliest for topic in topics if topic.span and topic.span.earliest is not None),
        default=None,
    )
    wanted = max(_EXPIRATION_AT_LEAST_MS, 0 if oldest is None else _now(facts) - oldest + _DAY_MS)
    needed = min(wanted, _EXPIRATION_AT_MOST_MS)
    beyond = (
        f"; it cannot be longer than {_EXPIRATION_AT_MOST_MS / _DAY_MS:.1f}, and the oldest record is older: the"
        " mirror's own fence and hold keep such records from arriving twice, and where a broker forgets the producer id"
        " between two requests the partition halts by name"
        if wanted > needed
        else ""
    )
    evidence = f"producer.id.expiration.ms is {has / _DAY_MS:.1f} days, advised {needed / _DAY_MS:.1f}"
    if has < needed:
        return warned(
            f"{evidence} (the oldest record's age and a day, at least 7){beyond}",
            f"set on the target's brokers, until the migration is completed: producer.id.expiration.ms={needed}",
        )
    return passed(evidence + beyond)


def _now(facts: Facts) -> int:
    """Milliseconds since 1970."""
    return int(facts.ctx.clock.now().timestamp() * 1000)


def _day(milliseconds: int) -> str:
    """The day of a time; of one that no calendar has (such as one in microseconds) the number."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
