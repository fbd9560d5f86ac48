"""Which settings of target topics halt them: seen twice, asked for in turns. No broker needed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_migration.copy.driver import pinned_topics
from kafka_migration.copy.driver.pinned_topics import ConfigDrift
from kafka_migration.domain.held_open import KEEPS_RECORDS


@dataclass
class World:
    """A target whose settings a test changes; without a change they are held open."""

    changed: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, _work: Any, _target: Any, topics: Collection[str], names: Collection[str]) -> Any:
        assert set(names) == set(KEEPS_RECORDS)
        self.asked.append(sorted(topics))
        found = {it: {**KEEPS_RECORDS, **self.changed.get(it, {})} for it in topics if it not in self.refused}
        return found, {it: code for it, code in self.refused.items() if it in topics}

    def watch(self, held_open: Mapping[str, str] = KEEPS_RECORDS) -> ConfigDrift:
        return ConfigDrift(self, self, self.told.append, held_open=held_open)  # type: ignore[arg-type]


def _look(watch: ConfigDrift, topics: Collection[str]) -> dict[str, str]:
    watch.look(topics)
    return watch.drifted(topics)


def test_setting_counts_once_it_was_seen_at_two_looks_in_a_row() -> None:
    world = World()
    watch = world.watch()
    world.changed["a"] = {"retention.bytes": "1000"}
    assert _look(watch, ["a", "b"]) == {}
    del world.changed["a"]
    assert _look(watch, ["a", "b"]) == {}
    world.changed["b"] = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    assert _look(watch, ["a", "b"]) == {}
    found = _look(watch, ["a", "b"])
    assert set(found) == {"b"}
    assert "cleanup.policy of the target topic is compact, and must be delete" in found["b"]
    assert "message.timestamp.type of the target topic is LogAppendTime" in found["b"]
    assert _look(watch, ["a", "b"]) == found, "as long as it is so"


def test_topic_that_was_away_is_looked_at_anew() -> None:
    world = World(changed={"a": {"retention.ms": "1"}})
    watch = world.watch()
    assert [set(_look(watch, ["a", "b"])) for _ in range(2)] == [set(), {"a"}]
    assert watch.drifted(["b"]) == {}
    del world.changed["a"]
    assert watch.drifted(["a", "b"]) == {}
    assert _look(watch, ["a", "b"]) == {}


def test_thousands_of_topics_get_their_turns_and_a_suspected_one_at_every_look() -> None:
    count = 2 * pinned_topics._AT_ONCE + 100
    topics = [f"t{n:04}" for n in range(count)]
    first, last = topics[0], topics[-1]
    world = World(changed={last: {"retention.ms": "1"}})
    watch = world.watch()
    looks = [set(_look(watch, topics)) for _ in range(4)]
    assert looks == [set(), set(), set(), {last}]
    assert all(len(asked) <= pinned_topics._AT_ONCE + 1 for asked in world.asked)
    assert {it for asked in world.asked[:3] for it in asked} == set(topics)
    assert first in world.asked[2], "the third look begins anew with what it has room for"


def test_topic_whose_settings_are_not_told_is_named_once_and_halts_nothing() -> None:
    world = World(refused={"b": 29})
    watch = world.watch()
    assert [_look(watch, ["a", "b"]) for _ in range(3)] == [{}, {}, {}]
    assert len(world.told) == 1
    assert "configs of topic b, so a change of them goes unnoticed: TOPIC_AUTHORIZATION_FAILED (29)" in world.told[0]


def test_nothing_is_asked_where_nothing_must_be_held_open() -> None:
    world = World()
    watch = world.watch({})
    assert _look(watch, ["a"]) == {}
    assert _look(world.watch(), []) == {}
    assert world.asked == []
