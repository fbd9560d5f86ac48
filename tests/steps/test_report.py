"""The report, from journals as migrations leave them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kafka_migration.approvals import record as approval_record
from kafka_migration.approvals.evidence import GateName
from kafka_migration.compare.result import Equality
from kafka_migration.domain.errors import BadInput, ClusterUnreachable, CouldNotFindOut, Refused
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups.parity import GroupParity, OffsetParity, Parity
from kafka_migration.groups.record import Step
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import Context
from kafka_migration.migration.history import phase
from kafka_migration.migration.signing import Keyring
from kafka_migration.state.link import Wish
from kafka_migration.steps import report
from kafka_migration.topics.drift import DriftStatus
from tests.steps import histories
from tests.steps.gates import Migration


class Page(HTMLParser):
    """The text of a page, its links, and whether every element that was opened was closed."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.references: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def shop() -> Migration:
    return Migration()


@pytest.fixture
def finished(shop: Migration) -> Migration:
    """Everything went well."""
    histories.created(shop)
    histories.mirroring(shop)
    histories.validated(shop)
    histories.moved(shop)
    return shop


def test_report_of_a_finished_migration_holds_all_that_was_asked_for(finished: Migration, tmp_path: Path) -> None:
    written = report.apply(finished.ctx(), tmp_path)
    assert written.json_path == tmp_path / "shop" / "report.json"
    value = json.loads(Path(str(written.json_path)).read_text())
    assert value == written.report
    assert value["format"] == 1
    assert value["exceptions"] == []
    assert value["plan"]["digest"] == value["plan"]["digest_at_beginning"] == finished.plan().digest
    assert value["inventory"]["digest"].startswith("sha256:")
    assert [(it["name"], it["outcome"], it["seconds"]) for it in value["phases"]] == [
        ("create_targets", "done", 30.0),
        ("validate", "done", 0.0),
    ]
    assert [(it["gate"], it["approver"], it["at"][:10]) for it in value["approvals"]] == [("plan", "ada", "2030-01-01")]
    assert [it["topic"] for it in value["topics"]] == ["shop.orders", "shop.payments"]
    assert value["topics"][0]["configs_source"] == {"retention.ms": "604800000"}
    partition = value["validation"]["partitions"][1]
    assert (partition["topic"], partition["partition"]) == ("shop.orders", 1)
    assert partition["source_records"] == partition["target_records"] == 100
    assert partition["source_digest"] == partition["target_digest"]
    (group,) = value["groups"]
    assert (group["group"], group["moved"], group["alive"], group["pause_seconds"]) == ("shop.app", True, True, 6.5)
    assert group["positions"][1] == {
        "topic": "shop.orders",
        "partition": 1,
        "source": 50,
        "target": 51,
        "policy": "exact",
        "read_back": 51,
    }


def test_page_is_self_contained_well_formed_and_tells_the_same(finished: Migration, tmp_path: Path) -> None:
    written = report.apply(finished.ctx(), tmp_path)
    html = Path(str(written.html_path)).read_text()
    page = Page(html)
    assert page.open == []
    assert page.references == []
    assert "http://" not in html
    assert "https://" not in html
    assert "prefers-color-scheme: dark" in html
    for said in (
        "No exceptions.",
        "ada",
        finished.plan().digest,
        "shop.payments-0",
        "Verdict: EQUAL",
        "6.5 s",
        "30.0 s",
    ):
        assert said in page.text, said


def test_page_draws_phases_and_pauses(finished: Migration, tmp_path: Path) -> None:
    html = Path(str(report.apply(finished.ctx(), tmp_path).html_path)).read_text()
    assert html.count("<svg") == 2
    assert Page(html).open == []
    assert "create_targets: 30.0 s, done" in html
    assert "longest pause 6.5 s" in Page(html).text


def test_page_draws_the_lag_that_was_waited_for(finished: Migration, tmp_path: Path) -> None:
    with phase(finished.ctx(), "watch_lag") as run:
        run.ends(0, history=[[0.0, 900], [10.0, 0]])
    html = Path(str(report.apply(finished.ctx(), tmp_path).html_path)).read_text()
    assert '<polyline class="line" points="250.0,6.0 900.0,160.0 "/>' in html


def test_partitions_beyond_a_hundred_are_counted_by_topic_and_each_that_differs_is_shown(finished: Migration) -> None:
    value = report.build(finished.ctx())
    of_payments = [row for row in value["validation"]["partitions"] if row["topic"] == "shop.payments"]
    many = [{**of_payments[0], "partition": at, "equal": at != 7} for at in range(101)]
    value["validation"]["partitions"] = [
        row for row in value["validation"]["partitions"] if row["topic"] != "shop.payments"
    ]
    assert "shop.orders-0" in Page(report.as_html(value)).text
    value["validation"]["partitions"] += many
    text = Page(report.as_html(value)).text
    assert "shop.payments 101 100 10,100 10,100" in text
    assert "shop.payments-7" in text
    assert "shop.payments-8" not in text


