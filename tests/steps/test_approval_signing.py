"""Who may write to the journal may not approve: what of an answer is signed, and what a forger cannot do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.approvals import approvals, passing
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.record import answers, history
from kafka_migration.domain.errors import BadInput, StateConflict
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.migration.joined import join
from kafka_migration.migration.signing import FILE_VARIABLE, Keyring, find_keys
from kafka_migration.plans.places import APPROVALS_CONNECTION
from tests.steps.gates import Migration

PLAN = GateName.PLAN
KEY, OTHER = "k" * 32, "o" * 32
CONNECTED = variable_of(APPROVALS_CONNECTION)


@pytest.fixture
def shop() -> Migration:
    return Migration()


def approve(shop: Migration, **fields: Any) -> dict[str, Any]:
    """Approve the plan as it is; the record of the answer."""
    ctx = shop.ctx(**fields)
    answer = approvals.record(ctx, PLAN, approvals.evidence(ctx, PLAN).digest, "ada", via="command")
    value = ctx.journal.read("approval", f"plan/{answer.number}-approved")
    assert value is not None
    return value


def passes(shop: Migration, **fields: Any) -> bool:
    """Whether the gate lets pass. Raises NotApproved with the reason if not."""
    return approvals.check(shop.ctx(**fields), PLAN).approval is not None


# -- forging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("approver", "bob"),
        ("via", "airflow"),
        ("at", "2030-01-01T00:30:00.000+00:00"),
        ("seen_at", "2030-01-01T00:30:00.000+00:00"),
        ("digest", "sha256:0"),
        ("reason", "because"),
        ("signature", "hmac-sha256:00000000:00"),
        ("signature", "hmac-sha256:é"),
    ],
)
def test_answer_of_which_anything_was_changed_is_none(field: str, value: str, shop: Migration) -> None:
    shop.clock.sleep(3000)
    genuine = approve(shop)
    shop.ctx().journal.record("approval", "plan/1-approved", {**genuine, field: value})
    with pytest.raises(NotApproved, match=r"the approval by .* is signed"):
        passes(shop)
    shop.ctx().journal.record("approval", "plan/1-approved", genuine)
    assert passes(shop)


def test_answer_that_is_not_signed_is_none_unless_the_plan_asks_for_no_signature(shop: Migration) -> None:
    value = approve(shop, approvals={"signed": False})
    assert value["signature"] == ""
    assert passes(shop, approvals={"signed": False})
    with pytest.raises(NotApproved, match="the approval by ada is not signed"):
        passes(shop)


def test_plan_that_has_not_joined_asks_for_no_fewer_signatures(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(shop.ctx())
    edited = {"approvals": {"signed": False}}
    value = approve(shop, **edited)
    assert value["signature"].startswith("hmac-sha256:")
    assert passes(shop, **edited)
    shop.ctx().journal.record("approval", "plan/1-approved", {**value, "signature": ""})
    with pytest.raises(NotApproved, match="is not signed"):
        passes(shop, **edited)
    ctx = shop.ctx(**edited)
    shown = approvals.evidence(ctx, PLAN)
    with pytest.raises(BadInput, match="not a receipt"):
        approvals.shown_by(ctx, PLAN, f"{shown.digest}@{shown.taken_at.isoformat()}")
    assert approvals.shown_by(ctx, PLAN, approvals.receipt(ctx, shown))[0] == shown.digest
    monkeypatch.setattr(type(ctx.approval_keys()), "__bool__", lambda _keys: False)
    with pytest.raises(BadInput, match="there is no approval key"):
        passing.require_key(ctx)


def test_answer_that_an_earlier_version_wrote_is_to_be_given_anew(shop: Migration) -> None:
    ctx = shop.ctx()
    seen = approvals.evidence(ctx, PLAN)
    old = {"gate": "plan", "answer": "approved", "digest": seen.digest, "approver": "ada", "os_user": "ada"}
    at = ctx.stamp()
    ctx.journal.record(
        "approval", "plan", {"format": 1, **old, "at": at, "seen_at": at, "facts": None, "earlier": [{"at": at}]}
    )
    assert [it.approver for it in answers(ctx).values()] == ["ada"]
    assert len(history(ctx)) == 2
    with pytest.raises(NotApproved, match="is not signed: an earlier version wrote it") as refused:
        approvals.check(ctx, PLAN)
    assert "answer again" in refused.value.remedy
    approve(shop)
    assert passes(shop)


def test_answer_of_the_same_evidence_for_another_target_does_not_hold_here(shop: Migration) -> None:
    approve(shop)
    assert passes(shop)
    shop.target.cluster_id = lambda: "another"  # type: ignore[method-assign]
    with pytest.raises(NotApproved, match="differs from what was signed"):
        passes(shop)


def test_answer_dated_in_the_future_is_none(shop: Migration) -> None:
    shop.clock.sleep(7200)
    approve(shop)
    shop.clock.sleep(-600)
    with pytest.raises(NotApproved, match="dated in the future"):
        passes(shop)
    shop.clock.sleep(560)
    assert passes(shop), "clocks of two machines differ"


# -- what was taken back stays so -------------------------------------------------------------------------------------


def again(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.record("approval", "plan/1-approved", value)


def under_the_number_of_the_revocation(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.record("approval", "plan/2-approved", value)


def numbered_higher(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.record("approval", "plan/3-approved", {**value, "number": 3})


def in_place_of_the_revocation(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.record("approval", "plan/2-revoked", value)


def as_an_earlier_version_wrote_it(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.record("approval", "plan", {**value, "format": 1})


def without_the_revocation(shop: Migration, value: dict[str, Any]) -> None:
    shop.ctx().journal.forget("approval", "plan/2-revoked")


@pytest.mark.parametrize(
    "replay",
    [
        again,
        under_the_number_of_the_revocation,
        numbered_higher,
        in_place_of_the_revocation,
        as_an_earlier_version_wrote_it,
        without_the_revocation,
    ],
)
def test_approval_that_is_written_again_undoes_no_revocation(
    replay: Callable[[Migration, dict[str, Any]], None], shop: Migration
) -> None:
    genuine = approve(shop)
    approvals.revoke(shop.ctx(), PLAN, "bob", reason="not today")
    with pytest.raises(NotApproved, match=r"bob revoked it at 2030-01-01 .* \(not today\)"):
        passes(shop)
    replay(shop, genuine)
    with pytest.raises((NotApproved, StateConflict)):
        passes(shop)
    approve(shop)
    assert passes(shop), "who has the key can always answer anew"


def test_of_two_answers_with_one_number_the_one_that_closes_the_gate_counts_and_is_missed(shop: Migration) -> None:
    genuine = approve(shop)
    journal = shop.ctx().journal
    journal.record("approval", "plan/1-rejected", {**genuine, "answer": "rejected"})
    with pytest.raises(NotApproved, match="ada rejected it"):
        passes(shop)
    journal.forget("approval", "plan/1-rejected")
    with pytest.raises(NotApproved, match="answer 1 was removed from the journal"):
        passes(shop)


def test_revocation_needs_an_approval_and_one_of_the_approvers(shop: Migration) -> None:
    with pytest.raises(NotApproved, match="there is no approval to revoke"):
        approvals.revoke(shop.ctx(), PLAN, "ada")
    approve(shop)
    with pytest.raises(NotApproved, match="eve is not one of"):
        approvals.revoke(shop.ctx(approvals={"approvers": ["ada"]}), PLAN, "eve")
    approvals.revoke(shop.ctx(), PLAN, "ada")
    with pytest.raises(NotApproved, match="there is no approval to revoke"):
        approvals.revoke(shop.ctx(), PLAN, "ada")


def test_gate_is_closed_from_anywhere_also_where_there_is_no_key(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(shop)
    monkeypatch.delenv(CONNECTED)
    approvals.revoke(shop.ctx(), PLAN, "ada")
    with pytest.raises(NotApproved, match="ada revoked it"):
        passes(shop)


# -- the key ----------------------------------------------------------------------------------------------------------


def test_without_a_key_nobody_is_asked_and_no_gate_opens(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    approve(shop)
    monkeypatch.delenv(CONNECTED)
    with pytest.raises(BadInput, match="there is no approval key") as refused:
        passes(shop)
    assert FILE_VARIABLE in refused.value.remedy
    with pytest.raises(BadInput, match="there is no approval key"):
        approve(shop)
    with pytest.raises(BadInput, match="there is no approval key"):
        passing.require_key(shop.ctx())
    passing.require_key(shop.ctx(approvals={"signed": False}))


def test_key_is_changed_without_voiding_what_the_one_before_has_signed(shop: Migration) -> None:
    old, both, new = Keyring((OTHER,)), Keyring((KEY, OTHER)), Keyring((KEY,))

    def ctx(keys: Keyring) -> Any:
        found = shop.ctx()
        found.approval_keys = lambda: keys
        return found

    approvals.record(ctx(old), PLAN, approvals.evidence(ctx(old), PLAN).digest, "ada")
    approvals.check(ctx(both), PLAN)
    with pytest.raises(NotApproved, match="with a key that is unknown here"):
        approvals.check(ctx(new), PLAN)
    approvals.record(ctx(both), PLAN, approvals.evidence(ctx(both), PLAN).digest, "ada")
    approvals.check(ctx(new), PLAN)


def test_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of May\n{KEY}\n\n{OTHER}\n", encoding="ascii")
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(BadInput, match="others may read or change"):
            find_keys({FILE_VARIABLE: str(file)})
    file.chmod(0o600)
    assert find_keys({FILE_VARIABLE: str(file)}) == Keyring((KEY, OTHER))


@pytest.mark.parametrize("text", [None, b"\xff" * 40])
def test_key_file_that_cannot_be_read_is_bad_input(text: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    if text is not None:
        file.write_bytes(text)
        file.chmod(0o600)
    with pytest.raises(BadInput, match="the approval key cannot be read"):
        find_keys({FILE_VARIABLE: str(file)})


@pytest.mark.parametrize(
    "value", [json.dumps({"conn_type": "generic", "password": KEY}), f"generic://:{KEY.replace('k', '%6B')}@"]
)
def test_key_is_the_password_of_a_connection_and_is_never_shown(value: str) -> None:
    found = find_keys({CONNECTED: value})
    assert found == Keyring((KEY,))
    assert KEY not in repr(found)
    assert KEY not in found.sign({"a": 1})


def test_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(BadInput, match="fewer than 32 characters"):
        find_keys({CONNECTED: json.dumps({"password": "secret"})})
    with pytest.raises(BadInput, match="has no password"):
        find_keys({CONNECTED: json.dumps({"conn_type": "generic"})})
    assert not Keyring(())


def test_receipt_holds_for_its_migration_only(shop: Migration) -> None:
    ctx = shop.ctx()
    seen = approvals.evidence(ctx, PLAN)
    given = approvals.receipt(ctx, seen)
    digest, at = approvals.shown_by(ctx, PLAN, given)
    assert digest == seen.digest
    assert abs(at - seen.taken_at) < timedelta(milliseconds=1)
    with pytest.raises(BadInput, match="not a receipt"):
        approvals.shown_by(shop.ctx(name="other"), PLAN, given)
    with pytest.raises(BadInput, match="not a receipt"):
        approvals.shown_by(ctx, GateName.CUTOVER, given)
