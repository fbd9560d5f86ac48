"""A rehearsal of switching producers, in memory: what it changes, refuses and measures, and a death at every change."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafka_migration.domain.errors import CouldNotFindOut, Refused, StateConflict, TakenOver
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import BACK_REHEARSAL, REHEARSAL, WRITES
from kafka_migration.fence.record import FenceState
from kafka_migration.link import reverse, switched
from kafka_migration.overview import status
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cancel, rehearsal, release, report
from kafka_migration.steps import fence as fence_step
from kafka_migration.steps.rehearsal import DRAIN, FENCE, TIME
from kafka_migration.steps.step import Decision
from tests.fence.worlds import PROBE, acl
from tests.steps.gates import at_a_terminal
from tests.steps.test_switch import ORDERS, TOPICS, Killed, Shop, make, served, shop
from tests.steps.test_switch_back import BackShop

__all__ = ["make", "shop"]

#: What a rehearsal may write: its own record with its owner, and that it ran.
OWN_KEYS = ("acl", "shop/fence/rehearsal", "shop/fence-owner/rehearsal", "shop/phase/switch rehearsal")


class HookShop(Shop):
    more: ClassVar[Mapping[str, Any]] = {
        "fence": {
            "kind": "hook",
            "close": [{"command": ["/bin/true", "close"]}],
            "open": [{"command": ["/bin/true", "open"]}],
        }
    }


class OpenShop(Shop):
    more: ClassVar[Mapping[str, Any]] = {"fence": {"kind": "none"}}


def rehearse(shop: Shop, **fields: Any) -> Decision:
    return rehearsal.run(shop.ctx(**fields), environ={})


def found(decision: Decision, name: str) -> Any:
    (one,) = (check for check in decision.value.checks if check.name == name)
    return one


def denied(shop: Shop) -> set[str]:
    return {rule.principal for rule in shop.source.acls() if rule.permission == "DENY"}


def back(shop: Shop) -> None:
    """The end of every rehearsal: all is as before."""
    assert shop.source.acls() == shop.before
    last = record.read(shop.ctx(), REHEARSAL)
    assert last is None or last.state is FenceState.LIFTED
    assert record.read(shop.ctx(), WRITES) is None
    assert switched.read(shop.ctx()) is None
    assert status.read(shop.ctx()).rehearsal == ""


def killed_at(shop: Shop, changes: int, run: Callable[[Shop], object] = rehearse) -> bool:
    """Whether it died before its change number ``changes``."""
    left = itertools.count(changes, -1)

    def dies() -> None:
        if next(left) <= 0:
            raise Killed

    shop.deadly = dies
    try:
        run(shop)
    except Killed:
        return True
    finally:
        shop.deadly = lambda: None
    return False


def deaths(make: Callable[..., Shop], at_least: int = 8) -> Iterator[Shop]:
    """A shop for each change before which a rehearsal died."""
    for changes in itertools.count():
        one = make()
        if not killed_at(one, changes):
            assert changes >= at_least
            return
        one.clock.sleep(1)
        yield one


def test_only_the_probe_is_denied_by_all_brokers_and_everything_is_as_before(shop: Shop) -> None:
    kept = {key: value for store in (shop.store, shop.links) for key, value in store.items().items()}
    seen: list[set[str]] = []
    note = shop.note

    def noted(effect: str) -> None:
        note(effect)
        seen.append(denied(shop))

    shop.source._errors |= dict.fromkeys(("create_acls", "delete_acls"), lambda: noted("acl"))
    decision = rehearse(shop)
    assert decision.exit_code == 0, decision.message
    assert {*seen[0], *itertools.chain(*seen)} == {PROBE}
    assert all(effect.startswith(OWN_KEYS) for effect in shop.effects), shop.effects
    assert shop.effects.index("shop/fence/rehearsal fencing") < shop.effects.index("acl")
    now = {key: value for store in (shop.store, shop.links) for key, value in store.items().items()}
    assert {key: value for key, value in now.items() if not key.startswith(OWN_KEYS)} == kept
    measured = decision.value.measured
    assert measured.denied_ms.keys() == {1, 2, 3}
    assert (decision.value.denials, decision.value.real, decision.value.principals) == (2, 6, 2)
    back(shop)
    assert report.build(shop.ctx())["fence"] == ""


def test_switch_after_a_rehearsal_makes_every_denial_itself(shop: Shop) -> None:
    rehearse(shop)
    shop.switch()
    served(shop)


@pytest.mark.parametrize("when", ["dry run", "refused"])
def test_dry_run_and_refusal_deny_nobody(shop: Shop, when: str) -> None:
    if when == "refused":
        shop.clock.sleep(100)
    decision = rehearse(shop, dry_run=when == "dry run")
    assert decision.exit_code == (when == "refused")
    assert decision.value.measured is None
    assert not any(effect.startswith("acl") for effect in shop.effects)
    assert when == "refused" or (shop.effects == [] and decision.value.denials == 2)


def test_clients_that_the_probes_denial_would_shut_out_are_found_before_it_is_made(shop: Shop) -> None:
    """Where brokers let everybody in as long as a topic has no ACL, the first one shuts everybody out."""
    rights = [acl("User:mover", "READ", "shop.orders"), acl("User:mover", "READ", "shop.payments")]
    for topics, code in ((("shop.orders", "shop.payments"), 0), (("shop.orders",), 1)):
        shop.source._acls = [right for right in rights if right.resource in topics]
        shop.before = shop.source.acls()
        shop.source.configs_of_brokers["allow.everyone.if.no.acl.found"] = "true"
        # The migration's own principal is a super user, and producers are named.
        fence_ = {"probe": "probe", "principals": ["User:web"], "super_users": ["User:mover"]}
        producers = {"fence": fence_, "start": [{"command": ["/bin/true", "start"]}]}
        shop.source.super_users.add("User:mover")
        shop.source.create_acls([acl(PROBE, "WRITE", topic) for topic in topics])
        shop.before = shop.source.acls()
        shop.effects.clear()
        decision = rehearse(shop, producers=producers)
        assert decision.exit_code == code, decision.message
        assert shop.source.acls() == shop.before
    assert "no ACL is on shop.payments" in decision.message
    assert not any(effect.startswith("acl") for effect in shop.effects)


def test_fence_that_stands_is_no_rehearsals_business(shop: Shop) -> None:
    fence_step.run(shop.ctx(), environ={})
    decision = rehearse(shop)
    assert decision.exit_code == 1
    assert "rehearsal: no fence stands" in decision.message
    assert shop.denials() == 6


def test_switch_that_has_begun_is_not_rehearsed(shop: Shop) -> None:
    shop.switch()
    with pytest.raises(StateConflict, match="a switch of producers has begun"):
        rehearse(shop)
    assert shop.denials() == 6


def test_broker_that_never_denies_is_found_out_and_nothing_is_left(shop: Shop) -> None:
    shop.source._behind[2] = tuple(shop.source.acls())
    with pytest.raises(CouldNotFindOut, match="broker 2 still lets the probe write"):
        rehearse(shop)
    back(shop)


def test_source_that_is_away_once_the_probe_is_denied_has_its_denials_removed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        assert denied(shop) == {PROBE}
        raise CouldNotFindOut("source: no leader")

    monkeypatch.setattr(rehearsal, "look", away)
    with pytest.raises(CouldNotFindOut, match="no leader"):
        rehearse(shop)
    back(shop)


def test_mirror_that_ends_meanwhile_fails_it_at_once_with_what_was_not_copied(shop: Shop) -> None:
    shop.source.append(ORDERS, 7)
    shop.clock.at(2.0, lambda: shop.ctx().link.record_run({"at": shop.ctx().stamp(), "state": "ended"}))
    began = shop.clock.monotonic()
    decision = rehearse(shop)
    assert (decision.exit_code, decision.value.measured.lag) == (1, 7)
    assert shop.clock.monotonic() - began < 3, "nobody copies any more"
    assert found(decision, DRAIN).evidence.startswith("7 source offsets were not copied")
    assert decision.value.measured.drained_ms is None
    back(shop)


def test_drain_is_measured_to_exactly_the_ends_that_were_read(shop: Shop) -> None:
    shop.source.append(ORDERS, 7)
    shop.clock.at(2.0, lambda: shop.places.update({ORDERS: 107}))
    decision = rehearse(shop)
    measured = decision.value.measured
    assert decision.exit_code == 0, decision.message
    assert 1_500 < measured.drained_ms < 2_100
    assert measured.left_ms == pytest.approx(45_000 - measured.fence_ms - measured.drained_ms)


def test_mirror_that_is_active_and_does_not_catch_up_is_waited_for_no_longer_than_a_switch_would(shop: Shop) -> None:
    shop.source.append(ORDERS, 7)
    for at in range(5, 100, 5):
        shop.clock.at(at, shop.mirrors)
    began = shop.clock.monotonic()
    assert found(rehearse(shop), DRAIN).verdict == "FAIL"
    assert 44 < shop.clock.monotonic() - began < 46
    back(shop)


@pytest.mark.parametrize(("seconds", "failed"), [(1, set()), (6, {FENCE}), (8, {FENCE, TIME})])
def test_acls_that_would_take_too_long_for_all_principals_fail_it(shop: Shop, seconds: float, failed: set[str]) -> None:
    """The probe's two are made in time; those of two principals more would not be."""
    shop.source._errors["create_acls"] = lambda: shop.clock.sleep(seconds)
    decision = rehearse(shop)
    assert {check.name for check in decision.value.checks if check.verdict == "FAIL"} == failed
    assert decision.exit_code == bool(failed)
    assert decision.value.measured.more_ms == pytest.approx(4_000 * seconds)
    back(shop)


