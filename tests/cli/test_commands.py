"""What commands print and how they exit, on a migration in memory."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kafka_migration.cli import asking
from kafka_migration.cli.app import PANELS, app
from kafka_migration.cli.commands import prove
from kafka_migration.cli.render import live
from kafka_migration.copy.driver.mirror import MirrorEnd
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import ClusterUnreachable, NotAuthorized
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.groups.record import Step
from kafka_migration.inventory import preflight
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.link import lag as phase_lag
from kafka_migration.link import reverse
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import join
from kafka_migration.plans.load import load_plan
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import environment, mirror, rollback
from kafka_migration.steps.cutover import CutoverResult, Fate, GroupOutcome
from kafka_migration.topics import create as phase_create
from tests.cli.conftest import Terminal
from tests.steps import histories
from tests.steps.killing import Killed
from tests.steps.test_approvals import mirrored_and_equal

ORDERS = TopicPartition("shop.orders", 0)


def evidence_digest(terminal: Terminal, gate: str) -> str:
    return str(terminal.json("approve", gate, "--show")["digest"])


def answer_to(terminal: Terminal, gate: str) -> list[str]:
    """The words that approve the evidence as it is shown now."""
    shown = terminal.json("approve", gate, "--show")
    return ["approve", gate, "--receipt", shown["receipt"], "--yes"]


def approved(terminal: Terminal, gate: str) -> None:
    result = terminal.run(*answer_to(terminal, gate))
    assert result.exit_code == 0, result.output


# -- look -------------------------------------------------------------------------------------------------------------


def test_check_of_clusters_without_objection_exits_0_and_opens_nothing_for_writing(terminal: Terminal) -> None:
    result = terminal.run("check")
    assert result.exit_code == 0
    for said in ("shop.orders", "retention.ms=604800000", "shop.app", "every check passes"):
        assert said in result.stdout, said
    assert terminal.opened == [{"dry_run": False, "make_state": False}]
    assert terminal.shop.source.changes == terminal.shop.target.changes == []


def test_check_that_warns_does_not_say_that_every_check_passes(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = preflight.check

    def said(verdict: Verdict) -> str:
        result = CheckResult(name="room", verdict=verdict, evidence="enough")
        gate = Gate.of("preflight", [result])
        monkeypatch.setattr(preflight, "check", lambda ctx: replace(check(ctx), gate=gate))
        shown = terminal.run("check")
        assert shown.exit_code == 0
        return shown.stdout.splitlines()[-1]

    assert said(Verdict.WARN) == "no check fails; 1 warns"
    assert said(Verdict.PASS) == "every check passes"


def test_check_that_fails_exits_1_with_the_remedy(terminal: Terminal) -> None:
    terminal.shop.target.add_topic("shop.orders")
    result = terminal.run("check")
    assert result.exit_code == 1
    assert "target topics" in result.stdout
    assert "remedy: delete it there" in result.stdout
    assert "1 checks do not pass" in result.stdout


def test_check_that_cannot_be_run_exits_3(terminal: Terminal) -> None:
    with terminal.shop.source.failing("cluster_id", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        result = terminal.run("check")
    assert result.exit_code == 3
    assert "UNCHECKED" in result.stdout


def test_check_as_json_prints_one_document_and_progress_elsewhere(terminal: Terminal) -> None:
    result = terminal.run("check", "--json")
    value = json.loads(result.stdout)
    assert value["open"] is True
    assert sorted(value["inventory"]["topics"]) == ["shop.orders", "shop.payments"]


def test_waves_shows_sizes_members_and_checks_and_fits_80_columns(terminal: Terminal) -> None:
    given = [
        {"name": "first", "topics": [r"shop\.orders"], "canary": True},
        {"name": "second", "topics": [".*payments"]},
    ]
    terminal.write_plan(waves={"given": given})
    result = terminal.run("waves")
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "first 1 1 200 19.5 KiB 0 0 s 7 d" in rows
    assert "first (canary) shop.orders shop.app" in rows
    assert "shop.payments   none" in result.stdout
    assert "PASS" in result.stdout
    found = terminal.json("waves")
    assert [(wave["name"], wave["topics"], wave["groups"]) for wave in found["waves"]] == [
        ("first", ["shop.orders"], ["shop.app"]),
        ("second", ["shop.payments"], []),
    ]
    assert found["waves"][0]["records_at_most"] == 200
    assert {check["verdict"] for check in found["checks"]} == {"PASS"}
    assert not terminal.shop.store.items()


def test_waves_of_a_plan_without_any_are_one_and_it_is_not_checked(terminal: Terminal) -> None:
    result = terminal.run("waves")
    assert result.exit_code == 0
    assert "(all)" in result.stdout
    assert terminal.json("waves")["checks"] == []


def test_waves_that_tear_a_group_apart_exit_1_and_why_names_what_holds_a_topic(terminal: Terminal) -> None:
    terminal.shop.source.consumer_commits("shop.app", TopicPartition("shop.payments", 0), 1)
    given = [{"name": name, "topics": [rf"shop\.{name}"]} for name in ("orders", "payments")]
    terminal.write_plan(waves={"given": given})
    result = terminal.run("waves")
    assert result.exit_code == 1
    assert "group shop.app spans waves" in " ".join(result.stdout.split())
    why = terminal.run("waves", "--why", "shop.orders")
    assert why.exit_code == 0
    assert "shop.orders, in wave orders, cannot move apart from" in why.stdout
    assert "shop.payments   group shop.app" in why.stdout
    assert "group shop.app   shop.orders, shop.payments" in terminal.run("waves", "--why", "payments").stdout
    assert (
        terminal.json("waves", "--why", "shop.orders")["held_together_with"]["shop.payments"][0]["name"] == "shop.app"
    )


def test_why_of_what_is_neither_topic_nor_wave_is_bad_input(terminal: Terminal) -> None:
    result = terminal.run("waves", "--why", "nothing")
    assert result.exit_code == 2
    assert "--why" in result.stderr
    assert "nothing is neither a topic" in result.stderr


WAVES = {"given": [{"name": "first", "topics": [r"shop\.orders"]}, {"name": "second", "topics": [r"shop\.payments"]}]}


def test_wave_has_an_approval_of_its_own_and_is_not_moved_without(terminal: Terminal) -> None:
    mirrored_and_equal(terminal.shop)
    terminal.shop.has_active_mirror = True
    terminal.write_plan(waves=WAVES)
    refused = terminal.run("cutover", "--wave", "first")
    assert refused.exit_code == 1
    assert "cutover gate of wave first: nobody has approved it yet" in refused.stderr
    assert "approve cutover PLAN --wave first" in refused.stderr
    shown = terminal.json("approve", "cutover", "--wave", "first", "--show")
    assert list(shown["facts"]["groups"]) == ["shop.app"]
    # The mirror goes on for the other wave.
    assert [step.partition(":")[0] for step in shown["next_steps"]] == ["cut_over", "watch_groups"]
    answer = ["approve", "cutover", "--wave", "first", "--receipt", shown["receipt"], "--yes"]
    assert terminal.run(*answer).exit_code == 0
    assert set(terminal.shop.ctx().journal.all("approval")) == {"cutover/first/1-approved"}
    # Its gate is open: what keeps the group is what the mirror has not copied.
    assert "the mirror has not copied up to" in terminal.run("cutover", "--wave", "first").stdout
    assert "cut_over[first]" in terminal.shop.ctx().journal.all("phase")


def test_cutover_and_approval_of_a_whole_plan_with_waves_are_refused_and_a_group_finds_its_wave(
    terminal: Terminal,
) -> None:
    mirrored_and_equal(terminal.shop)
    terminal.shop.has_active_mirror = True
    terminal.write_plan(waves=WAVES, approvals={"cutover": False})
    join(terminal.shop.ctx(waves=WAVES, approvals={"cutover": False}))
    for whole in (("cutover",), ("approve", "cutover", "--show")):
        refused = terminal.run(*whole)
        assert refused.exit_code == 1
        assert "and no wave is named" in refused.stderr
        assert "in the order of the waves (first, second)" in refused.stderr
    dry = terminal.run("cutover", "--dry-run")
    assert "a real run would be refused: plan shop moves its groups by waves" in dry.stderr
    assert "the mirror has not copied up to" in terminal.run("cutover", "--group", "shop.app").stdout
    assert "cut_over[first]" in terminal.shop.ctx().journal.all("phase")


def test_status_shows_where_each_wave_stands(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    terminal.write_plan(waves=WAVES)
    shown = [" ".join(line.split()) for line in terminal.run("status").stdout.splitlines()]
    assert "first waits for an approval - - -" in shown
    assert "second waits for wave first - - -" in shown


def test_computed_waves_are_printed_as_a_section_that_names_the_same_ones(terminal: Terminal) -> None:
    terminal.write_plan(waves={"auto": {"most_topics": 1}, "spanning_groups": ["shop.other"]})
    computed = terminal.json("waves")["waves"]
    section = yaml.safe_load(terminal.run("waves", "--given").stdout)
    assert section == terminal.json("waves", "--given")
    terminal.write_plan(**section)
    given = terminal.json("waves")
    assert [(one["name"], one["topics"], one["groups"], one["canary"]) for one in given["waves"]] == [
        ("canary", ["shop.orders"], ["shop.app"], True),
        ("wave-1", ["shop.payments"], [], False),
    ]
    assert [one["name"] for one in computed] == ["canary", "wave-1"]
    assert section["waves"]["spanning_groups"] == ["shop.other"]


HOOKS = {verb: [{"command": ["/bin/true", verb, "{migration}"]}] for verb in ("stop", "start")}
PRODUCERS = {"fence": {"kind": "none"}, **HOOKS}


def test_plans_of_waves_are_written_each_with_the_topics_and_groups_of_its_wave(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.write_plan(waves=WAVES, producers=PRODUCERS, cutover={"stopped_groups": ["shop.app"], "rest_seconds": 1})
    folder = tmp_path / "by wave"
    assert terminal.json("waves", "--write", str(folder))["written"] == [
        str(folder / name) for name in ("shop-first.yaml", "shop-second.yaml")
    ]
    first, second = (load_plan(folder / f"shop-{wave}.yaml") for wave in ("first", "second"))
    assert (first.topics.include, first.groups.include) == ((r"shop\.orders",), (r"shop\.app",))
    assert (second.topics.include, second.groups.include) == ((r"shop\.payments",), ())
    assert (first.cutover.stopped_groups, second.cutover.stopped_groups) == (("shop.app",), ())
    for plan in (first, second):
        assert (plan.waves, plan.cutover.rest_seconds, plan.producers is not None) == (None, 1, True)
    (folder / "shop-first.yaml").unlink()
    again = terminal.run("waves", "--write", str(folder))
    assert (again.exit_code, "File exists" in again.stderr) == (2, True)
    # All, or none.
    assert [path.name for path in folder.iterdir()] == ["shop-second.yaml"]
    assert terminal.run("waves", "--write", str(folder / "shop-second.yaml")).exit_code == 2
    assert terminal.run("waves", "--write", str(folder), "--given").exit_code == 2
    assert not terminal.shop.store.items()


def test_plan_of_a_wave_calls_its_own_topics_as_the_whole_one_does(terminal: Terminal, tmp_path: Path) -> None:
    for naming, last in (
        ({"topics": {"shop.orders": "orders"}}, "shop.payments"),
        ({"prefix": "west", "topics": {"shop.orders": "orders"}}, "west.shop.payments"),
    ):
        terminal.write_plan(waves=WAVES, producers=PRODUCERS, naming=naming)
        folder = tmp_path / last
        assert terminal.run("waves", "--write", str(folder)).exit_code == 0
        first, second = (load_plan(folder / f"shop-{wave}.yaml").topic_names for wave in ("first", "second"))
        assert (first.on_target("shop.orders"), second.on_target("shop.payments")) == ("orders", last)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({}, 2, "the plan has no waves"),
        ({"waves": WAVES, "producers": {**PRODUCERS, "stop": [{"command": ["/bin/true"]}]}}, 2, "producers.stop[0]"),
        ({"waves": {"given": [{"name": "w" * 60, "topics": [".*"]}]}}, 2, "name"),
        # With waves, `approve producers` is asked of this one; without them, nothing.
        ({"waves": WAVES, "producers": PRODUCERS, "approvals": {"cutover": False}}, 2, "approvals.cutover"),
    ],
)
def test_plans_of_waves_are_not_written_where_one_would_move_what_is_not_its_own(
    fields: dict[str, Any], code: int, message: str, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.write_plan(**fields)
    refused = terminal.run("waves", "--write", str(tmp_path / "plans"))
    assert (refused.exit_code, message in refused.stderr) == (code, True), refused.output
    assert not (tmp_path / "plans").exists()


def test_plans_of_waves_that_share_a_group_or_have_begun_are_not_written(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shop.source.consumer_commits("shop.app", TopicPartition("shop.payments", 0), 1)
    write = ("waves", "--write", str(tmp_path / "plans"))
    terminal.write_plan(waves=WAVES)
    assert (terminal.run(*write).exit_code, (tmp_path / "plans").exists()) == (1, False)
    terminal.write_plan(waves={**WAVES, "spanning_groups": ["shop.app"]})
    assert "group shop.app (first, second)" in terminal.run(*write).stderr
    terminal.write_plan(waves={"auto": {}})
    join(terminal.shop.ctx(waves={"auto": {}}))
    begun = terminal.run(*write)
    assert (begun.exit_code, "has begun as a whole" in begun.stderr) == (1, True)


def test_wave_at_the_gate_of_the_plan_and_one_that_the_plan_lacks_are_bad_input(terminal: Terminal) -> None:
    assert terminal.run("approve", "plan", "--wave", "first").exit_code == 2
    without = terminal.run("cutover", "--wave", "first")
    assert (without.exit_code, "has no waves" in without.stderr) == (2, True)
    terminal.write_plan(waves=WAVES)
    unknown = terminal.run("cutover", "--wave", "third")
    assert (unknown.exit_code, "its waves are first, second" in unknown.stderr) == (2, True)


def test_evidence_of_the_plan_shows_its_waves(terminal: Terminal) -> None:
    terminal.write_plan(waves={"auto": {}})
    result = terminal.run("approve", "plan", "--show")
    assert "Waves, in their order" in result.stdout
    assert "What moves together" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if "sha256" not in line and "receipt" not in line) <= 80


def test_status_of_a_migration_that_has_not_begun_says_where_to_begin(terminal: Terminal) -> None:
    result = terminal.run("status")
    assert result.exit_code == 0
    assert "`check` looks, `create` begins" in result.stdout


def test_status_of_a_migration_in_flight_fits_a_terminal(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    histories.mirroring(terminal.shop)
    histories.validated(terminal.shop)
    histories.moved(terminal.shop, "shop." + "a-very-long-name." * 8)
    link = terminal.shop.ctx().link
    for partition, reason in enumerate(Halt):
        link.halt(TopicPartition("shop.orders", partition), reason, "seen " * 30, 10**12, 10**12, "2030-01-01T00:00:00")
    result = terminal.run("status")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    for said in ("create_targets", "EQUAL", "1 alive", "ada", "CORRUPT", "or exclude it from the plan"):
        assert said in " ".join(result.stdout.split()), said


def test_every_table_fits_80_columns(terminal: Terminal) -> None:
    long = "shop." + "x" * 120
    terminal.shop.source.add_topic(long, configs={"retention.ms": "1" * 18})
    terminal.shop.source.consumer_commits(long, TopicPartition(long, 0), 0)
    for words in (["check"], ["approve", "plan", "--show"], ["create", "--dry-run"]):
        wide = [line for line in terminal.run(*words).stdout.splitlines() if len(line) > 80]
        assert wide == [], words


def test_names_that_look_like_markup_are_shown_as_they_are(terminal: Terminal) -> None:
    terminal.shop.source.consumer_commits("shop.[red]x[/red]", ORDERS, 1)
    assert "shop.[red]x[/red]" in terminal.run("check").stdout


def test_name_of_an_approver_is_no_markup_either(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "answering", lambda: "[bold]ada[/bold]")
    digest = evidence_digest(terminal, "plan")
    result = terminal.run(*answer_to(terminal, "plan"))
    assert result.stdout == f"approved by [bold]ada[/bold]: {digest}\n"


def test_status_as_json_is_the_page(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    value = terminal.json("status")
    assert value["phases"][0]["name"] == "create_targets"
    assert value["topics"] == 2


def test_lag_before_anything_is_mirrored_is_refused_with_what_to_run(terminal: Terminal) -> None:
    result = terminal.run("lag")
    assert result.exit_code == 1
    assert "run `create` and `mirror` first" in result.stderr
    assert result.stdout == ""


def test_lag_takes_two_samples_so_that_there_is_a_rate(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    histories.created(terminal.shop)

    def produce_meanwhile(_: float) -> None:
        terminal.shop.produce(50)
        _advance(terminal)

    monkeypatch.setattr(terminal.shop.clock, "sleep", produce_meanwhile)
    value = terminal.json("lag")
    assert (value["total"], value["produced_per_second"], value["eta_seconds"]) == (450, 150.0, None)
    assert "never, at these rates" in terminal.run("lag").stdout


def _advance(terminal: Terminal) -> None:
    terminal.shop.clock._seconds += 1.0


def test_lag_gate_that_gives_up_exits_1(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    terminal.write_plan(lag_gate={"threshold_records": 10, "deadline_seconds": 60})
    result = terminal.run("lag", "--gate")
    assert result.exit_code == 1
    assert "lag was not at or under 10 within 60 s" in result.stdout
    assert result.stderr.count("lag 300 in 3 partitions") > 10


def test_lag_gate_that_passes_exits_0(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    terminal.write_plan(lag_gate={"threshold_records": 300})
    assert terminal.json("lag", "--gate")["passed"] is True
    assert terminal.run("lag", "--gate").exit_code == 0


def test_lag_cannot_be_watched_and_waited_for_at_once(terminal: Terminal) -> None:
    assert terminal.run("lag", "--watch", "--gate").exit_code == 2


def test_lag_watched_prints_lines_until_interrupted(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    histories.created(terminal.shop)
    reads = iter(range(4))
    read = phase_lag.LagMeter.read

    def until_interrupted(meter: phase_lag.LagMeter) -> phase_lag.LagReport:
        if next(reads, None) is None:
            raise KeyboardInterrupt
        return read(meter)

    monkeypatch.setattr(phase_lag.LagMeter, "read", until_interrupted)
    result = terminal.run("lag", "--watch", "--json")
    assert result.exit_code == 130
    assert [json.loads(line)["total"] for line in result.stdout.splitlines()] == [300] * 4


# -- approve and create -----------------------------------------------------------------------------------------------


def test_create_without_approval_is_refused_and_makes_nothing(terminal: Terminal) -> None:
    result = terminal.run("create")
    assert result.exit_code == 1
    assert "plan gate: nobody has approved it yet" in result.stderr
    assert terminal.shop.target.changes == []
    assert not any(it["make_state"] for it in terminal.opened)


def test_create_after_approval_makes_the_topics_and_says_who_approved(terminal: Terminal) -> None:
    approved(terminal, "plan")
    result = terminal.run("create")
    assert result.exit_code == 0, result.output
    assert "plan gate: approved by ada" in result.stderr
    assert terminal.shop.target.changes == ["create shop.orders", "create shop.payments"]
    journal = terminal.shop.ctx().journal
    assert (journal.read("phase", "create_targets") or {})["outcome"] == "done"
    assert (journal.read("plan", "plan") or {})["digest"] == terminal.shop.ctx().plan.digest
    assert terminal.run("create").exit_code == 0
    assert terminal.shop.target.changes == ["create shop.orders", "create shop.payments"]


def test_create_that_nobody_has_to_approve_goes_ahead(terminal: Terminal) -> None:
    terminal.write_plan(approvals={"plan": False})
    result = terminal.run("create")
    assert result.exit_code == 0
    assert "the plan asks nobody here" in result.stderr


def test_dry_run_of_create_prints_the_steps_of_the_real_one_and_changes_nothing(terminal: Terminal) -> None:
    def steps(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("create topic")]

    dry = terminal.run("create", "--dry-run")
    assert dry.exit_code == 0
    assert "a real run would be refused: plan gate: nobody has approved it yet" in dry.stderr
    assert terminal.shop.target.changes == []
    approved(terminal, "plan")
    real = terminal.run("create")
    assert steps(dry.stderr) == steps(real.stderr) != []


def test_failed_check_keeps_create_from_anything_even_if_nobody_is_asked(terminal: Terminal) -> None:
    terminal.write_plan(approvals={"plan": False})
    terminal.shop.target.add_topic("shop.orders")
    result = terminal.run("create")
    assert result.exit_code == 1
    assert "it exists on the target, and this migration did not create it" in result.stderr
    assert terminal.shop.target.changes == []


def test_approve_shows_the_evidence_and_its_digest(terminal: Terminal) -> None:
    result = terminal.run("approve", "plan", "--show")
    assert result.exit_code == 0
    assert evidence_digest(terminal, "plan") in result.stdout
    for said in ("shop: approve the plan?", "Consumer groups", "What happens next", "How it is undone"):
        assert said in result.stdout, said


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_approve_where_nobody_can_be_asked_approves_nothing(words: list[str], terminal: Terminal) -> None:
    result = terminal.run("approve", "plan", *words, input="yes\n")
    assert result.exit_code == 1
    assert "no answer is never an approval" in result.stderr
    assert terminal.run("create").exit_code == 1


def test_approve_of_evidence_that_is_another_now_is_refused(terminal: Terminal) -> None:
    words = answer_to(terminal, "plan")
    terminal.shop.source.add_topic("shop.refunds")
    result = terminal.run(*words)
    assert result.exit_code == 1
    assert "the answer is for sha256:" in result.stderr
    assert not any(it["make_state"] for it in terminal.opened)


@pytest.mark.parametrize(
    "words",
    [
        ["--yes"],
        ["--receipt", "sha256:0@2030-01-01T00:00:00.000+00:00"],
        ["--reject", "--revoke", "--yes"],
        ["--reject", "--receipt", "sha256:0@2030-01-01T00:00:00.000+00:00", "--yes"],
        ["--revoke", "--show"],
        ["--reason", "no", "--show"],
    ],
)
def test_approve_with_half_an_answer_or_two_is_bad_input(words: list[str], terminal: Terminal) -> None:
    assert terminal.run("approve", "plan", *words).exit_code == 2
    assert terminal.opened == []


def test_evidence_that_was_shown_too_long_ago_is_not_approved_by_its_receipt(terminal: Terminal) -> None:
    words = answer_to(terminal, "plan")
    terminal.shop.clock.sleep(3601)
    result = terminal.run(*words)
    assert result.exit_code == 1
    assert "the evidence was taken 1:00:0" in result.stderr
    assert terminal.run("create").exit_code == 1


def without_signature(receipt: str) -> str:
    return receipt.partition("#")[0]


def of_a_later_time(receipt: str) -> str:
    return receipt.replace("@2030-01-01T00:", "@2030-01-01T01:")


def of_nothing(_receipt: str) -> str:
    return "sha256:0"


@pytest.mark.parametrize("forge", [without_signature, of_a_later_time, of_nothing])
def test_receipt_that_nobody_was_given_approves_nothing(forge: Callable[[str], str], terminal: Terminal) -> None:
    words = answer_to(terminal, "plan")
    at = words.index("--receipt") + 1
    result = terminal.run(*words[:at], forge(words[at]), *words[at + 1 :])
    assert result.exit_code == 2
    assert "not a receipt of the evidence of this plan gate" in result.stderr
    assert terminal.run("create").exit_code == 1


def test_receipt_of_one_gate_does_not_approve_the_other(terminal: Terminal) -> None:
    words = answer_to(terminal, "plan")
    assert terminal.run("approve", "cutover", *words[2:]).exit_code == 2


def test_answer_keeps_when_the_evidence_was_seen_and_that_a_command_gave_it(terminal: Terminal) -> None:
    words = answer_to(terminal, "plan")
    terminal.shop.clock.sleep(60)
    assert terminal.run(*words).exit_code == 0
    kept = terminal.shop.ctx().journal.read("approval", "plan/1-approved") or {}
    assert (kept["approver"], kept["via"]) == ("ada", "command")
    assert kept["seen_at"] < kept["at"]
    assert kept["seen_at"] in words[words.index("--receipt") + 1]


@pytest.mark.parametrize("variable", ["LOGNAME", "USER", "LNAME", "USERNAME"])
def test_who_answers_is_found_out_and_no_variable_changes_that(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "mallory")
    assert prove.answering() == pwd.getpwuid(os.getuid()).pw_name
    assert "--as" not in CliRunner().invoke(app, ["approve", "--help"], env={"COLUMNS": "200"}).stdout


def test_user_whom_the_password_database_does_not_know_answers_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert prove.answering() == "uid 2147483641"


@pytest.mark.parametrize(("answer", "said"), [("--reject", "rejected"), ("--revoke", "revoked")])
def test_approval_is_taken_back_by_a_command_with_its_reason(answer: str, said: str, terminal: Terminal) -> None:
    approved(terminal, "plan")
    result = terminal.run("approve", "plan", answer, "--reason", "the source is being moved", "--yes")
    assert result.exit_code == 0
    assert f"{said} by ada" in result.stdout
    refused = terminal.run("create")
    assert refused.exit_code == 1
    assert f"ada {said} it at 2030-01-01" in " ".join(refused.stderr.split())
    assert "(the source is being moved)" in " ".join(refused.stderr.split())
    approved(terminal, "plan")
    assert terminal.run("create").exit_code == 0


def test_revoking_what_nobody_approved_is_refused(terminal: Terminal) -> None:
    result = terminal.run("approve", "plan", "--revoke", "--yes")
    assert result.exit_code == 1
    assert "there is no approval to revoke" in result.stderr


@pytest.mark.parametrize("answer", ["--reject", "--revoke"])
def test_nothing_is_taken_back_unless_somebody_says_yes_in_full(
    answer: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved(terminal, "plan")
    assert terminal.run("approve", "plan", answer).exit_code == 1
    monkeypatch.setattr("kafka_migration.cli.asking.can_be_asked", lambda: True)
    assert terminal.run("approve", "plan", answer, input="y\n").exit_code == 1
    assert terminal.run("create", "--dry-run").exit_code == 0
    assert terminal.run("approve", "plan", answer, input="yes\n").exit_code == 0
    assert terminal.run("create").exit_code == 1


def test_evidence_is_shown_without_a_key_but_there_is_no_receipt_for_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_MIGRATION_APPROVALS")
    monkeypatch.setattr("kafka_migration.cli.asking.can_be_asked", lambda: True)
    shown = terminal.run("approve", "plan", "--show")
    assert shown.exit_code == 0
    assert "no receipt: there is no approval key here" in shown.stdout
    result = terminal.run("approve", "plan", input="yes\n")
    assert result.exit_code == 2
    assert "KAFKA_MIGRATION_APPROVAL_KEYS_FILE" in result.stderr


def test_approve_of_an_unknown_gate_is_bad_input(terminal: Terminal) -> None:
    assert terminal.run("approve", "lunch").exit_code == 2


def test_answer_at_a_terminal_counts_only_if_it_is_yes_in_full(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_migration.cli.asking.can_be_asked", lambda: True)
    for answer in ("", "y", "no", "yes please"):
        assert terminal.run("approve", "plan", input=f"{answer}\n").exit_code == 1
    assert terminal.run("create").exit_code == 1
    assert terminal.run("approve", "plan", input="yes\n").exit_code == 0
    assert terminal.run("create").exit_code == 0


# -- groups -----------------------------------------------------------------------------------------------------------


def ready_for_cutover(terminal: Terminal) -> None:
    terminal.write_plan(cutover={"stopped_groups": ["shop.app"]})
    approved(terminal, "plan")
    assert terminal.run("create").exit_code == 0
    histories.validated(terminal.shop)
    terminal.shop.has_active_mirror = True


def test_cutover_without_approval_is_refused_and_writes_nothing(terminal: Terminal) -> None:
    ready_for_cutover(terminal)
    result = terminal.run("cutover")
    assert result.exit_code == 1
    assert "cutover gate: nobody has approved it yet" in result.stderr
    assert terminal.shop.target.changes == ["create shop.orders", "create shop.payments"]


def test_cutover_of_a_group_that_the_mirror_has_not_reached_lists_it_with_reason_and_remedy(terminal: Terminal) -> None:
    ready_for_cutover(terminal)
    approved(terminal, "cutover")
    result = terminal.run("cutover", "--group", "shop.app")
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert "shop.app" in words
    assert "the mirror has not copied up to its commits" in words
    assert "remedy:" in words
    assert (terminal.shop.ctx().journal.read("phase", "cut_over") or {})["outcome"] == "refused"


def test_cutover_of_a_group_that_the_plan_does_not_select_is_bad_input(terminal: Terminal) -> None:
    ready_for_cutover(terminal)
    result = terminal.run("cutover", "--group", "other.app")
    assert result.exit_code == 2
    assert "the plan does not select this group" in result.stderr
    assert terminal.json("cutover", "--group", "other.app")["error"]["value"] == "other.app"


def test_dry_run_of_cutover_tells_the_steps_and_writes_nothing(terminal: Terminal) -> None:
    ready_for_cutover(terminal)
    result = terminal.run("cutover", "--dry-run")
    assert result.exit_code == 0
    assert "shop.app: stop its consumers on the source: nothing to run (declared stopped)" in result.stderr
    assert "would move" in result.stdout
    assert terminal.shop.target.committed("shop.app") == {}


def test_watch_shows_who_lives_and_exits_by_it(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    histories.moved(terminal.shop)
    result = terminal.run("watch")
    assert result.exit_code == 0
    assert "alive" in result.stdout
    assert "6.5 s" in result.stdout
    histories.moved(terminal.shop, "shop.late", upto=Step.STARTED)
    late = terminal.run("watch", "--seconds", "0")
    assert late.exit_code == 1
    assert "undo --group shop.late" in " ".join(late.stdout.split())


def test_undo_of_a_group_that_was_not_touched_is_refused(terminal: Terminal) -> None:
    result = terminal.run("undo", "--group", "shop.app")
    assert result.exit_code == 1
    assert "was not touched by this migration" in result.stderr


def test_undo_moves_a_group_back(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    histories.moved(terminal.shop, upto=Step.STARTED)
    terminal.shop.target.commit("shop.app", {ORDERS: CommittedOffset(offset=0)})
    result = terminal.run("undo", "--group", "shop.app")
    assert result.exit_code == 0, result.output
    assert "shop.app: undone" in result.stdout


def test_parity_shows_where_groups_stand_and_exits_1_where_one_was_moved_to_nothing(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    before = terminal.run("parity")
    assert before.exit_code == 0, before.output
    histories.moved(terminal.shop, upto=Step.STARTED)
    assert terminal.run("parity").exit_code == 1
    after = terminal.json("parity")
    assert after["groups"][0]["moved"] is True
    assert "is due" in after["problems"][0]


def test_translate_of_what_is_not_mirrored_exits_1_and_says_why(terminal: Terminal) -> None:
    result = terminal.run("translate", "--offset", "shop.orders:0:7")
    assert result.exit_code == 1
    assert "nothing of this partition is mirrored yet" in " ".join(result.stdout.split())


@pytest.mark.parametrize("text", ["orders", "orders:0", "orders:x:1", "orders:0:-1", ":0:1"])
def test_translate_of_a_misspelt_offset_is_bad_input(text: str, terminal: Terminal) -> None:
    result = terminal.run("translate", f"--offset={text}")
    assert result.exit_code == 2
    assert "write it like orders:0:1234" in result.stderr
    assert terminal.opened == []


def test_offset_of_a_topic_with_colons_is_read_from_the_right(terminal: Terminal) -> None:
    value = terminal.json("translate", "--offset", "a:b:3:17")
    assert (value["offsets"][0]["topic"], value["offsets"][0]["partition"]) == ("a:b", 3)


# -- stop, report, mirror ---------------------------------------------------------------------------------------------


def test_stop_while_producers_write_is_refused_and_names_them(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    terminal.shop.clock.at(1, lambda: terminal.shop.produce(10))
    result = terminal.run("stop")
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert "source log ends are still: 3 source partitions still grow" in words
    assert "the mirror runs on" in words


def test_stop_before_anything_was_created_is_refused(terminal: Terminal) -> None:
    result = terminal.run("stop", "--now")
    assert result.exit_code == 1
    assert "has no target topics yet" in result.stderr


def test_report_is_written_below_the_directory_given(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    result = terminal.run("report", "--output", "here")
    assert result.exit_code == 0
    assert "exception: nothing was validated" in result.stdout
    written = json.loads((terminal.plan.parent / "here" / "shop" / "report.json").read_text())
    assert terminal.json("report", "--output", "here", "--dry-run")["plan"] == written["plan"]


def test_mirror_before_create_is_refused(terminal: Terminal) -> None:
    result = terminal.run("mirror", "--dry-run")
    assert result.exit_code == 1
    assert "run `create` first" in result.stderr


def test_mirror_dry_run_lists_topics(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    assert terminal.json("mirror", "--dry-run")["topics"] == ["shop.orders", "shop.payments"]


# -- errors -----------------------------------------------------------------------------------------------------------


def test_unexpected_error_is_one_line_with_a_hint_and_a_traceback_on_demand(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero\nand more lines")

    monkeypatch.setattr(preflight, "check", broken)
    result = terminal.run("check")
    assert result.exit_code == 3
    assert "unexpected error: ZeroDivisionError: division by zero\n" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in terminal.run("check", "--debug").stderr
    assert terminal.json("check")["error"]["exit_code"] == 3


def test_missing_permission_says_which_and_exits_1(terminal: Terminal) -> None:
    with terminal.shop.source.failing("groups", NotAuthorized("source", "Describe", "cluster kafka-cluster")):
        result = terminal.run("translate")
    assert result.exit_code == 1
    assert "not authorized: Describe on cluster kafka-cluster" in result.stderr
    assert "grant Describe" in result.stderr


def test_error_with_json_is_a_document_too(terminal: Terminal) -> None:
    value = terminal.json("create")["error"]
    assert (value["kind"], value["exit_code"]) == ("NotApproved", 1)
    assert value["remedy"]


def test_commands_are_all_explained(terminal: Terminal) -> None:
    for commands in PANELS.values():
        for run in commands:
            assert run.__doc__, run


def test_mirror_of_released_topics_can_still_be_stopped_at_once_but_not_sealed(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    histories.mirroring(terminal.shop)
    assert terminal.run("release").exit_code == 1, "it runs"
    terminal.shop.clock.sleep(600)
    link = terminal.shop.ctx().link
    link.claim("one", at="")
    assert "end a mirror that did not record its end" in terminal.run("release", "--dry-run").stderr
    assert terminal.run("release", "--force").exit_code == 0
    assert "does not hold its topics" in terminal.run("stop").stderr
    result = terminal.run("stop", "--now")
    assert result.exit_code == 0
    assert "if not, it stops now" in " ".join(result.stdout.split())
    assert link.wished().desired is Desired.STOP


# -- copied afresh ----------------------------------------------------------------------------------------------------


@pytest.fixture
def halted(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A plan of one topic, which is halted; Spark is played, and copies nothing."""
    only = {"topics": {"include": [r"shop\.orders"]}}
    terminal.write_plan(**only)
    ctx = terminal.shop.ctx(**only)
    phase_create.apply(ctx)
    histories.mirroring(terminal.shop)
    ctx.link.halt(ORDERS, "FOREIGN_WRITER", "somebody", 40, 41, ctx.stamp())
    end = MirrorEnd(reason="caught_up", rounds=1, fences=1, records=0, bytes=0, batches=0, executors=(), halted=())
    monkeypatch.setattr(mirror, "run", lambda *_, **__: end)
    monkeypatch.setattr(live, "lag_beside", lambda *_, **__: nullcontext(lambda _text: None))
    return terminal


