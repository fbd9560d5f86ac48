"""Where a migration stands, written down for the board: whole, small, and never in the way of the migration."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.domain.errors import BadInput, ClusterUnreachable
from kafka_migration.link.lag import LagMeter
from kafka_migration.migration import context
from kafka_migration.migration.context import Context
from kafka_migration.migration.reports import Place, Store, board_files, read_json
from kafka_migration.overview import board, status
from kafka_migration.overview.board import Publisher
from kafka_migration.overview.notices import KIND, NAME, Notice, Notices
from kafka_migration.overview.status import Status
from kafka_migration.plans.model import Plan
from tests.fakes.away import away_store
from tests.steps import histories
from tests.steps.gates import Migration
from tests.waiting import wait_until


@pytest.fixture
def shop() -> Migration:
    return Migration()


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path if request.param == "folder" else Store(f"memory://{uuid.uuid4().hex}/reports")


def publish(shop: Migration, place: Place, **fields: Any) -> float:
    return Publisher(shop.ctx(**fields), lambda: place).publish()


def page(place: Place) -> dict[str, Any]:
    found = read_json(board_files(place, "shop")[0])
    assert found is not None
    return found


def summary(place: Place) -> dict[str, Any]:
    found = read_json(board_files(place, "shop")[1])
    assert found is not None
    return found


def test_page_and_summary_are_those_of_the_migration(shop: Migration, place: Place) -> None:
    histories.in_flight(shop)
    publish(shop, place)
    seen = status.read(shop.ctx())
    known = {"format": 1, "needs": [], "history": [[seen.at.timestamp(), 300]], "is_over": False}
    assert page(place) == {**json.loads(json.dumps(seen.as_dict())), **known}
    found = summary(place)
    assert (found["migration"], found["mirror"], found["lag"], found["verdict"]) == ("shop", "running", 300, "EQUAL")
    assert (found["groups"], found["groups_moved"]) == (2, 1)
    assert (found["need"], found["more_needs"], found["is_over"]) == ("", 0, False)


def test_what_needs_a_person_is_in_both(shop: Migration, place: Place) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    shop.clock.sleep(400)
    publish(shop, place)
    [need] = page(place)["needs"]
    assert "mirror is silent" in need["what"]
    assert (summary(place)["need"], summary(place)["more_needs"]) == (need["what"], 0)


def test_documents_of_migrations_with_names_alike_are_apart(tmp_path: Path) -> None:
    files = [str(file) for name in ("shop", "shop.summary", "shop.json") for file in board_files(tmp_path, name)]
    assert len(set(files)) == len(files)


def test_lag_over_time_goes_on_where_another_process_wrote_last(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    for _ in range(3):
        publish(shop, tmp_path)
        shop.clock.sleep(10)
        shop.produce(10)
    began, *_ = history = page(tmp_path)["history"]
    assert [[at - began[0], lag] for at, lag in history] == [[0, 300], [10, 330], [20, 360]]


def test_lag_over_time_outlasts_a_source_that_does_not_answer(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    publish(shop, tmp_path)
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        publish(shop, tmp_path)
    assert summary(tmp_path)["lag"] is None
    assert "lag unknown: source: no broker" in summary(tmp_path)["need"]
    assert len(page(tmp_path)["history"]) == 1


def test_page_of_later_is_not_replaced_by_one_that_took_long(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    publish(shop, tmp_path)
    late = replace(status.read(shop.ctx()), at=shop.clock.now())
    shop.clock.sleep(1)
    publish(shop, tmp_path)
    newest = page(tmp_path)["at"]
    Publisher(shop.ctx(), lambda: tmp_path)._write(late, ())
    assert page(tmp_path)["at"] == newest


def test_plan_that_has_not_joined_the_migration_writes_nothing(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    publish(shop, tmp_path, approvals={"plan": True, "cutover": False})
    assert not (tmp_path / ".board").exists()
    publish(shop, tmp_path)
    assert (tmp_path / ".board").exists()


def test_migration_that_has_not_begun_writes_nothing(shop: Migration, tmp_path: Path) -> None:
    publish(shop, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["", "{", "[]", "{}", '{"history": null}', '{"at": 7, "history": 7}'])
def test_document_that_is_none_is_written_anew(shop: Migration, tmp_path: Path, broken: str) -> None:
    histories.created(shop)
    whole = Path(str(board_files(tmp_path, "shop")[0]))
    whole.parent.mkdir(parents=True)
    whole.write_text(broken)
    publish(shop, tmp_path)
    assert (page(tmp_path)["migration"], len(page(tmp_path)["history"])) == ("shop", 1)


@pytest.mark.parametrize(("cost", "rest"), [(0.0, 30.0), (1.0, 30.0), (6.0, 120.0), (60.0, 300.0)])
def test_looking_takes_a_twentieth_of_the_time_within_bounds(
    shop: Migration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, rest: float
) -> None:
    histories.created(shop)
    read = status.read

    def slow(*arguments: Any) -> Status:
        shop.clock.sleep(cost)
        return read(*arguments)

    monkeypatch.setattr(status, "read", slow)
    assert publish(shop, tmp_path) == rest


def test_rates_are_those_between_two_looks(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    found = Publisher(shop.ctx(), lambda: tmp_path)
    found.publish()
    assert page(tmp_path)["lag"]["produced_per_second"] is None
    shop.clock.sleep(10)
    shop.produce(100)
    found.publish()
    assert page(tmp_path)["lag"]["produced_per_second"] == 30.0


def test_generation_that_has_begun_meanwhile_is_the_one_that_is_seen(
    shop: Migration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.created(shop)
    found, later = Publisher(shop.ctx(), lambda: tmp_path), shop.ctx()
    seen: list[Context] = []
    read = status.read

    def noting(ctx: Context, meter: LagMeter) -> Status:
        seen.append(ctx)
        return read(ctx, meter)

    monkeypatch.setattr(status, "read", noting)
    found.publish()
    monkeypatch.setattr(Context, "newest", lambda _ctx: later)
    found.publish()
    assert [ctx is later for ctx in seen] == [False, True]


def sending(sent: list[Notice]) -> Notices:
    def send(notice: Notice) -> bool:
        sent.append(notice)
        return True

    return Notices(send)


def test_what_needs_a_person_is_notified_of_though_no_page_can_be_written(shop: Migration, tmp_path: Path) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    (tmp_path / "file").write_text("")
    sent: list[Notice] = []
    notices = sending(sent)
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        for _ in range(2):
            with pytest.raises(BadInput, match="cannot be written"):
                Publisher(shop.ctx(), lambda: tmp_path / "file", notices).publish()
            shop.clock.sleep(90)
    assert "unknown: source: no broker" in sent[0].what
    # Another process goes on with the same memory.
    later = sending(sent)
    for _ in range(2):
        Publisher(shop.ctx(), lambda: tmp_path, later).publish()
        shop.clock.sleep(90)
    assert len(sent) == 1, "what is over comes five minutes after the last message"
    shop.clock.sleep(300)
    Publisher(shop.ctx(), lambda: tmp_path, later).publish()
    assert sent[1].what.startswith("over: unknown: ")


def test_what_needs_a_person_is_notified_of_though_there_is_no_place_for_pages(shop: Migration) -> None:
    def place() -> Place:
        raise BadInput("no such store")

    histories.created(shop)
    sent: list[Notice] = []
    publisher = Publisher(shop.ctx(), place, sending(sent))
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        for _ in range(2):
            with pytest.raises(BadInput):
                publisher.publish()
            shop.clock.sleep(90)
    assert len(sent) == 1


def test_page_is_written_though_nobody_can_be_notified(shop: Migration, tmp_path: Path) -> None:
    def send(_notice: Notice) -> bool:
        raise ValueError("no such mail server")

    histories.created(shop)
    publisher = Publisher(shop.ctx(), lambda: tmp_path, Notices(send))
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        publisher.publish()
        shop.clock.sleep(90)
        with pytest.raises(ValueError, match="no such mail"):
            publisher.publish()
    assert len(page(tmp_path)["needs"]) > 0
    assert page(tmp_path)["at"].startswith(summary(tmp_path)["at"].partition("+")[0])


def test_nobody_is_notified_of_a_migration_that_has_not_begun(shop: Migration, tmp_path: Path) -> None:
    sent: list[Notice] = []
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        for _ in range(5):
            Publisher(shop.ctx(), lambda: tmp_path, sending(sent)).publish()
            shop.clock.sleep(90)
    assert sent == []
    assert shop.ctx().journal.read(KIND, NAME) is None


# -- beside the migration ----------------------------------------------------------------------------------------------


@pytest.fixture
def opens(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens first where a context is opened, one after the other; after the last one, nothing."""
    first: list[Callable[[], None]] = []

    @contextmanager
    def open_context(plan: Plan) -> Iterator[Context]:
        if first:
            first.pop(0)()
        yield shop.ctx()

    monkeypatch.setattr(context, "open_context", open_context)
    histories.created(shop)
    return first


