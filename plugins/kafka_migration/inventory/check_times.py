"""Checks about the times of records: whether the target takes them, and how long it remembers who wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.inventory.facts import Facts, failed, passed, warned
from kafka_migration.kafka.types import TimeSpan
from kafka_migration.topics.declared import KIND, Action, is_restored
from kafka_migration.topics.specs import BOUNDS, LONG_MAX, OLD_BOUND, restorable

_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS
_EXPIRATION_AT_LEAST_MS = 7 * _DAY_MS
#: The setting is an INT of the brokers: 24.9 days.
_EXPIRATION_AT_MOST_MS = 2**31 - 1
_BEFORE, _AFTER = BOUNDS


def record_times(facts: Facts) -> CheckResult:
    """The target takes records with the times that the source's have.

    A topic that is to be made or adopted takes every time while it is mirrored; one that is there may have been changed
    since. What lies ahead of the clock is copied then, and refused again once `restore` has set the bounds.
    """
    name = "record times"
    why = facts.inventory.unchecked.get("timestamps")
    if why is not None:
        return warned(name, f"UNCHECKED: {why}", "nothing: the target topics take every time while they are mirrored")
    now = _now(facts)
    spans = {it.name: it.span for it in facts.inventory.topics.values() if it.span is not None}
    refused = [
        f"{topic}: {why}"
        for topic, settings in _settings(facts).items()
        if topic in spans and (why := _refusal(spans[topic], settings, now))
    ]
    if refused:
        return failed(name, listed(refused), f"set these back to {LONG_MAX} on the target's topics until completion")
    ahead = _ahead(facts, {topic: it.latest for topic, it in spans.items() if it.latest is not None}, now)
    if ahead:
        return warned(
            name,
            f"ahead of the clock by more than the target takes after `restore`: {listed(ahead)}; they are copied, and"
            " producers of such times are refused there later",
            f"correct the clocks or units of their producers, or set {_AFTER} on these source topics: `restore` carries"
            " it over",
        )
    known = [at for it in spans.values() for at in (it.earliest, it.latest) if at is not None]
    span = f"from {_day(min(known))} to {_day(max(known))}" if known else "unknown"
    return passed(name, f"{span}; the target topics take every time while they are mirrored")


def _refusal(span: TimeSpan, settings: Mapping[str, str], now: int) -> str:
    """The setting that refuses a record of ``span``, with the record's day; empty if none does."""
    for at, sign, bound in ((span.earliest, -1, _BEFORE), (span.latest, 1, _AFTER)):
        for setting in (bound, OLD_BOUND):
            limit = settings.get(setting)
            if at is not None and limit is not None and sign * (at - now) > int(limit):
                return f"{setting}={limit}, with records of {_day(at)}"
    return ""


def _settings(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Topic -> settings on the target while it is mirrored: as they are there, or would be made. Not of topics that
    were restored: nothing is copied to them any more."""
    restored = {name for name, it in facts.ctx.journal.all(KIND).items() if is_restored(it)}
    steps = {it.name: it for it in facts.steps if it.name not in restored}
    kept = facts.ctx.target.topics([name for name, it in steps.items() if it.action is Action.KEEP])
    there = facts.ctx.target.topic_configs(kept)
    found: dict[str, Mapping[str, str]] = {name: it.declared.spec.configs for name, it in steps.items()}
    for name, settings in there.items():
        found[name] = {setting: it.value for setting, it in settings.items() if it.value is not None}
    return found


def _ahead(facts: Facts, latest: Mapping[str, int], now: int) -> list[str]:
    """Topics of whose records some lie further ahead of ``now`` than their target takes in the end, with a time."""
    try:
        default = facts.target_setting(f"log.{_AFTER}")
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


def producer_id_expiration(facts: Facts) -> CheckResult:
    """The target remembers the mirror's producer id for as long as the copy of old records may take.

    A broker forgets a producer id by the *timestamp* of its last record (docs/adr/0006-leases-and-the-hold.md).
    Mirrored records are as old as the source's, so with the default of one day it forgets while the mirror still
    writes, and only the mirror's own rules guard against a doubled batch. The longer memory is a second guard: as
    long as the oldest record is old, and at least the 7 days after which a transactional id is forgotten anyway; at
    most what the setting can hold.
    """
    name = "producer id expiration"
    try:
        has = facts.target_setting("producer.id.expiration.ms")
    except NotAuthorized as error:
        # Advice only: not worth a closed gate.
        return warned(name, f"UNCHECKED: {error.message}", error.remedy)
    if has is None:
        return warned(name, "the target does not report producer.id.expiration.ms (before Kafka 3.5)", "nothing")
    oldest = min(
        (it.span.earliest for it in facts.inventory.topics.values() if it.span and it.span.earliest is not None),
        default=None,
    )
    wanted = max(_EXPIRATION_AT_LEAST_MS, 0 if oldest is None else _now(facts) - oldest + _DAY_MS)
    needed = min(wanted, _EXPIRATION_AT_MOST_MS)
    beyond = (
        f"; it cannot be longer than {_EXPIRATION_AT_MOST_MS / _DAY_MS:.1f}, and the oldest record is older: of such"
        " records the mirror's own fence and hold keep each from arriving twice, and where a broker forgets it between"
        " two requests the partition halts by name"
        if wanted > needed
        else ""
    )
    evidence = f"producer.id.expiration.ms is {has / _DAY_MS:.1f} days, advised {needed / _DAY_MS:.1f}"
    if has < needed:
        return warned(
            name,
            f"{evidence} (the oldest record's age and a day, at least 7){beyond}",
            f"set it on the target's brokers until completion: producer.id.expiration.ms={needed}",
        )
    return passed(name, evidence + beyond)


def _now(facts: Facts) -> int:
    """Milliseconds since 1970."""
    return int(facts.ctx.clock.now().timestamp() * 1000)


def _day(milliseconds: int) -> str:
    """The day of a time, for people; of one that no calendar has (in microseconds, say) the number."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
