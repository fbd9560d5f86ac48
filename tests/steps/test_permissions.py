"""The rules that `acls` prints are enough for a whole migration, and each of them is needed for something.

On real brokers whose authorizer denies whatever nobody granted: a password on the source, a certificate on the target,
a principal of its own on each side.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.cli.app import app
from kafka_migration.compare.result import Equality
from kafka_migration.domain import ledger
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import MigrationError, NotAuthorized, Refused
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import translate
from kafka_migration.inventory import inventory, permissions, preflight
from kafka_migration.inventory.facts import Facts
from kafka_migration.inventory.permissions import RIGHTS, On, Rule
from kafka_migration.link import seal, stragglers
from kafka_migration.migration.context import Context, open_context
from kafka_migration.migration.history import phase
from kafka_migration.plans.model import Plan
from kafka_migration.steps import cutover, mirror, report, runner
from kafka_migration.topics import create
from kafka_migration.validation import validate
from kafka_migration.wire.cluster import READ, WRITE, WireCluster
from kafka_migration.wire.selector import Selector
from tests.copy.bench import ThreadRunner
from tests.kafka_tools import ToSend, produce_with, read_all_with
from tests.locked import PRINCIPALS, Locked, all_rules, locked_pair, small_plan
from tests.waiting import wait_until

RECORDS = 600
CLOSED_BY_CLUSTER_RIGHT = {
    ("source", "Describe"): "retention outlasts the copy",
    ("target", "Describe"): "target room",
    ("target", "DescribeConfigs"): "message sizes",
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    with locked_pair(tmp_path_factory.mktemp("locked") / "certificates") as it, pytest.MonkeyPatch.context() as patch:
        for name, value in it.environment().items():
            patch.setenv(name, value)
        yield it


def begun(locked: Locked) -> Plan:
    """A topic with records and a group that has read a third of them; nothing is granted yet."""
    plan = small_plan()
    (topic,), (group,) = plan.topics.include, plan.groups.include
    locked.create("source", topic, partitions=2)
    records = (ToSend(b"%d" % n, b"k%d" % n, n % 2) for n in range(RECORDS))
    produce_with(locked.admin_properties("source"), topic, records)
    locked.commit("source", group, {(topic, 0): 100, (topic, 1): 200})
    return plan


def checked(plan: Plan) -> preflight.Preflight:
    with open_context(plan, to_check=True) as ctx:
        return preflight.check(ctx, environ={})


def named(found: preflight.Preflight) -> dict[str, CheckResult]:
    return {it.name: it for it in found.gate.results}


def copy(plan: Plan) -> Any:
    with open_context(plan, make_state=True) as ctx:
        return mirror.apply(ctx, ThreadRunner(), until_caught_up=True)


def make(plan: Plan) -> None:
    with open_context(plan, make_state=True) as ctx:
        create.apply(ctx)


def denied(ctx: Context) -> list[str]:
    """What the checks of permissions say, now."""
    facts = Facts(ctx)
    found = [check(facts) for name, check in preflight.CHECKS if name.startswith("permissions")]
    assert len(found) == 6
    return [it.evidence for it in found if it.verdict is not Verdict.PASS]


def in_force(plan: Plan) -> None:
    """Rules reach the brokers a moment after they are granted."""
    with open_context(plan, to_check=True) as ctx:
        wait_until(lambda: not denied(ctx), "the rules are in force")


def topics_of(locked: Locked, side: str) -> set[str]:
    """Those that Kafka does not make for itself."""
    return {name for name in locked.admin(side).list_topics(timeout=30).topics if not name.startswith("__")}


class TestNothingMadeYet:
    """Before `create`: the target has neither the plan's topics nor the internal ones. Runs first in this module."""

    @pytest.fixture
    def plan(self, locked: Locked) -> Iterator[Plan]:
        assert topics_of(locked, "target") == set(), "these tests come before all others"
        plan = begun(locked)
        with locked.granted(all_rules(plan)):
            in_force(plan)
            yield plan
        admin = locked.admin("target")
        made = topics_of(locked, "target")
        for future in admin.delete_topics(list(made)).values() if made else ():
            future.result(30)
        wait_until(lambda: not topics_of(locked, "target"), "deleted")

    @pytest.mark.soak
    def test_every_rule_that_is_missing_is_named_before_anything_is_made(self, locked: Locked, plan: Plan) -> None:
        assert checked(plan).gate.is_open
        unnamed, still_open = [], []
        with open_context(plan, to_check=True) as ctx:
            for rule in all_rules(plan):
                with locked.without(rule):
                    wait_until(lambda: denied(ctx), f"{rule} is missed")
                    if denied(ctx) != [f"missing ACLs: {rule}"]:
                        unnamed.append((str(rule), denied(ctx)))
                    if checked(plan).gate.is_open:
                        still_open.append(str(rule))
                wait_until(lambda: not denied(ctx), f"{rule} is in force again")
        assert (unnamed, still_open) == ([], [])
        assert topics_of(locked, "target") == set(), "checking made nothing"

    @pytest.mark.parametrize("topic", sorted(ledger.PARTITIONS))
    def test_internal_topic_is_not_made_without_its_rule(self, locked: Locked, plan: Plan, topic: str) -> None:
        rule = next(it for it in all_rules(plan) if (it.right.operation, it.name) == ("Create", topic))
        with locked.without(rule), pytest.raises(NotAuthorized, match=f"Create on topic {topic}"):
            make(plan)

    def test_topic_is_not_made_without_its_rule(self, locked: Locked, plan: Plan) -> None:
        rule = next(it for it in all_rules(plan) if (it.right.operation, it.right.on) == ("Create", On.TOPICS))
        with locked.without(rule), pytest.raises(Refused, match=f"not authorized: Create on topic {rule.name}"):
            make(plan)

    def test_principals_of_another_plan_are_told_all_that_they_lack(self, locked: Locked, plan: Plan) -> None:
        stranger = begun(locked)
        found = named(checked(stranger))
        (topic,), (group,) = stranger.topics.include, stranger.groups.include
        assert found["permissions on source topics"].evidence == (
            f"missing ACLs: Read, DescribeConfigs on topic {topic}"
        )
        assert found["permissions on source groups"].evidence == f"missing ACLs: Describe on group {group}"
        assert found["permissions on target groups"].evidence == f"missing ACLs: Read on group {group}"
        assert found["permissions on target"].evidence == (
            f"missing ACLs: Create, Read, Write, AlterConfigs on topic {topic};"
            f" Write on transactional id kafka-migration.{stranger.name}"
        )


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_migration_succeeds_with_exactly_the_printed_rules(locked: Locked, tmp_path: Path) -> None:
    plan = begun(locked)
    (topic,), (group,) = plan.topics.include, plan.groups.include
    with locked.granted(all_rules(plan)):
        in_force(plan)
        assert checked(plan).gate.is_open
        make(plan)
        assert copy(plan).halted == ()
        with open_context(plan, make_state=True) as ctx:
            equality = validate.apply(ctx, spark_master="local[1]", reports=tmp_path)
            assert equality.verdict is Equality.EQUAL
            assert sum(it["source_records"] for it in equality.result.as_dict()["partitions"]) == RECORDS
            assert cutover.apply(ctx).exit_code == 0
        with open_context(plan) as ctx:
            for step in ("stop_mirror", "restore", "release"):
                assert runner.run(ctx, step).exit_code == 0, step
            assert report.apply(ctx, tmp_path).report["exceptions"] == []
        assert checked(plan).gate.is_open, "and under way, too"
    there, here = (read_all_with(locked.admin_properties(side), {topic: 2}) for side in ("source", "target"))
    assert sum(map(len, here.values())) == RECORDS
    for tp, rows in there.items():
        assert [row.without_offset() for row in here[tp]] == [row.without_offset() for row in rows]
    moved = locked.committed("target", group)
    for partition, read in ((0, 100), (1, 200)):
        before = [row for row in here[TopicPartition(topic, partition)] if row.offset < moved[topic, partition]]
        assert len(before) == read


