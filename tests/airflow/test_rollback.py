"""The DAG of the way back, task by task in memory: to its end, rejected, and gone on with after a task was cleared.

Played are the Spark application of the reverse mirror, and the move of a group, which tests/steps/test_rollback.py has.
Gates, approvals, lag, fences, the switch of producers and the seal are the steps' own, on fakes of both clusters.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskAwaitingInput, TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_migration.airflow import factory, submit
from kafka_migration.airflow import mirror as mirror_task
from kafka_migration.airflow.steps import CutOverOperator
from kafka_migration.airflow.trigger import StepTrigger, _Session
from kafka_migration.approvals.rollback import RollbackGate
from kafka_migration.domain.types import Desired
from kafka_migration.fence import record
from kafka_migration.fence.bans import BACK_WRITES
from kafka_migration.fence.record import FenceState
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import reverse, switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import context
from kafka_migration.migration.context import Context, silent
from kafka_migration.migration.joined import mirror_began
from kafka_migration.plans.places import REPORTS_DIRECTORY
from kafka_migration.plans.snapshot import write_plan
from kafka_migration.state.link import Wish
from kafka_migration.steps import check_back, cutover, mirror_watch
from kafka_migration.steps import mirror as mirror_step
from kafka_migration.steps.cutover import CutoverResult, Fate, GroupOutcome
from kafka_migration.topics import keeping
from tests.airflow.test_approve import answer
from tests.steps import histories
from tests.steps.test_lag import PARTITIONS
from tests.steps.test_switch import ORDERS, make
from tests.steps.test_switch_back import BackShop, reversed_

__all__ = ["make"]

ASK = RollbackGate.ask
GROUPS = ["shop.app"]


class ServedShop(BackShop):
    """Producers and the group were moved to the target, and write and read there; nothing was begun to go back."""

    def begin(self) -> None:
        self.switch()
        for tp in PARTITIONS:
            self.target.append(tp, 7)
        self.target.consumer_commits("shop.app", ORDERS, 90)
        self.effects.clear()

    def mirror_begins(self, submission: str = "") -> None:
        """The reverse mirror's application has its slots, and copies what there is."""
        back = self.back()
        keeping.apply(back)
        mirror_began(back, submission)
        if back.link.wished().desired is not Desired.RUN:
            back.link.wish(Wish(desired=Desired.RUN, at=back.stamp()))
        back.link.record_run({"at": back.stamp(), "state": "running"})
        self.copy_back(Wish(desired=Desired.RUN))

    def mirror_obeys(self) -> None:
        """It sees the wish to stop."""
        back = self.back()
        assert back.link.wished().desired is Desired.STOP
        back.link.record_run({"at": back.stamp(), "state": "ended", "reason": "stopped"})


class Run:
    """A run of the DAG that is built of the shop's plan."""

    def __init__(self, shop: ServedShop, folder: Path) -> None:
        self.shop, self.file = shop, write_plan(shop.plan(), folder)
        self.dag: DAG = factory.rollback_dag(shop.plan(), self.file)
        self.submitted: list[list[str]] = []
        ti = SimpleNamespace(
            dag_id="rollback_shop", run_id="manual__1", map_index=-1, try_number=1, max_tries=1000, handed_on=None
        )
        ti.xcom_pull = lambda task_ids: ti.handed_on if task_ids == "take_snapshot" else None
        self.ti: Any = ti
        self.context: Any = {"ti": ti, "task": SimpleNamespace(retries=1000), "params": {}}
        self.context["task_instance"] = SimpleNamespace(id="ti", map_index=-1)

    def task(self, name: str) -> Any:
        return self.dag.get_task(name)

    def snapshot(self) -> None:
        self.ti.handed_on = self.task("take_snapshot").execute(self.context)

    def make(self, name: str, *, attempt: int = 1) -> Any:
        """What the task hands on. Tries are counted on when it is cleared."""
        self.ti.try_number = attempt
        return self.task(name).execute(self.context)

    def deferred(self, name: str, *, attempt: int = 1) -> TaskDeferred:
        self.ti.try_number = attempt
        with pytest.raises(TaskDeferred) as raised:
            self.task(name).execute(self.context)
        return raised.value

    def waited(self, name: str) -> Mapping[str, Any]:
        """The whole life of a task that waits, with a trigger as Airflow stores it."""
        facts: Mapping[str, Any] = self.task(name).resume(self.context, self.seen(self.deferred(name)))
        return facts

    def seen(self, deferral: TaskDeferred, *, looks: int = 20) -> dict[str, Any]:
        """What the trigger decides."""
        _, stored = deferral.trigger.serialize()
        session = _Session(cast("StepTrigger", type(deferral.trigger)(**stored)))
        try:
            for _ in range(looks):
                if decision := session.look():
                    return decision.as_dict()
                self.shop.clock.sleep(session.interval_seconds)
        finally:
            session.close()
        raise AssertionError(f"undecided after {looks} looks")

    def mirrored(self) -> TaskDeferred:
        """The mirror was submitted, and copies; its task is deferred."""
        deferral = self.deferred("reverse_mirror")
        newest = mirror_watch.submission(self.shop.back())
        assert newest is not None
        self.shop.mirror_begins(newest.id)
        return deferral

    def question(self) -> TaskAwaitingInput:
        with pytest.raises(TaskAwaitingInput) as asked:
            self.task("approve_rollback").execute(self.context)
        return asked.value

    def answered(self, asked: TaskAwaitingInput, option: str) -> Any:
        task = factory.rollback_dag(self.shop.plan(), self.file).get_task("approve_rollback")
        return cast("Any", task).execute_complete(self.context, answer(option, user="ada"), **asked.kwargs or {})

    def batch(self) -> Any:
        mapped = self.task("rollback")
        self.ti.map_index = 0
        try:
            task = CutOverOperator(
                task_id="t", groups=GROUPS, **{k: mapped.partial_kwargs[k] for k in ("step", "plan_file")}
            )
            return task.execute(self.context)
        finally:
            self.ti.map_index = -1

    def groups_are_back(self) -> None:
        """All tasks up to the switch of producers are done."""
        self.snapshot()
        self.make("check_rollback")
        self.mirrored()
        self.waited("watch_reverse_lag")
        self.answered(self.question(), "Approve")
        self.batch()

    def phases(self) -> dict[str, str]:
        return {name: value["outcome"] for name, value in self.shop.ctx().journal.all("phase").items()}


