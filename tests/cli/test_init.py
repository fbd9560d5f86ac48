"""The command init: a plan that passes check, from what two clusters hold."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest
import yaml

from kafka_migration.cli.commands import init
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.inventory import proposal
from kafka_migration.kafka.errors import BrokerRefused
from kafka_migration.plans.load import load_plan
from tests.cli.conftest import Terminal
from tests.steps.gates import PermissiveCluster

ENDS = ("--source", "a", "--target", "b")
PASSWORD = "hunter2-must-never-be-shown"


@pytest.fixture
def empty(terminal: Terminal) -> Terminal:
    """A terminal whose migration has no plan yet."""
    terminal.plan.unlink()
    return terminal


def consumer(terminal: Terminal, group: str, *topics: str) -> None:
    for topic in topics:
        terminal.shop.source.consumer_commits(group, TopicPartition(topic, 0), 1)


def test_plan_is_of_what_applications_have_and_passes_check(empty: Terminal) -> None:
    tools = ("heartbeats", "us.heartbeats", "mm2-offsets.a.internal", "my-connect-cluster-configs", "_schemas")
    for topic in (*tools, "billing.internal"):
        empty.shop.source.add_topic(topic)
    consumer(empty, "console-consumer-7", "shop.orders")
    consumer(empty, "connect-sink", "shop.orders")
    consumer(empty, "other", "heartbeats")
    consumer(empty, "billing", "shop.payments")
    consumer(empty, "torn", "shop.payments", "_schemas")
    empty.shop.source.join("shares", ["shop.orders"], protocol="share")
    done = empty.run("init", *ENDS)
    assert done.exit_code == 0, done.output
    plan = load_plan(empty.plan)
    assert (plan.name, plan.source, plan.target) == ("shop", "a", "b")
    assert plan.topics.include == (r"shop\.orders", r"shop\.payments")
    assert plan.groups.include == ("billing", r"shop\.app")
    assert plan.waves is None
    assert [hook.wait for hook in (*plan.consumers.stop, *plan.consumers.start)] == [True, True]
    text = empty.plan.read_text()
    assert "# - heartbeats, us.heartbeats: MirrorMaker's own" in text
    assert "# - billing.internal, mm2-offsets.a.internal: internal, by its name" in text
    assert "# - torn: also reads _schemas, which this plan does not mirror" in text
    assert "# - other: reads none of these topics" in text
    assert "# - shares: a share group" in text
    assert "billing  # classic, no members now, lag 99, reads shop.payments" in text
    assert r"- shop\.orders  # 2 partitions" in text
    assert empty.run("check").exit_code == 0
    assert f"written: {empty.plan}" in done.stdout
    assert f"run {empty.plan}" in done.stdout
    assert not list(empty.plan.parent.glob("*.env")), "connections and key are there already"
    assert not empty.shop.target.changes


def test_topic_of_the_target_is_adopted_if_it_is_empty_and_left_out_if_it_holds_records(empty: Terminal) -> None:
    empty.shop.target.add_topic("shop.orders", partitions=2)
    empty.shop.target.add_topic("shop.payments")
    empty.shop.target.append(TopicPartition("shop.payments", 0), 1)
    empty.shop.source.add_topic("wide", partitions=3)
    empty.shop.target.add_topic("wide", partitions=2)
    assert empty.run("init", *ENDS).exit_code == 0
    plan = load_plan(empty.plan)
    assert plan.topics.include == (r"shop\.orders",)
    assert plan.topics.adopt == ("shop.orders",)
    assert "shop.payments: the target has it, with records" in empty.plan.read_text()
    assert empty.run("check").exit_code == 0


def test_topics_get_no_more_replicas_than_the_target_has_brokers(empty: Terminal) -> None:
    empty.shop.source = PermissiveCluster("source", brokers=3)
    empty.shop.source.add_topic("narrow")
    empty.shop.source.create_topics([TopicSpec(name="wide", partitions=1, replication_factor=3, configs={})])
    done = empty.run("init", *ENDS)
    assert done.exit_code == 0, done.output
    plan = load_plan(empty.plan)
    assert plan.topics.include == ("narrow", "wide")
    assert plan.topic_defaults.replication_factor == 1
    assert empty.run("check").exit_code == 0


def test_many_topics_are_parted_into_waves_that_have_each_of_them_once(empty: Terminal) -> None:
    for number in range(150):
        empty.shop.source.add_topic(f"t{number:03d}")
    consumer(empty, "reader", "t000", "t149")
    assert empty.run("init", *ENDS).exit_code == 0
    plan = load_plan(empty.plan)
    assert plan.waves is not None
    assert len(plan.waves.given) > 1
    named = [pattern for wave in plan.waves.given for pattern in wave.topics]
    assert sorted(named) == sorted(plan.topics.include)
    assert sum(bool({"t000", "t149"} & {*wave.topics}) for wave in plan.waves.given) == 1
    assert empty.run("check").exit_code == 0


def test_patterns_that_were_given_stay_and_what_is_left_out_of_them_is_excluded(empty: Terminal) -> None:
    empty.shop.target.add_topic("shop.payments")
    empty.shop.target.append(TopicPartition("shop.payments", 0), 1)
    consumer(empty, "shop.late", "shop.payments")
    assert empty.run("init", *ENDS, "--topic", r"shop\..*", "--group", r"shop\..*").exit_code == 0
    plan = load_plan(empty.plan)
    assert (plan.topics.include, plan.topics.exclude) == ((r"shop\..*",), (r"shop\.payments",))
    assert (plan.groups.include, plan.groups.exclude) == ((r"shop\..*",), (r"shop\.late",))
    assert plan.groups.select(["shop.app", "shop.late", "shop.new"]) == ("shop.app", "shop.new")
    assert "# These match: shop.orders (1 topics)" in empty.plan.read_text()


def test_name_that_is_asked_for_and_left_out_is_no_contradiction(empty: Terminal) -> None:
    empty.shop.target.add_topic("shop.payments")
    empty.shop.target.append(TopicPartition("shop.payments", 0), 1)
    done = empty.run("init", *ENDS, "--topic", r"shop\.payments", "--topic", r"shop\.orders", "--group", "nobody")
    assert done.exit_code == 0, done.output
    plan = load_plan(empty.plan)
    assert plan.topics.include == (r"shop\.orders",)
    assert not plan.groups.include
    assert not plan.consumers.stop


NAMES = ["a: b # c", "two\nlines", "[red]", "- x", "\x1b[31m", "'", "é", "null", "\ufffe", "." * 300, " ", ""]


@pytest.mark.parametrize("group", NAMES)
def test_whatever_a_group_is_called_the_plan_says_nothing_else(group: str, empty: Terminal) -> None:
    consumer(empty, group, "shop.orders")
    assert empty.run("init", *ENDS).exit_code == 0
    plan = load_plan(empty.plan)
    selected = (group,) if 0 < len(group) < 250 else ()
    assert plan.groups.select([group, "another", "two", "lines"]) == selected
    assert "\x1b" not in empty.plan.read_text()
    empty.plan.unlink()
    # And one that is left out, which stands in a comment.
    consumer(empty, group, "shop.orders", "shop.payments")
    assert empty.run("init", *ENDS, "--topic", "shop.orders").exit_code == 0
    assert not load_plan(empty.plan).groups.matches(group)


def test_what_a_person_can_put_right_on_the_target_stays_in_the_plan(
    empty: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: TopicSpec) -> dict[str, str]:
        raise BrokerRefused(f"{spec.name}: policy", code=44, reason="policy")

    monkeypatch.setattr(empty.shop.target, "refused_configs", refuse)
    monkeypatch.setattr(empty.shop.target, "creatable", lambda specs: frozenset())
    done = empty.run("init", *ENDS)
    assert done.exit_code == 1
    assert "the target refuses it: policy" in " ".join(done.stdout.split())
    assert load_plan(empty.plan).topics.include == (r"shop\.orders", r"shop\.payments")


def test_group_that_reads_a_topic_that_is_left_out_is_moved_only_if_it_is_asked_for(empty: Terminal) -> None:
    empty.shop.target.add_topic("shop.payments")
    empty.shop.target.append(TopicPartition("shop.payments", 0), 1)
    consumer(empty, "both", "shop.orders", "shop.payments")
    assert empty.run("init", *ENDS).exit_code == 0
    assert load_plan(empty.plan).groups.include == (r"shop\.app",)
    assert "both: also reads shop.payments, which this plan does not mirror" in empty.plan.read_text()
    empty.plan.unlink()
    assert empty.run("init", *ENDS, "--group", "both").exit_code == 0
    assert load_plan(empty.plan).groups.include == ("both",)
    assert "will not find them: both (shop.payments)" in empty.plan.read_text()


def test_group_that_may_not_be_described_is_left_out_and_the_others_are_not(empty: Terminal) -> None:
    consumer(empty, "closed", "shop.orders")
    refusal = NotAuthorized(cluster="source", operation="Describe", resource="group closed")
    with empty.shop.source.failing("group_states", refusal, on="closed"):
        done = empty.run("init", *ENDS)
    assert done.exit_code == 0, done.output
    assert load_plan(empty.plan).groups.include == (r"shop\.app",)
    assert "closed: the source's principal may not describe it" in empty.plan.read_text()


def test_one_cluster_is_no_source_and_target(empty: Terminal) -> None:
    empty.shop.target = empty.shop.source
    done = empty.run("init", *ENDS)
    assert done.exit_code == 2
    assert "is the cluster of the source" in done.stderr


def test_application_of_streams_stays_in_one_wave_though_it_is_not_moved(empty: Terminal) -> None:
    for number in range(120):
        empty.shop.source.add_topic(f"t{number:03d}")
    empty.shop.source.join("app", ["t000", "t119"], protocol="streams")
    assert empty.run("init", *ENDS).exit_code == 0
    waves = load_plan(empty.plan).waves
    assert waves is not None
    assert [{"t000", "t119"} <= {*wave.topics} for wave in waves.given].count(True) == 1


def test_waves_of_patterns_are_computed_so_that_topics_may_come(empty: Terminal) -> None:
    for number in range(120):
        empty.shop.source.add_topic(f"t{number:03d}")
    assert empty.run("init", *ENDS, "--topic", "t.*").exit_code == 0
    waves = load_plan(empty.plan).waves
    assert waves is not None
    assert waves.auto is not None
    assert empty.run("check").exit_code == 0


def test_plan_that_would_be_too_large_has_no_comments_or_is_refused(
    empty: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal, "LARGEST_PLAN_BYTES", 700)
    assert empty.run("init", *ENDS).exit_code == 0
    assert "partitions" not in empty.plan.read_text()
    empty.plan.unlink()
    monkeypatch.setattr(proposal, "LARGEST_PLAN_BYTES", 100)
    done = empty.run("init", *ENDS)
    assert done.exit_code == 2
    assert "larger than 100 bytes" in done.stderr


def test_producers_that_could_not_be_found_out_are_not_none(empty: Terminal) -> None:
    refusal = NotAuthorized(cluster="source", operation="Read", resource="topic shop.orders")
    with empty.shop.source.failing("producers", refusal):
        empty.run("init", *ENDS)
    assert "Who writes these topics could not be found out." in empty.plan.read_text()


def test_group_that_never_committed_a_partition_is_named(empty: Terminal) -> None:
    consumer(empty, "half", "shop.orders")
    assert empty.run("init", *ENDS).exit_code == 0
    assert "never committed some partitions: half (shop.orders-1)" in empty.plan.read_text()


def test_check_that_fails_is_shown_and_the_plan_is_written_all_the_same(empty: Terminal) -> None:
    empty.shop.source.delete_topic("shop.orders")
    empty.shop.source.add_topic("shop.orders", configs={"retention.ms": "1"})
    empty.shop.source.append(TopicPartition("shop.orders", 0), 10)
    done = empty.run("init", *ENDS)
    assert done.exit_code == empty.run("check").exit_code == 1
    assert "retention outlasts the copy" in done.stdout
    assert empty.plan.exists()


def test_dry_run_shows_the_plan_and_writes_nothing(empty: Terminal) -> None:
    done = empty.run("init", *ENDS, "--dry-run")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["name"] == "shop"
    assert "checks pass" in done.stderr
    assert not list(empty.plan.parent.iterdir())


def test_machine_gets_the_plan_its_checks_and_what_is_next(empty: Terminal) -> None:
    found = empty.json("init", *ENDS)
    assert found["plan"] == yaml.safe_load(empty.plan.read_text())
    assert found["open"] is True
    assert found["written"] == [str(empty.plan)]
    assert [line.split()[-2:] for line in found["next"]] == [["check", str(empty.plan)], ["run", str(empty.plan)]]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--source", "a"), "--target"),
        (("--source", "nobody", "--target", "b"), "nobody"),
        ((*ENDS, "--topic", "nothing"), "--topic"),
        ((*ENDS, "--topic", "("), "--topic"),
        (("--source", "a", "--target", "A"), "--target"),
        ((*ENDS, "--consumers", "magic"), "--consumers"),
        ((*ENDS, "--source-config", "absent.properties"), "--source-config"),
        (("--source", "h:1", "--target", "b", "--source-config", "absent.properties"), "--source-config"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(words: tuple[str, ...], named: str, empty: Terminal) -> None:
    done = empty.run("init", *words)
    assert done.exit_code == 2
    assert named in done.stderr
    assert not list(empty.plan.parent.iterdir())


def test_source_of_which_every_topic_is_left_out_gets_no_plan(empty: Terminal) -> None:
    for topic in ("shop.orders", "shop.payments"):
        empty.shop.source.delete_topic(topic)
    empty.shop.source.add_topic("heartbeats")
    done = empty.run("init", *ENDS)
    assert done.exit_code == 2
    assert "heartbeats: MirrorMaker's own" in done.stderr
    assert not empty.plan.exists()


@pytest.mark.parametrize("name", ["Shop.yaml", "shop.txt", "-shop.yaml"])
def test_file_that_cannot_name_a_migration_is_refused(name: str, empty: Terminal) -> None:
    empty.plan = empty.plan.with_name(name)
    assert empty.run("init", *ENDS).exit_code == 2


def test_nothing_is_written_over(terminal: Terminal) -> None:
    before = terminal.plan.read_text()
    done = terminal.run("init", *ENDS)
    assert done.exit_code == 2
    assert "is there already" in done.stderr
    assert terminal.plan.read_text() == before
    assert not terminal.opened, "before a cluster is asked"


def test_what_stands_in_the_way_is_named_before_a_cluster_is_asked(
    empty: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, key = empty.plan.with_suffix(".env"), empty.plan.with_name("approval.key")
    variables.write_text("")
    assert str(variables) in empty.run("init", *ENDS).stderr
    variables.unlink()
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_MIGRATION_APPROVALS")
    key.write_text("x" * 64)
    key.chmod(0o644)
    assert "others may read" in empty.run("init", *ENDS).stderr
    key.chmod(0o600)
    key.write_text("")
    assert "holds no approval key" in empty.run("init", *ENDS).stderr
    key.unlink()
    key.symlink_to("absent")
    assert empty.run("init", *ENDS).exit_code == 2
    key.unlink()
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_SOURCE", "kafka://other")
    done = empty.run("init", "--source", "h:1", "--target", "b")
    assert "AIRFLOW_CONN_SHOP_SOURCE" in done.stderr
    empty.plan = empty.plan.with_name(f"{'a' * 300}.yaml")
    assert empty.run("init", *ENDS).exit_code == 2
    assert not empty.opened


def test_client_properties_are_taken_as_javas_clients_take_them_and_never_shown(empty: Terminal) -> None:
    file = empty.plan.with_name("client.properties")
    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\nretries=3\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    done = empty.run("init", "--source", "h:1", "--source-config", str(file), "--target", "b")
    assert done.exit_code == 0, done.output
    assert "no use for retries" in done.stderr
    extra = json.loads(empty.plan.with_suffix(".env").read_text().partition("'")[2].rpartition("'")[0])["extra"]
    assert extra["ssl.ca.location"] == str(Path("ca.pem").absolute())
    assert extra["ssl.endpoint.identification.algorithm"] == "none"
    for path in (empty.plan, empty.plan.with_suffix(".env")):
        path.unlink()
    for text in ("sasl.password=abc\\user-hunter2", "ssl.keystore.location=k.jks\nsecurity.protocol=SSL"):
        file.write_text(text)
        done = empty.run("init", "--source", "h:1", "--source-config", str(file), "--target", "b")
        assert (done.exit_code, "--source-config" in done.stderr) == (2, True)
        assert "hunter2" not in done.output
        assert "user" not in done.stderr


def test_migration_that_has_begun_gets_no_second_plan(terminal: Terminal) -> None:
    terminal.write_plan(approvals={"plan": False})
    assert terminal.run("create").exit_code == 0
    terminal.plan.unlink()
    done = terminal.run("init", *ENDS)
    assert done.exit_code == 1
    assert "has begun" in done.stderr
    assert not terminal.plan.exists()


def test_address_and_properties_become_a_connection_that_is_for_its_owner_alone(
    empty: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_MIGRATION_APPROVALS")
    properties = empty.plan.with_name("client.properties")
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="mover" password="{PASSWORD}";\n'
    )
    done = empty.run("init", "--source", "h1:9092,h2:9092", "--source-config", str(properties), "--target", "b")
    assert done.exit_code == 0, done.output
    variables, key = empty.plan.with_suffix(".env"), empty.plan.with_name("approval.key")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (variables, key)} == {0o600}
    named, connection = variables.read_text().splitlines()
    assert connection.startswith("export AIRFLOW_CONN_SHOP_SOURCE='")
    extra = json.loads(connection.partition("'")[2].rstrip("'"))["extra"]
    assert extra["bootstrap.servers"] == "h1:9092,h2:9092"
    assert extra["sasl.password"] == PASSWORD
    assert named == f"export KAFKA_MIGRATION_APPROVAL_KEYS_FILE={key}"
    assert len(key.read_text().strip()) == 64
    assert load_plan(empty.plan).source == "shop_source"
    for text in (done.output, empty.plan.read_text()):
        assert PASSWORD not in text
    assert f". {variables}" in done.stdout
    again = empty.plan.with_name("second.yaml")
    first, empty.plan = key.read_text(), again
    assert empty.run("init", *ENDS).exit_code == 0
    assert key.read_text() == first, "one key is enough"
    assert again.with_suffix(".env").read_text() == f"{named}\n"


def test_person_is_asked_for_what_is_not_given(empty: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "can_be_asked", lambda: True)
    properties = empty.plan.with_name("client.properties")
    properties.write_text("client.id=mover\n")
    answers = ["h1:9092", str(properties), "b", r"shop\.orders, shop\.pay.*", "", "systemd"]
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    done = empty.run("init", input="\n".join(answers) + "\n")
    plan = load_plan(empty.plan)
    assert plan.topics.include == (r"shop\.orders", r"shop\.pay.*")
    assert plan.groups.include == (r"shop\.app",)
    assert plan.consumers.stop[0].command == ("systemctl", "stop", "{group}-{cluster}")
    text = empty.plan.with_suffix(".env").read_text()
    assert "export KAFKA_MIGRATION_ALLOWED_COMMANDS=/usr/bin/systemctl" in text
    assert '"client.id": "mover"' in text
    assert done.stderr.count("patterns") == 2


@pytest.mark.parametrize("how", ["kubernetes", "https://deployer.example/consumers/"])
def test_hooks_are_those_that_were_chosen(how: str, empty: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    empty.run("init", *ENDS, "--consumers", how)
    (stop,), (start,) = load_plan(empty.plan).consumers.stop, load_plan(empty.plan).consumers.start
    allowed = empty.plan.with_suffix(".env").read_text()
    if stop.http:
        assert stop.http.url == "https://deployer.example/consumers/{cluster}/{group}/stop"
        assert allowed == "export KAFKA_MIGRATION_ALLOWED_URLS=https://deployer.example/consumers/\n"
    else:
        assert (stop.command or ())[-1] == "--replicas=0"
        assert (start.command or ())[-1] == "--replicas=1"
        assert allowed == "export KAFKA_MIGRATION_ALLOWED_COMMANDS=/usr/bin/kubectl\n"


def test_what_is_allowed_already_stays_as_it_is(empty: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_MIGRATION_ALLOWED_URLS", "https://deployer.example/")
    assert empty.run("init", *ENDS, "--consumers", "https://deployer.example/consumers").exit_code == 0
    assert not Path(empty.plan.with_suffix(".env")).exists()