class Shut(Exception):
    """A phase says no without an error."""


@pytest.fixture
def under_way(locked: Locked) -> Iterator[Plan]:
    """A migration with everything made, and copied once."""
    plan = begun(locked)
    with locked.granted(all_rules(plan)):
        in_force(plan)
        make(plan)
        copy(plan)
        yield plan


class TestUnderWay:
    """Once everything is made and copied, each rule is still needed by what works with it."""

    def do(self, rule: Rule, plan: Plan, locked: Locked) -> None:
        """Do what needs ``rule``; raises what it is refused with."""
        right = rule.right
        match right.side, right.on, right.operation:
            case "target", On.STATE, "Write" if rule.name == ledger.JOURNAL_TOPIC:
                with open_context(plan, make_state=True) as ctx, phase(ctx, "create_targets"):
                    create.apply(ctx)
            case "target", On.STATE, _ if rule.name == ledger.SEGMENTS_TOPIC:
                with open_context(plan) as ctx:
                    ctx.segments.record({(TopicPartition(plan.topics.include[0], 0), 0): {"verdict": "DIFFERENT"}})
                with open_context(plan) as ctx:
                    ctx.segments.all()
            case "source", On.TOPICS, "DescribeConfigs":
                with open_context(plan) as ctx:
                    inventory.take(ctx)
            case "source", On.GROUPS, "Describe":
                with open_context(plan) as ctx:
                    translate.preview(ctx)
            case "target", On.TOPICS, "AlterConfigs":
                with open_context(plan) as ctx:
                    create.verify(ctx)
            case "target", On.GROUPS, "Read":
                # Nothing is validated here: what the gate needs, the whole migration shows above.
                with open_context(plan, make_state=True) as ctx, patch.object(CutoverGate, "ask", lambda _gate: "open"):
                    moved = cutover.apply(ctx)
                if moved.exit_code:
                    raise Shut(f"cutover is shut: {moved.as_dict()}")
            case _, On.CLUSTER, operation:
                check = CLOSED_BY_CLUSTER_RIGHT[right.side, operation]
                if named(checked(plan))[check].verdict is Verdict.UNCHECKED:
                    raise Shut(f"the gate is shut by the check of {check}")
            case _:
                # Something to copy, or the mirror would have nothing to tell.
                produce_with(locked.admin_properties("source"), plan.topics.include[0], [ToSend(b"one more")])
                copy(plan)

    @pytest.mark.parametrize(("operation", "number"), [("Read", READ), ("Write", WRITE)])
    def test_mirror_that_lacks_a_right_on_its_target_topics_says_so_at_once(
        self, locked: Locked, under_way: Plan, operation: str, number: int
    ) -> None:
        (topic,) = under_way.topics.include
        rights = ("target", On.TOPICS, operation)
        rule = next(it for it in all_rules(under_way) if (it.right.side, it.right.on, it.right.operation) == rights)
        with open_context(under_way, to_check=True) as ctx, locked.without(rule):
            wait_until(lambda: denied(ctx), f"{rule} is missed")
            net = Selector()
            target = WireCluster(net, ctx.target.connection.kafka_python(), "target")
            target.connect()
            names = [topic, *ledger.PARTITIONS]
            assert net.run(lambda: target.refresh(names, operations=True)) == {}
            target.close()
            net.close()
            lacking = [(name, it) for name in names for it in (READ, WRITE) if not target.permits(name, it)]
            assert lacking == [(topic, number)]
            with pytest.raises(NotAuthorized, match=f"{operation} on topic {topic}"):
                copy(under_way)

    # In `make test`: a migration with exactly the rules, and preflight that names each one that is missing.
    @pytest.mark.soak
    @pytest.mark.timeout(1500)
    def test_each_rule_is_needed_by_the_phase_that_uses_it(self, locked: Locked, under_way: Plan) -> None:
        plan = under_way
        superfluous, unnamed, refusals = [], [], dict[str, str]()
        with open_context(plan, to_check=True) as ctx:
            for rule in all_rules(plan):
                if rule.right.operation == "Create":
                    # Once everything is made, it can be taken back.
                    continue
                with locked.without(rule):
                    wait_until(lambda: denied(ctx), f"{rule} is missed")
                    if denied(ctx) != [f"missing ACLs: {rule}"]:
                        unnamed.append((str(rule), denied(ctx)))
                    try:
                        self.do(rule, plan, locked)
                    except (MigrationError, Shut) as error:
                        refusals[str(rule)] = str(error)
                    else:
                        superfluous.append(str(rule))
                wait_until(lambda: not denied(ctx), f"{rule} is in force again")
        assert (superfluous, unnamed) == ([], [])
        assert copy(plan).halted == (), "none of it did any harm"
        unexplained = {rule: why for rule, why in refusals.items() if "not authorized" not in why and "shut" not in why}
        assert unexplained == {}

    def test_records_of_stragglers_are_forwarded_with_the_optional_rules_and_not_without(
        self, locked: Locked, under_way: Plan
    ) -> None:
        rules = permissions.rules(under_way, "target", permissions.names_of(under_way), optional=True)
        with open_context(under_way, make_state=True) as ctx:
            seal.apply(ctx)
            produce_with(locked.admin_properties("source"), under_way.topics.include[0], [ToSend(b"late")])
            with pytest.raises(NotAuthorized, match=f"Write on transactional id kafka-migration.{under_way.name}:str"):
                stragglers.forward(ctx, by="ada")

            def is_forwarded() -> bool:
                with suppress(NotAuthorized):
                    return [one["records"] for one in stragglers.forward(ctx, by="ada")] == [1]
                return False

            with locked.granted(rule for rule in rules if rule.right.on is not On.TOPICS):
                wait_until(is_forwarded, "forwarded, once the rules are in force")


