"""Files translated as a whole or not at all, in and out."""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import readers
from kafka_migration.positions import files
from kafka_migration.positions.files import FileTranslation, Format
from kafka_migration.positions.translation import How, NotExact, Rules
from kafka_migration.state.link import LinkTopic
from tests.positions.conftest import MIRRORED, WRITTEN
from tests.steps.worlds import FakeWorld

FORWARD, BACK = Rules(), Rules(back=True)


def written(folder: Path, topic: str, *offsets: int, name: str = "in.json") -> Path:
    path = folder / name
    path.write_text(json.dumps([{"topic": topic, "partition": n % 2, "offset": at} for n, at in enumerate(offsets)]))
    return path


def translated(
    world: FakeWorld, path: Path, rules: Rules = FORWARD, output: Path | None = None, *, dry_run: bool = False
) -> FileTranslation:
    return files.translate(world.ctx(dry_run=dry_run), files.read(path), rules=rules, output=output)


def numbers(path: Path) -> list[int]:
    return [one["offset"] for one in json.loads(path.read_text())]


def test_positions_are_shown_and_nothing_is_written_without_an_output(world, gappy, tmp_path):
    path = written(tmp_path, gappy, 10, 19, 20, 29, 30, -1)
    shown = translated(world, path)
    assert [(one.position.offset, one.offset, one.how) for _, one in shown.rows] == [
        (10, 1, How.EXACT),
        (19, 10, How.EXACT),
        (20, 12, How.GAP),
        (29, 16, How.EXACT),
        (30, 17, How.EXACT),
        (-1, -1, How.STAYS),
    ]
    assert (shown.exit_code, os.listdir(tmp_path)) == (0, ["in.json"])
    assert world.source.changes == world.target.changes == []


@pytest.mark.parametrize(
    "content",
    [
        '{{\n "{topic}" : {{"1":29,"0": 10 }}}}\n',
        'offset;"topic";who;partition\r\n"12";{topic};"a ""b""";0\r\n30;{topic};;1',
        '{{"partitions":[{{"topic":"{topic}","partition":0,"offset":15,"x":1.0}}],"version":1}}',
    ],
    ids=["spark", "csv", "tools"],
)
def test_file_that_is_translated_and_back_is_the_very_same(world, gappy, tmp_path, content):
    path, there, back = tmp_path / "in", tmp_path / "there", tmp_path / "back"
    path.write_bytes(content.format(topic=gappy).encode())
    path.chmod(0o640)
    assert translated(world, path, FORWARD, there).output == there
    assert there.read_bytes() != path.read_bytes()
    assert there.stat().st_mode == path.stat().st_mode
    assert translated(world, there, BACK, back).output == back
    assert back.read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["back", "in", "there"]


def test_position_without_a_record_leads_to_the_next_one_and_stays_there_from_then_on(world, gappy, tmp_path):
    path = written(tmp_path, gappy, 20, 24)
    translated(world, path, FORWARD, tmp_path / "there")
    translated(world, tmp_path / "there", BACK, tmp_path / "back")
    translated(world, tmp_path / "back", FORWARD, tmp_path / "again")
    assert numbers(tmp_path / "there") == numbers(tmp_path / "again") == [12, 12]
    assert numbers(tmp_path / "back") == [25, 25]


def test_file_with_a_position_that_has_no_answer_is_refused_as_a_whole_with_all_of_them(world, gappy, tmp_path):
    world._fill("source", f"{world.name}.new", 1, 9, 0)
    path = tmp_path / "in.csv"
    rows = [
        (gappy, 0, 15),
        (gappy, 0, MIRRORED + 1),
        (gappy, 1, WRITTEN + 1),
        (gappy, 2, 15),
        (f"{world.name}.none", 0, 1),
        (f"{world.name}.new", 0, 1),
        ("elsewhere", 0, 1),
        (gappy, 0, 4),
    ]
    path.write_text("topic,partition,offset\n" + "".join(f"{t},{p},{o}\n" for t, p, o in rows))
    expected = [
        "",
        "beyond the mirror's position 30",
        "beyond the log end 40",
        "has 2 partitions of this topic",
        "the source has no such topic",
        "nothing of this partition is mirrored yet",
        "the plan does not select this topic",
        "expired",
    ]
    shown = translated(world, path)
    assert shown.exit_code == 1
    for (_, one), said in zip(shown.rows, expected, strict=True):
        assert said in one.problem
        assert bool(one.problem) == bool(one.remedy) == bool(said) == (one.offset is None)
    with pytest.raises(NotExact) as caught:
        translated(world, path, output=tmp_path / "out.csv")
    assert "7 of 8 positions cannot be translated exactly, so nothing was written" in str(caught.value)
    assert f"line 3 ({gappy}-0, 31): source offset 31 lies beyond" in str(caught.value)
    assert os.listdir(tmp_path) == ["in.csv"]


