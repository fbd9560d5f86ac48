"""Errors say what, where and the remedy, and arrive whole in another process."""

import pickle

import pytest

from kafka_migration.domain import errors as e

EXAMPLES = [
    e.MigrationError("what happened", remedy="what to do"),
    e.Retryable("again"),
    e.BadInput("must be positive", field="lag_gate.samples", value=0, file="plan.yaml", remedy="give 1 or more"),
    e.Refused("no", remedy="change it"),
    e.CouldNotFindOut("unknown"),
    e.ClusterUnreachable("source", "127.0.0.1:1", "refused"),
    e.NotAuthorized("target", "Write", "topic t"),
    e.TakenOver("link x"),
    e.StateConflict("unknown version", remedy="use the other version"),
    e.NeedsRollback("half done"),
    e.HaltedPartition(topic="t", partition=3, reason="DATA_LOSS", detail="gone", source_offset=7, remedy="look"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_survives_a_process_boundary_with_all_its_fields(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_remedy_is_shown_where_there_is_one(error):
    assert ("remedy: " in str(error)) == bool(error.remedy)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (e.Refused, 1),
        (e.NotAuthorized, 1),
        (e.HaltedPartition, 1),
        (e.BadInput, 2),
        (e.CouldNotFindOut, 3),
        (e.ClusterUnreachable, 3),
        (e.TakenOver, 3),
        (e.StateConflict, 3),
    ],
)
def test_exit_codes_are_those_of_the_command_line(kind, code):
    assert kind.exit_code == code


def test_bad_input_names_file_and_field():
    assert str(EXAMPLES[2]).startswith("plan.yaml: lag_gate.samples: must be positive\n  remedy: give 1 or more")


def test_halted_partition_names_where_and_why():
    assert str(EXAMPLES[-1]).startswith("t-3: DATA_LOSS, source offset 7: gone")
