"""Checks of what the plan selects: its topics, on the source and as they would be on the target, and its groups.

Those of groups only warn: cutover decides, group by group, on what it finds then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kafka_migration.domain.errors import Fatal
from kafka_migration.domain.listing import listed
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.translate import REMEDY_SHARED, shared_with_others
from kafka_migration.inventory.facts import (
    Facts,
    Finding,
    failed,
    passed,
    sizes_unknown,
    tiered_topics,
    unchecked,
    warned,
)
from kafka_migration.migration.joined import names_of
from kafka_migration.topics import handling
from kafka_migration.topics.declared import KIND, Action
from kafka_migration.topics.specs import is_old_format
from kafka_migration.waves.sizing import ASSUMED_BYTES_PER_SECOND, copy_seconds, with_margin

#: Per broker, as Kafka's operators advise.
_MANY_PARTITIONS = 4000
_LONGEST_NAME = 249


def matches(facts: Facts) -> Finding:
    """The plan selects at least one topic."""
    topics = facts.inventory.topics
    if not topics:
        return failed(
            f"none of the source's topics matches topics.include {list(facts.ctx.plan.topics.include)}",
            "correct topics.include and topics.exclude (a pattern must match the whole name), and grant Describe on the"
            " topics: those that the principal may not describe are not shown to it",
        )
    partitions = sum(topic.partitions for topic in topics.values())
    evidence = f"{len(topics)} topics with {partitions} partitions: {listed(sorted(topics))}"
    mirror = facts.ctx.plan.mirror
    if unused := sorted(set(range(len(mirror.dedicated_streams))) - mirror.by_streams(topics).keys()):
        return warned(
            f"{evidence}; no topic belongs to {listed(f'mirror.dedicated_streams[{at}]' for at in unused)}",
            "correct its topics (a pattern must match the whole name, and the first entry that matches counts)",
        )
    return passed(evidence)


def handlers(facts: Facts) -> Finding:
    """Handlers are here as the plan means them, and may be used for their topics."""
    plan, topics = facts.ctx.plan, facts.inventory.topics
    used = handling.used(facts.ctx, topics)
    try:
        handling.load(used)
        handling.require_keys(facts.ctx, used)
    except Fatal as error:
        return failed(error.message, error.remedy)
    evidence = listed(f"{topic}: {handler.function} (SHA-256 {handler.sha256})" for topic, handler in used.items())
    matched = {handler.function for handler in used.values()}
    if unused := [f"handlers[{at}]" for at, each in enumerate(plan.handlers or ()) if each.function not in matched]:
        return warned(
            f"no topic belongs to {listed(unused)}{'; ' if evidence else ''}{evidence}",
            "correct its topics (a pattern must match the whole name, and the first entry that matches counts)",
        )
    return passed(evidence)


def no_other_migration(facts: Facts) -> Finding:
    """No other migration holds one of the topics; a group that reads one of another's besides is named."""
    if others := facts.ctx.journal.held_elsewhere(facts.inventory.topics):
        return failed(
            listed(f"{topic} is held by {by}" for topic, by in sorted(others.items())),
            "run `release` for those migrations once they are done with these topics, or exclude the topics here",
        )
    moved = GroupRecord.all(facts.ctx.journal)
    groups = {
        name: group.outside
        for name, group in facts.inventory.groups.items()
        if group.topics and not (name in moved and moved[name].is_moved)
    }
    if shared := shared_with_others(facts.ctx, groups):
        return warned(
            f"{listed(shared, separator='; ')}, which another migration mirrors, so cutover will refuse them",
            REMEDY_SHARED,
        )
    if readers := _moved_by_others(facts):
        return warned(
            "groups that are on the target already, and read topics that `create` is about to make there:"
            f" {listed(readers, separator='; ')}",
            "have one plan move all that these groups read (`undo` or `rollback` them where they were moved), or"
            " exclude the topics: on the target they begin by their auto.offset.reset, and not where they stand here",
        )
    return passed("no other migration on this target holds these topics")


def _moved_by_others(facts: Facts) -> list[str]:
    """Groups that another migration has moved, and that read topics which this one has not made yet."""
    new = facts.inventory.topics.keys() - facts.ctx.journal.all(KIND).keys()
    here = {facts.ctx.target.topic_here(topic): topic for topic in new}
    found = []
    for journal in facts.ctx.journal.others():
        called = names_of(journal).on_target
        for group, record in sorted(GroupRecord.all(journal).items()):
            read = {here[name] for name in map(called, record.subscription) if name in here}
            if record.is_moved and read:
                found.append(f"{group} ({journal.migration}) reads {listed(sorted(read))}")
    return found


def target_topics(facts: Facts) -> Finding:
    """Every topic can be created (or is ours, or may be adopted), with its configs."""
    wrong = {f"{step.name}: {step.problem}": step.remedy for step in facts.steps if step.problem and not step.is_filled}
    if wrong:
        return failed(listed(wrong), "; ".join(dict.fromkeys(filter(None, wrong.values()))))
    counts = Counter(step.action for step in facts.steps)
    evidence = ", ".join(f"{counts[action]} to {action}" for action in Action if counts[action])
    if filled := [step.name for step in facts.steps if step.is_filled]:
        evidence += f"; records that they hold are compared first, by `adopt`: {listed(filled)}"
    left = [f"{s.name}: {config} ({why})" for s in facts.steps for config, why in s.declared.left_out.items()]
    if left:
        return warned(
            f"{evidence}; configs that are left out: {listed(left)}", "nothing to do, if the target does not need them"
        )
    return passed(evidence or "nothing to create")


