"""Random correct histories give zeros; with one fault put into them, that fault is found, and no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain as flat
from itertools import pairwise
from pathlib import Path

import pytest

from checker.verdict import Verdict, judge
from tests.checker.worlds import SOURCE, TARGET, TOPIC, Fields, File, Notes, World, Writer

STEPS = 200
Faults = dict[str, int]


def faults(verdict: Verdict) -> Faults:
    return {fault.value: count for fault, count in verdict.findings.counts.items() if count}


@pytest.mark.parametrize("seed", range(12))
def test_correct_history_with_kills_retries_rebalances_and_a_move_gives_zeros(tmp_path: Path, seed: int) -> None:
    verdict = judge(World(seed).run(STEPS, final=seed % 3 > 0).write(tmp_path))
    assert faults(verdict) == {}, verdict.findings.examples
    assert verdict.exit_code == 0
    # It is no history in which nothing happened.
    assert verdict.unknown
    assert verdict.redelivered
    assert verdict.received > verdict.acknowledged > 150
    assert verdict.pauses_ms["producers"]["p50"] is not None
    assert verdict.pauses_ms["consumers"]["p50"] is not None


# --- where a fault may be put ---------------------------------------------------------------------------------------


class Drawer:
    """Chooses places for a fault in one history."""

    def __init__(self, notes: Notes, seed: int) -> None:
        self.notes = notes
        self.dice = random.Random(f"fault {seed}")
        self.sends: dict[str, tuple[File, Fields]] = {note["value"]: (file, note) for file, note in notes.each("send")}
        self.acks = {(file.name, note["seq"]): note for file, note in notes.each("ack")}

    def ack(self, value: str) -> Fields | None:
        file, send = self.sends[value]
        return self.acks.get((file.name, send["seq"]))

    def acknowledged(self, cluster: str, *clients: str) -> list[str]:
        """Values that idempotent producers sent to a cluster."""
        found = [
            value
            for value, (file, _) in self.sends.items()
            if file.opened["client"] in (clients or ("shop", "web"))
            and file.opened["cluster"] == cluster
            and self.ack(value) is not None
        ]
        assert found
        return found

    def receipts(self, value: str, cluster: str | None = None) -> list[tuple[File, Fields]]:
        found = self.notes.each("receipt", value=value)
        return [(file, note) for file, note in found if cluster in (None, file.opened["cluster"])]

    def of_client(self, client: str) -> File:
        (found,) = (file for file in self.notes.files if file.opened["client"] == client)
        return found

    def finally_got(self, value: str, partition: int) -> None:
        """The final reader got one more record, at the end of a partition."""
        file = self.of_client("final")
        closed = file.notes.pop()
        Writer(self.notes, file).got(value, partition, self.end(partition))
        file.notes.append(closed)

    def end(self, partition: int) -> int:
        """An offset of the target that nothing has."""
        last: int = max(
            note["offset"]
            for file, note in self.notes.each("receipt", partition=partition)
            if file.opened["cluster"] == TARGET
        )
        return last + 1000

    def ended(self, how: str, outcome: str) -> list[list[str]]:
        """The acknowledged values of each transaction that ended so."""
        found = []
        for file, note in self.notes.each("ended", outcome=outcome):
            if any(end["how"] == how for end in file.of("end") if end["txn"] == note["txn"]):
                sent = [send["value"] for send in file.of("send") if send.get("txn") == note["txn"]]
                found.append([value for value in sent if self.ack(value) is not None])
        return found

    def choose(self, values: list[str], where: Callable[[str], bool]) -> str:
        return self.dice.choice([value for value in values if where(value)])


# --- faults ---------------------------------------------------------------------------------------------------------


def lost_everywhere(draw: Drawer) -> Faults:
    value = draw.dice.choice(draw.acknowledged(SOURCE))
    draw.notes.drop(lambda _, note: note.get("value") == value and note["event"] == "receipt")
    return {"lost": 1}


def lost_in_the_copy(draw: Drawer) -> Faults:
    value = draw.choose(draw.acknowledged(SOURCE), lambda value: bool(draw.receipts(value, SOURCE)))
    draw.notes.drop(lambda file, note: note.get("value") == value and file.opened["cluster"] == TARGET)
    return {"lost": 1}


def copied_twice(draw: Drawer) -> Faults:
    value = draw.dice.choice(draw.acknowledged(SOURCE))
    draw.finally_got(value, _ack(draw, value)["partition"])
    return {"doubled": 1}


def received_again_in_one_span(draw: Drawer) -> Faults:
    file, note = draw.dice.choice(
        [(file, note) for file, note in draw.notes.each("receipt") if file.opened.get("group") == "billing"]
    )
    file.notes.insert(file.notes.index(note) + 1, dict(note, mono=note["mono"] + 1))
    if note["value"].startswith("sensor") and any(
        other["offset"] < note["offset"] for _, other in draw.receipts(note["value"], file.opened["cluster"])
    ):
        return {}
    return {"doubled": 1}


def received_again_after_its_commit(draw: Drawer) -> Faults:
    commits = [
        (file, note, partition, offset)
        for file in draw.notes.files
        if file.opened["cluster"] == TARGET and file.opened.get("group") == "search"
        for note in file.of("commit")
        for _, partition, offset in note["positions"]
        if any(ended["commit"] == note["commit"] and ended["outcome"] == "ok" for ended in file.of("committed"))
    ]
    done = {
        partition: max(offset for _, _, there, offset in commits if there == partition)
        for _, _, partition, _ in commits
    }
    values = draw.acknowledged(TARGET)
    value = draw.choose(values, lambda value: _ack(draw, value)["offset"] < done.get(_ack(draw, value)["partition"], 0))
    late = draw.notes.open("search-late", TARGET, group="search")
    late.assign(_ack(draw, value)["partition"])
    late.got(value, _ack(draw, value)["partition"], _ack(draw, value)["offset"])
    return {"doubled": 1}


def _ack(draw: Drawer, value: str) -> Fields:
    found = draw.ack(value)
    assert found is not None
    return found


def exchanged_in_a_log(draw: Drawer) -> Faults:
    """Two successive records of one client and key have each other's places on the target, for everybody."""
    chains: dict[tuple[str, str], list[str]] = {}
    for value in draw.acknowledged(TARGET):
        file, send = draw.sends[value]
        chains.setdefault((file.name, send["key"]), []).append(value)
    one, other = draw.dice.choice([pair for chain in chains.values() for pair in pairwise(chain)])
    acks = _ack(draw, one), _ack(draw, other)
    acks[0]["offset"], acks[1]["offset"] = acks[1]["offset"], acks[0]["offset"]
    _exchange(draw, one, other)
    return {"reordered": 1}


