"""An approval binds to a digest: equal values share it, different ones do not, and nothing is digested by accident."""

import pytest

from kafka_migration.domain.digest import digest_of


def test_order_of_keys_does_not_count_and_order_of_items_does():
    assert digest_of({"a": 1, "b": [1, 2]}) == digest_of({"b": [1, 2], "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])


def test_digest_is_sha256_of_canonical_json():
    assert digest_of({"ä": None}) == "sha256:f848957903fabd98213271e0bbb88c705e332a705f79f4a56d1646466cd4d479"
    assert len(digest_of("")) == len("sha256:") + 64


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (None, "null"), ([], {}), (True, 1), ("", None), (0, False)])
def test_values_of_different_types_differ(one, other):
    assert digest_of({"it": one}) != digest_of({"it": other})


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {"it": object()}])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(TypeError):
        digest_of(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        digest_of(value)
