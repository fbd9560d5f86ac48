"""Reports and Data Docs in a store: machines that share no folder write and read the same pages."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_migration.cli.app import app
from kafka_migration.compare.launch import Expectations, run_expectations
from kafka_migration.domain.errors import BadInput, CouldNotFindOut
from kafka_migration.migration.reports import Store, is_file, local_site, made, place_of
from kafka_migration.steps import report
from kafka_migration.steps import validate as validate_step
from kafka_migration.validation import validate, verdict
from tests.fakes.away import AwayFileSystem, away_store
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_validate import Lab

ROOT = "away://bucket/reports"


@pytest.fixture
def away() -> Iterator[type[AwayFileSystem]]:
    with away_store() as found:
        yield found


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """One without folders, and one that has them."""
    name = uuid.uuid4().hex
    return Store(f"memory://{name}/reports" if request.param == "memory" else f"local://{tmp_path}/{name}/reports")


@pytest.fixture
def finished() -> Migration:
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    histories.validated(shop)
    histories.moved(shop)
    return shop


def all_refused(_call: str, _path: str) -> bool:
    return True


# -- places -----------------------------------------------------------------------------------------------------------


def test_path_stays_a_path_and_a_url_of_files_is_one() -> None:
    assert place_of("reports") == Path("reports")
    assert place_of("file:///data/reports") == Path("/data/reports")
    assert place_of("memory://bucket/reports/") == Store("memory://bucket/reports")
    assert str(place_of("memory://bucket") / "shop" / "report.json") == "memory://bucket/shop/report.json"


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:s3cret@bucket/reports",
        "s3://AKIA:s3c/ret@bucket/reports",
        "sftp://u:s3c#ret@host/reports",
        "abfs://container/reports?sig=s3cret",
    ],
)
def test_url_with_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadInput, match="AWS_SECRET_ACCESS_KEY") as caught:
        place_of(url)
    assert "s3c" not in str(caught.value)
    for command in ("report", "validate", "run"):
        result = CliRunner().invoke(app, [command, "absent.yaml", "--output", url, "--json"])
        found = json.loads(result.stdout)["error"]
        assert (result.exit_code, found["field"], found["value"]) == (2, "--output", f"{url.partition(':')[0]}://…")
        assert "s3c" not in result.output


@pytest.mark.parametrize(
    ("url", "problem"),
    [("nowhere://bucket", "Protocol not known"), ("s3://", "names a bucket"), ("sftp://h/x", "paramiko")],
)
def test_url_of_a_store_that_cannot_be_used_here_is_refused_with_a_remedy(url: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        place_of(url)
    assert "s3" in caught.value.remedy


# -- files in a store -------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_and_replaced_and_removed(store: Store) -> None:
    assert (store / "a.html").read() is None
    assert store.read_all() == {}
    store.write({"a.html": b"1", "deep/er/[b] *?.html": b"2"})
    store.write({"a.html": b"3"})
    assert (store / "a.html").read() == b"3"
    assert (store / "deep").read() is None
    assert store.read_all() == {"a.html": b"3", "deep/er/[b] *?.html": b"2"}
    store.remove({"a.html", "gone already"})
    assert store.read_all() == {"deep/er/[b] *?.html": b"2"}


def test_site_keeps_what_others_have_added_meanwhile_and_loses_only_what_this_run_removed(store: Store) -> None:
    store.write({"index.html": b"old", "pages/1.html": b"1", "pages/2.html": b"2"})
    with local_site(store) as folder:
        (folder / "pages" / "1.html").unlink()
        (folder / "pages" / "3.html").write_bytes(b"3")
        (folder / "index.html").write_bytes(b"new")
        store.write({"pages/4.html": b"4"})
    assert store.read_all() == {"index.html": b"new"} | {f"pages/{n}.html": b"%d" % n for n in (2, 3, 4)}


def test_index_is_written_after_the_pages_that_it_names_and_before_old_ones_go(away: type[AwayFileSystem]) -> None:
    site = Store(ROOT)
    site.write({"index.html": b"old", "pages/1.html": b"1", "pages/2.html": b"2"})
    away.done.clear()
    with local_site(site) as folder:
        (folder / "pages" / "1.html").unlink()
        (folder / "pages" / "3.html").write_bytes(b"3")
        (folder / "a.html").write_bytes(b"a")
        (folder / "index.html").write_bytes(b"new")
    calls = [(call, path.removeprefix("/bucket/reports/")) for call, path in away.done]
    assert set(calls[:2]) == {("write", "a.html"), ("write", "pages/3.html")}, "what did not change stays"
    assert calls[2:] == [("write", "index.html"), ("remove", "pages/1.html")]


def test_page_whose_name_leads_out_of_the_folder_is_not_fetched(away: type[AwayFileSystem], tmp_path: Path) -> None:
    Store(ROOT).write({"index.html": b"1", "../../../planted.html": b"2"})
    away.store["/bucket/reports/../planted.html"] = away.store["/bucket/reports/index.html"]
    with local_site(Store(ROOT)) as folder:
        assert [path.name for path in folder.parent.rglob("*.html")] == ["index.html"]


# -- the report -------------------------------------------------------------------------------------------------------


def test_report_in_a_store_is_that_of_a_folder(finished: Migration, store: Store, tmp_path: Path) -> None:
    (store / "shop").write({"data_docs/index.html": b"a page"})
    written = report.apply(finished.ctx(), store)
    assert written.as_dict()["html"] == f"{store}/shop/report.html"
    assert written.report["data_docs"] == "data_docs/index.html"
    found = (store / "shop").read_all()
    assert sorted(found) == ["data_docs/index.html", "report.html", "report.json"]
    assert json.loads(found["report.json"]) == written.report
    assert found["report.html"].decode() == report.as_html(written.report)


def test_dry_run_writes_nothing_to_a_store(finished: Migration, store: Store) -> None:
    report.apply(finished.ctx(dry_run=True), store)
    assert store.read_all() == {}


@pytest.mark.parametrize("call", ["read", "write"])
def test_store_that_is_away_is_exit_code_3_and_the_old_report_stays(
    finished: Migration, away: type[AwayFileSystem], call: str
) -> None:
    report.apply(finished.ctx(), Store(ROOT))
    before = (Store(ROOT) / "shop").read_all()
    away.refuses = staticmethod(lambda called, _path: called == call)
    with pytest.raises(CouldNotFindOut, match=f"{ROOT}/shop.*: ConnectionRefusedError: .*Connection refused") as caught:
        report.apply(finished.ctx(), Store(ROOT), extra={"demo": {}})
    assert caught.value.exit_code == 3
    assert "AWS_ACCESS_KEY_ID" in caught.value.remedy
    away.refuses = staticmethod(lambda _call, _path: False)
    assert (Store(ROOT) / "shop").read_all() == before


# -- validation -------------------------------------------------------------------------------------------------------


def writes(pages: Mapping[str, str]) -> object:
    def suite(_table: Path, directory: Path, _environ: Mapping[str, str]) -> Expectations:
        for name, text in pages.items():
            (directory / name).write_text(text)
        return Expectations(success=True, failed=())

    return suite


def test_validation_leaves_its_result_and_its_pages_in_a_store(store: Store) -> None:
    lab = Lab(Path("unused"))
    lab.topic("a")
    found = lab.validate(reports=store, suite=writes({"index.html": "one", "1.html": "1"}))
    assert (found.exit_code, str(found.data_docs)) == (0, f"{store}/lab/data_docs/index.html")
    assert json.loads((store / "lab" / "validation.json").read() or b"")["verdict"] == "EQUAL"
    found = lab.validate(reports=store, suite=writes({"index.html": "two", "2.html": "2"}), topics=("a",))
    assert found.data_docs == store / "lab" / "data_docs" / "index.html"
    assert is_file(store / "lab" / "partial" / "validation.json")
    pages = (store / "lab" / "data_docs").read_all()
    assert pages == {"index.html": b"two", "1.html": b"1", "2.html": b"2"}


@pytest.mark.long
def test_data_docs_of_great_expectations_grow_in_a_store(store: Store) -> None:
    lab = Lab(Path("unused"))
    lab.topic("a")
    for _ in range(2):
        lab.clock.sleep(60)
        assert lab.validate(reports=store, suite=run_expectations).exit_code == 0
    pages = (store / "lab" / "data_docs").read_all()
    runs = [name for name in pages if re.fullmatch(r"validations/.*\.html", name)]
    assert len(runs) == 2
    assert b"lab-validation" in pages["index.html"]


def test_store_that_is_away_is_found_out_before_anything_is_read(away: type[AwayFileSystem]) -> None:
    lab = Lab(Path("unused"))
    lab.topic("a")
    away.refuses = staticmethod(all_refused)
    with pytest.raises(CouldNotFindOut, match="Connection refused"):
        lab.validate(reports=Store(ROOT))
    assert lab.asked == []


@pytest.mark.parametrize("lost", ["data_docs/2.html", "data_docs/index.html", "validation.json"])
def test_store_that_goes_away_at_the_end_leaves_the_old_index_and_opens_no_gate(
    away: type[AwayFileSystem], lost: str
) -> None:
    lab, site = Lab(Path("unused")), Store(ROOT) / "lab" / "data_docs"
    lab.topic("a")
    site.write({"index.html": b"one", "1.html": b"1"})
    away.refuses = staticmethod(lambda call, path: call == "write" and path.endswith(lost))
    with pytest.raises(CouldNotFindOut, match="Connection refused") as caught:
        lab.validate(reports=Store(ROOT), suite=writes({"index.html": "two", "2.html": "2"}))
    assert caught.value.exit_code == 3
    pages = site.read_all()
    assert pages["index.html"] == (b"two" if lost == "validation.json" else b"one")
    assert pages["1.html"] == b"1"
    assert not is_file(Store(ROOT) / "lab" / "validation.json")
    assert verdict.latest(lab.context()) is None


def test_step_names_the_store_as_the_place_of_its_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(Path("unused"))
    lab.topic("a")
    found = lab.validate(reports=store)
    monkeypatch.setattr(validate, "apply", lambda *_args, **_options: found)
    assert validate_step.run(lab.context(), reports=store).facts["folder"] == f"{store}/lab"


def test_folder_of_a_store_is_made_by_what_is_written_into_it(store: Store) -> None:
    assert made(store / "lab") == store / "lab"
    assert store.read_all() == {}
    assert not os.path.exists(str(store).removeprefix("local://"))
