"""What MirrorMaker was configured to do becomes plans and connections, and no option is passed over in silence."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kafka_migration.cli.app import app
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.mirrormaker.options import Outcome
from kafka_migration.plans.load import load_plan
from tests.cli.processes import environment
from tests.kafka_tools import create_topics
from tests.mirrormaker.tables import DOCUMENT, HEADING, tables

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
PREFIXED = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: The sample of Kafka's own distribution.
SAMPLE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "A_host1:9092, A_host2:9092, A_host3:9092",
    "B.bootstrap.servers": "B_host1:9092, B_host2:9092, B_host3:9092",
    "A->B.enabled": "true",
    "A->B.topics": ".*",
    "B->A.enabled": "true",
    "B->A.topics": ".*",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
}
ONE_WAY = {
    "clusters": "west, east",
    "west.bootstrap.servers": "west:9092",
    "east.bootstrap.servers": "east:9092",
    "west->east.enabled": "true",
}


def properties(folder: Path, options: dict[str, str], name: str = "mm2.properties") -> Path:
    path = folder / name
    path.write_text("".join(f"{key} = {value}\n" for key, value in options.items()))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)], env={"COLUMNS": "80"})


def imported(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plan_of(folder: Path, more: dict[str, str], *arguments: object) -> Any:
    (plan,) = imported(properties(folder, ONE_WAY | more), *arguments)["plans"].values()
    return plan


def outcomes(found: Any) -> dict[str, str]:
    return {row["option"]: row["outcome"] for row in found["options"]}


def test_sample_of_kafkas_distribution_becomes_two_plans(tmp_path):
    found = imported(properties(tmp_path, SAMPLE))
    assert {title: plan["name"] for title, plan in found["plans"].items()} == {"A->B": "a-to-b", "B->A": "b-to-a"}
    assert found["plans"]["A->B"]["topic_defaults"] == {"replication_factor": 1}
    assert found["connections"]["kafka_a"] == {"bootstrap.servers": SAMPLE["A.bootstrap.servers"].replace(" ", "")}
    assert outcomes(found).keys() == SAMPLE.keys()
    assert found["plans"]["B->A"]["naming"] == {"prefix": "B", "separator": "."}
    assert "A->B: orders is called A.orders on the target" in " ".join(found["differences"])
    assert "run one of the two" not in " ".join(found["differences"])


def test_of_two_flows_that_keep_names_one_is_to_be_run(tmp_path):
    found = imported(properties(tmp_path, SAMPLE | {"replication.policy.class": IDENTITY}))
    assert "A->B and B->A: run one of the two" in " ".join(found["differences"])


def test_plans_and_connections_are_written_and_are_what_commands_read(tmp_path, monkeypatch):
    secret = "p\"a\\ss'$w"
    jaas = secret.replace("\\", "\\\\").replace('"', '\\"')
    file = tmp_path / "mm2.properties"
    options = ONE_WAY | {
        "west.security.protocol": "SASL_SSL",
        "west.sasl.mechanism": "SCRAM-SHA-512",
        "west.sasl.jaas.config": f'{SCRAM} required username="mirror" password="{jaas}";',
        "west.ssl.truststore.type": "PEM",
        "west.ssl.truststore.location": "/etc/ca.pem",
        "tasks.max": "7",
    }
    # Java reads a backslash as an escape.
    file.write_text("".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in options.items()))
    done = run(file, "--write", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert secret not in done.output
    assert jaas not in done.output
    plan = load_plan(tmp_path / "out" / "west-to-east.yaml")
    assert (plan.source, plan.target, plan.mirror.num_streams) == ("kafka_west", "kafka_east", 7)
    variables = tmp_path / "out" / "connections.env"
    assert stat.S_IMODE(variables.stat().st_mode) == 0o600
    shell = ["sh", "-c", f'. "{variables}" && env -0']
    env = dict(
        line.split("=", 1) for line in subprocess.check_output(shell, text=True).split("\0") if "AIRFLOW_CONN" in line
    )
    source = find_connection(plan.source, env)
    assert source.properties["sasl.password"] == secret
    assert source.properties["ssl.ca.location"] == "/etc/ca.pem"
    assert find_connection(plan.target, env).servers == "east:9092"
    again = run(file, "--write", tmp_path / "out")
    assert again.exit_code == 2
    assert "File exists" in again.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["connections.env", "west-to-east.yaml"]


def test_selection_is_what_mirrormaker_would_have_copied(tmp_path):
    plan = plan_of(tmp_path, {"west->east.topics": "orders\\\\..*, payments", "topics.exclude": "orders\\\\.old"})
    topics = load(tmp_path, plan).topics
    names = "orders.eu", "payments", "orders.old", "__consumer_offsets", ".hidden", "orders.x.internal", "heartbeats"
    assert topics.select(names) == ("orders.eu", "payments")
    every = load(tmp_path, plan_of(tmp_path, {"replication.policy.separator": "_"}))
    left_out = ("east_orders", "north_east_orders", "west_heartbeats", "mm2-offset-syncs_east_internal", "x-internal")
    found = every.topics.select(("orders", "east.orders", "patient.heartbeats", "least_orders", *left_out))
    assert found == ("east.orders", "least_orders", "orders", "patient.heartbeats")
    none = load(tmp_path, plan_of(tmp_path, {"replication.policy.separator": "", "topics": "east-.*"}))
    assert none.topics.select(("east-orders", "orders")) == ("east-orders",)
    assert every.groups.select(("app", "console-consumer-7", "connect-sink", "__x")) == ("app",)
    assert every.mirror.follow_new_topics
    assert every.mirror.start == "earliest"
    assert every.topic_defaults.replication_factor == "source"


def load(folder: Path, plan: Any) -> Any:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return load_plan(path)


def test_identity_policy_is_naming_identity_and_excludes_no_prefix(tmp_path):
    options = ONE_WAY | {"replication.policy.class": IDENTITY, "refresh.topics.enabled": "false"}
    found = imported(properties(tmp_path, options))
    plan = load(tmp_path, found["plans"]["west->east"])
    assert plan.topics.matches("east.orders")
    assert not plan.mirror.follow_new_topics
    assert outcomes(found)["replication.policy.class"] == "taken"
    assert plan.topic_names.are_same
    assert "is called" not in " ".join(found["differences"])


def test_default_policy_is_a_prefix_and_one_of_somebody_elses_has_no_counterpart(tmp_path):
    options = ONE_WAY | {"replication.policy.class": PREFIXED, "replication.policy.separator": "_"}
    found = imported(properties(tmp_path, options))
    assert load(tmp_path, found["plans"]["west->east"]).topic_names.on_target("orders") == "west_orders"
    assert outcomes(found)["replication.policy.class"] == outcomes(found)["replication.policy.separator"] == "taken"
    own = imported(properties(tmp_path, ONE_WAY | {"replication.policy.class": "com.example.Policy"}))
    assert "naming" not in own["plans"]["west->east"]
    assert outcomes(own)["replication.policy.class"] == "no counterpart"


@pytest.mark.parametrize("before", [True, False])
def test_option_of_a_flow_goes_before_that_of_all_wherever_it_stands(tmp_path, before):
    own, of_all = {"west->east.tasks.max": "3"}, {"tasks.max": "9"}
    assert plan_of(tmp_path, own | of_all if before else of_all | own)["mirror"]["num_streams"] == 3


def test_alias_that_begins_another_one_is_not_taken_for_it(tmp_path):
    options = {
        "clusters": "eu, eu.west",
        "eu.bootstrap.servers": "eu:9092",
        "eu.west.bootstrap.servers": "west:9092",
        "eu->eu.west.enabled": "true",
        "eu->eu.west.topics": "orders",
    }
    found = imported(properties(tmp_path, options))
    assert found["plans"]["eu->eu.west"]["topics"]["include"] == ["orders"]
    assert found["connections"] == {
        "kafka_eu": {"bootstrap.servers": "eu:9092"},
        "kafka_eu_west": {"bootstrap.servers": "west:9092"},
    }
    assert set(outcomes(found).values()) == {"taken"}


def test_flow_that_is_not_enabled_and_clusters_without_a_flow_are_ignored(tmp_path):
    options = ONE_WAY | {
        "clusters": "west, east, spare",
        "spare.bootstrap.servers": "spare:9092",
        "east->west.enabled": "false",
        "east->west.topics": "x",
    }
    found = imported(properties(tmp_path, options))
    assert list(found["plans"]) == ["west->east"]
    assert sorted(name for name, outcome in outcomes(found).items() if outcome == "ignored") == [
        "east->west.enabled",
        "east->west.topics",
        "spare.bootstrap.servers",
    ]


@pytest.mark.parametrize(
    ("option", "value", "outcome", "note"),
    [
        ("sync.topic.acls.enabled", "true", "no counterpart", "`access PLAN`"),
        ("sync.topic.acls.enabled", "false", "not needed", "no ACL is made without"),
        ("sync.topic.configs.enabled", "false", "no counterpart", "after `restore`"),
        ("west->east.transforms.mask.type", "Mask", "no counterpart", "under `handlers`"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter", "no counterpart", "copied as bytes"),
        ("topic.filter.class", "com.example.Mine", "no counterpart", "patterns"),
        ("errors.tolerance", "all", "no counterpart", "halts"),
        ("replication.factor", "-1", "not needed", "on the source"),
        ("east.topics", "x", "ignored", "not of a cluster"),
        ("frobnicate", "1", "ignored", "no option of this name"),
        ("producer.linger.ms", "5", "ignored", "behind a cluster or a flow"),
        ("east.producer.linger.ms", "5", "not needed", "tunes"),
        ("east.consumer.auto.offset.reset", "latest", "ignored", "reads the source alone"),
        ("west.sasl.kerberos.service.name", "kafka", "ignored", "PLAINTEXT"),
        ("west.sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "not needed", "keytab"),
        ("west.consumer.client.id", "${file:/etc/secret:id}", "to do", "config provider"),
        ("west.bootstrap.servers", "west:9092", "taken", "kafka_west: bootstrap.servers"),
        ("west.request.timeout.ms", "9000", "taken", "socket.timeout.ms"),
        ("west.consumer.bootstrap.servers", "west:9092", "not needed", "the same as west.bootstrap.servers"),
        ("west.admin.client.id", "one", "taken", "kafka_west: client.id"),
        ("bootstrap.servers", "west:9092", "no counterpart", "east.bootstrap.servers counts"),
        ("config.providers", "file", "to do", "write them in"),
        ("west.consumer.isolation.level", "read_uncommitted", "no counterpart", "aborted"),
        ("west.connections.max.idle.ms", "-1", "no counterpart", "default"),
        ("emit.checkpoints.enabled", "false", "taken", "no groups"),
        ("west.ssl.enabled.protocols", "TLSv1.3", "no counterpart", "negotiates"),
        ("west.ssl.truststore.location", "/etc/ca.jks", "ignored", "PLAINTEXT"),
        ("topics.blacklist", "x", "taken", "topics.exclude"),
    ],
)
def test_each_option_is_named_with_what_became_of_it(tmp_path, option, value, outcome, note):
    found = imported(properties(tmp_path, ONE_WAY | {option: value}))
    (row,) = (row for row in found["options"] if row["option"] == option)
    assert row["outcome"] == outcome, row
    assert note in row["note"]


@pytest.mark.parametrize(
    "name",
    ["west.sasl.jaas.config", "west.ssl.key.password", "west.ssl.keystore.password", "config.providers.v.param.token",
     "west.sasl.oauthbearer.client.credentials.client.secret", "west.ssl.keystore.key"],
)  # fmt: skip
def test_secret_is_shown_nowhere_and_stands_in_no_plan(tmp_path, name):
    options = ONE_WAY | {"west.security.protocol": "SASL_SSL", "west.sasl.mechanism": "GSSAPI", name: "hunter-2"}
    file = properties(tmp_path, options)
    assert "hunter-2" not in run(file).output
    assert "hunter-2" not in run(file, "--json", "--write", tmp_path / "out").output
    assert "hunter-2" not in (tmp_path / "out" / "west-to-east.yaml").read_text()


@pytest.mark.parametrize(
    ("option", "value", "outcome", "note"),
    [
        ("west.sasl.mechanism", "DIGEST-MD5", "no counterpart", "GSSAPI"),
        ("west.ssl.truststore.location", "/etc/trust.jks", "to do", "keytool"),
        ("west.ssl.keystore.key", "MIIE", "to do", "PEM file"),
        ("west.ssl.truststore.password", "${file:/etc/secret:trust}", "not needed", "PEM files"),
        ("west.sasl.jaas.config", f"{SCRAM} required username='a' password='${{env:P}}';", "to do", "sasl.password"),
        ("west.sasl.jaas.config", f"{SCRAM} required username='a' password='b' tokenauth='true';", "no counterpart",
         "tokenauth"),
    ],
)  # fmt: skip
def test_security_that_a_connection_cannot_have_is_named(tmp_path, option, value, outcome, note):
    secure = {"west.security.protocol": "SASL_SSL", "west.sasl.mechanism": "SCRAM-SHA-512"}
    secure["west.sasl.jaas.config"] = f"{SCRAM} required username='a' password='b';"
    found = imported(properties(tmp_path, ONE_WAY | secure | {option: value}))
    (row,) = (row for row in found["options"] if row["option"] == option)
    assert row["outcome"] == outcome, row
    assert note in row["note"]


def test_principal_and_keytab_of_a_login_module_become_the_connections(tmp_path):
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        ' keyTab="/etc/security/mm.keytab" principal="mm@EXAMPLE.COM";'
    )
    options = {
        "west.security.protocol": "SASL_SSL",
        "west.sasl.mechanism": "GSSAPI",
        "west.sasl.kerberos.service.name": "broker",
        "west.sasl.jaas.config": login,
    }
    found = imported(properties(tmp_path, ONE_WAY | options))
    assert {name: outcomes(found)[name] for name in options} == dict.fromkeys(options, "taken")
    assert found["connections"]["kafka_west"] == {
        "bootstrap.servers": "west:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.kerberos.principal": "mm@EXAMPLE.COM",
        "sasl.kerberos.keytab": "/etc/security/mm.keytab",
    }


def test_login_in_a_file_of_the_jvms_is_left_to_do(tmp_path):
    options = {"west.security.protocol": "SASL_SSL", "west.sasl.mechanism": "GSSAPI"}
    found = imported(properties(tmp_path, ONE_WAY | options))
    (row,) = (row for row in found["options"] if row["option"] == "west.sasl.mechanism")
    assert row["outcome"] == "to do"
    assert "sasl.kerberos.keytab" in row["note"]


@pytest.mark.parametrize(
    "name",
    [
        "west.sasl.jass.config",
        "value.converter.basic.auth.user.info",
        "west->east.transforms.mask.key",
        "topics.exlude",
    ],
)
def test_value_of_what_may_be_a_secret_is_not_shown(tmp_path, name):
    assert "hunter-2" not in run(properties(tmp_path, ONE_WAY | {name: "hunter-2"}), "--json").output


def test_user_of_a_url_is_shown_nowhere(tmp_path):
    options = ONE_WAY | {
        "west.security.protocol": "SASL_SSL",
        "west.sasl.mechanism": "OAUTHBEARER",
        "west.ssl.truststore.location": "/etc/trust.jks",
        "west.sasl.oauthbearer.token.endpoint.url": "https://u:hunter-2@id.example/token",
    }
    file = properties(tmp_path, options)
    assert "hunter-2" not in run(file, "--json").output + run(file).output


def test_nothing_that_was_written_becomes_more_than_a_comment_of_the_plan(tmp_path):
    block = "\napprovals:\n  plan: false\n  signed: false\n#"
    prefix = "org.apache.kafka.connect.mirror.Mirror"
    for end in ("\n", "\x85", "\u2028", "\r"):
        options = {
            "connector.class": f"{prefix}SourceConnector",
            "source.cluster.alias": "west",
            "target.cluster.alias": "east",
            "source.cluster.bootstrap.servers": "west:9092",
            "source.cluster.security.protocol": "SSL",
            "source.cluster.ssl.truststore.location": f"x.jks{block.replace(chr(10), end)}",
            "target.cluster.bootstrap.servers": "east:9092",
            f"transforms.x{block.replace(chr(10), end)}": "y",
        }
        file = tmp_path / "source.json"
        file.write_text(json.dumps(options))
        folder = tmp_path / f"out{ord(end)}"
        assert run(file, "--write", folder).exit_code == 0
        plan = load_plan(folder / "west-to-east.yaml")
        assert plan.approvals.plan
        assert plan.approvals.signed


def test_what_would_be_copied_twice_or_not_at_all_is_refused(tmp_path):
    file = properties(tmp_path, ONE_WAY)
    other = properties(tmp_path, ONE_WAY | {"topics": "logs"}, "other.properties")
    assert "two MirrorMakers" in run(file, other).output
    common = {"source.cluster.alias": "west", "target.cluster.alias": "east"}
    common |= {f"{side}.cluster.bootstrap.servers": f"{side}:9092" for side in ("source", "target")}
    connectors = {
        name: {"info": {"config": common | {"connector.class": f"Mirror{kind}Connector", "topics": name, **more}}}
        for name, kind, more in (
            ("orders", "Source", {}),
            ("logs", "Source", {}),
            ("off", "Source", {"enabled": "false"}),
            ("offsets", "Checkpoint", {}),
        )
    }
    connectors["sink"] = {"info": {"config": {"connector.class": "S3Sink"}}}
    path = tmp_path / "connectors.json"

    def of(*names: str) -> Result:
        path.write_text(json.dumps({name: connectors[name] for name in names}))
        return run(path, "--json")

    assert "two MirrorMakers" in of("orders", "logs").output
    assert "no source connector" in of("offsets").output
    assert "no source connector" in of("off", "offsets").output
    assert of("sink").exit_code == 2
    found = json.loads(of("orders", "off", "sink", "offsets").stdout)
    assert found["plans"]["west->east"]["topics"]["include"] == ["orders"]
    assert "left out: sink" in " ".join(found["differences"])


@pytest.mark.parametrize(
    ("option", "value"),
    [("topics", "${file:/etc/mm:topics}"), ("topics", "[a-z&&[^b]]+"), ("groups.exclude", "(?i)app,other"),
     ("clusters", "${env:CLUSTERS}"), ("west.consumer.auto.offset.reset", "${env:RESET}")],
)  # fmt: skip
def test_value_that_would_mean_something_else_is_refused_by_its_option(tmp_path, option, value):
    done = run(properties(tmp_path, ONE_WAY | {option: value}))
    assert done.exit_code == 2
    assert option in done.output


def test_option_that_another_one_goes_before_is_not_said_to_be_taken(tmp_path):
    options = ONE_WAY | {
        "tasks.max": "9",
        "west->east.tasks.max": "3",
        "topics.blacklist": "x",
        "topics.exclude": "y",
        "west->east.source.cluster.bootstrap.servers": "w2:9092",
        "west->east.consumer.auto.offset.reset": "latest",
        "west.consumer.auto.offset.reset": "earliest",
    }
    found = imported(properties(tmp_path, options))
    assert found["plans"]["west->east"]["mirror"]["start"] == "earliest"
    assert found["connections"]["kafka_west"] == {"bootstrap.servers": "west:9092"}
    of = outcomes(found)
    assert (of["tasks.max"], of["topics.blacklist"]) == ("ignored", "ignored")
    assert of["west->east.source.cluster.bootstrap.servers"] == "no counterpart"


def test_files_are_read_as_java_reads_them(tmp_path):
    file = tmp_path / "latin.properties"
    text = "# f\u00fcr\r\nclusters=west,east\r\ntasks.max=2\r\ntasks.max=3\r\n"
    rest = "".join(f"{name}:{value} \r\n" for name, value in ONE_WAY.items() if name != "clusters")
    file.write_bytes((text + rest).encode("latin-1"))
    found = imported(file)
    assert found["plans"]["west->east"]["mirror"]["num_streams"] == 3
    assert [row["outcome"] for row in found["options"] if row["option"] == "tasks.max"] == ["ignored", "taken"]


def test_token_endpoint_and_client_credentials_become_a_connection(tmp_path):
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    options = ONE_WAY | {
        "west.security.protocol": "SASL_SSL",
        "west.sasl.mechanism": "OAUTHBEARER",
        "west.sasl.login.callback.handler.class": handler,
        "west.sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "west.sasl.jaas.config": f"{module} required clientId='mm' clientSecret='s' scope='k' extension_pool='p';",
    }
    assert imported(properties(tmp_path, options))["connections"]["kafka_west"] == {
        "bootstrap.servers": "west:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.oauthbearer.client.id": "mm",
        "sasl.oauthbearer.client.secret": "<hidden>",
        "sasl.oauthbearer.scope": "k",
        "sasl.oauthbearer.extensions": "pool=p",
    }


def test_connectors_of_one_flow_become_one_plan_with_groups_only_where_checkpoints_are_written(tmp_path):
    common = {
        "source.cluster.alias": "west",
        "target.cluster.alias": "east",
        "source.cluster.bootstrap.servers": "west:9092",
        "target.cluster.bootstrap.servers": "east:9092",
    }
    prefix = "org.apache.kafka.connect.mirror.Mirror"
    source = tmp_path / "source.json"
    config = common | {
        "connector.class": f"{prefix}SourceConnector",
        "topics": "orders",
        "tasks.max": 4,
        "source.consumer.auto.offset.reset": "latest",
        "producer.override.linger.ms": 5,
        "sync.topic.acls.enabled": False,
    }
    source.write_text(json.dumps({"name": "mm-source", "config": config}))
    (alone,) = imported(source)["plans"].values()
    assert "groups" not in alone
    assert (alone["topics"]["include"], alone["mirror"]["start"]) == (["orders"], "latest")
    checkpoints = tmp_path / "checkpoints.json"
    config = common | {
        "connector.class": f"{prefix}CheckpointConnector",
        "groups": "app",
        "topics": ".*",
        "tasks.max": 1,
    }
    # As Connect lists its connectors.
    checkpoints.write_text(json.dumps({"mm-checkpoints": {"info": {"config": config}}}))
    found = imported(source, checkpoints)
    (both,) = found["plans"].values()
    assert both["groups"]["include"] == ["app"]
    assert (both["topics"]["include"], both["mirror"]["num_streams"]) == (["orders"], 4)
    assert len(found["options"]) == 10 + 8
    assert outcomes(found)["source.consumer.auto.offset.reset"] == "taken"


def first(folder: Path, consumer: dict[str, str], producer: dict[str, str]) -> list[object]:
    return [
        "--consumer.config",
        properties(folder, {"bootstrap.servers": "old:9092", "group.id": "mm"} | consumer, "consumer.properties"),
        "--producer.config",
        properties(folder, {"bootstrap.servers": "new:9092"} | producer, "producer.properties"),
    ]


def test_mirrormaker_1_is_its_two_files_and_its_command_line(tmp_path):
    files = first(tmp_path, {"auto.offset.reset": "earliest"}, {"acks": "all", "compression.type": "lz4"})
    found = imported(*files, "--whitelist", "'orders.*, logs.*'", "--num.streams", 5, "--abort.on.send.failure", "true")
    (fields,) = found["plans"].values()
    plan = load(tmp_path, fields)
    assert plan.name == "source-to-target"
    # As MirrorMaker 1 copies them, which knows no topics of tools.
    assert plan.topics.select(("orders.eu", "logs.internal", "__consumer_offsets")) == ("logs.internal", "orders.eu")
    assert (plan.mirror.num_streams, plan.mirror.start, plan.groups.include) == (5, "earliest", ())
    assert plan.mirror.follow_new_topics
    assert outcomes(found) == {
        "bootstrap.servers": "taken",
        "group.id": "not needed",
        "auto.offset.reset": "taken",
        "acks": "not needed",
        "compression.type": "not needed",
        "include": "taken",
        "num.streams": "taken",
        "abort.on.send.failure": "not needed",
    }
    unsaid = imported(*first(tmp_path, {}, {}), "--include", "x", "--message.handler", "com.example.Mask")
    assert unsaid["plans"]["source->target"]["mirror"]["start"] == "earliest", "its default counted at its first start"
    assert "Everything that is there is copied" in " ".join(unsaid["differences"])
    assert outcomes(unsaid)["message.handler"] == "no counterpart"
    later = imported(*first(tmp_path, {"auto.offset.reset": "latest"}, {}), "--include", "x")
    assert later["plans"]["source->target"]["mirror"]["start"] == "latest"
    assert "only what is written from now on" in " ".join(later["differences"])


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ({"clusters": "west"}, "clusters", "--consumer.config"),
        ({"west->east.enabled": "no"}, "west->east.enabled", "true"),
        ({"west.bootstrap.servers": "west"}, "bootstrap.servers", "host:9092"),
        ({"tasks.max": "many"}, "tasks.max", "digits"),
        ({"tasks.max": "5000"}, "tasks.max", ""),
        ({"west->east.topics": "(?!x).*"}, "west->east.topics", "exclude"),
        ({"west.consumer.auto.offset.reset": "by_duration:PT1H"}, "west.consumer.auto.offset.reset", "mirror.start"),
        ({"west.security.protocol": "SASL_SSL"}, "sasl.mechanism", "use one of"),
    ],
)
def test_what_no_plan_takes_is_refused_by_the_name_of_the_option(tmp_path, options, field, remedy):
    done = run(properties(tmp_path, ONE_WAY | options), "--write", tmp_path / "out")
    assert done.exit_code == 2, done.output
    text = " ".join(done.output.split())
    assert field in text
    assert remedy in text
    assert not (tmp_path / "out").exists()


def test_cluster_that_two_flows_reach_in_two_ways_is_two_connections(tmp_path):
    connectors = [
        {
            "connector.class": "MirrorSourceConnector",
            "source.cluster.alias": alias,
            "target.cluster.alias": "East",
            "source.cluster.bootstrap.servers": f"{alias}:9092",
            "target.cluster.bootstrap.servers": f"SASL://{servers}:9092,",
            "replication.policy.class": IDENTITY,
        }
        for alias, servers in (("west", "east"), ("north", "east"), ("south", "east-2"), ("east", "east"))
    ]
    (tmp_path / "all.json").write_text(json.dumps(connectors))
    found = imported(tmp_path / "all.json")
    targets = [plan["target"] for plan in found["plans"].values()]
    assert targets == ["kafka_east", "kafka_east", "kafka_east_2", "kafka_east"]
    assert found["plans"]["east->East"]["source"] == "kafka_east_3", "another alias is another cluster"
    assert found["connections"]["kafka_east_2"] == {"bootstrap.servers": "east-2:9092"}
    assert "a topic of one name can be copied by one of the two alone" in " ".join(found["differences"])
    one = imported(tmp_path / "all.json", "--flow", "south->East", "--name", "from-south")
    assert one["plans"]["south->East"]["name"] == "from-south"
    assert run(tmp_path / "all.json", "--flow", "East->west").exit_code == 2


def test_neither_properties_nor_a_connector_is_refused(tmp_path):
    for name, text in (("a.json", "{"), ("b.json", '{"connector.class": "FileStreamSource"}'), ("c.json", "[1]")):
        (tmp_path / name).write_text(text)
        assert run(tmp_path / name).exit_code == 2
    (tmp_path / "f.json").write_text('{"connector.class": "MirrorSource", "transforms.\\ud800": "x"}')
    assert run(tmp_path / "f.json").exit_code == 2
    (tmp_path / "d.properties").write_text("clusters = \\u12-hunter2")
    done = run(tmp_path / "d.properties")
    assert (done.exit_code, "u12" in done.output) == (2, False), "it may be a piece of a password"
    (tmp_path / "e").write_bytes(b"\xff\xfe")
    assert run(tmp_path / "e").exit_code == 2
    assert run(tmp_path / "absent").exit_code == 2
    assert run().exit_code == 2
    assert run(properties(tmp_path, ONE_WAY), "--include", "x").exit_code == 2


def test_imported_plan_is_what_check_takes_on_real_clusters(source_cluster, target_cluster, tmp_path):
    servers = {"west": source_cluster.bootstrap_servers, "east": target_cluster.bootstrap_servers}
    options = ONE_WAY | {f"{alias}.bootstrap.servers": there for alias, there in servers.items()}
    topic = f"import-{os.urandom(4).hex()}"
    create_topics(servers["west"], {topic: 2})
    file = properties(tmp_path, options | {"west->east.topics": topic, "replication.factor": "1", "groups": ""})
    assert run(file, "--write", tmp_path / "out").exit_code == 0
    words = f". out/connections.env && {sys.executable} -m kafka_migration check out/west-to-east.yaml --json"
    done = subprocess.run(
        ["sh", "-c", words], cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert topic in done.stdout


def test_document_has_the_tables_of_the_code():
    """Written anew by `python -m tests.mirrormaker.tables`."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.partition(HEADING)[2] == tables()
    assert set(re.findall(r"^\| ([a-z ]+) \| .*\|$", text, re.MULTILINE)) >= {str(one) for one in Outcome}
