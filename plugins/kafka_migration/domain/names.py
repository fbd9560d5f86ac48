"""How topics of the source are called on the target.

Everywhere in the package a topic goes by its name on the source; its name on the target is looked up where the target
is asked, and nowhere else. So each target name has to lead back to one source name, without asking anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

#: Before the names of topics of the target that no topic of the source would have there. No topic's name has a colon.
ELSEWHERE = "target:"
#: How names begin and end that are the migration's own (kafka_migration.domain.ledger, which is heavy to load).
_OWN = "kafka-migration.", ".internal"


@dataclass(frozen=True)
class TopicNames:
    """``renamed`` holds names on the target by names on the source; every other topic gets the ``prefix``. The
    migration's own topics, and those whose names begin with two underscores, keep theirs, unless they are renamed."""

    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def are_same(self) -> bool:
        """Whether every topic keeps its name."""
        return not self.prefix and not self.renamed

    def on_target(self, topic: str) -> str:
        """How the target calls ``topic``, whether there is such a topic or not."""
        if topic.startswith(ELSEWHERE):
            return topic.removeprefix(ELSEWHERE)
        if (name := self.renamed.get(topic)) is not None:
            return name
        is_own = topic.startswith(_OWN[0]) and topic.endswith(_OWN[1])
        return topic if is_own or topic.startswith("__") else self.prefix + topic

    def known_as(self, name: str) -> str:
        """The topic that the target calls ``name``: the inverse of :meth:`on_target`."""
        topic = self.on_source(name)
        return ELSEWHERE + name if topic is None else topic

    def on_source(self, name: str) -> str | None:
        """The topic of the source that the target would call ``name``; None if there can be none."""
        topic = self._renamed_back.get(name, name.removeprefix(self.prefix))
        return topic if self.on_target(topic) == name else None

    def prefix_on_target(self, prefix: str) -> str | None:
        """What the target's names of all topics begin with whose names begin with ``prefix``, and of no others; None if
        one of these is called otherwise, or another one begins so there."""
        begins = self.prefix + prefix
        if any(topic.startswith(prefix) or name.startswith(begins) for topic, name in self.renamed.items()):
            return None
        return None if self.prefix and "__".startswith(prefix[:2]) else begins

    @cached_property
    def _renamed_back(self) -> dict[str, str]:
        return {name: topic for topic, name in self.renamed.items()}


SAME = TopicNames()
