"""The board and the page of a migration: what was written down, of plans that a user may see; no cluster is asked."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from fastapi import HTTPException

from kafka_migration.airflow import pages
from kafka_migration.migration import context
from kafka_migration.migration.reports import board_files
from kafka_migration.overview import status
from kafka_migration.overview.board import Publisher
from kafka_migration.plans.folder import PlanFolder, read_plans
from tests.fakes.away import away_store
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_report import Page


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "open_context", None)


def plans(*names: str) -> Any:
    return [SimpleNamespace(name=name) for name in names]


def written(reports: Path, name: str, *, age: float = 0.0, **fields: Any) -> None:
    """The documents of a migration in flight, with these fields instead."""
    shop = Migration()
    histories.in_flight(shop)
    Publisher(shop.ctx(), lambda: reports).publish()
    now = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    for played, file in zip(board_files(reports, "shop"), board_files(reports, name), strict=True):
        value = json.loads(Path(str(played)).read_text())
        Path(str(file)).write_text(json.dumps({**value, "at": now, **fields}))


def board(*names: str) -> str:
    return bytes(
        pages._page("board.html.j2", prefix="/kafka-migration", refresh=False, rows=pages._rows(plans(*names))).body
    ).decode()


def page(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(pages, "_plan_of", lambda _dag_id: SimpleNamespace(name=name))
    return bytes(pages._migration(f"migrate_{name}", lambda _dag: True).body).decode()


def names(html: str) -> list[str]:
    return re.findall(r'/">([a-z]+)</a>', html)


def test_board_shows_each_plan_with_how_far_it_came(reports: Path) -> None:
    written(reports, "shop")
    html = board("shop", "new")
    text = Page(html).text
    assert Page(html).open == []
    assert names(html) == ["shop", "new"]
    assert re.search(r"shop a to b running 300 1 of 2 EQUAL - \d\.\d s ago", text)
    assert "new nothing is known" in text


def test_who_needs_a_person_comes_first_then_what_is_out_of_date_and_last_what_is_over(reports: Path) -> None:
    written(reports, "alpha", is_over=True, age=9000)
    written(reports, "beta")
    written(reports, "gamma", age=700)
    written(reports, "delta", need="mirror is silent", more_needs=2)
    html = board("alpha", "beta", "epsilon", "gamma", "delta")
    assert names(html) == ["delta", "gamma", "beta", "epsilon", "alpha"]
    assert "mirror is silent and 2 more" in Page(html).text
    assert html.count('<td class="n warn">') == 1
    assert "out of date" in Page(html).text


def test_page_that_is_out_of_date_says_so_and_finds_nothing_good(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age in (700, -300):
        written(reports, "shop", age=age)
        text = Page(page("shop", monkeypatch)).text
        assert "Out of date" in text
        assert "Nothing found" not in text
    written(reports, "shop", age=700, is_over=True)
    assert "Over." in Page(page("shop", monkeypatch)).text


def test_page_of_a_migration_has_what_stands_in_its_status(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(reports, "shop", history=[[0, 900], [60, 300]])
    html = page("shop", monkeypatch)
    text = Page(html).text
    assert Page(html).open == []
    for shown in (
        "Nothing found that needs a person",
        "shop.slow stopped",
        "6.5 s",
        "create_targets done",
        "EQUAL",
        "ada",
        "300 offsets",
    ):
        assert shown in text, shown
    assert 'aria-label="Lag in offsets"' in html
    links = Page(html).references
    assert {f"/dags/{kind}_shop" for kind in ("migrate", "rollback", "validate", "control")} <= set(links)
    assert [link for link in links if not link.startswith("/")] == ["?refresh=1"], "of this page"


def test_page_has_what_needs_a_person_and_what_was_halted(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Migration()
    histories.in_flight(shop)
    ctx = shop.ctx()
    ctx.link.halt(histories.ORDERS[0], "MELTED", "too hot", 1, 1, ctx.stamp())
    Publisher(shop.ctx(), lambda: reports).publish()
    text = Page(page("shop", monkeypatch)).text
    assert "Needs a person halted: shop.orders-0 MELTED" in text
    assert "too hot" in text


def test_page_of_a_plan_that_nothing_is_known_of_leads_to_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    html = page("shop", monkeypatch)
    assert "Nothing is known" in html
    assert 'href="/dags/migrate_shop"' in html


def test_names_from_clusters_cannot_write_into_the_pages(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "<script>alert(1)</script>"
    written(reports, "plain")
    texts = board("plain") + page("plain", monkeypatch)
    whole, short = (json.loads(Path(str(file)).read_text()) for file in board_files(reports, "plain"))

    def evil_in(value: Any) -> Any:
        """Every text of a document, but for those that the page computes with."""
        if isinstance(value, dict):
            kept = {"at", "started", "ended", "last_word", "format", "is_over", "outlook"}
            return {key: one if key in kept else evil_in(one) for key, one in value.items()}
        if isinstance(value, list):
            return [evil_in(one) for one in value]
        return evil if isinstance(value, str) else value

    for name, value in zip(("whole", "short"), (whole, short), strict=True):
        file = board_files(reports, "shop")[name == "short"]
        Path(str(file)).write_text(json.dumps({**evil_in(value), "needs": [{"what": evil, "remedy": evil}]}))
    shown = board("shop") + page("shop", monkeypatch)
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") > 10
    assert texts.count("<svg") == shown.count("<svg")


def test_plan_that_is_added_changed_or_taken_away_is_seen_and_no_other_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_MIGRATION_PLANS", str(tmp_path))
    reads = list[Path]()

    def counted(folder: Path) -> PlanFolder:
        reads.append(folder)
        return read_plans(folder)

    monkeypatch.setattr(pages, "read_plans", counted)
    text = yaml.safe_dump({**Migration().plan().snapshot(), "name": "first"})
    (tmp_path / "first.yaml").write_text(text)
    for _ in range(2):
        assert [plan.name for plan in pages._plans()] == ["first"]
    assert len(reads) == 1
    (tmp_path / ".#first.yaml").symlink_to("nowhere")
    (tmp_path / "second.yaml").write_text(text.replace("first", "second"))
    assert [plan.name for plan in pages._plans()] == ["first", "second"]
    (tmp_path / "first.yaml").write_text(text.replace("first", "other"))
    assert [plan.name for plan in pages._plans()] == ["other", "second"]
    (tmp_path / "second.yaml").unlink()
    assert [plan.name for plan in pages._plans()] == ["other"]
    monkeypatch.setenv("KAFKA_MIGRATION_PLANS", str(tmp_path / "absent"))
    assert pages._plans() == ()


def test_pages_load_nothing_and_run_no_script() -> None:
    answer = pages._page("board.html.j2", prefix="/kafka-migration", refresh=False, rows=[])
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


def test_links_to_what_acts_are_only_for_whom_may_start_it(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(reports, "shop")
    monkeypatch.setattr(pages, "_plan_of", lambda _dag_id: SimpleNamespace(name="shop"))
    html = bytes(pages._migration("migrate_shop", lambda dag: dag == "validate_shop").body).decode()
    dags = [link for link in Page(html).references if link.startswith("/dags/")]
    assert {link.split("/")[2] for link in dags} == {"migrate_shop", "validate_shop"}


@pytest.mark.parametrize("refresh", [True, False])
def test_page_changes_by_itself_where_it_is_asked_for_alone(
    reports: Path, monkeypatch: pytest.MonkeyPatch, refresh: bool
) -> None:
    written(reports, "shop")
    monkeypatch.setattr(pages, "_plan_of", lambda _dag_id: SimpleNamespace(name="shop"))
    rows = pages._rows(plans("shop"))
    of_all = pages._page("board.html.j2", prefix="/kafka-migration", refresh=refresh, rows=rows)
    for answer in (of_all, pages._migration("migrate_shop", lambda _dag: True, refresh=refresh)):
        html = bytes(answer.body).decode()
        assert ('http-equiv="refresh"' in html) is refresh
        assert ("?" if refresh else "?refresh=1") in Page(html).references
    assert (f"/kafka-migration/migrate_shop/{'?refresh=1' if refresh else ''}") in Page(
        bytes(of_all.body).decode()
    ).references


def test_store_that_is_away_is_named_on_the_board_and_the_page_is_not_available_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", "away://bucket/reports")
    with away_store() as found:
        found.refuses = staticmethod(lambda _call, _path: True)
        text = Page(board("shop")).text
        with pytest.raises(HTTPException) as caught:
            page("shop", monkeypatch)
    assert "shop the store of reports does not serve" in text
    assert caught.value.status_code == 503


def test_document_of_another_version_is_unknown_and_hides_no_other_migration(reports: Path) -> None:
    written(reports, "shop")
    written(reports, "other", format=2)
    text = Page(board("shop", "other")).text
    assert "shop a to b running" in text
    assert "other nothing is known" in text


def test_page_of_every_state_of_a_migration_can_be_drawn(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Migration()
    histories.created(shop)
    Publisher(shop.ctx(), lambda: reports).publish()
    assert Page(page("shop", monkeypatch)).open == []
    histories.mirroring(shop)
    histories.validated(shop)
    histories.moved(shop)
    histories.rolled_back(shop)
    Publisher(shop.ctx(), lambda: reports).publish()
    assert "back: read back" in Page(page("shop", monkeypatch)).text
    assert status.read(shop.ctx()).groups