def test_page_links_data_docs_that_stand_beside_it(finished: Migration, tmp_path: Path) -> None:
    docs = tmp_path / "shop" / "data_docs"
    docs.mkdir(parents=True)
    (docs / "index.html").write_text("docs")
    written = report.apply(finished.ctx(), tmp_path)
    assert written.report["data_docs"] == "data_docs/index.html"
    assert Page(Path(str(written.html_path)).read_text()).references == ["data_docs/index.html"]


def test_extra_sections_stand_in_both_files(finished: Migration, tmp_path: Path) -> None:
    demo = {"records_lost": 0, "records_produced": 1234567, "groups": {"demo.app": {"twice": 0, "names": ["a", "b"]}}}
    written = report.apply(finished.ctx(), tmp_path, extra={"demo": demo})
    assert json.loads(Path(str(written.json_path)).read_text())["demo"] == demo
    assert "records produced 1,234,567" in Page(Path(str(written.html_path)).read_text()).text


def test_extra_section_cannot_replace_one_of_the_report(finished: Migration) -> None:
    with pytest.raises(ValueError, match="a section groups of its own"):
        report.build(finished.ctx(), extra={"groups": {}})


def test_what_went_wrong_is_listed_as_exceptions(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    histories.validated(shop, Equality.DIFFERENT)
    histories.moved(shop, upto=Step.STOPPED)
    histories.moved(shop, "shop.late", upto=Step.STARTED)
    ctx = shop.ctx(mirror={"num_streams": 4}, validation={"private_payloads": False})
    ctx.link.halt(TopicPartition("shop.orders", 1), "CORRUPT", "a checksum", 70, 60, ctx.stamp())
    with pytest.raises(Refused), phase(ctx, "stop_mirror"):
        raise Refused("2 partitions still grow")
    written = report.apply(ctx, tmp_path)
    assert written.report["exceptions"] == [
        "the plan is not the one that joined the migration last",
        "phase validate ended as refused: DIFFERENT",
        "phase stop_mirror ended as refused: 2 partitions still grow",
        "shop.orders-1 is halted: CORRUPT at source offset 70: a checksum",
        "the verdict of the validation is DIFFERENT",
        "group shop.app is not moved (last step: stopped)",
        "group shop.late was moved, and has not been active on the target yet",
    ]
    page = Page(Path(str(written.html_path)).read_text())
    assert "To be looked at: 7" in page.text
    assert "look at the source brokers' disks" in page.text
    assert "Records that differ" in page.text
    for said in (
        "shop.payments-0 : 1 loss, 1 mutation; no time was left for the rest",
        "expected at 41",
        "41 against 61",
    ):
        assert said in " ".join(page.text.split()), said
    drilled = written.report["validation"]["partitions"][0]["drilled"]
    assert [(it["class"], it["source_offset"], it["target_offset"]) for it in drilled["examples"]] == [
        ("loss", 40, None),
        ("mutation", 70, 70),
    ]


def test_group_that_was_moved_back_is_no_moved_group(shop: Migration) -> None:
    histories.created(shop)
    histories.moved(shop, upto=Step.UNDONE)
    (group,) = report.build(shop.ctx())["groups"]
    assert (group["step"], group["moved"]) == ("undone", False)


def test_group_that_was_rolled_back_is_at_home_and_has_both_moves(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    histories.moved(shop)
    histories.rolled_back(shop)
    written = report.apply(shop.ctx(), tmp_path)
    (group,) = written.report["groups"]
    assert (group["moved"], group["rolled_back"], group["step"]) == (False, True, "read_back")
    (position,) = group["positions"]
    assert (position["source"], position["target"], position["read_back"]) == (95, 90, 95)
    assert [(leg["direction"], len(leg["positions"])) for leg in group["legs"]] == [("forward", 2), ("reverse", 1)]
    assert any("was moved back to the source" in line for line in written.report["exceptions"])


def test_repeated_phases_and_answers_are_all_counted(shop: Migration) -> None:
    histories.created(shop)
    histories.created(shop)
    value = report.build(shop.ctx())
    assert [(it["runs"], it["seconds"], it["seconds_in_all"]) for it in value["phases"]] == [(2, 30.0, 60.0)]
    assert [it["answer"] for it in value["approvals"]] == ["approved", "approved"]


def test_names_from_clusters_cannot_write_into_the_page(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    histories.moved(shop, "shop.<script>alert(1)</script>")
    html = Path(str(report.apply(shop.ctx(), tmp_path).html_path)).read_text()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_migration_that_has_not_begun_has_no_report(shop: Migration, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has not begun"):
        report.apply(shop.ctx(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_writes_no_file(finished: Migration, tmp_path: Path) -> None:
    report.apply(finished.ctx(dry_run=True), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_second_report_replaces_the_first_and_leaves_nothing_beside(finished: Migration, tmp_path: Path) -> None:
    report.apply(finished.ctx(), tmp_path)
    report.apply(finished.ctx(), tmp_path, extra={"demo": {}})
    assert sorted(it.name for it in (tmp_path / "shop").iterdir()) == ["report.html", "report.json"]


def test_directory_that_cannot_be_written_is_said_with_a_remedy(finished: Migration, tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file stands where the folder should")
    with pytest.raises(CouldNotFindOut, match="cannot be written") as refused:
        report.apply(finished.ctx(), tmp_path)
    assert "choose another directory" in refused.value.remedy


def test_group_that_first_appeared_after_the_others_were_moved_is_an_exception(finished: Migration) -> None:
    finished.source.consumer_commits("shop.late", TopicPartition("shop.payments", 0), 3)
    said = "group shop.late is selected by the plan and was never moved: no members"
    assert said in report.build(finished.ctx())["exceptions"]


def test_group_that_went_on_on_the_source_is_an_exception(finished: Migration, tmp_path: Path) -> None:
    finished.source.consumer_commits("shop.app", TopicPartition("shop.orders", 0), 44)
    finished.source.join("shop.app", ["shop.orders"])
    written = report.apply(finished.ctx(), tmp_path)
    said = "has 1 members on the source and committed again on the source: shop.orders-0 (40 -> 44)"
    assert written.report["exceptions"] == [f"group shop.app was moved, and {said}: processed twice"]
    assert f"Since its move it {said}." in Page(Path(str(written.html_path)).read_text()).text


def test_source_that_does_not_answer_leaves_unknown_whether_groups_rest_there(
    finished: Migration, tmp_path: Path
) -> None:
    ctx = finished.ctx()
    with finished.source.failing("group_states", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        (said,) = report.apply(ctx, tmp_path).report["exceptions"]
        assert "whether 1 moved groups are active on the source again is unknown: " in said
        # Once it was proved at the stop gate, the source may be switched off.
        ctx.link.wish(Wish(desired=Desired.DRAIN, reason="", at=ctx.stamp()))
        ctx.link.record_run({"state": "ended", "reason": "drained", "at": ctx.stamp()})
        assert report.apply(ctx, tmp_path).report["exceptions"] == []


def test_page_shows_what_consumers_depend_on_beside_the_verdict(finished: Migration, tmp_path: Path) -> None:
    journal = finished.ctx().journal

    def page(consumers: dict[str, object]) -> str:
        journal.record("validation", "latest", (journal.read("validation", "latest") or {}) | {"consumers": consumers})
        found = Page(Path(str(report.apply(finished.ctx(), tmp_path).html_path)).read_text())
        assert found.open == []
        return found.text

    rule = Acl(
        resource_type="GROUP",
        resource="shop",
        pattern="PREFIXED",
        principal="User:app",
        host="*",
        operation="READ",
        permission="ALLOW",
    )
    tp = TopicPartition("shop.orders", 0)
    behind = GroupParity(
        group="shop.app", is_moved=True, offsets=(OffsetParity(tp=tp, source=60, expected=50, target=20),)
    )
    drifted = DriftStatus(
        topic="shop.orders", what="retention.ms", declared="-1", observed="1", endangers=True, remedy="set it back"
    )
    found = Parity(groups=(behind,), topics=(drifted,), access=(rule,)).section("2030-01-01T00:00:00+00:00")
    shown = page(found)
    for said in (
        "2 problems",
        "1 behind",
        "offset 20 on the target, where 50 is due",
        "set it back",
        "GROUP shop",
        "PREFIXED",
    ):
        assert said in shown, said
    nothing = Parity(groups=(), topics=(), access=()).section("2030-01-01T00:00:00+00:00")
    assert "Consumers would notice nothing" in page(nothing)
    assert "no broker answers" in page({"at": "2030-01-01T00:00:00+00:00", "unknown": "no broker answers"})


def test_folder_of_reports_is_not_for_every_user_of_the_machine(finished: Migration, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        written = report.apply(finished.ctx(), tmp_path / "reports")
    finally:
        os.umask(before)
    assert Path(str(written.json_path)).parent.stat().st_mode & 0o777 == 0o750


# -- changed since? ----------------------------------------------------------------------------------------------------

KEYS = Keyring(("0123456789abcdef" * 2, "fedcba9876543210" * 2))


def written_with(finished: Migration, folder: Path, keys: Keyring) -> tuple[Context, Path]:
    ctx = replace(finished.ctx(), approval_keys=lambda: keys)
    return ctx, Path(str(report.apply(ctx, folder).json_path))


def test_report_is_verified_as_long_as_nothing_of_it_was_changed(finished: Migration, tmp_path: Path) -> None:
    _, path = written_with(finished, tmp_path, KEYS)
    whole = json.loads(path.read_text(encoding="utf-8"))
    how = report.verified("shop", KEYS, path)
    assert whole["sealed"]["digest"] in how
    assert "signed by an approval key" in how
    assert whole["sealed"]["digest"] in path.with_name("report.html").read_text(encoding="utf-8")
    # In another order it is the same report; and a key that was replaced since still counts.
    path.write_text(json.dumps(dict(reversed(whole.items()))), encoding="utf-8")
    assert report.verified("shop", Keyring(("x" * 32, KEYS.keys[0])), path) == how


@pytest.mark.parametrize("section", ["validation", "groups", "written_at", "approvals", "another"])
def test_report_with_a_changed_section_is_refused(finished: Migration, tmp_path: Path, section: str) -> None:
    _, path = written_with(finished, tmp_path, KEYS)
    whole = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**whole, section: "otherwise"}), encoding="utf-8")
    with pytest.raises(Refused, match="was changed after it was written"):
        report.verified("shop", KEYS, path)
    # Nor does it help to make the digest fit: whoever has no key cannot sign it.
    changed = {**whole, section: "otherwise"}
    changed["sealed"] = {**whole["sealed"], "digest": report.digest_of(changed)}
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(Refused, match="no approval key of this process has signed it"):
        report.verified("shop", KEYS, path)


def test_report_without_a_key_has_a_digest_and_cannot_be_verified(finished: Migration, tmp_path: Path) -> None:
    ctx, path = written_with(finished, tmp_path, Keyring(()))
    assert "not signed" in path.with_name("report.html").read_text(encoding="utf-8")
    with pytest.raises(Refused, match="nobody has signed it"):
        report.verified("shop", KEYS, path)

    def broken() -> Keyring:
        raise BadInput("others may read the approval key")

    assert report.sealed(replace(ctx, approval_keys=broken), {"migration": "shop"})["signature"] == ""


@pytest.mark.parametrize("content", [None, "no JSON", "[]", "{}", '{"migration": "other", "sealed": {}}'])
def test_what_is_no_report_of_this_migration_is_refused_by_name(
    finished: Migration, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match="--verify") as caught:
        report.verified("shop", KEYS, path)
    assert "report.json" in caught.value.remedy


def test_signature_of_an_answer_is_none_of_a_report(finished: Migration, tmp_path: Path) -> None:
    ctx, path = written_with(finished, tmp_path, KEYS)
    whole = json.loads(path.read_text(encoding="utf-8"))
    answer = approval_record.answers(ctx)[GateName.PLAN]
    whole["sealed"]["signature"] = KEYS.sign(approval_record.signed_content(ctx, answer))
    path.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(Refused, match="has signed it"):
        report.verified("shop", KEYS, path)


def test_name_that_stands_twice_or_is_added_to_the_seal_is_a_change(finished: Migration, tmp_path: Path) -> None:
    _, path = written_with(finished, tmp_path, KEYS)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("{", '{"exceptions": [],', 1), encoding="utf-8")
    with pytest.raises(BadInput, match="field 'exceptions' stands twice"):
        report.verified("shop", KEYS, path)
    whole = json.loads(text)
    path.write_text(json.dumps({**whole, "sealed": {**whole["sealed"], "by": "ada"}}), encoding="utf-8")
    with pytest.raises(BadInput, match="no report with a digest"):
        report.verified("shop", KEYS, path)


@pytest.mark.parametrize("signature", ["\ud800", "hmac-sha256:00000000:00", 7])
def test_signature_that_is_none_is_refused(finished: Migration, tmp_path: Path, signature: object) -> None:
    _, path = written_with(finished, tmp_path, KEYS)
    whole = json.loads(path.read_text(encoding="utf-8"))
    whole["sealed"]["signature"] = signature
    path.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(Refused, match="has signed it"):
        report.verified("shop", KEYS, path)


def test_report_names_the_cluster_that_it_is_about(finished: Migration, tmp_path: Path) -> None:
    _, path = written_with(finished, tmp_path, KEYS)
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["target"] == finished.ctx().target.cluster_id()
    assert f"on target {whole['target']}" in report.verified("shop", KEYS, path)
