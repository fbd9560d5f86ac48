"""What a target topic is declared as, and what is done about settings that the target does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.types import ConfigValue, TopicDescription
from kafka_migration.topics.specs import (
    BOUNDS,
    HELD_OPEN,
    LONG_MAX,
    OLD_BOUND,
    Declared,
    declare,
    fitted,
    is_old_format,
)

TOPIC = TopicDescription(name="t", topic_id="id", partitions=1, replication_factor=2, leaders=(1,))


def explicit(value: str, default: str | None = None) -> ConfigValue:
    return ConfigValue(value=value, is_explicit=True, default=default)


def declared(configs: Mapping[str, ConfigValue], **changes: int | None) -> Declared:
    return declare(TOPIC, configs, **({"replication_factor": None, "target_max_message_bytes": 1000} | changes))


def knowing(*unknown: str) -> Callable[[TopicSpec], dict[str, str]]:
    """A target that does not know these settings."""
    return lambda spec: {name: "unknown" for name in spec.configs if name in unknown}


def test_source_settings_stay_except_where_held_open() -> None:
    it = declared({"segment.ms": explicit("5"), "retention.ms": explicit("7")})
    assert it.spec.configs == {**HELD_OPEN, "segment.ms": "5"}
    assert it.configs_source == {"segment.ms": "5", "retention.ms": "7"}


def test_replication_is_the_sources_or_the_plans() -> None:
    assert declared({}).spec.replication_factor == 2
    assert declared({}, replication_factor=3).spec.replication_factor == 3


def test_larger_limit_of_the_source_becomes_explicit() -> None:
    limit = {"max.message.bytes": ConfigValue(value="2000", is_explicit=False)}
    assert declared(limit).spec.configs["max.message.bytes"] == "2000"
    assert declared(limit, target_max_message_bytes=None).spec.configs["max.message.bytes"] == "2000"
    assert "max.message.bytes" not in declared(limit, target_max_message_bytes=2000).spec.configs


@pytest.mark.parametrize(
    "kind",
    [
        {"cleanup.policy": explicit("compact,delete")},
        {"message.timestamp.type": explicit("LogAppendTime")},
        {"message.format.version": explicit("0.10.2-IV0")},
    ],
)
def test_topic_whose_batches_are_made_anew_has_room_for_them(kind: dict[str, ConfigValue]) -> None:
    limit = {"max.message.bytes": ConfigValue(value="2000", is_explicit=False)}
    assert declared(limit | kind).spec.configs["max.message.bytes"] == "2250"
    own = {"max.message.bytes": explicit("800")}
    assert declared(own | kind).spec.configs["max.message.bytes"] == "900"
    assert declared(own).spec.configs["max.message.bytes"] == "800"


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("0.8.2", True), ("0.10.2-IV0", True), ("0.11.0-IV2", False), ("2.8-IV1", False), ("3.0", False), ("", False)],
)
def test_old_formats_are_those_before_0_11(version: str, is_old: bool) -> None:
    assert is_old_format(version) is is_old


def test_settings_that_name_the_sources_brokers_are_left_out() -> None:
    it = declared({"leader.replication.throttled.replicas": explicit("0:1")})
    assert "leader.replication.throttled.replicas" not in it.spec.configs
    assert set(it.left_out) == {"leader.replication.throttled.replicas"}


def test_sensitive_setting_that_is_not_shown_is_not_carried() -> None:
    hidden = ConfigValue(value=None, is_explicit=True, is_sensitive=True)
    assert "secret" not in declared({"secret": hidden}).spec.configs


def test_target_that_takes_everything_changes_nothing() -> None:
    it = declared({"segment.ms": explicit("5")})
    assert fitted(it, {}, knowing()) is it


def test_target_before_3_6_gets_the_old_bound() -> None:
    it = fitted(declared({}), {}, knowing(*BOUNDS))
    assert it.spec.configs[OLD_BOUND] == LONG_MAX
    assert not set(BOUNDS) & it.spec.configs.keys()
    assert it.refused == {}


def test_setting_that_changed_nothing_is_left_out_by_name() -> None:
    configs = {"odd.setting": explicit("1", default="1")}
    it = fitted(declared(configs), configs, knowing("odd.setting"))
    assert (set(it.left_out), it.refused) == ({"odd.setting"}, {})
    assert "odd.setting" not in it.spec.configs


def test_setting_that_mattered_is_refused_by_name() -> None:
    configs = {"odd.setting": explicit("2", default="1"), "odder": explicit("1")}
    it = fitted(declared(configs), configs, knowing("odd.setting", "odder"))
    assert it.refused == {"odd.setting": "unknown", "odder": "unknown"}


def test_settings_that_kafka_4_removed_are_left_out_with_the_reason() -> None:
    configs = {
        "message.format.version": explicit("2.8-IV1", default="3.0-IV1"),
        OLD_BOUND: explicit("5", default="9"),
    }
    it = fitted(declared(configs), configs, knowing("message.format.version", OLD_BOUND))
    assert set(it.left_out) == {"message.format.version", OLD_BOUND}
    assert it.refused == {}
    assert it.configs_source == {"message.format.version": "2.8-IV1", OLD_BOUND: "5"}