def exchanged_in_the_copy(draw: Drawer) -> Faults:
    """Two neighbours of the source stand the other way round on the target; long before any group moved."""
    early = sorted(
        draw.acknowledged(SOURCE), key=lambda value: (_ack(draw, value)["partition"], _ack(draw, value)["offset"])
    )
    pairs = [
        (a, b)
        for a, b in pairwise(early)
        if _ack(draw, b)["offset"] - _ack(draw, a)["offset"] == 1
        and _ack(draw, b)["offset"] < 10
        and draw.receipts(a, SOURCE)
        and draw.receipts(b, SOURCE)
    ]
    one, other = draw.dice.choice(pairs)
    _exchange(draw, one, other)
    return {"reordered": 1}


def _exchange(draw: Drawer, one: str, other: str) -> None:
    places = {one: other, other: one}
    for file, note in draw.notes.each("receipt"):
        if file.opened["cluster"] == TARGET and note["value"] in places:
            note["value"] = places[note["value"]]
            note["key"] = draw.sends[note["value"]][1]["key"]


def received_in_another_order(draw: Drawer) -> Faults:
    audit = draw.of_client("audit")
    got = [note for note in audit.of("receipt") if note["partition"] == 0 and not note["value"].startswith("sensor")]
    at = draw.dice.randrange(len(got) - 1)
    first, second = audit.notes.index(got[at]), audit.notes.index(got[at + 1])
    between = [note for note in audit.notes[first + 1 : second] if note.get("partition") == 0]
    audit.notes[first], audit.notes[second] = audit.notes[second], audit.notes[first]
    # Acks=1 records of others in between: each of them comes behind the one that was brought forward.
    return {"reordered": 1 + len(between)}


def read_of_an_aborted_transaction(draw: Drawer) -> Faults:
    audit = draw.of_client("audit")
    got = audit.of("receipt")
    for value in flat.from_iterable(draw.ended("abort", "aborted")):
        ack = _ack(draw, value)
        later = [other for other in got if other["partition"] == ack["partition"] and other["offset"] > ack["offset"]]
        if later and draw.sends[value][0].opened["cluster"] == SOURCE:
            note = dict(later[0], offset=ack["offset"], value=value, key=draw.sends[value][1]["key"])
            audit.notes.insert(audit.notes.index(later[0]), note)
            return {"read_uncommitted": 1}
    raise AssertionError("no aborted value lies within what the reader got")


