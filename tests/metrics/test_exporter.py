"""Metrics as Prometheus gets them: of migrations of every kind, and of those that cannot be read."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafka_migration.domain.errors import BadInput, ClusterUnreachable
from kafka_migration.metrics.exporter import Exporter, registry_of, serve
from kafka_migration.metrics.table import METRICS, MIGRATION, PREFIX
from kafka_migration.migration import cancellation, completion
from kafka_migration.migration.cancellation import Cancellation, State
from kafka_migration.overview import status
from tests.steps import histories
from tests.steps.gates import Migration
from tests.waiting import HANGS_SECONDS, wait_until

Series = dict[tuple[str, ...], float]
LABELS = {metric.name: metric.labels for metric in METRICS}


@dataclass
class Fleet:
    """Migrations in memory, by the files of their plans; ``away`` cannot be read."""

    folder: Path
    shops: dict[Path, Migration] = field(default_factory=dict)
    away: dict[str, Exception] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def add(self, name: str, shop: Migration) -> Path:
        path = self.folder / f"{len(self.shops)}.yaml"
        path.write_text(yaml.safe_dump(shop.plan(name=name).snapshot()))
        self.shops[path] = shop
        return path

    def page_of(self, path: Path) -> status.Status:
        shop, name = self.shops[path], yaml.safe_load(path.read_text())["name"]
        if name in self.away:
            raise self.away[name]
        return replace(status.read(shop.ctx()), migration=name)

    def exporter(self) -> Exporter:
        return Exporter(plans=list(self.shops), log=self.log.append, page_of=self.page_of)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def series(exporter: Exporter) -> dict[str, Series]:
    """What a scrape gets: the values by the metric's name without prefix, and by the values of its labels."""
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(generate_latest(registry_of(exporter)).decode()):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            labels = tuple(sample.labels[label] for label in (MIGRATION, *LABELS.get(name, ())))
            found.setdefault(name, {})[labels] = sample.value
    return found


def in_flight(shop: Migration) -> Migration:
    histories.in_flight(shop)
    return shop


def test_migration_in_flight_is_shown_as_its_status_page_shows_it(fleet: Fleet) -> None:
    shop = in_flight(Migration())
    ctx = shop.ctx()
    ctx.link.halt(histories.PAYMENTS, "CORRUPT", "a checksum", 40, 40, ctx.stamp())
    fleet.add("shop", shop)
    exporter = fleet.exporter()
    exporter.read()
    found = series(exporter)
    assert found["up"] == {("shop",): 1}
    assert found["lag_offsets"] == {("shop", "forward", "shop.orders"): 200, ("shop", "forward", "shop.payments"): 100}
    assert found["phase_outcome"] == {("shop", "create_targets", "done"): 1, ("shop", "validate", "done"): 1}
    assert found["phase_duration_seconds"]["shop", "create_targets"] == 30
    assert found["groups"] == {("shop", "stopped"): 1, ("shop", "alive"): 1}
    assert found["groups_longest_pause_seconds"] == {("shop",): 6.5}
    assert found["topics"] == {("shop",): 2}
    assert found["halted_partitions"] == {("shop", "forward", "CORRUPT"): 1}
    assert found["validation_verdict"] == {("shop", "forward", "EQUAL"): 1}
    assert found["mirror_fences"] == {("shop", "forward"): 1}
    assert [labels[:2] for labels in found["approval_timestamp_seconds"]] == [("shop", "plan")]
    assert found["mirror_paused"] == {("shop", "forward"): 0}
    assert found["straggler_records"] == found["over"] == {("shop",): 0}
    assert "fence_standing" not in found


def test_migration_that_cannot_be_read_has_no_values_and_the_others_have(fleet: Fleet) -> None:
    fleet.add("one", in_flight(Migration()))
    fleet.add("two", in_flight(Migration()))
    exporter = fleet.exporter()
    exporter.read()
    seen_at = series(exporter)["read_timestamp_seconds"]["one",]
    fleet.away["one"] = ClusterUnreachable("target", "127.0.0.1:1", "refused")
    exporter.read()
    exporter.read()
    found = series(exporter)
    assert found["up"] == {("one",): 0, ("two",): 1}
    assert found["topics"] == {("two",): 2}
    assert found["read_timestamp_seconds"]["one",] == seen_at
    assert len(fleet.log) == 1, "an outage is no news at each reading"
    assert "one cannot be read: target: no broker at 127.0.0.1:1 answered" in fleet.log[0]
    # An error that nobody expected ends neither this reading nor the next one.
    fleet.away = {"two": KeyError("hunter2")}
    exporter.read()
    assert series(exporter)["up"] == {("one",): 1, ("two",): 0}
    assert set(fleet.log[1:]) == {"one is read again", "two cannot be read: KeyError; `status` shows more"}


