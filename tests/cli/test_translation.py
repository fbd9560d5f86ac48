"""`translate` of positions that are kept outside Kafka's groups: options, tables, exit codes; in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka import keyed_topic
from kafka_migration.state.link import LinkState
from tests.cli.conftest import Terminal

CSV = "topic,partition,offset,who\nshop.orders,0,40,ann\nshop.orders,1,50,bob\n"


class MemoryTopic:
    """A keyed topic in memory; ``values`` are by cluster and topic."""

    values: dict[tuple[str, str], dict[bytes, bytes]]

    def __init__(self, cluster: object, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self._place = self.cluster.role, topic  # type: ignore[attr-defined]

    def require_compacted(self) -> None:
        pass

    def latest(self) -> dict[bytes, bytes]:
        return dict(self.values.get(self._place, {}))

    def put(self, values: dict[bytes, bytes]) -> None:
        self.values.setdefault(self._place, {}).update(values)


@pytest.fixture
def mirrored(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Source offsets 20 to 60 of both partitions of shop.orders stand at target offset 1."""
    terminal.shop.target.add_topic("shop.orders", partitions=2)
    for partition in range(2):
        terminal.shop.target.append(TopicPartition("shop.orders", partition), 41)
    found = OffsetMap([Run(20, 1, 40)], source_end=60, target_end=41)

    def maps(_link: LinkState, of: list[TopicPartition]) -> dict[TopicPartition, OffsetMap]:
        return {tp: found for tp in of if tp.topic == "shop.orders" and tp.partition < 2}

    monkeypatch.setattr(LinkState, "offset_maps", maps)
    return terminal


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], dict[bytes, bytes]]:
    found: dict[tuple[str, str], dict[bytes, bytes]] = {}
    monkeypatch.setattr(MemoryTopic, "values", found, raising=False)
    monkeypatch.setattr(keyed_topic, "KeyedTopic", MemoryTopic)
    return found


def test_file_is_shown_then_written_then_never_overwritten_and_comes_back_as_it_was(mirrored: Terminal) -> None:
    Path("in.csv").write_text(CSV)
    shown = mirrored.run("translate", "--file", "in.csv")
    assert shown.exit_code == 0, shown.output
    assert "line 2" in shown.stdout
    assert sorted(os.listdir()) == ["in.csv", "shop.yaml"]
    dry = mirrored.json("translate", "--file", "in.csv", "--output", "out.csv", "--dry-run")
    assert (dry["output"], [row["target"] for row in dry["positions"]]) == (None, [21, 31])
    assert mirrored.opened[-1]["dry_run"]
    value = mirrored.json("translate", "--file", "in.csv", "--output", "out.csv")
    assert (value["output"], value["format"], value["left_out"]) == ("out.csv", "csv", [])
    assert value["positions"][1] == {
        "where": "line 3",
        "topic": "shop.orders",
        "partition": 1,
        "source": 50,
        "target": 31,
        "how": "exact",
        "problem": "",
    }
    assert Path("out.csv").read_text() == CSV.replace(",40,", ",21,").replace(",50,", ",31,")
    again = mirrored.run("translate", "--file", "in.csv", "--output", "out.csv")
    assert again.exit_code == 2
    assert "--output: exists already" in again.stderr
    back = mirrored.json("translate", "--file", "out.csv", "--output", "back.csv", "--reverse")
    assert [(row["target"], row["source"]) for row in back["positions"]] == [(21, 40), (31, 50)]
    assert Path("back.csv").read_text() == CSV


def test_position_without_an_answer_is_shown_with_its_remedy_and_nothing_is_written(mirrored: Terminal) -> None:
    Path("in.json").write_text(json.dumps({"shop.orders": {"0": 61, "1": 7}}))
    shown = mirrored.run("translate", "--file", "in.json")
    assert shown.exit_code == 1
    words = " ".join(shown.stdout.split())
    assert "lies beyond the mirror's position 60" in words.replace("│", "")
    refused = mirrored.run("translate", "--file", "in.json", "--output", "out.json")
    assert refused.exit_code == 1
    assert "shop.orders.0 (shop.orders-0, 61): source offset 61 lies beyond" in refused.stderr
    assert "remedy: wait until the mirror has copied up to it" in refused.stderr
    assert not Path("out.json").exists()


def test_what_is_wrong_with_a_file_is_found_before_any_cluster_is_asked(mirrored: Terminal) -> None:
    Path("in.csv").write_text(CSV.replace("40", "x"))
    result = mirrored.run("translate", "--file", "in.csv", "--output", "out.csv")
    assert result.exit_code == 2
    assert "in.csv: line 2: is not an offset" in result.stderr
    assert "found 'x'" in result.stderr
    assert mirrored.opened == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--file", "a", "--offset", "a:0:1"], "--offset and --file exclude each other"),
        (["--output", "a"], "--output needs --file"),
        (["--file", "a", "--rewind"], "--rewind needs --connect-offsets"),
        (["--reverse", "--offset", "orders:0:1"], "--reverse translates what groups committed, and no single --offset"),
        (["--file", "in.csv", "--columns", "a,b"], "--columns: is not three names"),
    ],
)
def test_options_that_do_not_belong_together_are_bad_input(words: list[str], said: str, mirrored: Terminal) -> None:
    Path("in.csv").write_text(CSV)
    result = mirrored.run("translate", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", "").split())
    assert mirrored.opened == []


def test_offsets_topic_is_shown_then_written_to_the_other_cluster_or_the_one_that_is_named(
    mirrored: Terminal, topics: dict[tuple[str, str], dict[bytes, bytes]]
) -> None:
    key = b'["mm2",{"cluster":"old","partition":0,"topic":"shop.orders"}]'
    topics["source", "offsets"] = {key: b'{"offset":40}', b'["files",{"filename":"x"}]': b'{"position":1}'}
    shown = mirrored.run("translate", "--connect-offsets", "offsets")
    assert shown.exit_code == 0, shown.output
    assert "1 other keys" in shown.stdout
    assert topics.keys() == {("source", "offsets")}
    words = ["translate", "--connect-offsets", "source:offsets", "--output-topic", "new"]
    dry = mirrored.json(*words, "--dry-run")
    assert dry["written"] is None
    assert topics.keys() == {("source", "offsets")}
    value = mirrored.json(*words)
    assert (value["written"], value["others"], value["positions"][0]["change"]) == (2, 1, "new")
    assert topics["target", "new"][key] == b'{"offset":21}'
    assert mirrored.json(*words)["written"] == 0
    topics["target", "new"][key] = b'{"offset":30}'
    refused = mirrored.run(*words, "--connector", "mm2")
    assert refused.exit_code == 1
    assert "mm2 (shop.orders-0): further ahead there" in refused.stderr
    assert mirrored.json(*words, "--connector", "mm2", "--rewind")["written"] == 1
    unknown = mirrored.run("translate", "--connect-offsets", "nowhere:offsets")
    assert unknown.exit_code == 2
    assert "no connection has the id 'nowhere'" in unknown.stderr
