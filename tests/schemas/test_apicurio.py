"""To and from a real registry that speaks Confluent's API, and does not mean the same by it everywhere."""

from __future__ import annotations

import uuid

import pytest

from kafka_migration.schemas import copy
from kafka_migration.schemas.copy import IdsNotKept
from tests.schemas.apicurio import Apicurio
from tests.schemas.worlds import JSON_SCHEMA, Registries, record, register

pytestmark = pytest.mark.long


def fill(url: str, both: Registries) -> tuple[str, str]:
    """Subjects of a topic of the test's own, and of one that they refer to."""
    topic = f"t{uuid.uuid4().hex[:8]}"
    both.fields["topics"] = {"include": [topic]}
    values, money = f"{topic}-value", f"{topic}.Money"
    for filler in range(3):
        register(url, f"{topic}-filler", record("Filler", f"f{filler}"))
    register(url, money, record("Money", "cents"))
    register(url, values, record("Order", price="Money"), ("Money", money, 1))
    register(url, values, record("Order", "number", price="Money"), ("Money", money, 1))
    register(url, f"{topic}-key", JSON_SCHEMA | {"title": topic}, schemaType="JSON")
    return values, money


def test_ids_are_the_same_after_a_copy_from_apicurio(both: Registries, apicurio: Apicurio) -> None:
    both.connect("old_registry", apicurio.url)
    values, money = fill(apicurio.url, both)
    made = both.apply()
    assert sorted((one.subject, one.version) for one in made.missing) == sorted(
        [(values, 1), (values, 2), (money, 1), (values.replace("-value", "-key"), 1)]
    )
    for one in made.missing:
        shown = apicurio.http.get(f"/subjects/{one.subject}/versions/{one.version}").json()
        assert both.target.subjects[one.subject][one.version].id == shown["id"]
    assert both.target.configs[values] == {"compatibilityLevel": "NONE"}, "as Apicurio's own is"
    assert both.difference().exit_code == 0
    copy.undo(both.ctx())
    assert not both.target.subjects


def test_soft_deleted_versions_are_copied_and_those_that_apicurio_does_not_show_are_named(
    both: Registries, apicurio: Apicurio
) -> None:
    both.connect("old_registry", apicurio.url)
    values, _ = fill(apicurio.url, both)
    keys = values.replace("-value", "-key")
    for subject in (values, keys):
        apicurio.http.delete(f"/subjects/{subject}/versions/1").raise_for_status()
    both.apply()
    assert {at: one.is_deleted for at, one in both.target.subjects[values].items()} == {1: True, 2: False}
    found = both.difference()
    assert (found.exit_code, found.left_out) == (0, (f"{keys} version 1: soft-deleted, and not shown",))


def test_apicurio_gives_its_own_ids_and_is_refused_before_it_has_a_schema_of_the_plan(
    both: Registries, apicurio: Apicurio
) -> None:
    both.connect("new_registry", apicurio.url)
    before = apicurio.http.get("/subjects?deleted=true").json()
    both.section["subjects"] = [".*"]
    both.source.register("orders", record("Order", f"x{uuid.uuid4().hex[:8]}"))
    # One that a registry that counts by itself is not at.
    both.source.subjects["orders"][1].id = 900_000_000
    with pytest.raises(IdsNotKept, match="does not keep ids") as refused:
        both.apply()
    assert "Apicurio" in refused.value.remedy
    after = apicurio.http.get("/subjects?deleted=true").json()
    assert after == before