def test_offset_below_the_first_mirrored_record_is_a_gap_or_expired(world, gappy, tmp_path):
    """The source's log starts at 5: what is between it and the first record is no record."""
    path = written(tmp_path, gappy, 5, 9, 4, 0)
    assert [one.how for _, one in translated(world, path).rows] == [How.GAP, How.GAP, None, None]
    accepted = translated(world, path, Rules(accept_expired=True), tmp_path / "out")
    assert [one.how for _, one in accepted.rows] == [How.GAP, How.GAP, How.EXPIRED, How.EXPIRED]
    assert numbers(tmp_path / "out") == [1, 1, 1, 1]


def test_offset_in_a_topic_that_is_another_one_by_now_is_not_translated(world, gappy, tmp_path, monkeypatch):
    id = uuid.UUID(world.target.topics([gappy])[gappy].topic_id)
    pinned = LinkTopic(name=gappy, source_id=uuid.uuid4(), target_id=id)
    monkeypatch.setattr(world.link, "topics", lambda: {gappy: pinned})
    path = written(tmp_path, gappy, 10, 11)
    assert [one.how for _, one in translated(world, path).rows] == [How.EXACT, How.EXACT]
    monkeypatch.setattr(world.link, "topics", lambda: {gappy: replace(pinned, target_id=uuid.uuid4())})
    for _, one in translated(world, path).rows:
        assert (one.offset, "the target has another topic of this name" in one.problem) == (None, True)


@pytest.mark.parametrize(
    ("reason", "others"), [("RECREATED", [True, True]), ("TRUNCATED", [False, True]), ("CORRUPT", [False, False])]
)
def test_offset_in_a_topic_whose_source_was_another_one_when_its_mirror_looked_is_not_translated(
    world, gappy, tmp_path, reason, others
):
    world.link.halted[TopicPartition(gappy, 1)] = SimpleNamespace(reason=reason, detail="seen")
    found = [one.problem for _, one in translated(world, written(tmp_path, gappy, 10, 11)).rows]
    assert found == [f"its mirror halted: {reason}: seen" if is_another else "" for is_another in others]


def test_topics_of_positions_that_are_written_for_the_target_are_noted_and_of_none_that_stay_or_are_shown(
    world, gappy, tmp_path
):
    path = written(tmp_path, gappy, 10, 11)
    translated(world, path)
    translated(world, path, BACK, tmp_path / "back.json")
    translated(world, path, Rules(kept=(gappy,)), tmp_path / "kept.json")
    assert readers.of(world.ctx(), [gappy]) == {}
    translated(world, path, output=tmp_path / "out.json")
    assert readers.of(world.ctx(), [gappy])[gappy].startswith(f"{tmp_path / 'out.json'}, at ")


def test_offset_that_was_given_up_is_expired(world, gappy, tmp_path, monkeypatch):
    skip = Skip(start=20, end=25, halt="DATA_LOSS", detail="", by="ada", at="now", topic_key="k")
    monkeypatch.setattr(world.link, "skips", lambda: {TopicPartition(gappy, 0): (skip,)})
    path = written(tmp_path, gappy, 20, 20, 25)
    assert [bool(one.problem) for _, one in translated(world, path).rows] == [True, False, False]