def test_copy_afresh_that_died_in_a_plan_of_one_topic_is_finished_by_the_same_command(halted: Terminal) -> None:
    words = ("mirror", "--again", "shop.orders", "--yes")
    shop = halted.shop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phase_create, "make", _killed)
        with pytest.raises(Killed):
            halted.run(*words)
    assert shop.ctx().journal.all("topic") == {}, "so the mirror itself would find nothing to do"
    assert halted.run(*words, "--dry-run").exit_code == 0
    result = halted.run(*words)
    assert result.exit_code == 0, result.output
    assert list(shop.ctx().journal.all("topic")) == ["shop.orders"]
    assert shop.ctx().link.halted() == set()


def _killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("answer", [["--again", "shop.orders"], ["--again", "elsewhere", "--yes"]])
def test_refused_copy_afresh_leaves_the_seal(halted: Terminal, answer: list[str]) -> None:
    link = halted.shop.ctx().link
    link.record_seal(Seal(at="noon", ends={}))
    assert halted.run("mirror", "--unseal", *answer).exit_code in (1, 2)
    assert link.seal() is not None
    assert halted.shop.target.topics(["shop.orders"])


def test_sealed_link_is_unsealed_once_its_topic_is_made_afresh_and_a_dry_run_says_so(halted: Terminal) -> None:
    link, words = halted.shop.ctx().link, ("mirror", "--unseal", "--again", "shop.orders", "--yes")
    link.record_seal(Seal(at="noon", ends={}))
    assert "sealed" in halted.run("mirror", "--again", "shop.orders", "--yes").stderr
    dry = halted.run(*words, "--dry-run")
    assert dry.exit_code == 0
    assert "would remove the seal" in dry.stderr
    assert link.seal() is not None
    assert halted.run(*words).exit_code == 0
    assert (link.seal(), link.halted()) == (None, set())


