"""The command `fence`, and what preflight shows of a plan with producers: over a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from kafka_migration.approvals.evidence import verdicts
from kafka_migration.domain.checks import Gate, Verdict
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.types import TopicSpec
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import WRITES
from kafka_migration.fence.record import FenceState
from kafka_migration.inventory import permissions, preflight
from kafka_migration.link import lifecycle
from kafka_migration.migration.history import KIND
from kafka_migration.overview import status
from kafka_migration.plans.model import Plan
from kafka_migration.steps import fence as step
from kafka_migration.steps import release, report
from tests.fakes.cluster import FakeCluster
from tests.fence.worlds import FIRST, ORDERS, PAYMENTS, FencedShop
from tests.steps.gates import at_a_terminal


@pytest.fixture
def shop() -> FencedShop:
    return FencedShop()


@pytest.fixture
def km(shop: FencedShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `fence PLAN` with options."""
    return partial(at_a_terminal(shop, tmp_path, monkeypatch), "fence")


def test_fence_is_applied_shown_and_lifted(km: Callable[..., Result], shop: FencedShop) -> None:
    assert "no fence was ever applied" in km("--status").stdout
    done = km()
    assert (done.exit_code, "fenced" in done.stdout, "User:web" in done.stdout) == (0, True, True)
    assert shop.denials()
    assert "fenced since" in km("--status").stdout
    shop.source.append(FIRST, 2)
    found = km("--status", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["written"][0]["topic"] == ORDERS
    assert "all 7 ACLs are what they were" in km("--lift").stdout
    assert not shop.denials()
    phases = {name: value["outcome"] for name, value in shop.ctx().journal.all(KIND).items()}
    assert phases == {"fence": "done", "fence lifted": "done"}


def test_half_applied_and_half_lifted_fences_end_with_3(km: Callable[..., Result], shop: FencedShop) -> None:
    shop.fence()
    last = record.read(shop.ctx(), WRITES)
    assert last is not None
    for half in (FenceState.FENCING, FenceState.LIFTING):
        record.write(shop.ctx(), WRITES, replace(last, state=half))
        done = km("--status")
        assert (done.exit_code, f"{half} since" in done.stdout) == (3, True)


def test_standing_fence_is_named_by_status_and_report_and_keeps_topics_from_being_released(shop: FencedShop) -> None:
    lifecycle.note(shop.ctx(), [ORDERS, PAYMENTS], TopicState.MIRRORING)
    step.run(shop.ctx(), environ={})
    line = "fence writes of 2 topics or groups is fenced since"
    assert line in status.read(shop.ctx()).fence
    with pytest.raises(Refused, match="a fence of 2 topics on the source is fenced") as caught:
        release.check(shop.ctx())
    assert "fence --lift" in caught.value.remedy
    # Behind the seal they are to stay away.
    for one in (TopicState.DRAINED, TopicState.SEALED):
        lifecycle.note(shop.ctx(), [ORDERS], one)
    assert release.check(shop.ctx()) == ()
    assert any(line in text for text in report.build(shop.ctx())["exceptions"])


@pytest.mark.parametrize("option", ["--check", "--dry-run"])
def test_look_before_it_changes_nothing_and_shows_whom_it_would_deny(
    km: Callable[..., Result], shop: FencedShop, option: str
) -> None:
    done = km(option, "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["fenced"], found["dry_run"], len(found["denials"])) == (0, False, True, 8)
    assert (shop.source.changes, shop.store.items()) == ([], {})


def test_refused_fence_ends_with_1_and_one_that_is_not_proved_with_3(
    km: Callable[..., Result], shop: FencedShop
) -> None:
    shop.source.fall_behind(2)
    done = km("--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["kind"]) == (3, "CouldNotFindOut")
    shop.source._acls = None
    assert km("--check").exit_code == 1
    done = km()
    assert (done.exit_code, "no authorizer" in done.stderr) == (1, True)
    assert km("--lift", "--status").exit_code == 2


def test_preflight_shows_the_checks_of_a_plan_with_producers(shop: FencedShop) -> None:
    found = {it.name: it for it in preflight.check(shop.ctx(), environ={}).gate.results}
    assert found["fence: probe"].verdict is Verdict.PASS
    assert found["fence: none stands"].verdict is Verdict.PASS
    shop.fence()
    found = {it.name: it for it in preflight.check(shop.ctx(), environ={}).gate.results}
    assert found["fence: none stands"].verdict is Verdict.WARN
    with shop.source.failing("acls", CouldNotFindOut("no answer")):
        found = {it.name: it for it in preflight.check(shop.ctx(), environ={}).gate.results}
    assert found["fence: principals to deny"].verdict is Verdict.UNCHECKED


def test_preflight_shows_whether_clients_can_be_kept_off_the_target(shop: FencedShop) -> None:
    plan = shop.plan(producers={"target_fence": {"probe": "probe"}, "target_closed": True})
    found = {it.name: it for it in preflight.check(shop.ctx(plan=plan), environ={}).gate.results}
    assert {name for name in found if name.startswith("target: fence")} == {
        "target: fence: none stands",
        "target: fence: principals to deny",
        "target: fence: may change ACLs",
        "target: fence: the migration's own principal",
        "target: fence: super users",
        "target: fence: probe",
    }
    assert not shop.store.items()


def test_facts_about_the_target_are_the_same_before_its_topics_are_created_and_after(shop: FencedShop) -> None:
    """`create` that died behind its topics is run again, under the approval that it had."""
    ctx = shop.ctx(producers={"target_fence": {"probe": "probe"}, "target_closed": True})
    ctx.source = FakeCluster("source")  # type: ignore[assignment]
    ctx.source.create_topics([TopicSpec(name="shop.new", partitions=1, replication_factor=1)])
    before = Gate.of("before", fence.check_target(ctx))
    (probe,) = (check for check in before.results if check.name == "target: fence: probe")
    assert (probe.verdict, "1 topics are not on the target yet" in probe.evidence) == (Verdict.WARN, True)
    shop.source.add_topic("shop.new")
    after = Gate.of("after", fence.check_target(ctx))
    assert {check.verdict for check in after.results} == {Verdict.PASS}
    assert verdicts(before) == verdicts(after)


def test_hook_that_may_not_run_is_refused_before_anything_is_changed(shop: FencedShop) -> None:
    plan = shop.plan(producers={"stop": [{"command": ["/bin/true"]}]})
    found = {it.name: it for it in preflight.check(shop.ctx(plan=plan), environ={}).gate.results}
    assert found["hook producers.stop[0]"].verdict is Verdict.FAIL
    with pytest.raises(Refused, match="is not allowed here"):
        step.run(shop.ctx(plan=plan), environ={})
    assert (shop.source.changes, shop.store.items()) == ([], {})


def test_hooks_run_before_the_fence_and_after_it_is_lifted(shop: FencedShop, tmp_path: Path) -> None:
    script = tmp_path / "note"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/notes\n')
    script.chmod(0o755)
    hook = {"command": ["note", "{migration}", "{cluster}", "{phase}"]}
    plan = shop.plan(producers={"stop": [hook], "start": [hook]})
    environ = {"KAFKA_MIGRATION_ALLOWED_COMMANDS": str(script)}
    step.run(shop.ctx(plan=plan), environ=environ)
    step.lift(shop.ctx(plan=plan), environ=environ)
    assert (tmp_path / "notes").read_text().splitlines() == ["shop source fence", "shop source lift"]


def test_acls_are_printed_with_those_that_the_fence_needs(shop: FencedShop) -> None:
    names = permissions.named([ORDERS], [])

    def printed(plan: Plan) -> set[str]:
        return {str(rule) for rule in permissions.rules(plan, "source", names)}

    plan = shop.plan()
    more = printed(plan) - printed(plan.model_copy(update={"producers": None}))
    assert more == {"Alter on cluster kafka-cluster", "DescribeConfigs on cluster kafka-cluster"}
