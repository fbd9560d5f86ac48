"""SCRAM users by a whole command, on brokers behind TLS: who was made logs in, and the password stands nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import ResourceType

from kafka_migration.domain.errors import AuthenticationFailed
from kafka_migration.domain.ledger import JOURNAL_TOPIC
from kafka_migration.groups.hooks import ALLOWED_COMMANDS
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from tests import kafka_tools
from tests.cli import processes
from tests.kafka.guarded import PASSWORDS, Guarded, by_sasl, guarded_cluster
from tests.steps.test_hooks import script
from tests.waiting import wait_until

pytestmark = pytest.mark.long
PASSWORD = "n3w of reader's, =\"x"


@pytest.fixture
def target(tmp_path: Path) -> object:
    with pytest.MonkeyPatch.context() as patch, guarded_cluster(tmp_path, patch) as cluster:
        yield cluster


def test_user_of_the_source_logs_in_on_the_target_with_the_password_that_the_command_printed(
    guarded: Guarded, target: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_tools.create_topics(guarded.cluster.internal_servers, {"shop.orders": 1})
    plan = tmp_path / "shop.yaml"
    plan.write_text(yaml.safe_dump({
        "version": 1, "name": "shop", "source": "here", "target": "there",
        "topics": {"include": [r"shop\..*"]}, "groups": {"include": [r"shop\..*"]},
        "access": {
            "principals": {"User:reader": "User:shop-reader"},
            "users": {"command": ["new-password", "{user}"]},
        },
        "approvals": {"plan": False},
    }))  # fmt: skip
    (tmp_path / "answer").write_text(PASSWORD)
    program = script(tmp_path / "new-password", f'test "$1" = shop-reader && cat {tmp_path}/answer')
    monkeypatch.setenv(ALLOWED_COMMANDS, str(program))
    connections = {
        name: json.dumps({"conn_type": "kafka", "extra": cluster.properties("admin", "SCRAM-SHA-256")})
        for name, cluster in (("here", guarded), ("there", target))
    }

    def km(*words: str, code: int = 0) -> processes.Ended:
        ended = processes.run(
            "access", str(plan), *words, "--debug", connections=connections, directory=tmp_path, code=code
        )
        assert PASSWORD not in ended.out + ended.err
        return ended

    def logs_in(password: str, mechanism: str) -> bool:
        properties = by_sasl(target.authority, target.endpoint, mechanism, "shop-reader", password)
        connection = ClusterConnection("there", {"bootstrap.servers": target.servers, **properties})
        with Cluster("target", connection) as cluster:
            try:
                return bool(cluster.cluster_id())
            except AuthenticationFailed:
                return False

    with guarded.granted(ResourceType.TOPIC, "shop.", "READ"):
        assert "SCRAM users that get new passwords" in km(code=1).out
        made = km("--apply", "--yes", "--json").json
        credentials = [["SCRAM-SHA-256", 4096], ["SCRAM-SHA-512", 4096]]
        assert made["scram_users"] == [{"user": "shop-reader", "credentials": credentials}]
        assert len(made["acls"]) == 1
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            wait_until(lambda by=mechanism: logs_in(PASSWORD, by), f"the new password by {mechanism}")
            assert not logs_in(PASSWORDS["reader"], mechanism)
        state = kafka_tools.read_all(target.cluster.internal_servers, {JOURNAL_TOPIC: 1})
        assert sum(map(len, state.values())) > 0
        assert PASSWORD not in str(state)
        km()
        km("--undo", "--yes")
        wait_until(lambda: not logs_in(PASSWORD, "SCRAM-SHA-512"), "nobody logs in any more")
