"""What a target topic is declared as, and what is done about settings that the target does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.types import ConfigValue, TopicDescription
from kafka_migration.topics.specs import (
    BOUNDS,
    HELD_OPEN,
    LONG_MAX,
    OLD_BOUND,
    Declared,
    TargetDefaults,
    declare,
    fitted,
    is_old_format,
)

TOPIC = TopicDescription(name="t", topic_id="id", partitions=1, replication_factor=2, leaders=(1,))


def explicit(value: str, default: str | None = None) -> ConfigValue:
    return ConfigValue(value=value, is_explicit=True, default=default)


def declared(configs: Mapping[str, ConfigValue], *, factor: int | None = None, **defaults: Any) -> Declared:
    known = TargetDefaults(**({"max_message_bytes": 1000} | defaults))
    return declare(TOPIC, configs, replication_factor=factor, defaults=known)


def knowing(*unknown: str) -> Callable[[TopicSpec], dict[str, str]]:
    """A target that does not know these settings."""
    return lambda spec: {name: "unknown" for name in spec.configs if name in unknown}


def test_source_settings_stay_except_where_held_open() -> None:
    it = declared({"segment.ms": explicit("5"), "retention.ms": explicit("7")})
    assert it.spec.configs == {**HELD_OPEN, "segment.ms": "5"}
    assert it.configs_source == {"segment.ms": "5", "retention.ms": "7"}


def test_replication_is_the_sources_or_the_plans() -> None:
    assert declared({}).spec.replication_factor == 2
    assert declared({}, factor=3).spec.replication_factor == 3


def test_larger_limit_of_the_source_becomes_explicit() -> None:
    limit = {"max.message.bytes": ConfigValue(value="2000", is_explicit=False)}
    assert declared(limit).spec.configs["max.message.bytes"] == "2000"
    assert declared(limit, max_message_bytes=None).spec.configs["max.message.bytes"] == "2000"
    assert "max.message.bytes" not in declared(limit, max_message_bytes=2000).spec.configs


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


def test_target_from_3_6_to_3_9_refuses_no_old_record_by_its_brokers_old_bound() -> None:
    one_day = declared({}, old_bound="86400000")
    assert one_day.spec.configs[OLD_BOUND] == LONG_MAX
    assert fitted(one_day, {}, knowing(OLD_BOUND)).spec.configs == HELD_OPEN, "since 4.0 brokers do not know it"
    assert OLD_BOUND not in declared({}, old_bound=LONG_MAX).spec.configs, "brokers that refuse nothing are left alone"
    own = {OLD_BOUND: explicit("3600000")}
    assert declared(own).spec.configs[OLD_BOUND] == LONG_MAX


def test_topic_with_fewer_replicas_than_the_target_wants_in_sync_can_be_written() -> None:
    assert declared({}, min_insync_replicas=2).spec.configs == HELD_OPEN
    assert declared({}, min_insync_replicas=3).spec.configs == {**HELD_OPEN, "min.insync.replicas": "2"}
    assert declared({}, min_insync_replicas=2, factor=1).spec.configs["min.insync.replicas"] == "1"
    own = {"min.insync.replicas": explicit("1")}
    assert declared(own, min_insync_replicas=3).spec.configs["min.insync.replicas"] == "1"


def test_topic_in_an_old_format_is_not_made_so_where_the_target_knows_formats() -> None:
    old = declared({"message.format.version": explicit("0.10.2-IV0")})
    assert "message.format.version" not in old.spec.configs
    assert "message.format.version" in old.left_out
    assert "message.format.version" in declared({"message.format.version": explicit("2.8-IV1")}).spec.configs


def test_defaults_of_the_target_are_those_of_its_brokers() -> None:
    brokers = {"message.max.bytes": "5", "min.insync.replicas": "2", "log.message.timestamp.difference.max.ms": "7"}
    shown = {name: ConfigValue(value=value, is_explicit=False) for name, value in brokers.items()}
    assert TargetDefaults.of(shown) == TargetDefaults(max_message_bytes=5, min_insync_replicas=2, old_bound="7")
    assert TargetDefaults.of({}) == TargetDefaults()


def test_configs_of_tiered_storage_are_left_out_where_the_target_has_none() -> None:
    configs = {"remote.storage.enable": explicit("true", default="false"), "local.retention.ms": explicit("5")}
    it = fitted(declared(configs), configs, knowing(*configs))
    assert (set(it.left_out), it.refused, it.spec.configs) == (set(configs), {}, HELD_OPEN)
    assert fitted(declared(configs), configs, knowing()).spec.configs["remote.storage.enable"] == "true"