@pytest.fixture
def run(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    shop = make(ServedShop)
    shop.begin()
    found = Run(shop, tmp_path)

    @contextmanager
    def open_context(_plan: Any, *, log: Callable[[str], None] = silent, **_: bool) -> Iterator[Context]:
        ctx = shop.ctx().newest()
        ctx.log = log
        yield ctx

    def popen(command: list[str], **_: object) -> Any:
        found.submitted.append(command)
        return SimpleNamespace(pid=7)

    def apply(back: Context, groups: list[str], *, gate: RollbackGate, **_: object) -> CutoverResult:
        gate.ask()
        shop.note(f"moved back {' '.join(groups)}")
        histories.rolled_back(shop)
        group = GroupRecord.own(back.journal, "shop.app", at=back.stamp())
        group.mark(Step.STARTED, shop.clock.now())
        group.mark(Step.ALIVE, shop.clock.now(), sign="committed", pause_seconds=1.0)
        return CutoverResult(groups=(GroupOutcome(group="shop.app", outcome=Fate.MOVED),))

    monkeypatch.setattr(RollbackGate, "ask", ASK)
    monkeypatch.setattr(context, "open_context", open_context)
    played = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(submit, "subprocess", played)
    monkeypatch.setattr(submit, "job_environment", lambda *_, **__: {})
    monkeypatch.setattr(mirror_task, "OUTPUT_FOLDER", tmp_path / "submissions")
    monkeypatch.setattr(mirror_task, "spark_master", lambda *_, **__: "local[2]")
    connection = SimpleNamespace(conn_id="spark_default")
    monkeypatch.setattr(mirror_task, "require_spark_connection", lambda *_, **__: connection)
    monkeypatch.setattr(cutover, "apply", apply)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    monkeypatch.setenv(REPORTS_DIRECTORY, str(tmp_path / "reports"))
    return found


def test_way_back_goes_task_by_task_from_the_check_to_the_report(run: Run, tmp_path: Path) -> None:
    shop = run.shop
    run.snapshot()
    assert run.make("check_rollback") == {"groups": 1, "producers": True}
    assert shop.effects == ["shop/run/rollback_shop/manual__1"], "it notes the plan that the run is bound to, no more"
    mirror = run.mirrored()
    assert [command[-1] for command in run.submitted] == ["--reverse"]
    assert (mirror.trigger.serialize()[1]["step"], shop.retention()) == ("reverse_mirror", "-1")
    assert run.waited("watch_reverse_lag") == {"lag": 0}
    asked = run.question()
    assert "shop.app" in run.task("approve_rollback").body
    assert "switch_producers_back: fence producers on the target" in run.task("approve_rollback").body
    with pytest.raises(AirflowFailException, match="nobody has approved it yet"):
        run.batch()
    assert run.answered(asked, "Approve")["gate"] == "rollback"
    assert run.make("list_groups") == [GROUPS]
    assert run.batch() == {"moved": 1}
    assert run.waited("watch_rolled_back") == {"groups": 1, "alive": 1}
    assert run.make("switch_producers_back")["topics"] == 2
    reversed_(shop)
    ended = run.seen(mirror)
    assert (ended["exit_code"], ended["message"]) == (0, "the mirror was drained, and is sealed")
    run.task("reverse_mirror").ended(run.context, ended, **cast("Any", mirror.kwargs))
    assert run.make("lift_target_fence") == {}
    assert shop.denials_there() == 4
    run.make("report")
    assert (tmp_path / "reports" / "shop" / "report.html").is_file()
    assert run.phases().items() >= {"rollback[0]": "done", "switch_producers_back": "done"}.items()
    # Cleared, tasks whose work is done pass, or say that there is nothing left.
    assert run.make("reverse_mirror", attempt=2) is None
    assert run.make("switch_producers_back", attempt=2)["topics"] == 2
    assert len(run.submitted) == 1
    for again in (lambda: run.make("check_rollback"), run.batch):
        with pytest.raises(AirflowFailException, match="producers were switched back"):
            again()


def test_rejection_ends_the_run_with_nothing_moved_and_the_mirror_that_it_had_started_stopped(run: Run) -> None:
    shop = run.shop
    run.snapshot()
    run.make("check_rollback")
    mirror = run.mirrored()
    run.waited("watch_reverse_lag")
    source, target, before = shop.source.acls(), shop.target.acls(), list(shop.effects)
    with pytest.raises(
        AirflowFailException, match="the reverse mirror was asked to stop, nothing was moved back"
    ) as no:
        run.answered(run.question(), "Reject")
    assert "clear this task and reverse_mirror" in str(no.value)
    shop.mirror_obeys()
    ended = run.seen(mirror)
    assert (ended["exit_code"], "rejected the rollback gate" in ended["message"]) == (0, True)
    assert run.make("lift_target_fence") == {}
    assert (shop.source.acls(), shop.target.acls()) == (source, target)
    assert not [effect for effect in shop.effects[len(before) :] if "moved back" in effect or "hook" in effect]
    with pytest.raises(AirflowFailException, match="rejected it"):
        run.batch()
    # Cleared, both go on.
    shop.clock.sleep(1)
    run.deferred("reverse_mirror", attempt=2)
    assert len(run.submitted) == 2
    newest = mirror_watch.submission(shop.back())
    assert newest is not None
    shop.mirror_begins(newest.id)
    run.answered(run.question(), "Approve")
    assert run.batch() == {"moved": 1}


def test_rejection_leaves_a_reverse_mirror_that_a_command_runs(run: Run) -> None:
    run.snapshot()
    run.make("check_rollback")
    reverse.arm(run.shop.ctx())
    run.shop.mirror_begins()
    run.deferred("reverse_mirror")
    assert run.submitted == [], "it is watched, and none is started"
    run.waited("watch_reverse_lag")
    with pytest.raises(AirflowFailException, match=r"the reverse mirror is as it was\n.*clear this task$"):
        run.answered(run.question(), "Reject")
    assert run.shop.back().link.wished().desired is Desired.RUN


def test_switch_that_was_given_up_goes_on_once_mirror_and_switch_are_cleared(run: Run) -> None:
    shop = run.shop
    run.groups_are_back()
    copy_back = shop.copy_back
    shop.copy_back = lambda wish: None  # type: ignore[method-assign]  # it hangs
    shop.target.append(ORDERS, 2)
    with pytest.raises(AirflowException, match="did not end within"):
        run.make("switch_producers_back")
    last = switched.read(shop.back())
    assert last is not None
    assert last.state is SwitchState.GIVEN_UP
    assert run.make("lift_target_fence") == {}
    assert shop.target.acls() == shop.there
    shop.copy_back = copy_back  # type: ignore[method-assign]
    back = shop.back()
    back.link.record_run({"at": back.stamp(), "state": "ended", "reason": "drained"})
    shop.clock.sleep(1)
    run.deferred("reverse_mirror", attempt=2)
    newest = mirror_watch.submission(back)
    assert newest is not None
    shop.mirror_begins(newest.id)
    run.make("switch_producers_back", attempt=2)
    reversed_(shop)


def test_fence_of_a_switch_that_was_killed_for_the_last_time_is_lifted_at_the_end_of_the_run(run: Run) -> None:
    shop = run.shop
    run.groups_are_back()

    class Killed(BaseException):
        """The worker's process is gone."""

    def dies() -> None:
        fence = record.read(shop.ctx(), BACK_WRITES)
        if fence is not None and fence.state is FenceState.FENCED:
            raise Killed

    shop.deadly = dies
    with pytest.raises(Killed):
        run.make("switch_producers_back")
    shop.deadly = lambda: None
    assert shop.denials_there()
    run.make("lift_target_fence")
    assert shop.target.acls() == shop.there


def test_behind_a_seal_that_began_no_way_back_the_task_of_the_mirror_begins_it(run: Run) -> None:
    link = run.shop.back().link
    link.unpin(link.topics())
    run.snapshot()
    run.make("check_rollback")
    assert reverse.begun(run.shop.ctx()) is None, "a check begins nothing"
    run.mirrored()
    assert reverse.begun(run.shop.ctx()) is not None
    assert run.waited("watch_reverse_lag") == {"lag": 0}


def test_check_of_a_plan_without_producers_looks_at_no_fence_and_says_who_moves_them(run: Run) -> None:
    ctx = run.shop.ctx(producers=None)
    ctx.journal.forget("plan", "plan")
    for key in run.shop.store.keys("shop/switch/"):
        run.shop.store.delete(key)
    decision = check_back.run(ctx.reverse())
    assert (decision.exit_code, decision.facts) == (0, {"groups": 1, "producers": False})
    (note,) = decision.notes
    assert note.endswith("PASS: groups that go back: shop.app; producers: their owners move them")


def test_process_of_the_reverse_mirror_submits_it_as_such_and_notes_its_end_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.snapshot()
    run.deferred("reverse_mirror")
    ((_, _, _, *arguments),) = run.submitted
    hooks: list[dict[str, Any]] = []

    def hook(**options: Any) -> Any:
        hooks.append(options)
        return SimpleNamespace(submit=lambda _application: None)

    monkeypatch.setattr(spark_submit, "SparkSubmitHook", hook)
    for name in ("A", "B"):
        extra = {"bootstrap.servers": "127.0.0.1:1"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "kafka", "extra": extra}))
    logging = structlog.get_config()
    try:
        assert submit.main(arguments) == 0
    finally:
        structlog.configure(**logging)
    newest = mirror_watch.submission(run.shop.back())
    assert newest is not None
    assert newest.ended
    assert mirror_watch.submission(run.shop.ctx()) is None, "the forward mirror's note is its own"
    ways: list[dict[str, Any]] = []

    def job(_plan: Any, **options: Any) -> Any:
        ways.append(options)
        return SimpleNamespace(halted=(), as_dict=dict)

    monkeypatch.setattr(mirror_step, "run", job)
    assert mirror_step.main(hooks[0]["application_args"]) == 0
    assert (ways[0]["back"], ways[0]["submission"]) == (True, newest.id)


