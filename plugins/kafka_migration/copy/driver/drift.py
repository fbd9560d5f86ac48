"""Configs of target topics that changed so that what is copied would go, or be altered, while nothing refuses it.

Somebody else may look after the target's topics, and set back what the create phase had set. Then old records are
deleted as they land, and lag shows 0. So the driver looks at these configs beside its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kafka_migration.wire.cluster import WireCluster, code_name
from kafka_migration.wire.configs import described
from kafka_migration.wire.selector import Selector

_AT_ONCE = 1_000
"""Topics a look: an answer about so many takes 20 ms to be read."""


class ConfigDrift:
    """Looks at a part of the topics each time; the broker's defaults count where a topic has no value of its own."""

    def __init__(
        self, target: WireCluster, net: Selector, log: Callable[[str], None], *, held_open: Mapping[str, str]
    ) -> None:
        """``held_open`` are the configs that every topic must have; nothing is looked at if there are none."""
        self._target, self._net, self._log, self._held_open = target, net, log, held_open
        self._suspected: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._last = ""
        self._unread: set[str] = set()

    def look(self, topics: Collection[str]) -> None:
        """Ask for the next ones of ``topics``. Raises CouldNotFindOut if the target does not answer."""
        if not (self._held_open and topics):
            return
        asked = {*self._next(topics), *(self._suspected.keys() & set(topics))}
        configs, refused = self._net.run(described, self._target, asked, self._held_open)
        if refused.keys() - self._unread:
            first = min(refused.keys() - self._unread)
            self._unread |= refused.keys()
            self._log(
                f"target: cannot read the configs of topic {first}, so a change of them goes unnoticed:"
                f" {code_name(refused[first])}"
            )
        wrong = {topic: text for topic, found in configs.items() if (text := self._wrong(found))}
        # Twice in a row: for a moment after a change a broker may answer with what was before it.
        self._found = {topic: text for topic, text in wrong.items() if topic in self._suspected}
        self._suspected = wrong

    def drifted(self, topics: Collection[str]) -> dict[str, str]:
        """Those of ``topics`` whose configs were wrong at two looks in a row, and how. What was seen of others is
        forgotten: one that comes back is looked at anew."""
        self._suspected = {topic: text for topic, text in self._suspected.items() if topic in topics}
        self._found = {topic: text for topic, text in self._found.items() if topic in topics}
        return dict(self._found)

    def _next(self, topics: Collection[str]) -> list[str]:
        ordered = sorted(topics)
        part = [topic for topic in ordered if topic > self._last][:_AT_ONCE]
        part += [topic for topic in ordered if topic <= self._last][: _AT_ONCE - len(part)]
        self._last = part[-1]
        return part

    def _wrong(self, found: Mapping[str, str]) -> str:
        changed = [
            f"{name} of the target topic is {found[name]}, and must be {value} while the topic is mirrored"
            for name, value in self._held_open.items()
            if found.get(name, value) != value
        ]
        return "; ".join(changed)
