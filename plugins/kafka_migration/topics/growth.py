"""What appears on the source while the mirror runs gets its place on the target: partitions, and topics if the plan
asks for it. The mirror finds and copies them (:mod:`kafka_migration.copy.driver.newcomers`); this creates and notes
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.kafka.types import TopicDescription
from kafka_migration.migration.joined import joined, mirror_goes_on
from kafka_migration.state.link import LinkTopic
from kafka_migration.topics import create
from kafka_migration.topics.declared import KIND, TopicStep, mirrored, steps

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Pins topics, by name, in the link's state, as the plan of the context has it; True for those that were made on the
#: source while the mirror ran.
Pin = Callable[["Context", Sequence[str], bool], object]


class TargetGrowth:
    """Grows the target of ``ctx``; ``pin`` notes new topics in the link."""

    def __init__(self, ctx: Context, pin: Pin) -> None:
        self._ctx, self._pin = ctx, pin
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

        One that cannot be created is reported, once, and left out. Returns all that are pinned.
        """
        self._take_joined_plan()
        if made := mirrored(self._ctx).keys() - self._ctx.link.topics().keys():
            self._pin(self._ctx, sorted(made), False)
        if self._ctx.plan.mirror.follow_new_topics and (new := self._new_topics()):
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
        self._ctx.log(f"the mirror goes on with the plan that joined at {last.at}: {plan.digest}")

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
        todo = [step for step in steps(ctx, only=new) if not self._is_problem(step)]
        if not todo:
            return
        create.take(ctx, todo)
        self._pin(self._ctx, [step.name for step in todo], True)

    def _is_problem(self, step: TopicStep) -> bool:
        if step.problem and step.name not in self._reported:
            self._reported.add(step.name)
            self._ctx.log(f"new topic {step.name} does not join the mirror: {step.problem}; {step.remedy}")
        return bool(step.problem)