def test_task_of_the_reverse_mirror_that_is_marked_as_success_ends_that_mirror_and_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.snapshot()
    mirror = run.mirrored()
    trigger = cast("Any", mirror.trigger)
    monkeypatch.setattr(
        type(trigger), "task_instance", SimpleNamespace(dag_id="d", run_id="r", task_id="reverse_mirror")
    )
    states = {"r": {"reverse_mirror": "success"}}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: states))
    forward = run.shop.ctx().link.wished()
    asyncio.run(trigger.on_kill())
    assert run.shop.back().link.wished().desired is Desired.STOP
    assert run.shop.ctx().link.wished() == forward


def test_way_back_without_anything_to_move_is_refused_in_words_before_anything_is_written(
    make: Callable[..., Any], run: Run
) -> None:
    bare = make(ServedShop)
    run.shop = bare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "open_context", _opening(bare))
        run.snapshot()
        bare.effects.clear()
        with pytest.raises(AirflowFailException, match=r"link shop is not sealed(.|\n)*run `stop`"):
            run.make("check_rollback")
        assert run.make("lift_target_fence") == {}
        assert bare.effects == []
        bare.begin()
        GroupRecord.own(bare.ctx().journal, "shop.app", at=bare.ctx().stamp()).mark(Step.UNDONE, bare.clock.now())
        bare.store.delete("shop/switch/producers")
        bare.effects.clear()
        with pytest.raises(
            AirflowFailException, match="clients stand on the target FAIL: no group of shop stands there"
        ):
            run.make("check_rollback")
        assert bare.effects == []


def _opening(shop: ServedShop) -> Any:
    @contextmanager
    def open_context(_plan: Any, **_: Any) -> Iterator[Context]:
        yield shop.ctx().newest()

    return open_context
