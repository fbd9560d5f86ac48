"""A migration onto other names, there and back, by commands between real clusters; beside another one of the same
topics, beside topics of the target that have the source's names, and with one that would copy all of it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from tests.cli.processes import Ended, connection, run
from tests.kafka_tools import Row, ToSend, commit, committed, create_topics, produce, read_all

RECORDS = 300
GROUP = "renamed.app"
#: Topics of the source, with their partitions and names on the target.
ORDERS, PAYMENTS = ("renamed.orders", 2, "west.renamed.orders"), ("renamed.payments", 1, "eu-payments")
MASTER = ("--master", "local[2]")


class Terminal:
    """Runs commands with plans of their own in a folder."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        self._folder = folder
        self._connections = {"one": connection(source), "other": connection(target)}

    def plan(self, name: str, **fields: Any) -> str:
        """Write a plan; what is not given is as for the way there."""
        document = {
            "version": 1,
            "name": name,
            "source": "one",
            "target": "other",
            "topics": {"include": [r"renamed\..*"]},
            "approvals": {"plan": False, "cutover": False},
            "lag_gate": {"threshold_records": 0, "samples": 2, "interval_seconds": 1, "deadline_seconds": 120},
            "cutover": {"rest_seconds": 1},
            "drain": {"window_seconds": 2, "deadline_seconds": 120},
            "validation": {"sample": 1.0},
        }
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document | fields), encoding="utf-8")
        return str(path)

    def run(self, command: str, plan: str, *words: str, code: int = 0) -> Ended:
        return run(command, plan, *words, connections=self._connections, directory=self._folder, code=code)


def same(rows: list[Row]) -> list[object]:
    return [row.without_offset() for row in rows]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_topics_with_other_names_on_the_target_are_copied_compared_moved_and_brought_back(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path
) -> None:
    here, there = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    create_topics(here, {name: partitions for name, partitions, _ in (ORDERS, PAYMENTS)})
    # What the target has by the source's name is somebody else's.
    create_topics(there, {ORDERS[0]: 1})
    produce(there, ORDERS[0], [ToSend(b"theirs", partition=0)])
    for name, partitions, _ in (ORDERS, PAYMENTS):
        produce(here, name, (ToSend(b"%d" % n, b"k%d" % n, n % partitions) for n in range(RECORDS)))
    commit(here, GROUP, {(ORDERS[0], 0): 50, (ORDERS[0], 1): 150, (PAYMENTS[0], 0): 7})
    terminal = Terminal(tmp_path, here, there)
    plan = terminal.plan(
        "renamed",
        naming={"prefix": "west", "topics": {PAYMENTS[0]: PAYMENTS[2]}},
        groups={"include": [r"renamed\.app"]},
        cutover={"rest_seconds": 1, "stopped_groups": [GROUP]},
    )

    def sides() -> list[tuple[TopicPartition, list[Row], list[Row]]]:
        """Each partition, by its name on the source, with its records there and on the target."""
        ours = read_all(here, {name: partitions for name, partitions, _ in (ORDERS, PAYMENTS)})
        theirs = read_all(there, {called: partitions for _, partitions, called in (ORDERS, PAYMENTS)})
        called = {name: there for name, _, there in (ORDERS, PAYMENTS)}
        return [(tp, rows, theirs[TopicPartition(called[tp.topic], tp.partition)]) for tp, rows in ours.items()]

    # There.
    found = {check["name"]: check for check in terminal.run("check", plan, "--json").json["checks"]}
    assert found["names on the target"]["evidence"] == (
        f"on the target {ORDERS[0]} is called {ORDERS[2]}, {PAYMENTS[0]} is called {PAYMENTS[2]}"
    )
    terminal.run("create", plan)
    assert terminal.run("mirror", plan, "--until-caught-up", *MASTER, "--json").json["records"] == 2 * RECORDS
    assert all(same(ours) == same(theirs) for _, ours, theirs in sides())
    verdict = terminal.run("validate", plan, *MASTER, "--json").json
    assert (verdict["verdict"], verdict["totals"]["source_records"]) == ("EQUAL", 2 * RECORDS)
    terminal.run("cutover", plan)
    moved = {(ORDERS[2], 0): 50, (ORDERS[2], 1): 150, (PAYMENTS[2], 0): 7}
    assert committed(there, GROUP).keys() == moved.keys()

    # Another migration copies the same topics to names of their own: neither holds what the other one does.
    other = terminal.plan("copied", naming={"prefix": "copy", "separator": "-"})
    terminal.run("create", other)
    assert terminal.run("mirror", other, "--until-caught-up", *MASTER, "--json").json["records"] == 2 * RECORDS
    clash = terminal.plan("clash", topics={"include": [ORDERS[0]]}, naming={"topics": {ORDERS[0]: ORDERS[2]}})
    assert "migration renamed holds it" in " ".join(terminal.run("create", clash, code=1).err.split())

    # Its names stay: by others nothing of it would be found, and what is would be somebody else's.
    kept = Path(plan).read_text()
    terminal.plan("renamed", naming={"prefix": "wst"})
    for command in ("cancel", "stragglers", "status"):
        assert "by other names than naming of this plan" in " ".join(terminal.run(command, plan, code=1).err.split())
    Path(plan).write_text(kept)

    # A third one that takes everything back would go on for ever.
    loop = {"source": "other", "target": "one", "naming": {"prefix": "east"}, "topics": {"include": [r"west\..*"]}}
    refused = " ".join(terminal.run("create", terminal.plan("loop", **loop), code=1).err.split())
    assert f"{ORDERS[2]}: link renamed copies it from the target, so it would go back there" in refused

    # And back, with what was written there since.
    assert terminal.run("stop", plan, "--json").json["stopped"] is True
    produce(there, ORDERS[2], (ToSend(b"new %d" % n, partition=n % 2) for n in range(RECORDS)))
    ends = {(tp, number): at + 100 for (tp, number), at in committed(there, GROUP).items() if tp == ORDERS[2]}
    commit(there, GROUP, ends)
    terminal.run("mirror", plan, "--reverse", "--until-caught-up", *MASTER)
    assert all(same(ours) == same(theirs) for _, ours, theirs in sides())
    assert terminal.run("validate", plan, "--reverse", *MASTER, "--json").json["verdict"] == "EQUAL"
    terminal.run("watch", plan)
    terminal.run("rollback", plan)
    after = committed(here, GROUP)
    for tp, ours, theirs in sides():
        called = {name: there for name, _, there in (ORDERS, PAYMENTS)}[tp.topic]
        at = committed(there, GROUP)[TopicPartition(called, tp.partition)]
        assert sum(row.offset < after[tp] for row in ours) == sum(row.offset < at for row in theirs)
    assert [row.value for row in read_all(there, {ORDERS[0]: 1})[TopicPartition(ORDERS[0], 0)]] == [b"theirs"]
    terminal.run("report", plan)
    report = (tmp_path / "reports" / "renamed" / "report.html").read_text()
    assert f"<code>{PAYMENTS[0]}</code> is <code>{PAYMENTS[2]}</code>" in report
