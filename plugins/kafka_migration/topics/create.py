"""Create targets: every topic of the plan on the target, with its partitions and configs, but without retention.

The failure window: a process that dies between a creation and its note leaves a topic that nobody seems to own. So an
intent is written before, under a kind of its own (the mirror copies into what is recorded as ``topic`` only), and a
topic with an intent that exists, is empty and is exactly as declared is ours. That of an adoption keeps the topic's
former configs, for ``restore``.

What appears on the source while the mirror runs gets its place on the target, too: partitions, and topics if the plan
asks for it. The mirror finds and copies them (:mod:`kafka_migration.copy.driver.newcomers`); here they are created and
noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.waiting import tries
from kafka_migration.kafka.errors import TopicExists
from kafka_migration.kafka.types import TopicDescription
from kafka_migration.migration import cancellation
from kafka_migration.migration.joined import joined, mirror_goes_on
from kafka_migration.state.link import LinkTopic
from kafka_migration.topics import handling, keeping
from kafka_migration.topics.declared import (
    ADOPTS,
    INTENT,
    KIND,
    Action,
    Drift,
    Notes,
    TopicStep,
    differences,
    existing_step,
    mirrored,
    source_drift,
    steps,
)
from kafka_migration.topics.specs import spec_as_dict, spec_from

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_VISIBLE_WITHIN_SECONDS, _SET_WITHIN_SECONDS = 30.0, 5.0
_TOPICS_AT_ONCE, _PARTITIONS_AT_ONCE = 100, 1_000

#: Pins topics, by name, in the link's state, as the plan of the context has it; True for those that were made on the
#: source while the mirror ran.
Pin = Callable[["Context", Sequence[str], bool], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What was done (or, in a dry run, would be), and what is not as declared now."""

    steps: tuple[TopicStep, ...]
    dry_run: bool
    drift: tuple[Drift, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "dry_run": self.dry_run,
            "topics": [step.as_dict() for step in self.steps],
            "drift": [drift.as_dict() for drift in self.drift],
        }


def check(ctx: Context) -> tuple[TopicStep, ...]:
    """The steps, one per topic of the plan, each with its problem if it has one. Changes nothing."""
    return steps(ctx)


def apply(ctx: Context) -> Created:
    """Create (or adopt) what is missing; a second call changes nothing. Killed anywhere, the next call converges.

    Raises Refused, naming every topic that cannot be created, before anything is changed.
    """
    todo = check(ctx)
    _refuse_problems(ctx, todo)
    for step in todo:
        ctx.log(str(step))
    if ctx.dry_run:
        return Created(steps=todo, dry_run=True)
    take(ctx, todo)
    return Created(steps=todo, dry_run=False, drift=_settled(ctx, todo))


def _settled(ctx: Context, done: Sequence[TopicStep]) -> tuple[Drift, ...]:
    """What is not as declared once brokers show what was done: they answer before all of them know a new config."""
    changed = {step.name for step in done if step.action is not Action.KEEP}
    drift: tuple[Drift, ...] = ()
    for _ in tries(ctx.clock, seconds=_SET_WITHIN_SECONDS, pause=0.2):
        drift = verify(ctx)
        if changed.isdisjoint(found.topic for found in drift):
            break
    return drift


def take(ctx: Context, todo: Sequence[TopicStep]) -> None:
    """Lock the topics of ``todo``, which have no problem, and create or adopt what is missing. Raises Refused if
    another migration holds one, or once this one is cancelled."""
    lock(ctx, [step.name for step in todo])
    by_action: dict[Action, list[TopicStep]] = {action: [] for action in Action}
    for step in todo:
        by_action[step.action].append(step)
    intents = ctx.journal.all(INTENT)
    # A run died between its two last notes.
    ctx.journal.forget_all(INTENT, [step.name for step in by_action[Action.KEEP] if step.name in intents])
    for batch in _batches(by_action[Action.CREATE]):
        cancellation.require_none(ctx)
        _create(ctx, batch)
    for step in by_action[Action.ADOPT]:
        cancellation.require_none(ctx)
        _adopt(ctx, step)


def take_filled(ctx: Context, step: TopicStep, note: Callable[[TopicDescription], object]) -> None:
    """Lock and adopt the topic of ``step`` with the records that it holds. ``note`` notes which these are, once the
    target deletes none of them any more, and before the topic counts as this migration's.

    Raises as :func:`take`, and what ``note`` raises; the next call begins again.
    """
    lock(ctx, [step.name])
    _adopt(ctx, step, note)


def lock(ctx: Context, topics: Sequence[str]) -> None:
    """Lock ``topics``. Raises Refused if another migration holds one, or once this one is cancelled."""
    cancellation.require_none(ctx)
    taken = ctx.journal.lock(topics, at=ctx.stamp())
    if taken:
        raise Refused(
            "other migrations hold topics of this plan: "
            + listed((f"{t} ({by})" for t, by in sorted(taken.items())), separator="; "),
            remedy="`release` the plans of those migrations once they are done with, or exclude the topics here",
        )