def test_topic_that_is_not_held_any_more_is_not_deleted(halted: Terminal) -> None:
    journal = halted.shop.ctx().journal
    journal.unlock(["shop.orders"])
    assert "does not hold" in halted.run("mirror", "--again", "shop.orders", "--yes").stderr
    assert halted.shop.target.topics(["shop.orders"])


def test_copy_afresh_asks_nobody_where_a_machine_reads(halted: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "can_be_asked", lambda: True)
    before = halted.shop.target.topics(["shop.orders"])
    result = halted.run("mirror", "--again", "shop.orders", "--json", input="yes\n")
    assert result.exit_code == 1
    assert "nobody can be asked here" in json.loads(result.stdout)["error"]["message"]
    assert halted.shop.target.topics(["shop.orders"]) == before


@pytest.mark.parametrize(("desired", "code"), [(Desired.RUN, 130), (Desired.STOP, 0)])
def test_mirror_that_somebody_has_stopped_was_not_interrupted(
    desired: Desired, code: int, halted: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = MirrorEnd(reason="stopped", rounds=1, fences=1, records=0, bytes=0, batches=0, executors=(), halted=())
    monkeypatch.setattr(mirror, "run", lambda *_, **__: end)
    halted.shop.ctx().link.wish(Wish(desired=desired))
    result = halted.run("mirror")
    assert result.exit_code == code
    assert ("interrupted; nothing is lost" in result.stderr) is (code == 130)


def test_mirror_that_left_a_partition_halted_says_so_by_its_exit_code(
    halted: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = MirrorEnd(
        reason="caught_up", rounds=1, fences=1, records=0, bytes=0, batches=0, executors=(), halted=(ORDERS,)
    )
    monkeypatch.setattr(mirror, "run", lambda *_, **__: end)
    assert halted.run("mirror").exit_code == 1


# -- the way back -----------------------------------------------------------------------------------------------------


def test_way_back_that_has_not_begun_is_refused_with_what_begins_it(terminal: Terminal) -> None:
    options = (["lag", "--reverse"], ["pause", "--reverse"], ["resume", "--reverse"], ["throttle", "off", "--reverse"])
    for command in (["rollback"], ["rollback", "--dry-run"], ["translate", "--reverse"], *options):
        result = terminal.run(*command)
        assert (result.exit_code, "no link that could be reversed" in result.stderr) == (1, True), result.stderr
    assert "link shop is not sealed" in terminal.run("mirror", "--reverse").stderr
    assert terminal.shop.source.changes == terminal.shop.target.changes == []


@pytest.mark.parametrize(
    "options",
    [
        ["mirror", "--reverse", "--unseal"],
        ["mirror", "--reverse", "--again", "t"],
        ["translate", "--reverse", "--offset", "shop.orders:0:1"],
    ],
)
def test_options_of_the_forward_link_do_not_go_with_reverse(terminal: Terminal, options: list[str]) -> None:
    assert terminal.run(*options).exit_code == 2


def test_reverse_mirror_is_held_and_measured_apart_from_the_forward_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.created(terminal.shop)
    store = MemoryStore()
    monkeypatch.setattr(reverse, "behind", lambda ctx: replace(ctx, link=LinkState("back", store, None, None)))
    back = LinkState("back", store, None, None)
    histories.pinned(replace(terminal.shop.ctx(), link=back))
    back.halt(ORDERS, "DATA_LOSS", "gone", 1, 1, terminal.shop.ctx().stamp())
    assert (terminal.json("lag")["halted"], terminal.json("lag", "--reverse")["halted"]) == (
        {},
        {str(ORDERS): "DATA_LOSS"},
    )
    assert terminal.json("pause", "--reverse", "--reason", "night")["pause"]["reason"] == "night"
    assert terminal.json("throttle", "1MB", "--reverse")["throttle"]["bytes_per_second"] == 1_000_000
    assert not terminal.shop.ctx().link.controls().describe()
    terminal.run("resume", "--reverse")
    assert back.controls().pause is None


def test_rollback_shows_each_group_and_exits_1_where_one_is_refused(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def apply(_ctx: Context, groups: list[str] | None) -> CutoverResult:
        asked.append(groups)
        refused = GroupOutcome(group="b", outcome=Fate.REFUSED, reason="not mirrored back", remedy="wait", exit_code=1)
        return CutoverResult(groups=(GroupOutcome(group="a", outcome=Fate.MOVED), refused))

    monkeypatch.setattr(rollback, "apply", apply)
    back = SimpleNamespace(link=SimpleNamespace(seal=lambda: None), before=lambda: None)
    monkeypatch.setattr(reverse, "way_back", lambda _ctx: back)
    result = terminal.run("rollback", "--group", "a", "--group", "b")
    assert (result.exit_code, asked) == (1, [["a", "b"]])
    assert "remedy: wait" in result.stdout
    assert [group["outcome"] for group in terminal.json("rollback")["groups"]] == ["moved", "refused"]
    assert asked[-1] is None


# -- executors --------------------------------------------------------------------------------------------------------


def test_executors_prints_the_configs_of_the_archive_that_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("crc32c",))
    monkeypatch.setattr(environment, "OPTIONAL", {})
    file = tmp_path / "executors.tar.gz"
    result = CliRunner().invoke(app, ["executors", "--output", str(file), "--json"])
    found = json.loads(result.stdout)
    assert found["spark"] == {
        "spark.archives": f"{file.as_uri()}#environment",
        "spark.executorEnv.PYTHONPATH": "./environment",
    }
    assert found["bytes"] == file.stat().st_size
    shown = CliRunner().invoke(app, ["executors", "--output", str(file), "--dry-run"]).stdout
    assert f"\nspark.archives {file.as_uri()}#environment\n" in shown
    assert f"\nPYSPARK_PYTHON={found['environment']['PYSPARK_PYTHON']}\n" in shown


@pytest.mark.parametrize("option", ["--dry-run", "--image"])
def test_executors_that_only_shows_writes_nothing(option: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["executors", "--output", str(tmp_path / "executors.tar.gz"), option])
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])
    assert ("RUN python3" in result.stdout) == (option == "--image")


def test_executors_refuses_a_file_that_spark_would_not_unpack(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["executors", "--output", str(tmp_path / "executors.tar")])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
