"""Checks of the plan's waves against the source: each topic in one wave, and nothing torn apart that belongs together.

Asked only of a plan that has waves. What spans waves is refused before anything is created: of a group whose topics are
in two waves, one half would wait on the source while its consumers are on the target.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_migration.domain.listing import listed
from kafka_migration.groups.record import GroupRecord
from kafka_migration.inventory.facts import Facts, Finding, failed, passed, unchecked, warned
from kafka_migration.waves.links import Kind
from kafka_migration.waves.order import Spanning, Wave


def cover(facts: Facts) -> Finding:
    """Each selected topic is in exactly one wave, each group in one at the most, and no wave is empty, unless it was
    settled before its topics went."""
    waves = facts.waves
    if not waves.waves:
        return failed("there is no topic, so no wave", "correct topics.include of the plan")
    empty = [wave.name for wave in waves.waves if not wave.topics]
    wrong = {
        "topics in no wave": waves.homeless,
        "topics in several waves": [f"{t} ({', '.join(names)})" for t, names in waves.doubled_topics.items()],
        "groups in several waves": [f"{g} ({', '.join(names)})" for g, names in waves.doubled_groups.items()],
        "waves without a topic": () if waves.settled else empty,
    }
    found = [f"{what}: {listed(names)}" for what, names in wrong.items() if names]
    if found:
        return failed(
            "; ".join(found),
            "correct the patterns of waves.given, each of which must match a whole name (`waves PLAN` lists what each"
            " wave has), or remove a wave whose topics are gone",
        )
    if empty:
        return warned(
            f"waves whose topics are gone from the source, or from the plan: {listed(empty)}",
            "nothing: there is nothing left to move in them",
        )
    return passed(f"{len(waves.waves)} waves: " + listed(f"{w.name} (topics: {len(w.topics)})" for w in waves.waves))


def groups(facts: Facts) -> Finding:
    """No group reads topics of two waves."""
    return _kept_together(facts, Kind.GROUP, "add the group to waves.spanning_groups, which waives this for it")


def applications(facts: Facts) -> Finding:
    """No Streams application has its topics in two waves."""
    waiver = "add the application id to waves.spanning_groups (a group of that name), which waives this for it"
    return _kept_together(facts, Kind.STREAMS, waiver)


def transactions(facts: Facts) -> Finding:
    """No transactional producer writes topics of two waves."""
    if facts.inventory.transactions is None:
        why = facts.inventory.unchecked.get("producers", "producers unknown")
        return warned(f"UNCHECKED: {why}", "see to it that topics of one transaction are in one wave")
    waiver = "add the transactional id to waves.spanning_transactions, which waives this for it"
    return _kept_together(facts, Kind.TRANSACTION, waiver)


def _kept_together(facts: Facts, kind: Kind, waiver: str) -> Finding:
    found = [one for one in facts.waves.spanning if one.link.kind is kind]
    torn, waived = [one for one in found if not one.waived], [one for one in found if one.waived]
    if torn:
        return failed(
            listed((_described(facts, one) for one in torn), separator="; "),
            f"have these topics in one wave (`waves PLAN --why TOPIC` shows what holds a topic), or {waiver}",
        )
    if waived:
        return warned(
            f"waived by the plan: {_names(one.link.name for one in waived)}: "
            + listed((_described(facts, one) for one in waived), separator="; "),
            "nothing, if these may stand with one foot on each cluster until their last wave has moved",
        )
    count = sum(link.kind is kind for link in facts.waves.links)
    return passed(f"none of {count} spans two waves")


def _described(facts: Facts, one: Spanning) -> str:
    parts = []
    for name in one.waves:
        wave = facts.waves.named(name)
        topics = sorted(wave.topics & one.link.topics) if wave is not None else []
        parts.append(f"{name} ({listed(topics) if topics else 'which names the group'})")
    return f"{one.link.title} spans waves {', '.join(parts)}"


def _names(names: Iterable[str]) -> str:
    return listed(sorted(names))


def limits(facts: Facts) -> Finding:
    """Computed waves are within the limits of the plan; a part that is larger by itself is named."""
    auto = facts.ctx.plan.waves.auto if facts.ctx.plan.waves is not None else None
    if auto is None:
        return passed("the plan gives its waves, and sets no limits")
    if auto.most_bytes is not None and facts.inventory.bytes is None:
        return unchecked(
            facts.inventory.unchecked.get("bytes", "the source does not report how many bytes its topics have"),
            "grant Describe on the source cluster to the principal of its connection, or do without"
            " waves.auto.most_bytes",
        )
    if facts.waves.oversized:
        return warned(
            "what cannot move apart is larger than the limits: "
            + listed(f"{name} ({', '.join(over)})" for name, over in facts.waves.oversized.items()),
            "nothing, if such a wave may be that large; `waves PLAN --why TOPIC` shows what holds its topics together",
        )
    return passed("every wave is within them")


def _moved(facts: Facts, wave: Wave) -> list[str]:
    """Groups of the journal that stand on the target, and were moved with topics of ``wave``."""
    return sorted(
        name
        for name, record in GroupRecord.all(facts.ctx.journal).items()
        if record.is_moved
        and wave.topics & ({move.tp.topic for move in record.forward.translations} | record.subscription)
    )


def canary(facts: Facts) -> Finding:
    """A canary wave that is asked for has a group, or had one that has moved: without one it shows nothing."""
    asked = facts.ctx.plan.waves
    found = next((wave for wave in facts.waves.waves if wave.canary), None)
    if found is not None and found.groups:
        return passed(f"{found.name}: {listed(sorted(found.groups))}")
    if found is not None and (gone := _moved(facts, found)):
        return passed(f"{found.name}: {listed(gone)}, which moved and are gone from the source")
    if found is not None and facts.waves.settled:
        return warned(
            f"canary wave {found.name} has no group any more",
            "nothing, if no canary is needed any more; if waves.auto is changed, waves are computed again",
        )
    if found is not None:
        return failed(
            f"canary wave {found.name} has no group, so nobody would see consumers go on",
            "choose topics that a group of the plan reads, or do without a canary",
        )
    if asked is not None and asked.auto is not None and asked.auto.canary_topic is not None:
        return failed(
            f"the source has no topic {asked.auto.canary_topic}, which shall go first",
            "correct waves.auto.canary_topic",
        )
    if asked is not None and asked.auto is not None and asked.auto.canary:
        return warned("no topic is read by a group of the plan, so no wave goes first", "set waves.auto.canary: false")
    return passed("the plan asks for none")