def read_before_the_commit(draw: Drawer) -> Faults:
    audit = draw.of_client("audit")
    values = {value for values in draw.ended("commit", "committed") for value in values}
    note = draw.dice.choice([note for note in audit.of("receipt") if note["value"] in values])
    note["mono"] = draw.sends[note["value"]][1]["mono"] + 1
    return {"read_uncommitted": 1}


def read_of_what_failed_for_certain(draw: Drawer) -> Faults:
    failed = {(file.name, note["seq"]) for file, note in draw.notes.each("failed", certain=True)}
    value = draw.choose(
        list(draw.sends),
        lambda value: (
            (draw.sends[value][0].name, draw.sends[value][1]["seq"]) in failed
            and draw.sends[value][1].get("txn") is None
        ),
    )
    draw.finally_got(value, 0)
    return {"read_uncommitted": 1}


def torn_transaction(draw: Drawer) -> Faults:
    values = draw.dice.choice([values for values in draw.ended("commit", "committed") if len(values) > 1])
    value = draw.dice.choice(values)
    draw.notes.drop(lambda _, note: note["event"] == "receipt" and note["value"] == value)
    return {"torn": 1, "lost": 1}


def torn_transaction_whose_commit_got_no_answer(draw: Drawer) -> Faults:
    seen = [
        values for values in draw.ended("commit", "unknown") if len(values) > 1 and draw.receipts(values[0], TARGET)
    ]
    value = draw.dice.choice(draw.dice.choice(seen))
    draw.notes.drop(lambda _, note: note["event"] == "receipt" and note["value"] == value)
    return {"torn": 1, "lost": 1}


def commit_below_an_earlier_one(draw: Drawer) -> Faults:
    file, note = draw.dice.choice(
        [
            (file, note)
            for file, note in draw.notes.each("committed", outcome="ok")
            if file.opened["cluster"] == SOURCE and _commit(file, note)["positions"][0][2] > 0
        ]
    )
    topic, partition, offset = _commit(file, note)["positions"][0]
    time = {"wall": note["wall"] + 10, "mono": note["mono"] + 10}
    file.notes[file.notes.index(note) + 1 : file.notes.index(note) + 1] = [
        {"event": "commit", "commit": 10_000, "positions": [[topic, partition, offset - 1]], **time},
        {"event": "committed", "commit": 10_000, "outcome": "ok", **time},
    ]
    return {"commits_backwards": 1}


def _commit(file: File, committed: Fields) -> Fields:
    (found,) = (note for note in file.of("commit") if note["commit"] == committed["commit"])
    return found


def commit_on_the_target_below_that_on_the_source(draw: Drawer) -> Faults:
    file, note, partition = draw.dice.choice(
        [
            (file, note, partition)
            for file in draw.notes.files
            for note in file.of("assign")
            for partition in (0, 1)
            if file.opened["cluster"] == TARGET and _committed_on_source(draw, file.opened.get("group"), partition)
        ]
    )
    time = {name: note[name] for name in ("wall", "mono")}
    file.notes[1:1] = [
        {"event": "commit", "commit": 10_000, "positions": [[TOPIC, partition, 0]], **time},
        {"event": "committed", "commit": 10_000, "outcome": "failed", **time},
        {"event": "commit", "commit": 10_001, "positions": [[TOPIC, partition, 0]], **time},
        {"event": "committed", "commit": 10_001, "outcome": "ok", **time},
    ]
    # Later than the first commits on the target, it lies behind those, too.
    before = [
        ended
        for other in draw.notes.files
        if other.opened["cluster"] == TARGET and other.opened.get("group") == file.opened["group"]
        for ended in other.of("committed")
        if ended["outcome"] == "ok" and ended["mono"] < note["mono"]
        and _commit(other, ended)["positions"][0][1] == partition
    ]  # fmt: skip
    return {"commits_backwards": 2 if before else 1}


def _committed_on_source(draw: Drawer, group: str | None, partition: int) -> bool:
    files = [
        file for file in draw.notes.files if file.opened["cluster"] == SOURCE and file.opened.get("group") == group
    ]
    done = [
        _commit(file, note)["positions"][0]
        for file in files
        for note in file.of("committed")
        if group and note["outcome"] == "ok"
    ]
    return any(there == partition and offset > 5 for _, there, offset in done)


