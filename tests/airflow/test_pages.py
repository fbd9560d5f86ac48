"""Pages of reports that lie in a store: Airflow's server shares no folder with the workers that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fastapi import HTTPException
from fastapi.responses import Response

from kafka_migration.airflow import pages
from kafka_migration.migration.reports import Store
from tests.fakes.away import AwayFileSystem, away_store

ROOT = "away://bucket/reports"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[AwayFileSystem]]:
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", ROOT)
    monkeypatch.setattr(pages, "_plan_of", lambda _dag_id: SimpleNamespace(name="shop"))
    with away_store() as found:
        (Store(ROOT) / "shop").write({"report.html": b"<p>a report", "data_docs/static/a.css": b"p {}"})
        Store(ROOT).write({"secret.txt": b"not for anybody"})
        yield found


def get(path: str) -> Response:
    return pages._file("migrate_shop", path, "no report yet")


def test_file_of_a_store_is_served_with_its_kind_and_our_headers(store: type[AwayFileSystem]) -> None:
    answer = get("report.html")
    assert (answer.status_code, answer.body) == (200, b"<p>a report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert get("data_docs/static/a.css").headers["content-type"].startswith("text/css")
    (Store(ROOT) / "shop").write({"report.html": b"another"})
    assert get("report.html").body == b"another"


@pytest.mark.parametrize("path", ["absent.html", "data_docs", "../secret.txt", "data_docs/../../secret.txt"])
def test_what_is_not_among_the_plans_files_is_not_served(store: type[AwayFileSystem], path: str) -> None:
    store.store["/bucket/reports/shop/../secret.txt"] = store.store["/bucket/reports/secret.txt"]
    store.store["/bucket/reports/shop/data_docs/../../secret.txt"] = store.store["/bucket/reports/secret.txt"]
    with pytest.raises(HTTPException) as caught:
        get(path)
    assert (caught.value.status_code, caught.value.detail) == (404, "no report yet")


def test_store_that_is_away_is_a_page_that_is_not_available_now(store: type[AwayFileSystem]) -> None:
    store.refuses = staticmethod(lambda _call, _path: True)
    with pytest.raises(HTTPException) as caught:
        get("report.html")
    assert caught.value.status_code == 503
    assert "Connection refused" in caught.value.detail["message"]  # type: ignore[index]
