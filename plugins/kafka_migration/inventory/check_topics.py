"""Checks about the plan's topics, on the source and as they would be on the target."""

from __future__ import annotations

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.listing import listed
from kafka_migration.inventory.facts import Facts, failed, passed, unchecked, warned
from kafka_migration.kafka.facts import TopicFacts
from kafka_migration.topics.declared import Action
from kafka_migration.topics.specs import is_old_format

#: What one stream copies at the least, bytes a second: a small part of what was measured on one small machine, since
#: networks and disks between two real clusters are slower.
ASSUMED_BYTES_PER_SECOND = 10 * 2**20
_MARGIN = 1.5
_MARGIN_SECONDS = 600.0
#: Per broker, as Kafka's operators advise.
_MANY_PARTITIONS = 4000


def matches(facts: Facts) -> CheckResult:
    """The plan means at least one topic."""
    name = "plan matches topics"
    topics = facts.inventory.topics
    if not topics:
        return failed(
            name,
            f"none of the source's topics matches topics.include {list(facts.ctx.plan.topics.include)}",
            "correct topics.include and topics.exclude (a pattern must match the whole name), and grant Describe on the"
            " topics: those that the principal may not describe are not shown to it",
        )
    partitions = sum(it.partitions for it in topics.values())
    return passed(name, f"{len(topics)} topics with {partitions} partitions: {listed(sorted(topics))}")


def no_other_migration(facts: Facts) -> CheckResult:
    """No other migration holds one of the topics."""
    name = "no other migration"
    holders = facts.ctx.journal.holders(facts.inventory.topics)
    others = {topic: by for topic, by in holders.items() if by != facts.ctx.journal.migration}
    if others:
        return failed(
            name,
            listed(f"{topic} is held by {by}" for topic, by in sorted(others.items())),
            "`release` the plans of those migrations once they are done with, or exclude the topics here",
        )
    return passed(name, "no other migration on this target holds them")


def target_topics(facts: Facts) -> CheckResult:
    """Every topic can be created (or is ours, or may be adopted), with its settings."""
    name = "target topics"
    wrong = [step for step in facts.steps if step.problem]
    if wrong:
        remedies = "; ".join(dict.fromkeys(step.remedy for step in wrong if step.remedy))
        return failed(name, listed(f"{step.name}: {step.problem}" for step in wrong), remedies)
    counts = {action: sum(step.action is action for step in facts.steps) for action in Action}
    evidence = ", ".join(f"{count} to {action}" for action, count in counts.items() if count)
    left = [f"{s.name}: {setting} ({why})" for s in facts.steps for setting, why in s.declared.left_out.items()]
    if left:
        return warned(name, f"{evidence}; left out: {listed(left)}", "nothing, if these configs are not needed there")
    return passed(name, evidence or "nothing to create")


def replication(facts: Facts) -> CheckResult:
    """The target has as many brokers as a topic has replicas, and enough replicas for its min.insync.replicas."""
    name = "replication"
    wrong = []
    for step in facts.steps:
        factor = step.declared.spec.replication_factor
        if factor > facts.target_brokers:
            wrong.append(f"{step.name} has {factor} replicas, the target {facts.target_brokers} brokers")
            continue
        topic = facts.inventory.topics.get(step.name)
        needed = step.declared.spec.configs.get("min.insync.replicas")
        if needed is not None and int(needed) > factor:
            wrong.append(f"{step.name} wants {needed} replicas in sync, and would have {factor}")
        elif topic is not None and needed is None and topic.min_insync_replicas > factor:
            # Only the source's default, so the target's own holds there; but somebody relies on it.
            wrong.append(
                f"{step.name}: the source's default of {topic.min_insync_replicas} replicas in sync is more"
                f" than its {factor} replicas"
            )
    if wrong:
        return failed(
            name,
            listed(wrong),
            "add brokers to the target, or set topic_defaults.replication_factor in the plan",
        )
    return passed(name, f"{facts.target_brokers} brokers suffice for every topic")


def partitions(facts: Facts) -> CheckResult:
    """The target does not get more replicas than its brokers manage."""
    name = "partitions"
    new = sum(
        step.declared.spec.partitions * step.declared.spec.replication_factor
        for step in facts.steps
        if step.action is Action.CREATE
    )
    there = sum(it.partitions * it.replication_factor for it in facts.ctx.target.topics().values())
    per_broker = (new + there) / max(1, facts.target_brokers)
    evidence = f"{new} new replicas, {there} there, {per_broker:.0f} a broker"
    if per_broker > _MANY_PARTITIONS:
        return warned(name, f"{evidence}; more than {_MANY_PARTITIONS} a broker are many", "add brokers to the target")
    return passed(name, evidence)


