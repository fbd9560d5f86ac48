"""The mirror beside `run`: started again when it dies, but never taken back from whoever took it over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_migration.cli.commands import run
from kafka_migration.cli.commands.run import Look, MirrorProcess
from kafka_migration.domain.errors import ClusterUnreachable, CouldNotFindOut, MigrationError, TakenOver
from tests.waiting import wait_until

OURS, BOTH = {"ours": True}, {"ours": True, "theirs": True}


class Played:
    """A link and a mirror process: each start ends with a code, after which the attempts are as given."""

    def __init__(self, *runs: tuple[int, dict[str, bool] | MigrationError]) -> None:
        self.runs, self.starts, self.attempts = list(runs), 0, dict[str, bool]() | {"long ago": True}
        self.error: MigrationError | None = None

    def run(self) -> int:
        self.starts += 1
        code, after = self.runs.pop(0)
        self.error = after if isinstance(after, MigrationError) else None
        if isinstance(after, dict):
            self.attempts |= {f"{name} {self.starts}": is_running for name, is_running in after.items()}
        return code

    def look(self) -> Look:
        if self.error:
            raise self.error
        return dict(self.attempts), "plan sha256:other, since noon"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_BETWEEN_STARTS_SECONDS", 0.0)


def ended(played: Played, monkeypatch: pytest.MonkeyPatch) -> MirrorProcess:
    monkeypatch.setattr(MirrorProcess, "_run", lambda _: played.run())
    with MirrorProcess(Path("plan.yaml"), master=None, log=lambda _text: None, look=played.look) as mirror:
        mirror.start()
        mirror.wait(180)
    return mirror


@pytest.mark.parametrize("code", [3, -9])
def test_mirror_that_another_one_took_over_is_not_started_again_and_the_other_plan_is_named(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played((code, BOTH), (0, {}))
    mirror = ended(played, monkeypatch)
    assert played.starts == 1
    for ask in (mirror.require, mirror.require_ours):
        with pytest.raises(TakenOver, match="runs the mirror, by plan sha256:other, since noon, now"):
            ask()


@pytest.mark.parametrize(
    "after",
    [
        OURS,
        {"ours": False, "theirs": False},
        # Nobody can look: what other attempts there are by now is unknown.
        ClusterUnreachable("target", "t:9092", "refused"),
    ],
)
def test_mirror_that_died_while_nobody_else_runs_is_started_again(
    after: dict[str, bool] | MigrationError, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played((3, after), (0, {}))
    mirror = ended(played, monkeypatch)
    assert played.starts == 2
    mirror.require()


def test_mirror_that_keeps_dying_is_given_up_and_steps_that_wait_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = ended(Played(*[(3, OURS)] * 5), monkeypatch)
    mirror.require_ours()
    with pytest.raises(CouldNotFindOut, match="died 5 times in a row, last with exit code 3"):
        mirror.require()


def test_nothing_stands_amid_a_question_and_the_mirror_goes_on_meanwhile(tmp_path: Path) -> None:
    log, ended = list[str](), tmp_path / "ended"
    mirror = MirrorProcess(Path("plan.yaml"), master=None, log=log.append, look=Played().look)
    # More than a pipe holds.
    text = f"for n in range(30_000): print('line', n)\nopen({str(ended)!r}, 'w')"
    mirror._arguments = [sys.executable, "-c", text]
    with mirror:
        with mirror.quiet():
            mirror.start()
            wait_until(ended.exists, "it waits for somebody who reads")
            assert not log
        mirror.wait(180)
    assert log[-1] == "line 29999"
    assert len(log) >= run._KEPT_LINES
