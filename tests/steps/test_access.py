"""What clients lack on the target is made there and taken back, whoever dies or changes something between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from kafka_migration.access import difference, grants
from kafka_migration.access.grants import Grants
from kafka_migration.access.limits import Limit
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.domain.errors import CouldNotFindOut, Refused, TakenOver
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.fence import record
from kafka_migration.fence.bans import BACK_WRITES, EARLY_WRITES, Ban
from kafka_migration.fence.record import FenceRecord, FenceState, Snapshot
from kafka_migration.groups.record import Step
from kafka_migration.kafka.types import Acl, Quota, ScramUser
from kafka_migration.link import lifecycle, seal, switched
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration import cancellation, joined
from kafka_migration.migration.context import Context
from kafka_migration.state.journal import Journal
from kafka_migration.steps import access, cancel
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create
from tests.fakes.cluster import SCRAM
from tests.fence.worlds import acl
from tests.steps import histories
from tests.steps.gates import Migration, PermissiveCluster, by_tls
from tests.steps.killing import Killed, Killer, MortalStore

READ, DENIED = acl("User:app", "READ", "shop.orders"), acl("User:app", "WRITE", "shop.orders", permission="DENY")
WRITE = acl("User:app", "WRITE", "shop.payments")
ALL = (DENIED, READ, WRITE)
THEIRS = acl("User:stranger", "READ", "shop.orders")
RATE = Quota(entity=(("user", "app"),), limits=(("producer_byte_rate", 1048576.0),))
UNASKED = {"approvals": {"plan": False}}
DISABLED = {"access": {"users": {"disabled": True}}}


class Locked(PermissiveCluster):
    """Has an authorizer, and notes each request that changes ACLs."""

    def __init__(self, side: str) -> None:
        super().__init__(side, has_authorizer=True)
        self.connection = by_tls(side)
        self.requests: list[tuple[str, list[Acl]]] = []

    def create_acls(self, acls: Any) -> None:
        self.requests.append(("create", list(acls)))
        super().create_acls(acls)

    def delete_acls(self, acls: Any) -> tuple[Acl, ...]:
        self.requests.append(("delete", list(acls)))
        return super().delete_acls(acls)


@pytest.fixture
def shop() -> Migration:
    """The application has three ACLs and a quota on the source, and somebody else one ACL on the target."""
    found = Migration()
    for side in ("source", "target"):
        locked = Locked(side)
        locked._topics, locked._groups = getattr(found, side)._topics, getattr(found, side)._groups
        setattr(found, side, locked)
    found.source.create_acls(ALL)
    found.source.client_quotas = [RATE]
    found.target.create_acls([THEIRS])
    found.target.requests.clear()  # type: ignore[attr-defined]
    found.target.changes.clear()
    return found


def make(shop: Migration, ctx: Context | None = None) -> Decision:
    ctx = ctx or shop.ctx(**UNASKED)
    return access.run(ctx, access.check(ctx))


def there(shop: Migration) -> set[Acl]:
    return {*shop.target.acls()} - {THEIRS}


def test_what_is_missing_is_made_denials_first_and_removed_again_denials_last(shop: Migration) -> None:
    done = make(shop)
    assert (done.exit_code, done.facts) == (0, {"acls": 3, "quotas": 1, "scram_users": 0})
    assert (there(shop), shop.target.client_quotas) == ({*ALL}, [RATE])
    ctx = shop.ctx()
    assert not access.look(ctx).missing
    assert set(grants.made(ctx.journal).acls) == {*ALL}
    assert make(shop).facts == {"acls": 0, "quotas": 0, "scram_users": 0}
    assert access.undo(shop.ctx()).facts == {"acls": 3, "quotas": 1, "scram_users": 0}
    assert (there(shop), shop.target.client_quotas) == (set(), [])
    assert shop.target.requests == [  # type: ignore[attr-defined]
        ("create", [DENIED]),
        ("create", [READ, WRITE]),
        ("delete", [WRITE, READ]),
        ("delete", [DENIED]),
    ]
    assert not grants.made(shop.ctx().journal)
    assert access.undo(shop.ctx()).facts == {"acls": 0, "quotas": 0, "scram_users": 0}


def test_dry_run_changes_nothing_and_shows_what_would_be_made_and_removed(shop: Migration) -> None:
    before = (shop.target.acls(), shop.store.items())
    made = make(shop, shop.ctx(dry_run=True, **UNASKED))
    assert (made.facts, set(made.value.acls)) == ({"acls": 3, "quotas": 1, "scram_users": 0}, {*ALL})
    assert (shop.target.acls(), shop.store.items()) == before
    make(shop)
    before = (shop.target.acls(), shop.store.items())
    assert access.undo(shop.ctx(dry_run=True)).facts == {"acls": 3, "quotas": 1, "scram_users": 0}
    assert (shop.target.acls(), shop.store.items()) == before


def test_what_somebody_made_or_set_while_a_person_was_asked_is_theirs(shop: Migration) -> None:
    ctx = shop.ctx(**UNASKED)
    shown = access.check(ctx)
    shop.target.create_acls([READ])
    shop.target.client_quotas = [Quota(entity=RATE.entity, limits=(("producer_byte_rate", 5.0),))]
    later = acl("User:app", "READ", "shop.payments")
    shop.source.create_acls([later])
    assert access.run(ctx, shown).facts == {"acls": 2, "quotas": 0, "scram_users": 0}
    assert there(shop) == {*ALL}, "and nothing that was not shown"
    access.undo(shop.ctx())
    assert there(shop) == {READ}
    assert shop.target.client_quotas[0].limits == (("producer_byte_rate", 5.0),)


class Mortal:
    """The target, as seen by a process that may be killed around each change, by a broker that shows ACLs late."""

    def __init__(self, cluster: Any, killer: Killer, seen: tuple[Acl, ...] | None) -> None:
        self._cluster, self._seen = cluster, seen
        self.alter_quotas = killer.around(cluster.alter_quotas)
        self._create, self._delete = killer.around(cluster.create_acls), killer.around(cluster.delete_acls)
        self._alter_users = killer.around(cluster.alter_scram_users)

    def acls(self) -> tuple[Acl, ...]:
        found: tuple[Acl, ...] = self._cluster.acls() if self._seen is None else self._seen
        self._seen = None
        return found

    def create_acls(self, acls: Any) -> None:
        for one in acls:
            self._create([one])

    def delete_acls(self, acls: Any) -> None:
        for one in acls:
            self._delete([one])

    def alter_scram_users(self, made: Any, removed: Any = ()) -> None:
        for mechanism in SCRAM:
            self._alter_users(
                {_only(user, mechanism): password for user, password in made.items()},
                [_only(user, mechanism) for user in removed],
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def _only(user: ScramUser, mechanism: str) -> ScramUser:
    return replace(user, credentials=tuple(one for one in user.credentials if one[0] == mechanism))


def _mortal(shop: Migration, killer: Killer, seen: tuple[Acl, ...] | None = None) -> Context:
    ctx = shop.ctx(**UNASKED, **DISABLED)
    ctx.target = Mortal(shop.target, killer, seen)  # type: ignore[assignment]
    ctx.journal = Journal(MortalStore(shop.store, killer), "shop")
    return ctx


@pytest.mark.parametrize("goes_on", [True, False])
def test_killed_at_any_change_nothing_is_left_that_is_not_removed(shop: Migration, goes_on: bool) -> None:
    shop.source.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)))]
    at = 0
    while True:
        at += 1
        killer = Killer(at)
        try:
            make(shop, _mortal(shop, killer))
        except Killed:
            if goes_on:
                make(shop, shop.ctx(**UNASKED, **DISABLED))
                assert not access.look(shop.ctx(**DISABLED)).missing, at
                assert shop.target.users == shop.source.users, at
        ended = killer.seen < at
        backwards = 0
        while True:
            backwards += 1
            try:
                # The broker that is asked knows nothing yet of what was made.
                access.undo(_mortal(shop, Killer(backwards), (THEIRS,)))
            except Killed:
                continue
            break
        assert (there(shop), shop.target.client_quotas, shop.target.users) == (set(), [], []), at
        assert not grants.made(shop.ctx().journal), at
        if ended:
            break
    assert at > 16


def _second(shop: Migration, **fields: Any) -> Context:
    """Another migration to the same target."""
    ctx = shop.ctx(name="second", groups={"include": [r"other\..*"]}, **fields, **UNASKED)
    ctx.journal = Journal(shop.store, "second")
    return ctx


def test_what_another_migration_may_go_by_stays_until_that_one_is_cancelled(shop: Migration) -> None:
    groups = [
        Acl(resource_type="GROUP", resource=name, pattern=pattern, principal="User:app", host="*", operation="READ",
            permission="ALLOW")
        for name, pattern in (("shop.app", "LITERAL"), ("shop.", "PREFIXED"))
    ]  # fmt: skip
    shop.source.create_acls(groups)
    make(shop)
    second = _second(shop)
    joined.join(second)
    stay = access.undo(shop.ctx()).value.stay.acls
    # It has the same topics, and other groups; a prefix may be anybody's.
    assert {*stay} == {*ALL, groups[1]}
    assert there(shop) == {*stay}
    assert grants.made(shop.ctx().journal), "and may be removed later"
    cancellation.begin(second, by="ada", reason="")
    assert not access.undo(shop.ctx()).value.stay
    assert there(shop) == set()


def test_what_two_migrations_have_made_goes_with_the_last_of_them(shop: Migration) -> None:
    make(shop)
    second = _second(shop)
    both = {"at": "noon", "acls": [asdict(one) for one in ALL], "quotas": []}
    second.journal.record(grants.KIND, "1.0", both)
    assert {*access.undo(shop.ctx()).value.stay.acls} == {*ALL}
    assert there(shop) == {*ALL}
    assert access.undo(second).facts["acls"] == 3
    assert there(shop) == set()


def test_limit_that_somebody_has_changed_since_stays_and_one_of_another_migration_too(shop: Migration) -> None:
    make(shop)
    shop.target.client_quotas = [Quota(entity=RATE.entity, limits=(("producer_byte_rate", 5.0),))]
    undone = access.undo(shop.ctx()).value
    assert [(limit.value, limit.key) for limit in undone.changed.limits] == [(1048576.0, "producer_byte_rate")]
    assert shop.target.client_quotas[0].limits == (("producer_byte_rate", 5.0),)
    shop.target.client_quotas = []
    make(shop)
    limit = {"entity": [["user", "app"]], "key": "producer_byte_rate", "value": 1048576.0, "there": None}
    Journal(shop.store, "second").record(grants.KIND, "1.0", {"at": "noon", "acls": [], "quotas": [limit]})
    access.undo(shop.ctx())
    assert shop.target.client_quotas == [RATE]


def test_without_rights_or_where_acls_would_shut_others_out_nothing_is_made(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shop.target, "cluster_operations", lambda: frozenset({"ALTER_CONFIGS", "DESCRIBE"}))
        with pytest.raises(Refused, match=r"lacks on the target's cluster: Alter \(for ACLs and SCRAM users\)\n"):
            make(shop)
        patch.setattr(shop.target, "cluster_operations", lambda: frozenset({"ALTER"}))
        with pytest.raises(Refused, match=r"AlterConfigs \(for client quotas\)"):
            make(shop)
    # As brokers show it: that it is set, and not to what.
    shop.target.configs_of_brokers = {"allow.everyone.if.no.acl.found": None}
    with pytest.raises(Refused, match="would shut out whoever has none there"):
        make(shop)
    assert not there(shop)
    shop.target.super_users = set()
    assert make(shop).facts["acls"] == 3, "who has no ACL is denied, so the door is shut"


def test_denial_that_could_be_the_migrations_own_is_not_made(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "principal_of", lambda _connection: "")
    with pytest.raises(Refused, match="is not known, so it could be meant by: DENY User:app WRITE on TOPIC"):
        make(shop)
    shop.source.delete_acls([DENIED])
    with pytest.raises(Refused, match="could be meant by: producer_byte_rate of user app"):
        make(shop)
    assert make(shop, shop.ctx(access={"own_principal": "User:CN=mover"}, **UNASKED)).facts == {
        "acls": 2,
        "quotas": 1,
        "scram_users": 0,
    }


def test_plan_that_the_migration_may_not_go_by_makes_nothing(shop: Migration) -> None:
    create.apply(shop.ctx(source="elsewhere", **UNASKED))
    joined.join(shop.ctx(source="elsewhere", **UNASKED))
    with pytest.raises(Refused, match="runs by another plan"):
        make(shop)
    assert not there(shop)


def test_plan_must_be_approved_and_neither_cancelled_nor_in_the_middle_of_a_switch(shop: Migration) -> None:
    with pytest.raises(NotApproved):
        make(shop, shop.ctx())
    switched.write(shop.ctx(), Switch(state=SwitchState.SWITCHING, begun_at="noon"))
    with pytest.raises(Refused, match="a switch of producers begun at noon"):
        make(shop)
    switched.write(shop.ctx(), Switch(state=SwitchState.GIVEN_UP, begun_at="noon"))
    cancellation.begin(shop.ctx(), by="ada", reason="")
    with pytest.raises(Refused, match="cancel"):
        make(shop)
    assert not there(shop)


def closed(
    shop: Migration,
    *principals: str,
    ban: Ban = EARLY_WRITES,
    state: FenceState = FenceState.FENCED,
    theirs: tuple[Acl, ...] = (),
) -> None:
    """The target lets these producers in no more."""
    names = ("shop.orders", "shop.payments")
    snapshot = Snapshot(names=names, principals=principals, probe="User:probe", theirs=theirs, before="", count=0)
    kept = FenceRecord(state=state, kind="acl_deny", names=names, at=shop.ctx().stamp(), snapshot=snapshot, cluster="b")
    record.write(shop.ctx(), ban, kept)
    shop.target.create_acls(snapshot.all(ban))


@pytest.mark.parametrize("ban", [EARLY_WRITES, BACK_WRITES], ids=lambda ban: ban.key)
def test_nobody_is_let_in_whom_the_closed_target_does_not_deny(shop: Migration, ban: Ban) -> None:
    shop.source.delete_acls([DENIED])
    closed(shop, "User:other", ban=ban)
    before = there(shop)
    with pytest.raises(Refused, match=r"closed to producers .*, and these would be let in: User:app\n"):
        make(shop)
    closed(shop, "User:app", ban=ban, state=FenceState.FENCING)
    with pytest.raises(Refused, match="is not done"):
        make(shop)
    closed(shop, "User:app", ban=ban)
    gone = ban.denial("shop.payments", "User:app")
    shop.target.delete_acls([gone])
    with pytest.raises(Refused, match="1 of its denials are gone"):
        make(shop)
    assert there(shop) >= before
    assert not {READ, WRITE} & there(shop)
    shop.target.create_acls([gone])
    assert make(shop).facts["acls"] == 2
    # Lifted, it concerns nobody.
    access.undo(shop.ctx())
    closed(shop, "User:other", ban=ban, state=FenceState.LIFTED)
    assert make(shop).facts["acls"] == 2


def test_denial_that_would_go_with_a_fence_is_not_made_nor_what_it_narrows(shop: Migration) -> None:
    closed(shop, "User:app")
    with pytest.raises(Refused, match="some of the same denials, which go with it: DENY User:app WRITE"):
        make(shop)
    assert not {READ, WRITE} & there(shop)


def test_denial_that_a_fence_found_there_is_not_taken_from_it(shop: Migration) -> None:
    make(shop)
    closed(shop, "User:app", theirs=(DENIED,))
    with pytest.raises(Refused, match=r"\(early-writes\) relies on 1 of these ACLs: DENY User:app WRITE"):
        access.undo(shop.ctx())
    assert there(shop) >= {*ALL}
    closed(shop, "User:app", state=FenceState.LIFTED)
    assert access.undo(shop.ctx()).facts["acls"] == 3


def _moved(shop: Migration) -> None:
    histories.moved(shop)


def _half_moved(shop: Migration) -> None:
    histories.moved(shop, upto=Step.TRANSLATED)


def _switching(shop: Migration) -> None:
    switched.write(shop.ctx(), Switch(state=SwitchState.SWITCHING, begun_at="noon"))


def _switched(shop: Migration) -> None:
    switched.write(shop.ctx(), Switch(state=SwitchState.DONE, begun_at="noon", served_at="one"))


def _stopped(shop: Migration) -> None:
    create.apply(shop.ctx())
    lifecycle.note(shop.ctx(), ["shop.orders"], TopicState.SEALED)


@pytest.mark.parametrize(
    ("came_so_far", "why"),
    [
        (_moved, r"may need these ACLs on the target: shop\.app"),
        (_half_moved, r"may need these ACLs on the target: shop\.app"),
        (_switching, "producers may need these ACLs"),
        (_switched, "producers may need these ACLs"),
        (_stopped, r"clients may use these topics on the target, whoever moved them: shop\.orders"),
    ],
)
def test_what_clients_may_need_on_the_target_stays(
    shop: Migration, came_so_far: Callable[[Migration], None], why: str
) -> None:
    make(shop)
    came_so_far(shop)
    with pytest.raises(Refused, match=why):
        access.undo(shop.ctx())
    assert there(shop) >= {*ALL}


def test_group_that_is_moved_while_access_is_taken_back_keeps_it(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(shop)
    claim = Journal.claim

    def and_a_move(self: Journal, kind: str, name: str, *, at: str) -> Any:
        found = claim(self, kind, name, at=at)
        if kind == grants.KIND:
            _moved(shop)
        return found

    monkeypatch.setattr(Journal, "claim", and_a_move)
    with pytest.raises(Refused, match=r"shop\.app"):
        access.undo(shop.ctx())
    assert there(shop) == {*ALL}


def test_target_that_does_not_show_what_was_made_or_removed_is_waited_for_and_then_named(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = shop.ctx(**UNASKED)
    with monkeypatch.context() as patch:
        patch.setattr(shop.target, "acls", lambda: (THEIRS,))
        with pytest.raises(CouldNotFindOut, match="made, and 30 s later not shown by the target yet: DENY User:app"):
            make(shop, ctx)
    assert make(shop).facts == {"acls": 0, "quotas": 0, "scram_users": 0}
    with monkeypatch.context() as patch:
        patch.setattr(shop.target, "acls", lambda: ALL)
        with pytest.raises(CouldNotFindOut, match="removed, and 30 s later still shown"):
            access.undo(shop.ctx())
    assert access.undo(shop.ctx()).facts == {"acls": 3, "quotas": 1, "scram_users": 0}
    assert not grants.made(shop.ctx().journal)


def _undoes(shop: Migration) -> None:
    access.undo(shop.ctx())


def _closes(shop: Migration) -> None:
    closed(shop, "User:other")


def _switches(shop: Migration) -> None:
    switched.write(shop.ctx(), Switch(state=SwitchState.SWITCHING, begun_at="noon"))


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [(_undoes, TakenOver), (_closes, Refused), (_switches, Refused)],
    ids=["undo", "fence", "switch"],
)
@pytest.mark.parametrize("when", ["before", "after", "late"])
def test_what_is_made_while_another_one_looks_is_taken_back(
    shop: Migration,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Migration], None],
    why: type[Exception],
    when: str,
) -> None:
    fields = UNASKED | {"producers": {"fence": {"probe": "probe"}}}
    ctx, made = shop.ctx(**fields), shop.target.create_acls
    happened = []

    def happens() -> None:
        monkeypatch.undo()
        happened.append(when)
        meanwhile(shop)

    def create_acls(acls: Any) -> None:
        if READ not in acls:
            made(acls)
        elif when == "before":
            happens()
            made(acls)
        else:
            made(acls)
            if when == "after":
                happens()

    monkeypatch.setattr(shop.target, "create_acls", create_acls)
    if when == "late":
        # One that had looked at ACLs before these were made, and says only now what it does.
        shop.clock.at(1, happens)
    with pytest.raises(why):
        grants.apply(ctx, Grants(acls=ALL), lambda: access._require_able(ctx))
    assert happened == [when]
    assert not {*ALL} & there(shop)
    assert not grants.made(shop.ctx().journal)


def _narrowed(shop: Migration) -> list[Acl]:
    def of(name: str, pattern: str, permission: str) -> Acl:
        return Acl(
            resource_type="GROUP",
            resource=name,
            pattern=pattern,
            principal="User:app",
            host="*",
            operation="READ",
            permission=permission,
        )

    every = [of("shop.", "PREFIXED", "ALLOW"), of("shop.app", "LITERAL", "DENY"), of("shop.other", "LITERAL", "ALLOW")]
    shop.source.create_acls(every)
    return every


def test_denial_stays_with_what_it_narrows(shop: Migration) -> None:
    prefix, denied, literal = _narrowed(shop)
    make(shop)
    joined.join(_second(shop, topics={"include": [r"elsewhere\..*"]}))
    undone = access.undo(shop.ctx()).value
    assert set(undone.stay.acls) == {prefix, denied}
    assert there(shop) == {prefix, denied}
    assert literal not in there(shop)


def test_denial_that_came_while_a_person_was_asked_is_shown_first(shop: Migration) -> None:
    ctx = shop.ctx(**UNASKED)
    shown = access.check(ctx)
    shop.source.create_acls([acl("User:app", "READ", "shop.payments", permission="DENY")])
    with pytest.raises(Refused, match="denies more than what was shown: DENY User:app READ on TOPIC"):
        access.run(ctx, shown)
    assert not there(shop)


def test_topic_that_came_after_the_target_was_closed_is_closed_first(shop: Migration) -> None:
    shop.source.delete_acls([DENIED])
    closed(shop, "User:app")
    shop.source.add_topic("shop.new")
    shop.source.create_acls([acl("User:app", "WRITE", "shop.new")])
    with pytest.raises(Refused, match="not yet in topics that came later, to which these could write: User:app"):
        make(shop)
    assert not {READ, WRITE} & there(shop)


def test_fence_that_begins_to_rely_on_a_denial_while_it_is_removed_gets_it_back(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Denials are the last to go.
    shop.source.client_quotas = []
    make(shop)
    removed = shop.target.delete_acls

    def delete_acls(acls: Any) -> Any:
        if DENIED in acls:
            closed(shop, "User:app", theirs=(DENIED,))
        return removed(acls)

    monkeypatch.setattr(shop.target, "delete_acls", delete_acls)
    with pytest.raises(Refused, match="relies on 1 of these ACLs"):
        access.undo(shop.ctx())
    assert there(shop) >= {*ALL}
    assert set(grants.made(shop.ctx().journal).acls) == {*ALL}


def test_many_are_made_in_parts_each_in_the_journal_before(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "_AT_ONCE", 2)
    many = [acl("User:app", "READ", f"shop.{n}") for n in range(5)]
    limits = [Limit(entity=(("user", f"u{n}"),), key="producer_byte_rate", value=1.0) for n in range(3)]
    noted: list[int] = []
    made = shop.target.create_acls

    def create_acls(acls: Any) -> None:
        noted.append(len(grants.made(shop.ctx().journal).acls))
        made(acls)

    monkeypatch.setattr(shop.target, "create_acls", create_acls)
    grants.apply(shop.ctx(), Grants(acls=tuple(many), limits=tuple(limits)), lambda: None)
    assert noted == [2, 4, 5]
    assert len(shop.target.client_quotas) == 3
    assert len(shop.ctx().journal.all(grants.KIND)) == 5
    assert set(grants.made(shop.ctx().journal).limits) == {*limits}


def test_of_two_values_of_a_limit_the_later_one_is_taken_back(shop: Migration) -> None:
    make(shop)
    later = Quota(entity=RATE.entity, limits=(("producer_byte_rate", 7.0),))
    shop.target.client_quotas, shop.source.client_quotas = [], [later]
    make(shop)
    undone = access.undo(shop.ctx()).value
    assert ([limit.value for limit in undone.removed.limits], undone.changed) == ([7.0], Grants())
    assert shop.target.client_quotas == []


def test_cancelled_migration_names_what_it_leaves(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    create.apply(shop.ctx())
    make(shop)
    monkeypatch.setattr(seal, "cut_off", lambda _ctx, _tps: {})
    cancel.run(shop.ctx(), by="ada")
    assert (
        "ACLs, quotas and SCRAM users that `access --apply` made stay: `access PLAN --undo` removes them" in shop.told
    )
    assert there(shop) == {*ALL}
    access.undo(shop.ctx())
    assert not there(shop)
