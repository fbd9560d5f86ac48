"""Data directories made without Kafka's tool are what the tool makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo.brokers import config, formatting
from demo.brokers.releases import NEWEST, OLD, Release
from kafka_migration.wire.batch import batches
from kafka_migration.wire.records import RawRecord, raw_records

CLUSTER_ID = "MFuQ7iWJQRapcU-6IlDG4Q"


def node(directory: Path, release: Release, node_id: int = 2) -> config.Layout:
    ports = {"client_port": node_id, "internal_port": node_id + 10, "controller_port": node_id + 20}
    return config.Layout(node_id=node_id, directory=directory, release=release, **ports)


def content(data: Path) -> tuple[dict[str, str], list[tuple[int, bool, list[RawRecord]]]]:
    """The ids, and the first metadata without its times."""
    lines = (data / "meta.properties").read_text(encoding="utf-8").splitlines()
    ids = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    found = [
        (header.base_offset, header.is_control, list(raw_records(header, batch)))
        for header, batch in batches((data / "bootstrap.checkpoint").read_bytes())
    ]
    return ids, found


@pytest.mark.parametrize("release", [it for it in (NEWEST, *OLD) if not it.has_zookeeper], ids=lambda it: it.name)
def test_formatted_without_the_tool_holds_the_same_but_for_its_own_id(tmp_path: Path, release: Release) -> None:
    ours, theirs = node(tmp_path / "ours", release), node(tmp_path / "theirs", release)
    # Others of the cluster, and what tests set, change nothing of what the tool writes.
    others = [node(tmp_path, release, node_id) for node_id in (1, 3)]
    overrides = {"log.cleaner.backoff.ms": "200", "authorizer.class.name": "no.such.Authorizer"}
    config.write_files(theirs, config.server_properties(theirs, [theirs, *others], overrides))
    formatting.run_tool(theirs, CLUSTER_ID)
    formatting.format_data(ours, CLUSTER_ID, cache=tmp_path / "cache")

    assert {it.name for it in ours.data.iterdir()} == {it.name for it in theirs.data.iterdir()}
    (our_ids, our_metadata), (their_ids, their_metadata) = content(ours.data), content(theirs.data)
    directory_ids = our_ids.pop("directory.id"), their_ids.pop("directory.id")
    assert our_ids == their_ids == {"version": "1", "cluster.id": CLUSTER_ID, "node.id": "2"}
    assert len(set(directory_ids)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", it) for it in directory_ids)
    assert our_metadata == their_metadata
    assert any(b"metadata.version" in record.rest for _, _, records in our_metadata for record in records)


def test_second_directory_is_made_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = node(tmp_path / "first", NEWEST), node(tmp_path / "second", NEWEST)
    formatting.format_data(first, CLUSTER_ID, cache=tmp_path / "cache")
    monkeypatch.setattr(formatting, "run_tool", lambda *_: pytest.fail("the tool ran again"))
    formatting.format_data(second, CLUSTER_ID, cache=tmp_path / "cache")
    one, other = content(first.data), content(second.data)
    assert one[0]["directory.id"] != other[0]["directory.id"]
    assert one[1] == other[1]