class TestPrinted:
    """What the command prints."""

    PLAN = "version: 1\nname: shop\nsource: a\ntarget: b\ntopics: {include: [orders, 'shop\\..*']}\n"

    def run(self, tmp_path: Path, *words: str, plan: str = PLAN) -> Any:
        file = tmp_path / "shop.yaml"
        file.write_text(plan, encoding="utf-8")
        return CliRunner().invoke(app, ["acls", str(file), *words], env={"COLUMNS": "80"})

    def test_commands_grant_what_the_table_says(self, tmp_path: Path) -> None:
        lines = self.run(tmp_path, "--principal", "User:CN=mover, O=Shop").stdout.splitlines()
        found = [shlex.split(line) for line in lines if line.startswith("kafka-acls ")]
        assert found[0] == [
            *("kafka-acls", "--bootstrap-server", "$SOURCE_SERVERS", "--command-config", "admin.properties", "--add"),
            *("--allow-principal", "User:CN=mover, O=Shop", "--operation", "Read", "--operation", "DescribeConfigs"),
            *("--topic", "orders"),
        ]
        options = [words[words.index("--operation") :] for words in found]
        assert options[1][-4:] == ["--resource-pattern-type", "prefixed", "--topic", "shop."]
        assert ["--operation", "Write", "--transactional-id", "kafka-migration.shop"] in options
        granted = sum(words.count("--operation") * max(1, words.count("--topic")) for words in found)
        needed, way_back, cancel = 2 * 2 + 1 + 4 * 2 + 4 * len(ledger.PARTITIONS) + 1 + 2, 2 * 2 + 3 + 1 + 1, 2
        access = 1 + 2
        assert granted == needed + way_back + cancel + 4 + access
        assert options[-2][-2:] == ["--topic", ledger.STRAGGLERS_TOPIC]
        assert found[-1][-4:] == ["--resource-pattern-type", "prefixed", "--transactional-id", "kafka-migration.shop:"]

    def test_json_holds_every_rule_of_one_side(self, tmp_path: Path) -> None:
        value = json.loads(self.run(tmp_path, "--principal", "User:mover", "--side", "source", "--json").stdout)
        assert {(it["resource"], it["pattern"], it["operation"]) for it in value["rules"]} == {
            ("orders", "LITERAL", "READ"),
            ("orders", "LITERAL", "DESCRIBE_CONFIGS"),
            ("shop.", "PREFIXED", "READ"),
            ("shop.", "PREFIXED", "DESCRIBE_CONFIGS"),
            ("kafka-cluster", "LITERAL", "DESCRIBE"),
        }
        assert {it["side"] for it in value["rules"]} == {"source"}

    def test_target_is_granted_what_it_calls_the_topics(self, tmp_path: Path) -> None:
        plan = self.PLAN + "naming: {prefix: west, topics: {orders: eu-orders}}\n"
        words = ("--principal", "User:mover", "--side")
        value = json.loads(self.run(tmp_path, *words, "target", "--json", plan=plan).stdout)
        topics = {(rule["resource"], rule["pattern"]) for rule in value["rules"] if rule["operation"] == "WRITE"}
        assert {("eu-orders", "LITERAL"), ("west.shop.", "PREFIXED")} <= topics
        assert not {"orders", "shop."} & {name for name, _ in topics}
        assert '"orders"' in self.run(tmp_path, *words, "source", "--json", plan=plan).stdout
        part = plan.replace("orders: eu-orders", "shop.old: eu-old")
        assert "naming.topics" in self.run(tmp_path, *words, "target", plan=part).stderr

    @pytest.mark.parametrize("pattern", ["orders.new", "(orders|payments)", "shop.*"])
    def test_pattern_that_no_rule_can_say_is_refused(self, tmp_path: Path, pattern: str) -> None:
        plan = self.PLAN.replace("orders", f"'{pattern}'")
        ended = self.run(tmp_path, "--principal", "User:mover", plan=plan)
        if pattern == "shop.*":
            assert ended.exit_code == 0, "a prefix without a dot"
            return
        assert ended.exit_code == 2
        assert "topics.include[0]" in ended.stderr
        assert "--names" in ended.stderr

    def test_prefix_with_an_exclusion_is_refused(self, tmp_path: Path) -> None:
        plan = self.PLAN.replace("'shop\\..*']", "'shop\\..*'], exclude: ['shop\\.secret']")
        ended = self.run(tmp_path, "--principal", "User:mover", plan=plan)
        assert ended.exit_code == 2
        assert "excluded" in ended.stderr

    def test_principal_without_a_type_is_refused(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "--principal", "mover").exit_code == 2

    def test_names_are_those_that_the_source_shows(
        self, locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = begun(locked)
        text = self.PLAN.replace("source: a", "source: locked_source").replace("target: b", "target: locked_target")
        text = text.replace("[orders, 'shop\\..*']", f"['{plan.name}.(orders|x)']")
        with locked.granted(all_rules(plan)):
            in_force(plan)
            ended = self.run(tmp_path, "--principal", f"User:{PRINCIPALS['source']}", "--names", plan=text)
        assert ended.exit_code == 0, ended.stderr
        assert f"--topic {plan.name}-orders" in ended.stdout


def test_documented_table_is_the_one_in_the_code() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (source|target) \| (.*?) \| (\w+) \| (.*?) \|$", text, re.MULTILINE)
    assert documented == [(it.side, str(it.on), it.operation, it.why) for it in RIGHTS]
    assert all(topic.split(".")[1] in text for topic in ledger.PARTITIONS)


def test_every_row_says_what_it_is_for_and_stands_once() -> None:
    assert len({(it.side, it.on, it.operation) for it in RIGHTS}) == len(RIGHTS)
    assert all(it.why for it in RIGHTS)
    assert {it.code for it in RIGHTS} == {"CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}


def test_transactional_id_is_the_links_own() -> None:
    from kafka_migration.state.link import LinkState
    from kafka_migration.state.store import MemoryStore

    plan = small_plan()
    assert permissions.transactional_id(plan) == LinkState(plan.name, MemoryStore(), None, None).transactional_id
