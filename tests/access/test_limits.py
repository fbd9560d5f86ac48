"""Client quotas and SCRAM users: those of the plan's own users, under their names on the target; others are listed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_migration.access import limits
from kafka_migration.access.limits import Limit, Limits
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.kafka.types import Quota, ScramUser
from kafka_migration.migration.context import Context
from tests.fakes.cluster import FakeCluster

USERS = {"app": "app", "old": "CN=new"}


def quota(value: float = 1024.0, key: str = "producer_byte_rate", **entity: Any) -> Quota:
    parts = {name.replace("_", "-"): value for name, value in entity.items()}
    return Quota(entity=tuple(sorted(parts.items())), limits=((key, value),))


def limit(value: float = 1024.0, there: float | None = None, **entity: Any) -> Limit:
    return Limit(entity=quota(**entity).entity, key="producer_byte_rate", value=value, there=there)


@dataclass
class Pair:
    source: FakeCluster = field(default_factory=lambda: FakeCluster("source"))
    target: FakeCluster = field(default_factory=lambda: FakeCluster("target"))

    def read(self, users: dict[str, str] = USERS) -> Limits:
        return limits.read(cast("Context", self), users, ())


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_quota_of_a_named_user_is_missed_under_the_users_name_on_the_target(pair: Pair) -> None:
    pair.source.client_quotas = [quota(user="app"), quota(user="old", client_id="batch"), quota(user="strange")]
    assert pair.read() == Limits(missing=(limit(user="app"), limit(user="CN=new", client_id="batch")))
    pair.target.client_quotas = [quota(user="app"), quota(user="CN=new", client_id="batch")]
    assert pair.read() == Limits()


def test_quota_of_another_value_on_the_target_is_shown_and_not_missing(pair: Pair) -> None:
    pair.source.client_quotas, pair.target.client_quotas = [quota(user="app")], [quota(5.0, user="app")]
    assert pair.read() == Limits(different=(limit(there=5.0, user="app"),))
    # Another limit of the same user is one of its own.
    pair.target.client_quotas = [quota(1024.0, "consumer_byte_rate", user="app")]
    assert pair.read() == Limits(missing=(limit(user="app"),))


@pytest.mark.parametrize(
    "entity",
    [{"user": None}, {"client_id": "batch"}, {"client_id": None}, {"ip": "10.0.0.1"}, {"user": "app", "ip": None}],
)
def test_quota_of_more_than_the_plans_users_is_left_to_an_administrator(pair: Pair, entity: dict[str, Any]) -> None:
    pair.source.client_quotas = [quota(**entity)]
    seen = pair.read()
    assert seen == Limits(by_hand=(limit(**entity),))
    assert limits.commands(seen, servers="t:1") == ()
    pair.target.client_quotas = [quota(**entity)]
    assert pair.read() == Limits()


def test_two_users_that_become_one_with_a_limit_each_are_left_to_an_administrator(pair: Pair) -> None:
    pair.source.client_quotas = [quota(1.0, user="a"), quota(2.0, user="b")]
    same = {"a": "one", "b": "one"}
    assert pair.read(same) == Limits(by_hand=(limit(1.0, user="one"), limit(2.0, user="one")))
    pair.source.client_quotas = [quota(2.0, user="a"), quota(2.0, user="b")]
    assert pair.read(same) == Limits(missing=(limit(2.0, user="one"),))


def test_scram_user_without_credentials_on_the_target_is_named(pair: Pair) -> None:
    app = ScramUser(user="app", credentials=(("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)))
    pair.source.users = [app, ScramUser(user="strange", credentials=(("SCRAM-SHA-512", 8192),))]
    assert pair.read() == Limits(users=(app,))
    pair.target.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 8192),))]
    assert pair.read() == Limits()


def test_scram_user_is_lacked_by_its_name_on_the_target_with_iterations_that_brokers_take(pair: Pair) -> None:
    pair.source.users = [
        ScramUser(user="a", credentials=(("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 5000))),
        ScramUser(user="b", credentials=(("SCRAM-SHA-512", 100_000),)),
    ]
    one = ScramUser(user="one", credentials=(("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 16_384)))
    seen = pair.read({"a": "one", "b": "one"})
    assert seen == Limits(users=(one,))
    assert "--entity-name one" in " ".join(limits.commands(seen, servers="t:1"))


def test_target_that_lets_nobody_in_by_scram_is_named_where_users_are_lacked(pair: Pair) -> None:
    pair.target.configs_of_brokers["sasl.enabled.mechanisms"] = "GSSAPI"
    assert pair.read().notes == ()
    pair.source.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 4096),))]
    (note,) = pair.read().notes
    assert "enable no SCRAM mechanism (sasl.enabled.mechanisms: GSSAPI)" in note
    pair.target.configs_of_brokers["listener.name.client.sasl.enabled.mechanisms"] = None
    assert pair.read().notes == ()


def test_what_cannot_be_read_is_named_and_the_rest_is_compared(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied() -> Any:
        raise NotAuthorized("target", "DescribeConfigs", "cluster (quotas)")

    monkeypatch.setattr(pair.target, "quotas", denied)
    pair.source.client_quotas = [quota(user="app")]
    pair.source.users = [ScramUser(user="app", credentials=())]
    seen = pair.read()
    assert (seen.missing, [user.user for user in seen.users or ()]) == ((), ["app"])
    assert seen.unknown == (
        "client quotas of the target cannot be read: target: not authorized: DescribeConfigs on cluster (quotas)",
    )


def test_commands_are_of_kafkas_own_tool_and_new_passwords_are_comments() -> None:
    name = "it's\nodd"
    some = Limits(
        missing=(
            Limit(entity=(("client-id", None), ("user", name)), key="producer_byte_rate", value=1024.0),
            Limit(entity=(("client-id", None), ("user", name)), key="request_percentage", value=12.5),
        ),
        users=(ScramUser(user=name, credentials=(("SCRAM-SHA-512", 8192),)),),
    )
    made, comment = limits.commands(some, servers="t:1")
    words = shlex.split(made)
    start, limited, entity = words[:7], words[7], words[8:]
    assert (
        " ".join(start) == "kafka-configs --bootstrap-server t:1 --command-config admin.properties --alter --add-config"
    )
    assert limited == "producer_byte_rate=1024,request_percentage=12.5"
    assert entity == ["--entity-type", "clients", "--entity-default", "--entity-type", "users", "--entity-name", name]
    assert comment.startswith("# kafka-configs ")
    assert "\n" not in comment
    assert "SCRAM-SHA-512=[iterations=8192,password=NEW]" in comment