def names_on_target(facts: Facts) -> Finding:
    """How topics are called there. Those that would share a name, or came from there, are problems of their steps."""
    topics, called = facts.inventory.topics, facts.ctx.plan.topic_names
    names = {topic: called.on_target(topic) for topic in sorted(topics)}
    if long := [name for name in names.values() if len(name) > _LONGEST_NAME]:
        remedy = f"Kafka takes {_LONGEST_NAME} characters: give these topics other names (naming.topics)"
        return failed(f"names that are too long for the target: {listed(long)}", remedy)
    shown = listed(f"{topic} is called {name}" for topic, name in names.items())
    if unused := sorted(called.renamed.keys() - topics.keys()):
        return warned(
            f"on the target {shown}; naming.topics has none of the plan's topics in {listed(unused)}",
            "correct them, if they are not excluded, or to come",
        )
    return passed(f"on the target {shown}")


def replication(facts: Facts) -> Finding:
    """The target has as many brokers as a topic has replicas, and enough replicas for its min.insync.replicas."""
    wrong, weaker = [], []
    default = facts.target_config("min.insync.replicas")
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
        elif topic is not None and needed is None and default is not None and topic.min_insync_replicas > default:
            weaker.append(f"{step.name} ({topic.min_insync_replicas})")
    if wrong:
        return failed(
            listed(wrong),
            "add brokers to the target, or set topic_defaults.replication_factor in the plan",
        )
    if weaker:
        return warned(
            f"acks=all waits for fewer replicas on the target, whose default is {default} in sync: {listed(weaker)}",
            "raise min.insync.replicas of the target's brokers, or set it on these topics of the source: what is set"
            " there is carried over",
        )
    return passed(f"{facts.target_brokers} brokers suffice for every topic")


def partitions(facts: Facts) -> Finding:
    """The target does not get more replicas than its brokers manage."""
    new = sum(
        step.declared.spec.partitions * step.declared.spec.replication_factor
        for step in facts.steps
        if step.action is Action.CREATE
    )
    there = sum(topic.partitions * topic.replication_factor for topic in facts.ctx.target.topics().values())
    per_broker = (new + there) / max(1, facts.target_brokers)
    evidence = f"{new} new replicas and {there} existing ones on the target, {per_broker:.0f} a broker"
    if per_broker > _MANY_PARTITIONS:
        return warned(f"{evidence}; more than {_MANY_PARTITIONS} a broker are many", "add brokers to the target")
    return passed(evidence)


def message_sizes(facts: Facts) -> Finding:
    """The target's requests are large enough for the source's largest batches."""
    topics = facts.inventory.topics.values()
    default = facts.target_config("message.max.bytes")
    request = facts.target_config("socket.request.max.bytes")
    if default is None or request is None:
        return unchecked(
            "the target does not report message.max.bytes and socket.request.max.bytes",
            "grant DescribeConfigs on the target cluster to the principal of its connection",
        )
    sizes = {f"{topic.name} ({topic.max_message_bytes})": topic.max_message_bytes for topic in topics}
    too_large = [topic for topic, size in sizes.items() if size >= request]
    if too_large:
        return failed(
            f"topics whose batches (bytes) do not fit into the target's socket.request.max.bytes of {request}:"
            f" {listed(too_large)}",
            "raise socket.request.max.bytes on the target's brokers",
        )
    for at, each in enumerate(facts.ctx.plan.mirror.dedicated_streams):
        if each.request_bytes >= request:
            return failed(
                f"mirror.dedicated_streams[{at}].request_bytes of {each.request_bytes} does not fit into the target's"
                f" socket.request.max.bytes of {request}",
                "lower it, or raise socket.request.max.bytes on the target's brokers",
            )
    raised = [topic for topic, size in sizes.items() if size > default]
    if raised:
        return passed(f"the target's default of {default} bytes is raised for the topics {listed(raised)}")
    return passed(f"no topic has more than the target's default of {default} bytes")


