"""The short form of `make fuzz-reader`, and that it would find what it looks for."""

from typing import Any

import numpy as np
import pytest

from kafka_migration.compare.record_digest import ordered_hashes
from tests.soak import batches


def test_batches_of_the_java_client_are_read_alike() -> None:
    figures = batches.compare(20261128, 3_000)
    assert figures["batches"] == 3_000
    assert figures["records"] > 10_000
    assert figures["different"] == 0


def test_reader_that_errs_by_one_offset_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(hashes: Any, places: Any) -> Any:
        return ordered_hashes(hashes, places + (np.arange(len(places)) == 0))

    monkeypatch.setattr(batches, "ordered_hashes", wrong)
    assert batches.compare(1, 100, log_line=lambda _line: None)["different"] > 0
