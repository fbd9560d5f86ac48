"""The fence on a cluster in memory: whom it denies, when it counts as proved, and that it always comes off again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import (
    BadInput,
    CouldNotFindOut,
    NeedsRollback,
    NotAuthorized,
    Refused,
    StateConflict,
    TakenOver,
)
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.names import TopicNames
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import BACK_WRITES, EARLY_WRITES, GROUP_READS, WRITES
from kafka_migration.fence.proof import Straggler
from kafka_migration.fence.record import FenceState
from kafka_migration.kafka import acls as kafka_acls
from kafka_migration.kafka.renamed import renamed
from kafka_migration.link import lifecycle
from kafka_migration.migration.context import Context
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from tests.fakes.cluster import FakeCluster
from tests.fence.worlds import FIRST, ORDERS, OWN, PAYMENTS, PROBE, FencedShop, acl

CLIENTS = ("User:batch", "User:billing", "User:web")


@pytest.fixture
def shop() -> FencedShop:
    return FencedShop()


def state(shop: FencedShop) -> FenceState | None:
    found = record.read(shop.ctx(), WRITES)
    return None if found is None else found.state


def results(shop: FencedShop, **fields: Any) -> dict[str, Any]:
    return {it.name: it for it in fence.check(shop.ctx(**fields)).checks}


class TestWhomItDenies:
    def test_all_whom_any_acl_lets_write_are_denied_and_nobody_else(self, shop: FencedShop) -> None:
        shop.fence(principals=["User:named"])
        wanted = {*CLIENTS, "User:named", PROBE}
        assert shop.denials() == set(itertools.product(wanted, (ORDERS, PAYMENTS)))

    def test_the_probe_is_denied_last(self, shop: FencedShop) -> None:
        shop.fence()
        made = [it.split()[2] for it in shop.source.changes if it.startswith("create acl")]
        assert set(made[-2:]) == {PROBE}
        assert PROBE not in made[:-2]

    def test_where_everybody_may_write_all_known_ones_are_denied_and_a_warning_stays(self, shop: FencedShop) -> None:
        shop.grant(acl("User:*", "WRITE", PAYMENTS))
        found = results(shop)["fence: principals to deny"]
        assert found.verdict is Verdict.WARN
        assert "the mirror and the reverse link" in found.remedy
        shop.fence()
        denied = {principal for principal, _ in shop.denials()}
        assert denied == {*CLIENTS, "User:reader", "User:stranger", PROBE}

    def test_own_principal_is_never_denied_though_an_acl_lets_it_write(self, shop: FencedShop) -> None:
        shop.grant(acl(OWN, "WRITE", "shop.", "PREFIXED"))
        shop.fence()
        assert OWN not in {principal for principal, _ in shop.denials()}
        assert shop.source.write_as(OWN, FIRST)

    def test_dry_run_shows_the_same_and_changes_nothing(self, shop: FencedShop) -> None:
        would = shop.fence(dry_run=True)
        assert (shop.source.changes, shop.store.items(), would.proof) == ([], {}, None)
        assert shop.fence().denials == would.denials


class TestBeforeAnythingIsChanged:
    @pytest.mark.parametrize(
        ("change", "fields", "name", "evidence", "remedy"),
        [
            (lambda s: setattr(s.source, "_acls", None), {}, "principals to deny", "no authorizer", "kind hook"),
            (lambda s: None, {"principals": [OWN]}, "own principal", "has it denied", "a principal of their own"),
            (lambda s: None, {"probe": "nobody"}, "probe", "may not describe topic", "Write on the topics"),
            (lambda s: s.grant(acl("User:nobody", "READ", "*")), {"probe": "nobody"}, "probe", "prove", "grant"),
            (lambda s: None, {"probe": "own"}, "probe", "migration's own principal", "of its own"),
            (
                lambda s: setattr(s.source, "cluster_operations", frozenset),
                {},
                "may change ACLs",
                "Alter on cluster",
                "grant it",
            ),
            (
                lambda s: s.revoke(*(it for it in s.source.acls() if it.principal in CLIENTS)),
                {},
                "principals to deny",
                "no ACL lets anybody write",
                "producers.fence.principals",
            ),
        ],
    )
    def test_what_cannot_work_is_refused_by_name_with_a_remedy(
        self,
        shop: FencedShop,
        change: Callable[[FencedShop], object],
        fields: dict[str, Any],
        name: str,
        evidence: str,
        remedy: str,
    ) -> None:
        change(shop)
        with pytest.raises(Refused) as caught:
            shop.fence(**fields)
        assert name in caught.value.message
        assert evidence in caught.value.message
        assert remedy in caught.value.remedy
        assert (shop.source.changes, shop.store.items()) == ([], {})

    def test_super_users_that_brokers_show_cannot_be_fenced(self, shop: FencedShop) -> None:
        shop.source.configs_of_brokers["super.users"] = "User:admin;User:web"
        with pytest.raises(Refused, match="super users cannot be fenced, no ACL binds them: User:web"):
            shop.fence(principals=["User:web"])
        assert shop.source.changes == []

    def test_super_users_that_brokers_hide_are_asked_for(self, shop: FencedShop) -> None:
        shop.source.configs_of_brokers["super.users"] = None
        assert results(shop)["fence: super users"].verdict is Verdict.WARN
        named = results(shop, super_users=["User:admin"])["fence: super users"]
        assert (named.verdict, "User:admin" in named.evidence) == (Verdict.PASS, True)

    def test_brokers_that_let_in_where_no_acl_is_found_would_shut_the_mirror_out(self, shop: FencedShop) -> None:
        shop.source.configs_of_brokers["allow.everyone.if.no.acl.found"] = None
        assert results(shop)["fence: the migration's own principal"].verdict is Verdict.PASS
        shop.revoke(acl(OWN, "READ", "shop.", "PREFIXED"))
        assert results(shop)["fence: the migration's own principal"].verdict is Verdict.FAIL

    def test_probe_of_another_cluster_proves_nothing(self, shop: FencedShop) -> None:
        other: Any = FakeCluster("source", has_authorizer=True).as_principal(PROBE)
        ctx = shop.ctx()
        ctx.connect = lambda role, conn_id, seconds: other if conn_id == "probe" else shop.connect(role, conn_id, 1)
        with pytest.raises(Refused, match="another cluster"):
            fence.apply(ctx, shop.run_hooks)
        assert shop.source.changes == []

    def test_plan_without_the_section_is_bad_input(self, shop: FencedShop) -> None:
        plan = shop.plan().model_copy(update={"producers": None})
        with pytest.raises(BadInput) as caught:
            shop.fence(plan=plan)
        assert caught.value.field == "producers"

    def test_sealed_topic_is_not_fenced_any_more(self, shop: FencedShop) -> None:
        for one in (TopicState.DRAINED, TopicState.SEALED):
            lifecycle.note(shop.ctx(), [ORDERS], one)
        with pytest.raises(StateConflict, match=r"shop\.orders is sealed"):
            shop.fence()
        assert shop.source.changes == []


class TestProof:
    def test_fence_is_proved_by_every_broker_and_by_ends_that_stand_still(self, shop: FencedShop) -> None:
        shop.source.append(FIRST, 7)
        proof = shop.fence().proof
        assert proof is not None
        assert set(proof.denied_ms) == {1, 2, 3}
        assert proof.ends[FIRST] == 7
        assert proof.promises
        assert state(shop) is FenceState.FENCED
        assert not shop.source.write_as("User:web", FIRST)

    @pytest.mark.parametrize("silent", [False, True])
    def test_broker_that_is_behind_or_silent_never_lets_the_proof_pass(self, shop: FencedShop, silent: bool) -> None:
        ctx = shop.ctx()
        made = shop.source.create_acls

        def create_acls(acls: Any) -> None:
            shop.source.fall_behind(2, silent=silent)
            made(acls)

        ctx.connect = _with(shop, create_acls=create_acls)
        with pytest.raises(CouldNotFindOut, match=r"not every broker denies: .*broker 2"):
            fence.apply(ctx, shop.run_hooks)
        assert shop.denials() == set()
        assert state(shop) is FenceState.LIFTED
        assert shop.clock.monotonic() <= 30

    def test_broker_that_catches_up_is_waited_for(self, shop: FencedShop) -> None:
        shop.source.fall_behind(3)
        shop.clock.at(5, lambda: shop.source.catch_up(3))
        proof = shop.fence().proof
        assert proof is not None
        assert 5_000 <= proof.denied_ms[3] <= proof.proved_ms
        assert proof.denied_ms[1] < 1_000

    def test_open_transaction_is_waited_for_and_its_end_is_no_straggler(self, shop: FencedShop) -> None:
        shop.source.append(FIRST, 5)
        shop.source.hold_back(FIRST, 3)

        def ends() -> None:
            shop.source.append(FIRST, 1)
            del shop.source._open[FIRST]

        shop.clock.at(10, ends)
        proof = shop.fence().proof
        assert proof is not None
        assert proof.ends[FIRST] == 6
        assert proof.proved_ms >= 10_000

    def test_write_that_was_let_in_before_may_still_land(self, shop: FencedShop) -> None:
        looks = _looks(shop, [lambda: None, lambda: shop.source.append(FIRST, 1)])
        proof = fence.apply(looks, shop.run_hooks).proof
        assert proof is not None
        assert (proof.ends[FIRST], proof.looks) == (1, 3)

    def test_looks_that_end_behind_the_deadline_prove_nothing(self, shop: FencedShop) -> None:
        ctx = _looks(shop, [lambda: None, lambda: shop.clock.sleep(100)])
        with pytest.raises(CouldNotFindOut, match="not proved in time: brokers were slow"):
            fence.apply(ctx, shop.run_hooks)
        assert shop.denials() == set()

    def test_denial_that_is_shown_behind_the_deadline_proves_nothing(self, shop: FencedShop) -> None:
        shop.target = shop.source
        shop.grant(acl(OWN, "WRITE", "shop.", "PREFIXED"))
        ctx = shop.ctx(producers={"target_fence": {"probe": "probe"}, "target_closed": True})

        def connect(role: Any, conn_id: str, seconds: float) -> Any:
            found = shop.connect(role, "own" if conn_id == "b" else conn_id, seconds)
            asked = found.denied_by_broker

            def slow(*asking: Any) -> Any:
                if conn_id == "probe" and shop.denials():
                    shop.clock.sleep(100)
                return asked(*asking)

            found.denied_by_broker = slow
            return found

        ctx.connect = connect
        with pytest.raises(CouldNotFindOut, match="not proved in time: brokers were slow"):
            fence.apply(ctx, shop.run_hooks, EARLY_WRITES)
        assert shop.denials() == set()

    def test_log_that_grew_between_both_looks_is_looked_at_again_though_a_transaction_was_open(
        self, shop: FencedShop
    ) -> None:
        shop.source.append(FIRST, 10)
        shop.source.hold_back(FIRST, 8)

        def decided() -> None:
            shop.source.append(FIRST, 50)
            del shop.source._open[FIRST]

        proof = fence.apply(_looks(shop, [lambda: None, decided]), shop.run_hooks).proof
        assert proof is not None
        assert (proof.ends[FIRST], proof.looks) == (60, 3)

    def test_leader_that_moves_meanwhile_has_everything_proved_again(self, shop: FencedShop) -> None:
        looks = _looks(shop, [lambda: None, lambda: shop.source.lead(FIRST, 2)])
        proof = fence.apply(looks, shop.run_hooks).proof
        assert proof is not None
        assert proof.looks == 4

    def test_leader_that_was_not_asked_is_no_proof(self, shop: FencedShop) -> None:
        shop.source.lead(FIRST, 9)
        with pytest.raises(CouldNotFindOut, match="led by a broker that was not asked"):
            shop.fence()
        assert shop.denials() == set()

    def test_fence_that_costs_the_mirror_its_right_is_lifted_at_once(self, shop: FencedShop) -> None:
        # As brokers do that let everybody in where no ACL is found, and do not show that they do.
        shop.revoke(acl(OWN, "READ", "shop.", "PREFIXED"))
        may = shop.source._may

        def _may(principal: str, operation: str, kind: str, name: str, rules: Any) -> bool:
            found = [it for it in rules if it.permission == "DENY" and it.resource == name]
            return (principal == OWN and not found) or may(principal, operation, kind, name, rules)

        shop.source._may = _may  # type: ignore[method-assign]
        with pytest.raises(Refused, match=r"is denied READ on shop\.orders"):
            shop.fence()
        assert shop.denials() == set()


class TestStraggler:
    def test_it_is_named_with_its_producer_id_and_the_fence_is_lifted_at_once(self, shop: FencedShop) -> None:
        shop.source.super_users.add("User:root")
        _forever(shop, 0.01, lambda: shop.source.write_as("User:root", FIRST, 2, producer_id=4711))
        with pytest.raises(Straggler) as caught:
            shop.fence()
        (written,) = caught.value.written
        assert (written.tp, written.producers) == (FIRST, (4711,))
        assert written.end > written.start
        assert "shop.orders-0" in caught.value.message
        assert "4711" in caught.value.message
        assert shop.denials() == set()
        assert state(shop) is FenceState.LIFTED
        # Settled for two seconds first, and no longer.
        assert 2 <= shop.clock.monotonic() < 3

    def test_producer_without_an_id_is_named_by_what_it_writes(self, shop: FencedShop) -> None:
        shop.source.super_users.add("User:root")
        _forever(shop, 0.01, lambda: shop.source.write_as("User:root", FIRST))
        with pytest.raises(Straggler, match="not idempotent"):
            shop.fence()

    def test_what_is_written_after_the_proof_is_shown_and_ends_the_fence_when_it_is_proved_again(
        self, shop: FencedShop
    ) -> None:
        shop.fence()
        assert fence.status(shop.ctx()).written == ()
        shop.source.append(FIRST, 3)
        (written,) = fence.status(shop.ctx()).written
        assert (written.tp, written.start, written.end) == (FIRST, 0, 3)
        with pytest.raises(Straggler):
            shop.fence()
        assert shop.denials() == set()


class TestLifting:
    def test_acls_are_what_they_were_and_lifting_twice_changes_nothing(self, shop: FencedShop) -> None:
        before = shop.source.acls()
        shop.fence()
        lifted = shop.lift()
        assert (lifted.removed, lifted.equal) == (8, True)
        assert shop.source.acls() == before
        shop.source.changes.clear()
        assert shop.lift().removed == 0
        assert shop.source.changes == []
        assert shop.source.write_as("User:web", FIRST)

    def test_denial_that_was_there_before_is_not_ours_and_stays(self, shop: FencedShop) -> None:
        theirs = acl("User:web", "WRITE", ORDERS, permission="DENY")
        shop.grant(theirs)
        shop.fence()
        shop.fence()
        shop.lift()
        assert shop.denials() == {("User:web", ORDERS)}

    def test_acls_of_others_that_came_meanwhile_stay_and_are_named(self, shop: FencedShop) -> None:
        shop.fence()
        shop.grant(acl("User:new", "READ", ORDERS))
        lifted = shop.lift()
        assert (lifted.removed, lifted.equal) == (8, False)
        assert "others were changed meanwhile" in lifted.evidence

    def test_dry_run_of_lifting_changes_nothing(self, shop: FencedShop) -> None:
        shop.fence()
        shop.source.changes.clear()
        assert shop.lift(dry_run=True).removed == 8
        assert shop.source.changes == []
        assert state(shop) is FenceState.FENCED

    @pytest.mark.parametrize(
        ("past", "remedy"),
        [
            ((TopicState.SEALED,), "mirror --unseal"),
            ((TopicState.SEALED, TopicState.SERVED), "roll back first"),
            ((TopicState.SEALED, TopicState.COMPLETED), "stay on the target"),
        ],
    )
    def test_fence_of_a_topic_behind_its_seal_is_not_lifted(
        self, shop: FencedShop, past: tuple[TopicState, ...], remedy: str
    ) -> None:
        lifecycle.note(shop.ctx(), [ORDERS], TopicState.MIRRORING)
        shop.fence()
        assert lifecycle.read(shop.ctx())[ORDERS] is TopicState.FENCED
        for one in (TopicState.DRAINED, *past):
            lifecycle.note(shop.ctx(), [ORDERS], one)
        with pytest.raises(Refused, match=rf"topics are {past[-1]}: shop\.orders") as caught:
            shop.lift()
        assert remedy in caught.value.remedy
        assert shop.denials()

    def test_what_somebody_denied_since_it_was_lifted_goes_by_nothing_but_a_command_of_its_own(
        self, shop: FencedShop
    ) -> None:
        shop.fence()
        shop.lift()
        shop.grant(acl("User:web", "WRITE", ORDERS, permission="DENY"))
        assert fence.lift(shop.ctx(), shop.run_hooks).removed == 0
        assert shop.denials() == {("User:web", ORDERS)}
        assert shop.lift().removed == 1

    def test_topics_are_mirroring_again(self, shop: FencedShop) -> None:
        lifecycle.note(shop.ctx(), [ORDERS], TopicState.MIRRORING)
        shop.fence()
        shop.lift()
        assert lifecycle.read(shop.ctx()) == {ORDERS: TopicState.MIRRORING}

    def test_fence_that_cannot_be_lifted_is_said_to_stand(self, shop: FencedShop) -> None:
        shop.source.fall_behind(2)
        with (
            _failing_later(shop),
            pytest.raises(NeedsRollback, match="could not be lifted") as caught,
        ):
            shop.fence()
        assert "fence --lift" in caught.value.remedy
        assert state(shop) is FenceState.LIFTING
        shop.lift()
        assert shop.denials() == set()


class TestAgain:
    def test_second_fence_is_proved_again_with_the_probe_denied_last_again(self, shop: FencedShop) -> None:
        shop.fence()
        # Somebody removes a denial behind our back; the probe's own still stands.
        shop.revoke(acl("User:web", "WRITE", ORDERS, permission="DENY"))
        shop.fence()
        made = [it.split()[2] for it in shop.source.changes if it.startswith("create acl")]
        assert ("User:web", ORDERS) in shop.denials()
        assert set(made[-2:]) == {PROBE}
        assert [it for it in shop.source.changes if it.startswith(f"delete acl {PROBE}")]

    def test_denials_that_a_broker_still_shows_after_they_were_lifted_are_made_again_and_removed(
        self, shop: FencedShop
    ) -> None:
        before = shop.source.acls()
        shop.fence()
        shop.lift()
        shown = acl("User:web", "WRITE", ORDERS, permission="DENY")
        shop.grant(shown)
        shop.fence()
        assert f"create acl User:web {ORDERS}" in shop.source.changes
        assert shop.lift().equal
        assert shop.source.acls() == before
        shop.clock.sleep(100)
        shop.grant(shown)
        shop.fence()
        shop.lift()
        assert shop.source.acls() == tuple(sorted((*before, shown), key=repr))

    def test_principal_that_got_its_right_since_is_denied_as_well(self, shop: FencedShop) -> None:
        before = shop.source.acls()
        shop.fence()
        late = acl("User:late", "WRITE", ORDERS)
        shop.grant(late)
        shop.fence()
        assert ("User:late", ORDERS) in shop.denials()
        shop.lift()
        assert {*shop.source.acls()} == {*before, late}

    def test_other_process_that_lifts_meanwhile_ends_this_one(self, shop: FencedShop) -> None:
        shop.source.fall_behind(2)
        shop.clock.at(1, shop.lift)
        with pytest.raises(TakenOver):
            shop.fence()
        assert shop.denials() == set()
        assert state(shop) is FenceState.LIFTED

    def test_denials_that_land_behind_a_lifting_are_removed_by_who_made_them(self, shop: FencedShop) -> None:
        ctx, made = shop.ctx(), shop.source.create_acls

        def create_acls(acls: Any) -> None:
            shop.lift()
            made(acls)

        ctx.connect = _with(shop, create_acls=create_acls)
        with pytest.raises(TakenOver):
            fence.apply(ctx, shop.run_hooks)
        assert shop.denials() == set()
        assert state(shop) is FenceState.LIFTED

    def test_claim_is_looked_at_before_each_part_of_many_denials(
        self, shop: FencedShop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kafka_acls, "_AT_ONCE", 2)
        ctx, made, parts = shop.ctx(), shop.source.create_acls, list[int]()

        def create_acls(acls: Any) -> None:
            parts.append(len(acls))
            made(acls)
            shop.lift()

        ctx.connect = _with(shop, create_acls=create_acls)
        with pytest.raises(TakenOver):
            fence.apply(ctx, shop.run_hooks)
        assert parts == [2]

    def test_fence_of_another_process_is_left_alone_by_who_was_taken_over(self, shop: FencedShop) -> None:
        ctx, made = shop.ctx(), shop.source.create_acls

        def create_acls(acls: Any) -> None:
            ctx.connect = shop.connect
            shop.fence()
            made(acls)

        ctx.connect = _with(shop, create_acls=create_acls)
        with pytest.raises(TakenOver):
            fence.apply(ctx, shop.run_hooks)
        assert len(shop.denials()) == 8
        assert state(shop) is FenceState.FENCED

    def test_lifting_once_more_removes_what_has_landed_since(self, shop: FencedShop) -> None:
        before = shop.source.acls()
        shop.fence()
        mine = {*shop.source.acls()} - {*before}
        shop.lift()
        shop.grant(*mine)
        shop.clock.sleep(1000)
        lifted = shop.lift()
        assert (lifted.removed, lifted.equal) == (8, True)
        assert shop.source.acls() == before

    @pytest.mark.parametrize("past", [(TopicState.DRAINED,), (TopicState.DRAINED, TopicState.SEALED)])
    def test_fence_of_a_drained_or_sealed_topic_is_proved_again_and_the_topic_stays(
        self, shop: FencedShop, past: tuple[TopicState, ...]
    ) -> None:
        lifecycle.note(shop.ctx(), [ORDERS, PAYMENTS], TopicState.MIRRORING)
        shop.fence()
        for one in past:
            lifecycle.note(shop.ctx(), [ORDERS], one)
        assert shop.fence().proof is not None
        assert lifecycle.read(shop.ctx()) == {ORDERS: past[-1], PAYMENTS: TopicState.FENCED}

    def test_own_principal_that_an_earlier_fence_denied_is_let_go(self, shop: FencedShop) -> None:
        before = shop.source.acls()
        shop.fence(principals=["User:mover2"])
        shop.grant(acl("User:mover2", "ALL", "shop.", "PREFIXED"))
        ctx = shop.ctx(own_principal="User:mover2")

        def connect(_role: str, conn_id: str, _seconds: float) -> Any:
            return shop.source.as_principal(f"User:{'mover2' if conn_id == 'own' else conn_id}")

        ctx.connect = connect
        assert fence.apply(ctx, shop.run_hooks).proof is not None
        assert "User:mover2" not in {principal for principal, _ in shop.denials()}
        assert shop.source.write_as("User:mover2", FIRST)
        fence.lift(ctx, shop.run_hooks)
        assert {*shop.source.acls()} == {*before, acl("User:mover2", "ALL", "shop.", "PREFIXED")}

    def test_earlier_probe_stays_denied_until_the_fence_is_lifted(self, shop: FencedShop) -> None:
        shop.grant(acl("User:probe2", "WRITE", "shop.", "PREFIXED"))
        before = shop.source.acls()
        shop.fence()
        shop.revoke(acl(PROBE, "WRITE", "shop.", "PREFIXED"))
        shop.fence(probe="probe2")
        shop.lift()
        assert shop.denials() == set()
        assert {*shop.source.acls()} == {*before} - {acl(PROBE, "WRITE", "shop.", "PREFIXED")}

    def test_own_principal_that_may_not_read_is_noticed_though_it_was_so_before(self, shop: FencedShop) -> None:
        shop.grant(acl(OWN, "READ", PAYMENTS, permission="DENY"))
        with pytest.raises(Refused, match=rf"{OWN} is denied READ on shop\.payments"):
            shop.fence()

    def test_fence_that_cannot_be_proved_again_stays_and_is_compared_with_its_first_proof(
        self, shop: FencedShop
    ) -> None:
        shop.fence()
        ctx, made = shop.ctx(), shop.source.create_acls

        def create_acls(acls: Any) -> None:
            shop.source.fall_behind(2)
            made(acls)

        ctx.connect = _with(shop, create_acls=create_acls)
        with pytest.raises(CouldNotFindOut):
            fence.apply(ctx, shop.run_hooks)
        assert {principal for principal, _ in shop.denials()} >= {*CLIENTS}
        assert state(shop) is FenceState.FENCING
        shop.source.catch_up(2)
        shop.source.append(FIRST, 1)
        with pytest.raises(Straggler):
            shop.fence()
        assert shop.denials() == set()

    def test_straggler_behind_the_seal_does_not_open_the_source(self, shop: FencedShop) -> None:
        lifecycle.note(shop.ctx(), [ORDERS], TopicState.MIRRORING)
        shop.fence()
        for one in (TopicState.DRAINED, TopicState.SEALED):
            lifecycle.note(shop.ctx(), [ORDERS], one)
        shop.source.append(FIRST, 1)
        with pytest.raises(Straggler):
            shop.fence()
        assert len(shop.denials()) == 8

    def test_plan_of_another_kind_has_the_fence_lifted_first(self, shop: FencedShop) -> None:
        shop.fence()
        with pytest.raises(Refused, match="acl_deny is fenced since"):
            shop.fence(kind="none", probe=None)
        assert state(shop) is FenceState.FENCED


class Killed(BaseException):
    """The process dies here."""


class Mortal(MemoryStore):
    """What dies with the process: writes to the journal, too."""

    def __init__(self, store: MemoryStore, dies: Callable[[], None]) -> None:
        self._inner, self._dies = store, dies
        self.__dict__.update(store.__dict__)

    def put_all(self, values: Any) -> None:
        self._dies()
        self._inner.put_all(values)

    def put(self, key: str, value: Any) -> None:
        self._dies()
        self._inner.put(key, value)


def _killed_at(shop: FencedShop, changes: int, do: Callable[[FencedShop], object]) -> bool:
    """Whether ``do`` died before its change number ``changes``; nothing of the process changes anything after that."""
    left = itertools.count(changes, -1)

    def dies() -> None:
        if next(left) <= 0:
            raise Killed

    store = shop.store
    shop.store = Mortal(store, dies)
    errors = dict(shop.source._errors)

    def error() -> BaseException | None:
        return Killed() if next(left) <= 0 else None

    shop.source._errors.update({"create_acls": error, "delete_acls": error})
    try:
        do(shop)
    except Killed:
        return True
    finally:
        shop.store = store
        shop.source._errors.clear()
        shop.source._errors.update(errors)
    return False


@pytest.mark.parametrize("then", ["fence", "lift", "lift, killed, lift"])
def test_killed_anywhere_the_next_call_finishes_what_it_does(then: str) -> None:
    for changes in itertools.count():
        shop = FencedShop()
        before = shop.source.acls()
        theirs = acl("User:web", "WRITE", PAYMENTS, permission="DENY")
        shop.grant(theirs)
        was_killed = _killed_at(shop, changes, FencedShop.fence)
        if then == "fence":
            shop.fence()
            assert shop.denials() == set(itertools.product((*CLIENTS, PROBE), (ORDERS, PAYMENTS)))
            assert state(shop) is FenceState.FENCED
        elif then == "lift, killed, lift":
            for more in itertools.count():
                if not _killed_at(shop, more, FencedShop.lift):
                    break
        shop.lift()
        assert {*shop.source.acls()} == {*before, theirs}, changes
        assert state(shop) in (None, FenceState.LIFTED)
        if not was_killed:
            # Its claim, its record, seven denials, and the record of the proof at the least.
            assert changes >= 10
            return


class TestOtherMigrations:
    """Two from one source, with the same target, whose fences deny the same producers on the same topics."""

    def test_denials_of_both_stay_until_the_last_fence_is_lifted(self, shop: FencedShop) -> None:
        before = shop.source.acls()
        other = shop.ctx()
        other.journal = Journal(shop.store, "other")
        shop.fence()
        assert fence.apply(other, shop.run_hooks).proof is not None
        shop.lift()
        assert any("the fence of migration other relies on them" in line for line in shop.told)
        assert fence.status(other).missing == ()
        assert not shop.source.write_as("User:web", FIRST)
        fence.lift(other, shop.run_hooks)
        assert shop.source.acls() == before
        # The other way round, and one that was lifted leaves nothing to anybody.
        shop.fence()
        assert fence.apply(other, shop.run_hooks).proof is not None
        fence.lift(other, shop.run_hooks)
        assert fence.status(shop.ctx()).exit_code == 0
        assert shop.lift().equal
        assert shop.source.acls() == before

    def test_denials_that_somebody_removed_are_named(self, shop: FencedShop) -> None:
        shop.fence()
        assert fence.status(shop.ctx()).exit_code == 0
        gone = next(one for one in shop.source.acls() if one.permission == "DENY" and one.principal == "User:web")
        shop.revoke(gone)
        seen = fence.status(shop.ctx())
        assert (seen.missing, seen.exit_code) == ((gone,), 1)
        with shop.source.failing("acls", NotAuthorized("source", "Describe", "cluster kafka-cluster")):
            seen = fence.status(shop.ctx())
            assert (seen.missing, seen.exit_code, "Describe" in seen.unseen) == ((), 3, True)
        shop.fence()
        assert fence.status(shop.ctx()).exit_code == 0


class TestOtherBans:
    def test_groups_are_kept_from_reading_by_the_same_machinery(self, shop: FencedShop) -> None:
        readers = [
            replace(acl(who, "READ", "shop."), resource_type="GROUP", pattern="PREFIXED") for who in ("User:app", PROBE)
        ]
        shop.grant(*readers)
        before = shop.source.acls()
        done = fence.apply(shop.ctx(), shop.run_hooks, GROUP_READS, ("shop.app",))
        assert {(it.principal, it.resource, it.resource_type, it.operation) for it in done.denials} == {
            (who, "shop.app", "GROUP", "READ") for who in ("User:app", PROBE)
        }
        assert done.proof is not None
        assert set(done.proof.denied_ms) == {1, 2, 3}
        # Producers write on, and no topic is fenced by it.
        assert shop.source.write_as("User:web", FIRST)
        assert state(shop) is None
        fence.lift(shop.ctx(), shop.run_hooks, GROUP_READS)
        assert shop.source.acls() == before

    def test_where_no_acl_lets_everybody_in_the_migration_needs_its_own_right_to_see_groups(
        self, shop: FencedShop
    ) -> None:
        shop.source.configs_of_brokers["allow.everyone.if.no.acl.found"] = "true"
        groups, reader = ("shop.app",), shop.source.as_principal("User:app")

        def denied() -> set[frozenset[str]]:
            return set(reader.denied_by_broker("GROUP", "READ", groups, 1).values())

        with pytest.raises(Refused, match=r"no ACL lets User:mover describe.*on the groups it would be shut out") as no:
            fence.apply(shop.ctx(principals=["User:app"]), shop.run_hooks, GROUP_READS, groups)
        assert "the first ACL on one shuts out whoever has none" in no.value.remedy
        for who, operation in (("User:app", "READ"), (PROBE, "READ"), (OWN, "DESCRIBE")):
            shop.grant(replace(acl(who, operation, "shop."), resource_type="GROUP", pattern="PREFIXED"))
        assert denied() == {frozenset()}
        assert fence.apply(shop.ctx(), shop.run_hooks, GROUP_READS, groups).proof is not None
        assert denied() == {frozenset(groups)}
        assert fence.lift(shop.ctx(), shop.run_hooks, GROUP_READS).equal

    def test_clients_are_kept_from_writing_to_the_target_and_the_mirror_writes_on(self, shop: FencedShop) -> None:
        shop.target = shop.source
        shop.grant(acl(OWN, "WRITE", "shop.", "PREFIXED"))
        ctx = shop.ctx(producers={"target_fence": {"probe": "probe"}, "target_closed": True})
        ctx.connect = lambda role, conn_id, seconds: shop.connect(role, "own" if conn_id == "b" else conn_id, seconds)
        proof = fence.apply(ctx, shop.run_hooks, EARLY_WRITES).proof
        assert proof is not None
        assert not shop.source.write_as("User:web", FIRST)
        assert shop.source.write_as(OWN, FIRST)
        assert fence.lift(ctx, shop.run_hooks, EARLY_WRITES).equal

    def test_acls_name_topics_as_the_cluster_calls_them_and_records_as_the_plan_does(self, shop: FencedShop) -> None:
        for topic in (ORDERS, PAYMENTS):
            shop.source.add_topic(f"west.{topic}", partitions=3)
        shop.grant(
            *(acl(who, "WRITE", "west.shop.", "PREFIXED") for who in ("User:west", PROBE, OWN)),
            acl(OWN, "READ", "west.shop.", "PREFIXED"),
        )
        shop.target = renamed(shop.source, TopicNames(prefix="west."))  # type: ignore[arg-type,assignment]
        ctx = shop.ctx(producers={"target_fence": {"probe": "probe"}, "target_closed": True})

        def connect(role: Any, conn_id: str, seconds: float) -> Any:
            return renamed(shop.connect(role, "own" if conn_id == "b" else conn_id, seconds), TopicNames("west."))

        ctx.connect = connect
        done = fence.apply(ctx, shop.run_hooks, EARLY_WRITES)
        standing = record.read(ctx, EARLY_WRITES)
        assert standing is not None
        assert done.names == standing.names == (ORDERS, PAYMENTS)
        # Who writes to topics of the source's names here is nobody to be denied.
        assert shop.denials() == {
            (who, f"west.{topic}") for who in ("User:west", "User:batch", PROBE) for topic in (ORDERS, PAYMENTS)
        }
        assert not shop.source.write_as("User:west", FIRST._replace(topic=f"west.{ORDERS}"))
        assert shop.source.write_as("User:web", FIRST)
        assert fence.lift(ctx, shop.run_hooks, EARLY_WRITES).equal
        assert shop.denials() == set()


class TestTargetThatIsClosed:
    """Until producers are switched; nobody who may be there by then is shut out."""

    @pytest.fixture
    def closed(self, shop: FencedShop, monkeypatch: pytest.MonkeyPatch) -> tuple[Context, list[str]]:
        applied: list[str] = []
        monkeypatch.setattr(fence, "apply", lambda _ctx, _hooks, ban: applied.append(ban.key))
        return shop.ctx(producers={"target_fence": {"probe": "probe"}, "target_closed": True}), applied

    def test_it_is_closed_before_producers_are_there(self, closed: tuple[Context, list[str]]) -> None:
        ctx, applied = closed
        fence.keep_off_target(ctx)
        assert applied == [EARLY_WRITES.key]

    def test_it_stays_open_behind_the_seal_of_stop(self, closed: tuple[Context, list[str]]) -> None:
        ctx, applied = closed
        for state in (TopicState.DRAINED, TopicState.SEALED):
            lifecycle.note(ctx, [ORDERS], state)
        fence.keep_off_target(ctx)
        assert (applied, fence.check_target(ctx)) == ([], ())

    def test_topics_are_not_released_while_it_is(
        self, closed: tuple[Context, list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ctx, _ = closed
        standing = SimpleNamespace(names=(ORDERS,), state="fenced", at="noon")
        monkeypatch.setattr(record, "standing", lambda _ctx: {EARLY_WRITES.key: standing})
        with pytest.raises(Refused, match=r"(?s)a fence of 1 topics on the target.*`stop` or `cancel` lifts it"):
            fence.require_none(ctx)

    def test_it_stays_open_on_the_way_back(self, closed: tuple[Context, list[str]]) -> None:
        ctx, applied = closed
        fence.keep_off_target(replace(ctx, direction=Direction.REVERSE))
        assert applied == []

    def test_what_keeps_producers_off_since_they_went_back_stands_for_it(
        self, closed: tuple[Context, list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ctx, applied = closed
        standing = SimpleNamespace(stands=True)
        monkeypatch.setattr(record, "read", lambda _ctx, ban: standing if ban is BACK_WRITES else None)
        fence.keep_off_target(ctx)
        assert (applied, fence.check_target(ctx)) == ([], ())


class TestOtherKinds:
    HOOKS: ClassVar[Any] = {
        "kind": "hook",
        "probe": None,
        "close": [{"command": ["close"]}],
        "open": [{"command": ["open"]}],
        "producers": {"stop": [{"command": ["stop"]}], "start": [{"command": ["start"]}]},
    }

    def test_hooks_close_and_open_and_ends_that_stand_still_are_the_proof(self, shop: FencedShop) -> None:
        proof = shop.fence(**self.HOOKS).proof
        assert proof is not None
        assert proof.promises
        assert proof.proved_ms >= 5_000
        assert shop.hooked == [("stop", "fence"), ("close", "fence")]
        shop.lift(**self.HOOKS)
        assert shop.hooked[2:] == [("open", "lift"), ("start", "lift")]
        assert shop.source.changes == []

    def test_it_is_lifted_by_the_hooks_that_it_was_made_with_whatever_the_plan_has_by_then(
        self, shop: FencedShop
    ) -> None:
        shop.fence(**self.HOOKS)
        shop.lift()
        assert shop.hooked[2:] == [("open", "lift"), ("start", "lift")]
        shop.fence(**self.HOOKS)
        shop.lift(plan=shop.plan().model_copy(update={"producers": None}))
        assert shop.hooked[6:] == [("open", "lift"), ("start", "lift")]

    def test_proved_again_by_other_hooks_it_is_opened_by_both(self, shop: FencedShop) -> None:
        shop.fence(**self.HOOKS)
        shop.fence(**self.HOOKS | {"open": [{"command": ["other"]}]})
        shop.hooked.clear()
        shop.lift()
        assert shop.hooked == [("open", "lift"), ("other", "lift"), ("start", "lift")]

    def test_way_that_was_not_closed_is_opened_again_in_time(self, shop: FencedShop) -> None:
        _forever(shop, 1, lambda: shop.source.append(FIRST, 1))
        with pytest.raises(CouldNotFindOut, match=r"log ends still grow: shop\.orders-0"):
            shop.fence(**self.HOOKS)
        assert shop.hooked[2:] == [("open", "lift"), ("start", "lift")]
        assert state(shop) is FenceState.LIFTED
        assert shop.clock.monotonic() <= 31

    def test_hooks_that_take_longer_than_the_deadline_prove_nothing(self, shop: FencedShop) -> None:
        def slow(hooks: Any, phase: Any) -> None:
            shop.run_hooks(hooks, phase)
            shop.clock.sleep(100)

        with pytest.raises(CouldNotFindOut, match="took longer than the deadline"):
            fence.apply(shop.ctx(**self.HOOKS), slow)
        assert shop.hooked[2:] == [("open", "lift"), ("start", "lift")]

    def test_none_promises_nothing_and_its_check_says_so(self, shop: FencedShop) -> None:
        none: Any = {"kind": "none", "probe": None}
        found = results(shop, **none)["fence"]
        assert (found.verdict, "nothing is promised" in found.evidence) == (Verdict.WARN, True)
        proof = shop.fence(**none).proof
        assert proof is not None
        assert not proof.promises


def _with(shop: FencedShop, **methods: Any) -> Any:
    """Connections whose cluster has other methods."""

    def connect(role: str, conn_id: str, seconds: float) -> Any:
        found = shop.connect(role, conn_id, seconds)
        for name, method in methods.items():
            setattr(found, name, method)
        return found

    return connect


def _looks(shop: FencedShop, before: list[Callable[[], object]]) -> Any:
    """A context in which something happens before the first looks at log ends."""
    happenings: Iterator[Callable[[], object]] = iter(before)

    def log_epochs(asked: Any) -> Any:
        next(happenings, lambda: None)()
        return shop.source.log_epochs(asked)

    ctx = shop.ctx()
    ctx.connect = _with(shop, log_epochs=log_epochs)
    return ctx


def _forever(shop: FencedShop, seconds: float, happen: Callable[[], object]) -> None:
    def again() -> None:
        happen()
        shop.clock.at(seconds, again)

    shop.clock.at(seconds, again)


@contextmanager
def _failing_later(shop: FencedShop) -> Iterator[None]:
    """Denials can be made, and cannot be removed once the probe's stand."""
    error = CouldNotFindOut("no broker answers")
    shop.source._errors["delete_acls"] = lambda: error if shop.denials() else None
    yield
    del shop.source._errors["delete_acls"]