@pytest.mark.parametrize("kind", [HookShop, OpenShop])
def test_fence_without_acls_changes_nothing_and_says_what_it_cannot_show(
    make: Callable[..., Shop], kind: type[Shop]
) -> None:
    shop = make(kind)
    decision = rehearse(shop)
    assert decision.exit_code == 0, decision.message
    assert not any(effect.startswith("acl") for effect in shop.effects)
    assert shop.hooks() == []
    assert "whether anybody is kept from writing" in decision.value.unshown[0]
    assert decision.value.measured.denied_ms == {}
    # Log ends stand still for so long, before a switch goes on.
    assert decision.value.measured.fence_ms >= 5_000
    back(shop)


# -- deaths -----------------------------------------------------------------------------------------------------------


def test_killed_anywhere_the_next_rehearsal_ends_as_any_other(make: Callable[..., Shop]) -> None:
    for one in deaths(make):
        assert rehearse(one).exit_code == 0
        back(one)


def test_killed_anywhere_lifting_the_fence_removes_what_is_left_and_nothing_is_taken_for_a_fence(
    make: Callable[..., Shop],
) -> None:
    named = 0
    for one in deaths(make):
        ctx = one.ctx()
        is_left = bool(one.denials())
        assert denied(one) <= {PROBE}
        if is_left:
            named += 1
            assert "the probe alone is denied" in status.read(ctx).rehearsal.lower()
        assert status.read(ctx).fence == ""
        fence.require_none(ctx)
        fence_step.lift(ctx, environ={})
        back(one)
    assert named >= 3