def verify(ctx: Context) -> tuple[Drift, ...]:
    """Read back every topic of the plan that this migration created or adopted, and compare: with what was declared on
    the target, and with what the source was then. Reports, never repairs."""
    records = mirrored(ctx)
    here, there = ctx.target.topics(records), ctx.source.topics(records)
    configs, configs_there = ctx.target.topic_configs(here), keeping.own(ctx, ctx.source.topic_configs(there))
    drift: list[Drift] = []
    for name, record in sorted(records.items()):
        if name in here:
            if here[name].topic_id != record["topic_id"]:
                drift.append(
                    Drift(topic=name, what="topic id", declared=record["topic_id"], observed=here[name].topic_id)
                )
            drift += differences(spec_from(name, record["spec"]), here[name], configs[name])
        else:
            drift.append(Drift(topic=name, what="topic", declared="there", observed="gone"))
        if name in there:
            drift += source_drift(record, there[name], configs_there[name])
        else:
            drift.append(Drift(topic=name, what="source topic", declared="there", observed="gone"))
    return tuple(drift)


def _refuse_problems(ctx: Context, todo: tuple[TopicStep, ...]) -> None:
    if not todo:
        raise Refused(
            f"plan {ctx.plan.name} matches no topic on the source",
            remedy="check topics.include and topics.exclude: patterns must match the whole name",
        )
    wrong = [step for step in todo if step.problem]
    if wrong:
        problems = listed((f"{step.name}: {step.problem}" for step in wrong), separator="; ")
        raise Refused(
            f"{len(wrong)} of {len(todo)} topics cannot be created: {problems}",
            remedy="; ".join(dict.fromkeys(step.remedy for step in wrong if step.remedy)),
        )


def make(ctx: Context, step: TopicStep) -> None:
    """Create one topic, and note it; killed anywhere, the next call goes on."""
    cancellation.require_none(ctx)
    # Written before: a topic that appears without it is somebody else's.
    ctx.journal.record(INTENT, step.name, step.declared.as_dict() | {"at": ctx.stamp()})
    _create_alone(ctx, step)
    _confirm(ctx, [step])


def _batches(steps: list[TopicStep]) -> Iterator[list[TopicStep]]:
    """So many at once that thousands of topics take seconds, and so few that a request stays small."""
    batch: list[TopicStep] = []
    partitions = 0
    for step in steps:
        more = step.declared.spec.partitions
        if batch and (len(batch) == _TOPICS_AT_ONCE or partitions + more > _PARTITIONS_AT_ONCE):
            yield batch
            batch, partitions = [], 0
        batch.append(step)
        partitions += more
    if batch:
        yield batch


def _create(ctx: Context, batch: list[TopicStep]) -> None:
    # Written before: a topic that appears without it is somebody else's.
    ctx.journal.record_all(INTENT, {step.name: step.declared.as_dict() | {"at": ctx.stamp()} for step in batch})
    try:
        ctx.target.create_topics([step.declared.spec for step in batch])
    except TopicExists:
        # One of them; which of the others were created is unknown.
        for step in batch:
            _create_alone(ctx, step)
    _confirm(ctx, batch)


def _create_alone(ctx: Context, step: TopicStep) -> None:
    try:
        ctx.target.create_topics([step.declared.spec])
    except TopicExists:
        # Ours, of this run or an interrupted one, or a rival's of this very moment: found out by looking, as in check.
        topic = _visible(ctx, [step.name])[step.name]
        again = existing_step(ctx, step.declared, topic, (), Notes.of(ctx))
        if again.problem:
            raise Refused(f"{step.name}: {again.problem}", remedy=again.remedy) from None


def _adopt(ctx: Context, step: TopicStep, note: Callable[[TopicDescription], object] = lambda _topic: None) -> None:
    (topic,) = ctx.target.topics([step.name]).values()
    # Written before: the next run could not find out any more how the topic was.
    ctx.journal.record(INTENT, step.name, step.declared.as_dict() | {ADOPTS: topic.topic_id, "at": ctx.stamp()})
    ctx.target.alter_configs(step.name, set=step.declared.spec.configs)
    note(topic)
    _confirm(ctx, [step])


def _confirm(ctx: Context, steps: list[TopicStep]) -> None:
    """Note what is there now; only then forget that it was meant."""
    found = _visible(ctx, [step.name for step in steps])
    ctx.journal.record_all(KIND, {step.name: _note(ctx, step, found[step.name]) for step in steps})
    ctx.journal.forget_all(INTENT, [step.name for step in steps])


def _note(ctx: Context, step: TopicStep, topic: TopicDescription) -> dict[str, Any]:
    adopted = step.action is Action.ADOPT
    spec = step.declared.spec
    if adopted:
        # Its replication is what its owner chose.
        spec = replace(spec, replication_factor=topic.replication_factor)
    return (
        step.declared.as_dict()
        | {"spec": spec_as_dict(spec)}
        | {"created": not adopted, "adopted": adopted, "topic_id": topic.topic_id, "at": ctx.stamp()}
    )


