"""A gate is open only on proof: unchecked is never a pass."""

import pytest

from kafka_migration.domain.checks import CheckResult, Gate, Verdict


def _gate(*verdicts: Verdict) -> Gate:
    return Gate.of("gate", (CheckResult(name=f"check {v}", verdict=v, evidence="seen") for v in verdicts))


@pytest.mark.parametrize(
    ("verdicts", "exit_code"),
    [
        ([Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.WARN], 0),
        ([Verdict.WARN], 0),
        ([Verdict.PASS, Verdict.FAIL], 1),
        ([Verdict.UNCHECKED, Verdict.FAIL], 1),
        ([Verdict.PASS, Verdict.UNCHECKED], 3),
        ([], 3),
    ],
)
def test_gate_is_open_only_if_nothing_failed_or_stayed_unknown(verdicts, exit_code):
    gate = _gate(*verdicts)
    assert (gate.is_open, gate.exit_code) == (exit_code == 0, exit_code)


def test_blockers_are_what_failed_or_could_not_be_checked():
    gate = _gate(Verdict.PASS, Verdict.FAIL, Verdict.WARN, Verdict.UNCHECKED)
    assert [result.verdict for result in gate.blockers] == [Verdict.FAIL, Verdict.UNCHECKED]