def test_killed_anywhere_a_switch_ends_it_and_its_fence_can_be_lifted_again(make: Callable[..., Shop]) -> None:
    for one in deaths(make):
        one.switch()
        served(one)
        last = record.read(one.ctx(), REHEARSAL)
        assert last is None or not last.stands


def test_switch_killed_while_it_ends_a_rehearsal_leaves_what_the_teardown_lifts(make: Callable[..., Shop]) -> None:
    for changes in itertools.count():
        shop = make()
        _left(shop)
        if not killed_at(shop, changes, lambda one: fence_step.run(one.ctx(), environ={})):
            assert changes > 8
            return
        fence_step.lift(shop.ctx(), environ={})
        assert shop.source.acls() == shop.before, changes
        assert status.read(shop.ctx()).rehearsal == ""


def _left(shop: Shop) -> None:
    """A rehearsal died once the probe was denied."""

    def dies() -> None:
        if shop.denials() == 2:
            raise Killed

    shop.deadly = dies
    with suppress(Killed):
        rehearse(shop)
    shop.deadly = lambda: None
    assert denied(shop) == {PROBE}


def test_rehearsal_that_is_refused_has_removed_what_the_one_before_left(shop: Shop) -> None:
    _left(shop)
    shop.clock.sleep(100)
    assert rehearse(shop).exit_code == 1
    back(shop)


