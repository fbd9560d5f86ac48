"""Producers leave a real source with an authorizer and begin on a real target, while they write, a mirror copies (in
the first test on Spark), and a group reads; judged by clients' own notes (docs/checker.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from checker.verdict import Verdict
from kafka_migration.link.switched import SwitchState
from tests.steps import cuts
from tests.steps.cuts import Clusters, Cut
from tests.steps.hook_server import HookServer
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def both() -> Iterator[Clusters]:
    with cuts.clusters() as found:
        yield found


@pytest.fixture
def cut(
    both: Clusters, hooks: HookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Cut]]:
    """A migration whose group was moved, and whose producers write to the source."""
    cuts.connect(monkeypatch, both, hooks)
    made: list[Cut] = []

    def begin(*, on_spark: bool = True, naming: Any = "identity", **producers: Any) -> Cut:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        monkeypatch.chdir(folder)
        sections = {} if naming == "identity" else {"naming": naming}
        made.append(Cut(both, hooks, folder, producers, **sections))
        made[-1].on_spark = on_spark
        made[-1].begin()
        return made[-1]

    yield begin
    for one in made:
        one.close()


def require_sound(verdict: Verdict) -> None:
    assert verdict.faults == 0, verdict.findings.examples
    assert verdict.exit_code == 0, verdict.summary()


def test_producers_move_while_they_write_and_nothing_is_lost_doubled_or_reordered(
    cut: Callable[..., Cut], hooks: HookServer
) -> None:
    fence = {"probe": "probe_target", "super_users": ["User:ANONYMOUS"]}
    shop = cut(target_fence=fence, target_closed=True, groups_stay=True, naming={"prefix": "west"})
    assert shop.refuses("target", "web"), "nobody writes there early"
    rehearsed_while_clients_write(shop)
    shop.switch()
    done = shop.record()
    assert done.state is SwitchState.DONE
    assert [call[:3] for call in hooks.calls if not call[3]] == [
        ("stop", "source", "fence"),
        ("start", "target", "switch"),
    ]
    assert shop.web.refused, "one of them met the fence"
    require_sound(shop.judged())
    # Behind the judge's back, so that what is let in counts for nobody.
    assert shop.refuses("source", "web")
    with pytest.raises(KafkaException, match="Group authorization failed"):
        shop.commits_on_source()


def rehearsed_while_clients_write(shop: Cut) -> None:
    """No producer is denied, and ACLs are what they were; killed with the probe denied, `fence --lift` ends it."""
    with shop.clusters.admin("source") as admin:
        before = admin.acls()
        value = json.loads(shop.run("switch", "--rehearse", "--json").out)
        assert admin.acls() == before
        measured = value["measured"]
        assert len(measured["denied_ms"]) == 1
        assert 0 < measured["applied_ms"] <= measured["denied_ms"]["1"] <= measured["fence_ms"]
        assert measured["drained_ms"] is not None
        assert measured["left_ms"] > 30_000
        shop.switch("kafka_migration.steps.rehearsal:_measure", words=("--rehearse",))
        left = {*admin.acls()} - {*before}
        assert {(one.principal, one.permission) for one in left} == {("User:probe", "DENY")}
        assert "The probe alone is denied" in shop.run("fence", "--status").out
        shop.run("fence", "--lift")
        assert admin.acls() == before
    for client in shop.writers:
        client.lives()
    assert [client.refused for client in shop.writers] == [0, 0, 0]


def test_killed_before_the_seal_and_behind_the_point_of_no_return_the_next_call_finishes(
    cut: Callable[..., Cut], hooks: HookServer
) -> None:
    shop = cut(on_spark=False)
    shop.switch(dies_before="kafka_migration.link.seal:_apply")
    assert shop.record().state is SwitchState.SWITCHING
    refused = shop.web.refused
    wait_until(lambda: shop.web.refused > refused + 5, "the fence stands")
    shop.switch(dies_before="kafka_migration.steps.switch:_Work._finish")
    assert shop.record().state is SwitchState.SERVED
    assert "roll back first" in shop.run("fence", "--lift", code=1).err
    assert ("start", "target", "switch", "") not in hooks.calls
    shop.switch()
    assert shop.record().state is SwitchState.DONE
    assert ("start", "source", "lift", "") not in hooks.calls
    require_sound(shop.judged())


def test_producers_that_go_first_leave_the_group_to_read_what_comes_back_and_it_moves_behind_them(
    cut: Callable[..., Cut], hooks: HookServer
) -> None:
    shop = cut(on_spark=False, first=True, approval=False)
    shop.switch()
    assert shop.record().state is SwitchState.DONE
    assert [call[:2] for call in hooks.calls if call[3]] == [], "no group was touched"
    assert shop.mirror is not None
    shop.mirror.wait(120)
    shop.start_mirror("--reverse")
    # It reads on the source what producers write on the target.
    shop.all_live()
    assert shop.run("stragglers").out
    shop.cut_over()
    assert [call[:3] for call in hooks.calls if call[3]] == [
        ("stop", "source", "cutover"),
        ("start", "target", "cutover"),
    ]
    require_sound(shop.judged())