def message_sizes(facts: Facts) -> CheckResult:
    """The target's requests are large enough for the source's largest batches."""
    name = "message sizes"
    default = facts.target_setting("message.max.bytes")
    request = facts.target_setting("socket.request.max.bytes")
    if default is None or request is None:
        return unchecked(
            name,
            "the target does not report message.max.bytes and socket.request.max.bytes",
            "grant DescribeConfigs",
        )
    topics = facts.inventory.topics.values()
    too_large = [f"{it.name} ({it.max_message_bytes})" for it in topics if it.max_message_bytes >= request]
    if too_large:
        return failed(
            name,
            f"batches of {listed(too_large)} bytes do not fit into the target's socket.request.max.bytes of {request}",
            "raise socket.request.max.bytes on the target's brokers",
        )
    raised = [f"{it.name} ({it.max_message_bytes})" for it in topics if it.max_message_bytes > default]
    if raised:
        return passed(name, f"the target's default of {default} bytes is raised for {listed(raised)}")
    return passed(name, f"no topic has more than the target's default of {default} bytes")


def retention(facts: Facts) -> CheckResult:
    """No record expires on the source before it is copied.

    The mirror copies from the log start, the oldest records first, so it outruns deletion if it copies the whole log
    in less time than the log keeps: by retention.ms, or by retention.bytes at the rate at which the topic grows.
    """
    name = "retention outlasts the copy"
    inventory = facts.inventory
    total = inventory.bytes
    if total is None:
        return unchecked(
            name, inventory.unchecked.get("bytes", "sizes unknown"), "grant Describe on the source cluster"
        )
    speed = ASSUMED_BYTES_PER_SECOND * facts.ctx.plan.mirror.num_streams
    growth = sum(it.bytes_per_second or 0.0 for it in inventory.topics.values())
    if growth >= speed:
        return failed(
            name,
            f"the topics grow by {growth / 2**20:.1f} MiB/s, more than the {speed / 2**20:.0f} MiB/s assumed of"
            f" {facts.ctx.plan.mirror.num_streams} streams: the copy would never catch up",
            "give mirror.num_streams more streams, or split the plan",
        )
    eta = total / (speed - growth)
    needed = eta * _MARGIN + _MARGIN_SECONDS
    # A mirror that runs already is past what expires first.
    mirrored = {tp.topic for tp in facts.ctx.link.positions()}
    pending = [it for it in inventory.topics.values() if it.offsets and it.name not in mirrored]
    short = {it.name: kept for it in pending if (kept := _kept_seconds(it)) is not None and kept < needed}
    about = f"copying {total / 2**30:.2f} GiB takes {eta:.0f} s at {speed / 2**20:.0f} MiB/s"
    if short:
        return failed(
            name,
            f"{about}, {needed:.0f} s with a margin, but records expire sooner: "
            + listed(f"{topic} after {kept:.0f} s" for topic, kept in sorted(short.items())),
            "raise retention.ms and retention.bytes of these source topics until completion, or exclude them",
        )
    return passed(name, f"{about}; the shortest retention is longer than {needed:.0f} s")


def _kept_seconds(it: TopicFacts) -> float | None:
    """How long a topic keeps a record, None for ever."""
    if "delete" not in it.cleanup_policy:
        return None
    kept = [] if it.retention_ms < 0 else [it.retention_ms / 1000]
    if it.retention_bytes >= 0 and it.bytes_per_second:
        kept.append(it.retention_bytes * it.partitions / it.bytes_per_second)
    return min(kept, default=None)


def made_anew(facts: Facts) -> CheckResult:
    """Topics of which some batches are made anew are named: their records stay as they are, boundaries may not."""
    name = "batches to re-encode"
    topics = facts.inventory.topics.values()
    found = [f"{it.name} (compacted)" for it in topics if "compact" in it.cleanup_policy]
    found += [f"{it.name} (LogAppendTime)" for it in topics if it.timestamp_type == "LogAppendTime"]
    formats = ((it.name, it.configs.get("message.format.version", "")) for it in topics)
    found += [f"{name} (format {version})" for name, version in formats if is_old_format(version)]
    if found:
        return passed(name, f"compacted, timestamps of the broker, or an old format: {listed(found)}")
    return passed(name, "none: every batch is copied as it stands")


def transactions(facts: Facts) -> CheckResult:
    """Topics that transactional producers write are named, and those with an open transaction."""
    name = "topics with transactions"
    topics = facts.inventory.topics.values()
    if any(it.producers is None for it in topics):
        return warned(
            name,
            f"UNCHECKED: {facts.inventory.unchecked.get('producers', 'producers unknown')}",
            "nothing, if no transaction is left open for long: what lies behind one is not copied before it has ended",
        )
    found = [
        f"{it.name} ({it.producers.transactional} producers, {it.producers.in_transaction} in a transaction)"
        for it in topics
        if it.producers is not None and it.producers.transactional
    ]
    if found:
        return passed(name, f"committed records are copied, aborted ones are not: {listed(found)}")
    return passed(name, "no transactional producer is remembered by the leaders")