def test_check_of_a_switch_names_what_a_rehearsal_left_and_may_go_on(shop: Shop) -> None:
    _left(shop)
    decision = shop.switch(dry_run=True)
    assert decision.exit_code == 0, decision.message
    assert "a rehearsal is fencing" in found(decision, "fence: none stands").evidence


def test_fence_that_is_applied_meanwhile_keeps_its_denials_and_ends_the_rehearsal(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    look: Any = vars(rehearsal)["look"]
    begun: list[Decision] = []

    def looked(*args: Any) -> Any:
        if not begun:
            begun.append(fence_step.run(shop.ctx(), environ={}))
        return look(*args)

    monkeypatch.setattr(rehearsal, "look", looked)
    with pytest.raises(TakenOver):
        rehearse(shop)
    assert shop.denials() == 6
    assert fence.status(shop.ctx()).missing == ()
    # Its request was under way: what it removes now stays with the fence.
    fence.end_rehearsal(shop.ctx(), REHEARSAL)
    assert shop.denials() == 6


def test_denial_of_the_probe_by_another_migration_is_not_removed(shop: Shop) -> None:
    fence_step.run(shop.ctx(), environ={})
    value = shop.ctx().journal.read("fence", "writes")
    assert value is not None
    fence_step.lift(shop.ctx(), environ={})
    shop.clock.sleep(100)
    shop.mirrors()
    Journal(shop.store, "other").record("fence", "writes", value)
    shared = [WRITES.denial("shop.orders", PROBE)]
    shop.source.create_acls(shared)
    with pytest.raises(StateConflict, match="the fence of migration other denies the probe"):
        rehearse(shop)
    assert set(shared) <= set(shop.source.acls())


def test_release_and_cancel_take_no_rehearsal_for_a_fence_and_release_ends_it(shop: Shop) -> None:
    _left(shop)
    with pytest.raises(Refused) as caught:
        cancel.check(shop.ctx())
    assert "fenced" not in caught.value.message
    shop.ctx().link.record_run({"at": shop.ctx().stamp(), "state": "ended"})
    assert release.apply(shop.ctx(), forced=True) == TOPICS
    back(shop)


# -- back, and the command --------------------------------------------------------------------------------------------


def test_way_back_is_rehearsed_on_the_target(make: Callable[..., Any]) -> None:
    shop = make(BackShop)
    shop.begin()
    before = shop.source.acls()
    decision = rehearsal.run(reverse.way_back(shop.ctx().newest()), environ={})
    assert decision.exit_code == 0, decision.message
    assert decision.value.side == "target"
    assert (shop.target.acls(), shop.source.acls()) == (shop.there, before)
    last = record.read(shop.ctx(), BACK_REHEARSAL)
    assert last is not None
    assert last.state is FenceState.LIFTED
    record.write(shop.ctx(), BACK_REHEARSAL, replace(last, state=FenceState.FENCING))
    # The forward fence stays behind its seal, and is not asked for.
    fence_step.lift(shop.ctx().newest(), environ={})
    assert (status.read(shop.ctx()).rehearsal, shop.source.acls()) == ("", before)


def test_command_rehearses_shows_the_times_and_names_what_is_left(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    km = at_a_terminal(shop, tmp_path, monkeypatch, columns=160)
    looked = json.loads(km("switch", "--rehearse", "--check", "--json").stdout)
    assert (looked["rehearsed"], looked["denials"], shop.effects) == (False, 2, [])
    done = km("switch", "--rehearse")
    assert done.exit_code == 0
    for shown in ("denied by brokers after", "left of switch_seconds", "not shown: hooks", "a switch makes 6"):
        assert shown in done.stdout
    value = json.loads(km("switch", "--rehearse", "--json").stdout)
    assert (value["rehearsed"], value["measured"]["denied_ms"].keys()) == (True, {"1", "2", "3"})
    _left(shop)
    assert "The probe alone is denied" in km("fence", "--status").stdout
    assert "The probe alone" in json.loads(km("fence", "--status", "--json").stdout)["rehearsal"]
    assert "a rehearsal on the source is fencing" in km("status").stdout
    assert km("fence", "--lift").exit_code == 0
    back(shop)
    shop.clock.sleep(100)
    refused = km("switch", "--rehearse")
    assert (refused.exit_code, "the mirror runs" in refused.stdout) == (1, True)