def retention(facts: Facts) -> Finding:
    """No record expires on the source before it is copied.

    The mirror copies from the log start, the oldest records first, so it outruns deletion if it copies the whole log
    in less time than the log keeps: by retention.ms, or by retention.bytes at the rate at which the topic grows.
    """
    if facts.inventory.bytes is None:
        return sizes_unknown(facts.inventory)
    mirror, topics = facts.ctx.plan.mirror, facts.inventory.topics
    short: dict[str, float] = {}
    longest = 0.0
    about = "nothing is to be copied"
    for entry, names in mirror.by_streams(topics).items():
        streams, field = mirror.streams_of(entry)
        total = sum(facts.bytes_to_copy[name] for name in names)
        speed = ASSUMED_BYTES_PER_SECOND * streams
        growth = sum(topics[name].bytes_per_second or 0.0 for name in names)
        if growth >= speed:
            return failed(
                f"the topics grow by {growth / 2**20:.1f} MiB/s, more than the {speed / 2**20:.0f} MiB/s that {streams}"
                " streams are assumed to copy: the copy would never catch up",
                f"raise {field} of the plan, or split the plan",
            )
        eta = copy_seconds(total, growth, speed)
        short |= _expiring_within(facts, names, with_margin(eta))
        if eta >= longest:
            longest, about = eta, f"copying {total / 2**30:.2f} GiB takes {eta:.0f} s at {speed / 2**20:.0f} MiB/s"
    needed = with_margin(longest)
    if short:
        return failed(
            f"{about}, {needed:.0f} s with a margin, but records expire sooner on the source: "
            + listed(f"{topic} after {kept:.0f} s" for topic, kept in sorted(short.items())),
            "raise retention.ms and retention.bytes of these source topics until the migration is completed, or exclude"
            " them from the plan",
        )
    if tiered := tiered_topics(facts):
        return warned(f"{about}; {tiered}", "reckon with the time that what their remote storage holds takes as well")
    return passed(f"{about}; the shortest retention is longer than {needed:.0f} s")


def _expiring_within(facts: Facts, names: Collection[str], seconds: float) -> dict[str, float]:
    """Those of ``names`` that keep a record for less than ``seconds``, and for how long. Without those that are
    mirrored already: the mirror is past what expires first."""
    mirrored = {tp.topic for tp in facts.ctx.link.positions()}
    topics = (facts.inventory.topics[name] for name in names)
    pending = (topic for topic in topics if topic.offsets and topic.name not in mirrored)
    return {topic.name: kept for topic in pending if (kept := topic.kept_seconds) < seconds}


def re_encoded(facts: Facts) -> Finding:
    """Names topics of which some batches must be re-encoded: records stay as they are, batch boundaries may not."""
    topics = facts.inventory.topics.values()
    found = [f"{topic.name} (compacted)" for topic in topics if "compact" in topic.cleanup_policy]
    found += [f"{topic.name} (LogAppendTime)" for topic in topics if topic.timestamp_type == "LogAppendTime"]
    formats = ((topic.name, topic.configs.get("message.format.version", "")) for topic in topics)
    found += [f"{name} (format {version})" for name, version in formats if is_old_format(version)]
    if found:
        return passed(f"topics whose batches are re-encoded, with every record unchanged: {listed(found)}")
    return passed("none: every batch is copied as it stands")


def transactions(facts: Facts) -> Finding:
    """Names topics that transactional producers write, and those with an open transaction."""
    topics = facts.inventory.topics.values()
    if any(topic.producers is None for topic in topics):
        return warned(
            f"UNCHECKED: {facts.inventory.unchecked.get('producers', 'producers unknown')}",
            "nothing to do, if no transaction stays open for long: records behind an open transaction are copied only"
            " once it has ended",
        )
    found = [
        f"{topic.name} ({topic.producers.transactional} producers, {topic.producers.in_transaction} in a transaction)"
        for topic in topics
        if topic.producers is not None and topic.producers.transactional
    ]
    if found:
        return passed(f"committed records are copied, aborted ones are not: {listed(found)}")
    return passed("the source's leaders remember no transactional producer")


def movable(facts: Facts) -> Finding:
    """Names groups whose state is not only committed offsets."""
    groups = facts.inventory.groups.values()
    others = [f"{group.name} ({group.protocol})" for group in groups if group.protocol not in MOVABLE_PROTOCOLS]
    if others:
        return warned(
            f"groups whose state is not only committed offsets, so they cannot be moved: {listed(others)}",
            "exclude these groups from the plan, and move their applications by their own procedures",
        )
    return passed(f"all {len(groups)} groups of the plan can be moved")


def committed(facts: Facts) -> Finding:
    """Lists partitions that a group reads and never committed: cutover refuses it, unless the plan has a policy."""
    policy = facts.ctx.plan.cutover.uncommitted
    groups = facts.inventory.groups.values()
    found = [f"{group.name}: {listed(group.uncommitted)}" for group in groups if group.uncommitted]
    if not found:
        return passed("every group has committed every partition that it reads")
    evidence = "; ".join(found[:10]) + (f"; and {len(found) - 10} more groups" if len(found) > 10 else "")
    if policy == "refuse":
        return warned(
            f"groups that read partitions without ever having committed there, so cutover will refuse them: {evidence}",
            "have the groups commit there before cutover, or set cutover.uncommitted of the plan to earliest or cut",
        )
    return passed(f"cutover.uncommitted is {policy}; it applies to {evidence}")


def left_behind(facts: Facts) -> Finding:
    """Names groups that have committed on the plan's topics and that the plan does not move."""
    groups = facts.inventory.left_behind
    if groups:
        return warned(
            f"groups that have committed on these topics, and that the plan does not move: {listed(groups)}",
            "add them to groups.include of the plan, if they are still used",
        )
    return passed("the plan moves every group that has committed on these topics")
