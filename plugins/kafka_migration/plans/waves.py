"""Waves in the plan: which topics and groups move together, given or to be computed. Absent: all in one."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from kafka_migration.plans.base import PLAIN_NAME, Contradictions, Name, PlanModel, each_once
from kafka_migration.plans.patterns import Patterns


def task_group(wave: str) -> str:
    """How Airflow's group of a wave's tasks is called; its names have no dots."""
    return f"wave_{wave.replace('.', '_')}"


AtLeastOne = Annotated[int, Field(ge=1)]


class GivenWave(PlanModel):
    """A wave by patterns, within what topics and groups of the plan select."""

    name: Annotated[str, Field(pattern=f"^{PLAIN_NAME}$")]
    """The wave's name: commands and approvals name it."""

    topics: Annotated[Patterns, Field(min_length=1)]
    """Regular expressions; the plan's topics that match one of them, whole, belong to this wave, and to no other."""

    groups: Patterns = ()
    """Groups that belong to this wave, likewise. Any other group belongs to the last wave that has a topic that it
    reads."""

    canary: bool = False
    """The wave that shows first, on little, that groups go on as they should. The first wave alone may be it."""


class AutoWaves(PlanModel):
    """Waves are computed: what shares a group, a transaction or a Streams application is one part, and parts are put
    into waves by how many partitions they have, the smallest first."""

    most_topics: AtLeastOne | None = None
    """Topics of a wave at most; null without limit. A part that is larger by itself is a wave by itself."""

    most_groups: AtLeastOne | None = None
    """Groups of a wave at most, likewise."""

    most_bytes: AtLeastOne | None = None
    """Bytes of a wave's topics on the source at most (one replica), likewise. Sizes move: parts near the limit may come
    into other waves until `create` has run, and an approval of other waves is void."""

    canary: bool = True
    """Begin with a wave of the smallest part that has a group."""

    canary_topic: Name | None = None
    """Begin with the part that this topic belongs to instead; null for the smallest."""

    @model_validator(mode="after")
    def _canary_is_wanted(self) -> Self:
        found = Contradictions()
        if self.canary_topic is not None and not self.canary:
            found.add(
                ("canary_topic",),
                self.canary_topic,
                "a canary's topic is named, but canary is false",
                "set waves.auto.canary to true, or remove canary_topic",
            )
        found.raise_any("auto")
        return self


class Waves(PlanModel):
    """Topics and groups that move together, one wave after another over one mirror."""

    given: tuple[GivenWave, ...] = ()
    """The waves, in their order. Together they have each of the plan's topics once; that, and that no group,
    transaction or Streams application spans two of them, is checked."""

    auto: AutoWaves | None = None
    """Have the waves computed instead, within these limits; {} for none, null for waves that are given."""

    spanning_groups: tuple[Name, ...] = ()
    """Groups (or Streams applications, by their application id) that may span waves that are not finished. Such a group
    moves as a whole, with the last wave that has a topic that it reads, or the wave that names it."""

    spanning_transactions: tuple[Name, ...] = ()
    """Transactional ids (or numbers of producer ids) whose transactions may span waves that are not finished."""

    @model_validator(mode="after")
    def _are_one_order(self) -> Self:
        found = Contradictions()
        if self.given and self.auto is not None:
            found.add(("auto",), None, "waves are given, and shall be computed, too", "keep given or auto")
        if not self.given and self.auto is None:
            found.add(
                (), None, "neither given nor auto, so there are no waves", "fill given, set auto: {}, or remove waves"
            )
        self._names_once(found)
        for at, wave in enumerate(self.given):
            if wave.canary and at:
                found.add(("given", at, "canary"), True, "a canary that others go before shows nothing", "put it first")
        for what in ("topics", "groups"):
            self._patterns_once(found, what)
        each_once(found, "spanning_groups", self.spanning_groups)
        each_once(found, "spanning_transactions", self.spanning_transactions)
        found.raise_any("waves")
        return self

    def _names_once(self, found: Contradictions) -> None:
        groups = [task_group(wave.name) for wave in self.given]
        for at, wave in enumerate(self.given):
            if groups[at] in groups[:at]:
                # Dots and underscores are the same in Airflow.
                what = f"two waves have this name: their tasks in Airflow are both {groups[at]}"
                found.add(("given", at, "name"), wave.name, what, "give one of them another name")

    def _patterns_once(self, found: Contradictions, what: str) -> None:
        first: dict[str, str] = {}
        for at, wave in enumerate(self.given):
            for number, pattern in enumerate(getattr(wave, what)):
                if pattern in first:
                    found.add(
                        ("given", at, what, number),
                        pattern,
                        f"the same pattern stands in wave {first[pattern]}",
                        "keep it in one wave: what it matches cannot be in both",
                    )
                first.setdefault(pattern, wave.name)