def test_offset_whose_record_has_expired_on_the_other_cluster_is_refused(world, gappy, tmp_path):
    world.target.delete_records(TopicPartition(gappy, 0), 8)
    path = written(tmp_path, gappy, 16, 10, 17)
    (_, first), (_, second), (_, third) = translated(world, path).rows
    assert "target offset 7 lies before the log start 8" in first.problem
    assert (second.offset, third.offset) == (1, 8)
    accepted = translated(world, path, Rules(accept_expired=True))
    assert [one.offset for _, one in accepted.rows] == [8, 1, 8]


def test_back_beyond_what_the_mirror_wrote_is_refused(world, gappy, tmp_path):
    world.target.append(TopicPartition(gappy, 0), 3)
    (_, inside), _, (_, beyond) = translated(world, written(tmp_path, gappy, 17, 1, 18), BACK).rows
    assert inside.offset == MIRRORED
    assert "target offset 18 lies beyond the mirror's position 17" in beyond.problem


def test_topic_of_another_cluster_is_kept_on_order(world, gappy, tmp_path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps({gappy: {"0": 12}, "elsewhere": {"0": 5}}))
    translated(world, path, Rules(kept={"elsewhere"}), tmp_path / "out")
    assert json.loads((tmp_path / "out").read_text()) == {gappy: {"0": 3}, "elsewhere": {"0": 5}}


def test_output_that_exists_is_never_overwritten(world, gappy, tmp_path):
    path = written(tmp_path, gappy, 12)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadInput, match=r"--output: exists already"):
        translated(world, path, output=tmp_path / "out")
    with pytest.raises(BadInput, match=r"--output: exists already"):
        translated(world, path, output=path)
    with pytest.raises(BadInput, match=r"its folder does not exist"):
        translated(world, path, output=tmp_path / "no" / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_output_that_appears_meanwhile_is_not_overwritten(world, gappy, tmp_path, monkeypatch):
    path, link = written(tmp_path, gappy, 12), os.link

    def somebody_is_faster(part: Path, output: Path) -> None:
        output.write_text("mine")
        link(part, output)

    monkeypatch.setattr(os, "link", somebody_is_faster)
    with pytest.raises(BadInput, match=r"exists already"):
        translated(world, path, output=tmp_path / "out")
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "out").read_text()) == (["in.json", "out"], "mine")


def test_output_that_cannot_be_written_is_refused_and_leaves_nothing(world, gappy, tmp_path, monkeypatch):
    path = written(tmp_path, gappy, 12)

    def no_links(part: Path, output: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(Refused, match=r"out cannot be written \(Operation not permitted\), so nothing was written"):
        translated(world, path, output=tmp_path / "out")
    assert os.listdir(tmp_path) == ["in.json"]


def test_file_that_is_written_meanwhile_is_refused(world, gappy, tmp_path):
    path = written(tmp_path, gappy, 12)
    found = files.read(path)
    written(tmp_path, gappy, 13)
    with pytest.raises(Refused, match=r"was changed while it was translated"):
        files.translate(world.ctx(), found, rules=FORWARD, output=tmp_path / "out")
    assert os.listdir(tmp_path) == ["in.json"]


def test_dry_run_writes_nothing(world, gappy, tmp_path):
    path = written(tmp_path, gappy, 12)
    shown = translated(world, path, output=tmp_path / "out", dry_run=True)
    assert ([one.offset for _, one in shown.rows], shown.output) == ([3], None)
    assert os.listdir(tmp_path) == ["in.json"]


def test_clusters_are_asked_only_for_what_the_map_does_not_answer(world, gappy, tmp_path):
    """After a migration its source may be gone."""
    with world.source.failing("ends", AssertionError("asked")), world.source.failing("topics", AssertionError("asked")):
        shown = translated(world, written(tmp_path, gappy, 12, 20, 30))
    assert shown.exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.csv", "topic,partition,offset\na,0,1\n", Format.CSV),
        ("a.JSON", '{"a":{"0":1}}', Format.JSON),
        ("a", ' [{"topic":"a","partition":0,"offset":1}]', Format.JSON),
        ("a", "topic,partition,offset\na,0,1\n", Format.CSV),
    ],
)
def test_format_is_recognised_by_name_and_content(tmp_path, name, content, format):
    (tmp_path / name).write_text(content)
    assert files.read(tmp_path / name).format is format