def away() -> None:
    raise ClusterUnreachable("target", "127.0.0.1:1", "timed out")


def test_page_is_written_at_once(shop: Migration, opens: Any, tmp_path: Path) -> None:
    reported: list[str] = []
    board.publish(shop.plan(), lambda: tmp_path, reported.append)
    assert summary(tmp_path)["migration"] == "shop"
    assert reported == []


def test_whatever_goes_wrong_is_reported_and_ends_nothing(shop: Migration, opens: Any, tmp_path: Path) -> None:
    reported: list[str] = []
    opens += [away, lambda: 1 / 0]
    for _ in range(2):
        board.publish(shop.plan(), lambda: tmp_path, reported.append)
    assert "the board is not up to date: target: no broker" in reported[0]
    assert reported[1] == "the board is not up to date: ZeroDivisionError: division by zero"
    (tmp_path / "file").write_text("")
    board.publish(shop.plan(), lambda: tmp_path / "file", reported.append)
    assert "cannot be written" in reported[2]
    with away_store() as found:
        found.refuses = staticmethod(lambda _call, _path: True)
        board.publish(shop.plan(), lambda: Store("away://bucket/reports"), reported.append)
    assert "the store of reports does not serve" in reported[3]


def test_what_hangs_is_not_waited_for(shop: Migration, opens: Any, tmp_path: Path) -> None:
    reported, may_go_on = list[str](), threading.Event()
    opens.append(may_go_on.wait)
    try:
        board.publish(shop.plan(), lambda: tmp_path, reported.append, seconds=0.05)
        assert reported == ["the board is not up to date: not written in time"]
    finally:
        may_go_on.set()


def test_page_is_kept_up_to_date_until_the_block_ends(
    shop: Migration, opens: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "_LEAST_SECONDS", 0.01)
    reported: list[str] = []
    opens += [away, away]
    with board.publishing(shop.plan(), lambda: tmp_path, reported.append):
        wait_until(lambda: read_json(board_files(tmp_path, "shop")[1]) is not None, "the first page")
        shop.clock.sleep(100)
        wait_until(lambda: len(page(tmp_path)["history"]) > 1, "a later page")
        [thread] = [one for one in threading.enumerate() if one.name == "board"]
    thread.join(10)
    assert not thread.is_alive()
    # Once for each reason, though it was so twice.
    assert len(reported) == 1