def _visible(ctx: Context, names: list[str]) -> dict[str, TopicDescription]:
    """The topics, as soon as the target shows all of them with a leader for every partition."""
    missing: list[str] = []
    for _ in tries(ctx.clock, seconds=_VISIBLE_WITHIN_SECONDS, pause=0.1):
        found = ctx.target.topics(names)
        missing = [name for name in names if name not in found or None in found[name].leaders]
        if not missing:
            return found
    raise CouldNotFindOut(
        f"target: created topics have no leaders after {_VISIBLE_WITHIN_SECONDS:g} s: {listed(missing)}",
        remedy="look into the brokers' logs, then run this again: it continues from here",
    )


class TargetGrowth:
    """Grows the target of ``ctx``, by whose handlers the mirror copies; ``pin`` notes new topics in the link."""

    def __init__(self, ctx: Context, pin: Pin) -> None:
        self._ctx, self._began_with, self._pin = ctx, ctx.plan, pin
        self._reported: set[str] = set()
        # A plan that has not joined is newer than this one: it holds until another one joins.
        self._joined_before = last.digest if (last := joined(ctx)) else ""

    def grow(self, topic: str, partitions: int) -> None:
        """See that the target topic has so many partitions, and that they are noted in the journal.

        Killed between the two, the next call notes what is there. Raises Refused (BrokerRefused) or NotAuthorized.
        """
        ctx = self._ctx
        existing = self._existing(topic)
        if existing.partitions < partitions:
            ctx.target.create_partitions(topic, partitions)
        record = ctx.journal.read(KIND, topic)
        if record is not None and record["spec"]["partitions"] != partitions:
            record["spec"]["partitions"] = partitions
            ctx.journal.record(KIND, topic, record)

    def follow(self) -> Mapping[str, LinkTopic]:
        """Go by the plan that joined last. Pin what `create` has made for it since, and with
        ``mirror.follow_new_topics`` create and pin the new topics of the source that it means.

        One that cannot be created, or that the mirror cannot copy as the plan has it handled, is reported, once, and
        left out. Returns all that are pinned.
        """
        self._take_joined_plan()
        if made := self._handled(mirrored(self._ctx).keys() - self._ctx.link.topics().keys()):
            self._pin(self._ctx, sorted(made), False)
        if self._ctx.plan.mirror.follow_new_topics and (new := self._handled(self._new_topics())):
            self._create(new)
        return self._ctx.link.topics()

    def _take_joined_plan(self) -> None:
        """Topics that it leaves out are copied on, as long as this mirror runs: their places are under way."""
        last, mine = joined(self._ctx), self._ctx.plan.digest
        if last is None or last.digest == mine or not (last.replaced(mine) or last.digest != self._joined_before):
            return
        plan = last.plan()
        self._ctx = replace(self._ctx, plan=plan)
        self._ctx.link.select_also(plan.topics.matches)
        mirror_goes_on(self._ctx)
        is_due = plan.handlers != self._began_with.handlers
        self._ctx.log(
            f"the mirror goes on with the plan that joined at {last.at}: {plan.digest}"
            + ("; its handlers hold once the mirror is started again" if is_due else "")
        )

    def _existing(self, topic: str) -> TopicDescription:
        found = self._ctx.target.topics([topic]).get(topic)
        if found is None:
            raise Refused(f"target: topic {topic} is gone", remedy="find out who deleted it")
        return found

    def _new_topics(self) -> set[str]:
        ctx = self._ctx
        return set(ctx.plan.topics.select(ctx.source.topic_names())) - ctx.link.topics().keys()

    def _create(self, new: set[str]) -> None:
        ctx = self._ctx
        todo = [
            step
            for step in steps(ctx, only=new)
            if self._joins(step.name, f"{step.problem}; {step.remedy}" if step.problem else "")
        ]
        if not todo:
            return
        take(ctx, todo)
        self._pin(self._ctx, [step.name for step in todo], True)

    def _handled(self, topics: Set[str]) -> set[str]:
        """Those of ``topics`` that the mirror can copy as the plan has them handled."""
        ctx, why = self._ctx, dict[str, str]()
        for topic in handling.compacted(ctx, handling.used(ctx, topics)):
            why[topic] = f"it is compacted, and its handler may change keys and drop records; {handling.KEEP_KEYS}"
        for topic in topics:
            # Executors have what the mirror began with, and keep it: a file is shipped once.
            if ctx.handler_of(topic) != self._began_with.handler_of(topic):
                why[topic] = "the plan that the mirror began with has it handled otherwise; start the mirror again"
        return {topic for topic in topics if self._joins(topic, why.get(topic, ""))}

    def _joins(self, topic: str, problem: str) -> bool:
        if problem and topic not in self._reported:
            self._reported.add(topic)
            self._ctx.log(f"new topic {topic} does not join the mirror: {problem}")
        return not problem