def passed_over_by_a_consumer(draw: Drawer) -> Faults:
    audit = draw.of_client("audit")
    got = [note for note in audit.of("receipt") if not note["value"].startswith("sensor")]
    inner = [note for note in got if _inner(audit, note)]
    audit.notes.remove(draw.dice.choice(inner))
    return {"skipped": 1}


def _inner(file: File, note: Fields) -> bool:
    offsets = [other["offset"] for other in file.of("receipt") if other["partition"] == note["partition"]]
    return bool(min(offsets) < note["offset"] < max(offsets))


def passed_over_by_a_group(draw: Drawer) -> Faults:
    def passed(value: str) -> bool:
        files = {file.name for file, _ in draw.receipts(value) if file.opened.get("group") == "billing"}
        return bool(files) and all(
            _inner(file, note) for file, note in draw.receipts(value) if file.opened.get("group") == "billing"
        )

    value = draw.choose(draw.acknowledged(SOURCE), passed)
    draw.notes.drop(lambda file, note: note.get("value") == value and file.opened.get("group") == "billing")
    return {"skipped": 1}


def received_and_never_sent(draw: Drawer) -> Faults:
    draw.finally_got("ghost", 0)
    return {"phantom": 1}


def received_and_never_sent_between_others(draw: Drawer) -> Faults:
    """Where the source has a control record."""
    audit = draw.of_client("audit")
    got = [note for note in audit.of("receipt") if note["partition"] == 1]
    seen = [note for file, note in draw.notes.each("receipt", partition=1) if file.opened["cluster"] == SOURCE]
    taken = {note["offset"] for note in [*seen, *(ack for _, ack in draw.notes.each("ack", partition=1))]}
    after = draw.dice.choice([note for note in got if note["offset"] - 1 not in taken and note["offset"] > 1])
    audit.notes.insert(audit.notes.index(after), dict(after, value="ghost", offset=after["offset"] - 1))
    return {"phantom": 1}


def one_offset_with_two_values(draw: Drawer) -> Faults:
    """One of the readers got two records with each other's offsets."""
    audit, plain = draw.of_client("audit"), draw.acknowledged(SOURCE)
    one, other = draw.dice.sample(
        [note for note in audit.of("receipt") if note["partition"] == 0 and note["value"] in plain], 2
    )
    for name in ("value", "key"):
        one[name], other[name] = other[name], one[name]
    return {"inconsistent": 2}


def acknowledged_at_the_offset_of_another(draw: Drawer) -> Faults:
    value = draw.choose(draw.acknowledged(SOURCE), lambda value: _ack(draw, value)["offset"] > 0)
    partition = _ack(draw, value)["partition"]
    taken = [
        note["offset"] for file, note in draw.notes.each("receipt", partition=partition)
        if file.opened["cluster"] == SOURCE and note["value"] != value
    ]  # fmt: skip
    _ack(draw, value)["offset"] = draw.dice.choice(taken)
    return {"inconsistent": 1}


def received_with_another_key(draw: Drawer) -> Faults:
    _, note = draw.dice.choice(list(draw.notes.each("receipt")))
    note["key"] = "k99"
    return {"inconsistent": 1}


FAULTS = [
    lost_everywhere,
    lost_in_the_copy,
    copied_twice,
    received_again_in_one_span,
    received_again_after_its_commit,
    exchanged_in_a_log,
    exchanged_in_the_copy,
    received_in_another_order,
    read_of_an_aborted_transaction,
    read_before_the_commit,
    read_of_what_failed_for_certain,
    torn_transaction,
    torn_transaction_whose_commit_got_no_answer,
    commit_below_an_earlier_one,
    commit_on_the_target_below_that_on_the_source,
    passed_over_by_a_consumer,
    passed_over_by_a_group,
    received_and_never_sent,
    received_and_never_sent_between_others,
    one_offset_with_two_values,
    acknowledged_at_the_offset_of_another,
    received_with_another_key,
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault_in_a_random_history_is_found_and_named_and_no_other(
    tmp_path: Path, fault: Callable[[Drawer], Faults], seed: int
) -> None:
    notes = World(seed).run(STEPS)
    expected = fault(Drawer(notes, seed))
    verdict = judge(notes.write(tmp_path))
    assert faults(verdict) == expected, verdict.findings.examples
    assert verdict.exit_code == 1
    assert {name.value for name, found in verdict.findings.examples.items() if found} == set(expected)
