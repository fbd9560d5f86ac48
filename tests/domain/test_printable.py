"""Free text of others does nothing to a terminal, and forges no line."""

from __future__ import annotations

import pytest

from kafka_migration.domain.printable import in_one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[H PASS", r"\x1b[2J\x1b[H PASS"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb\x00\x7f", r"a\rb\x00\x7f"),
        ("\u202eyaml.nalp", r"\u202eyaml.nalp"),
        ("Grüße, \t日本\nzwei", "Grüße, \t日本\nzwei"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_its_code(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_that_is_an_entry_of_its_own_stays_one() -> None:
    assert in_one_line("group x\nplan gate: approved by ada") == r"group x\nplan gate: approved by ada"