def test_plan_that_was_renamed_meanwhile_is_not_taken_for_another_migration(fleet: Fleet) -> None:
    path = fleet.add("shop", in_flight(Migration()))
    exporter = fleet.exporter()
    path.write_text(path.read_text().replace("name: shop", "name: kitchen"))
    exporter.read()
    assert "the plan is called kitchen now" in exporter.errors["shop"]
    assert "topics" not in series(exporter)


def test_migration_that_takes_long_to_read_holds_up_no_other(fleet: Fleet) -> None:
    fleet.add("slow", in_flight(Migration()))
    fleet.add("quick", in_flight(Migration()))
    going_on, ended = threading.Event(), threading.Event()

    def page_of(path: Path) -> status.Status:
        page = fleet.page_of(path)
        if page.migration == "slow":
            assert going_on.wait(HANGS_SECONDS)
        return page

    exporter = Exporter(plans=list(fleet.shops), log=fleet.log.append, page_of=page_of)
    exporter.read_every(0.01, ended)
    try:
        wait_until(lambda: series(exporter)["up"] == {("slow",): 0, ("quick",): 1}, "the quick one alone is read")
        first = series(exporter)["read_timestamp_seconds"]["quick",]
        wait_until(lambda: series(exporter)["read_timestamp_seconds"]["quick",] > first, "it is read again")
        going_on.set()
        wait_until(lambda: series(exporter)["up"]["slow",] == 1, "the slow one is read")
    finally:
        ended.set()
        going_on.set()
        for thread in (one for one in threading.enumerate() if one.name.startswith("metrics ")):
            thread.join(HANGS_SECONDS)


def test_lag_behind_a_seal_is_none(fleet: Fleet) -> None:
    shop = in_flight(Migration())
    fleet.add("shop", shop)
    page = status.read(shop.ctx())
    sealed = replace(page, mirror=replace(page.mirror, is_sealed=True))
    found = {metric.name: list(metric.read(sealed)) for metric in METRICS}
    assert found["lag_offsets"] == []
    assert found["mirror_state"] == [(("forward", "sealed"), 1)]


def test_migration_that_was_not_read_yet_is_not_up(fleet: Fleet) -> None:
    fleet.add("shop", Migration())
    assert series(fleet.exporter()) == {"up": {("shop",): 0}}


def test_migration_that_is_cancelled_or_completed_is_over(fleet: Fleet) -> None:
    for name, over in (("cancelled", True), ("begun-again", False), ("completed", True), ("completing", False)):
        shop = in_flight(Migration())
        path = fleet.add(name, shop)
        ctx = shop.ctx()
        if name == "completed":
            completion.end(ctx, completion.begin(ctx, by="ada"))
        elif name == "completing":
            completion.begin(ctx, by="ada")
        elif over or name == "begun-again":
            state = State.CANCELLED if over else State.BEGUN_AGAIN
            found = Cancellation(state=state, at=ctx.stamp(), by="ada")
            ctx.journal.record(cancellation.KIND, cancellation.NAME, found.as_dict())
        assert fleet.page_of(path).is_over is over, name
    exporter = fleet.exporter()
    exporter.read()
    assert series(exporter)["over"] == {("cancelled",): 1, ("begun-again",): 0, ("completed",): 1, ("completing",): 0}


def test_two_plans_of_one_name_are_refused(fleet: Fleet) -> None:
    fleet.add("shop", Migration())
    second = fleet.add("shop", Migration())
    with pytest.raises(BadInput, match="is a plan of this name, too") as caught:
        fleet.exporter()
    assert (caught.value.file, caught.value.field, caught.value.value) == (str(second), "name", "shop")


def test_scrape_gets_what_was_read_last_and_reads_nothing(fleet: Fleet) -> None:
    fleet.add("shop", in_flight(Migration()))
    exporter = fleet.exporter()
    exporter.read()
    fleet.away["shop"] = AssertionError("a scrape must wait for no cluster")
    url = serve(exporter, "127.0.0.1:0", field="--listen")
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    assert 'kafka_migration_up{migration="shop"} 1.0' in text
    taken = re.search(r":(\d+)/", url)
    assert taken
    with pytest.raises(BadInput, match="cannot be listened on: Address already in use"):
        serve(exporter, f"127.0.0.1:{taken[1]}", field="--listen")


@pytest.mark.parametrize("place", ["9404", "127.0.0.1", "127.0.0.1:", ":9404", "127.0.0.1:99999", "127.0.0.1:http"])
def test_place_that_is_none_is_refused(fleet: Fleet, place: str) -> None:
    with pytest.raises(BadInput, match="is not HOST:PORT"):
        serve(fleet.exporter(), place, field="--listen")


@pytest.mark.parametrize("begin", [lambda shop: None, histories.created, in_flight])
def test_every_series_appears_once_and_has_the_labels_of_its_metric(begin: Callable[[Migration], object]) -> None:
    shop = Migration()
    begin(shop)
    page = status.read(shop.ctx())
    for metric in METRICS:
        found = list(metric.read(page))
        assert len({labels for labels, _ in found}) == len(found), metric.name
        assert all(len(labels) == len(metric.labels) for labels, _ in found), metric.name