def test_what_cannot_be_read_is_bad_input(tmp_path):
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "folder").mkdir()
    for path, format, said in (
        (tmp_path / "none", None, "there is no such file"),
        (tmp_path / "empty.json", None, "holds no position of Kafka"),
        (tmp_path / "folder", None, "is no checkpoint"),
        (tmp_path / "folder", Format.CSV, "is a folder, not what csv needs"),
        (tmp_path / "empty.json", Format.SPARK, "is a file, not what spark needs"),
    ):
        with pytest.raises(BadInput, match=said):
            files.read(path, format=format)


@pytest.fixture
def cut(world: FakeWorld, gappy: str) -> str:
    """``gappy`` after its cut: the seal's marker is at target offset 17, and of the ten records behind it the first
    five are mirrored back, to source 41 and on; offset 40 is a fence's."""
    for side in ("source", "target"):
        world.more(side, TopicPartition(gappy, 0), 11)
    world.back.maps[TopicPartition(gappy, 0)] = OffsetMap([Run(18, 41, 5)], source_end=23, target_end=46)
    return gappy


def test_positions_of_either_side_of_the_cut_lead_to_their_records_on_the_other_cluster(world, cut, tmp_path):
    path = tmp_path / "in.csv"
    target = [(10, 19), (12, 25), (17, 41), (18, 41), (22, 45), (23, 46)]
    path.write_text("topic,partition,offset\n" + "".join(f"{cut},0,{there}\n" for there, _ in target))
    back = translated(world, path, BACK, tmp_path / "back.csv")
    assert [one.offset for _, one in back.rows] == [source for _, source in target]
    assert [one.how for _, one in back.rows if one.position.offset == 17] == [How.GAP], "the marker of the cut"
    again = translated(world, tmp_path / "back.csv", FORWARD, tmp_path / "again.csv")
    assert [one.offset for _, one in again.rows] == [10, 12, 18, 18, 22, 23]
    # A partition that the reverse link does not copy has its map of before.
    path = written(tmp_path, cut, 18, 12)
    assert [one.offset for _, one in translated(world, path, BACK).rows] == [41, 25]


@pytest.mark.parametrize(
    ("rules", "at", "said"),
    [
        (BACK, 24, "wait until the reverse mirror .* has copied up to it"),
        (FORWARD, 47, "what others write to the source has no place on the target$"),
    ],
    ids=["written to the target", "written to the source"],
)
def test_what_the_reverse_link_has_not_copied_is_waited_for(world, cut, tmp_path, rules, at, said):
    ((_, one),) = translated(world, written(tmp_path, cut, at), rules).rows
    assert "beyond the mirror's position" in one.problem
    assert re.search(said, one.remedy), one.remedy


def test_what_is_written_to_the_target_waits_for_a_reverse_link_before_there_is_one(world, gappy, tmp_path):
    world.more("target", TopicPartition(gappy, 0), 11)
    ((_, one),) = translated(world, written(tmp_path, gappy, 18), BACK).rows
    assert "before a reverse link copies it (`mirror --reverse`)" in one.remedy


def test_what_the_reverse_link_gave_up_is_lost_on_the_way_back_alone(world, cut, tmp_path, monkeypatch):
    skip = Skip(start=19, end=21, halt="CORRUPT", detail="", by="ada", at="", topic_key="")
    monkeypatch.setattr(
        type(world.back), "skips", lambda link: {TopicPartition(cut, 0): (skip,)} if link is world.back else {}
    )
    path = tmp_path / "in.csv"
    path.write_text("topic,partition,offset\n" + "".join(f"{cut},0,{at}\n" for at in (18, 20, 21)))
    assert [bool(one.problem) for _, one in translated(world, path, BACK).rows] == [False, True, False]
    path.write_text("topic,partition,offset\n" + "".join(f"{cut},0,{at}\n" for at in (19, 20)))
    assert not any(one.problem for _, one in translated(world, path, FORWARD).rows)
