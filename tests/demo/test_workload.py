"""The workload on real brokers. Source and target are one cluster here: it is the clients that are tested."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from demo.brokers import EmbeddedKafka
from demo.clients.control import CONTROL_FILE
from demo.clients.control import main as control
from demo.clients.groups import GROUPS
from demo.clients.settings import Settings
from demo.clients.topics import TOPICS
from demo.workload import CONTROL_COMMAND, Progress, Workload, WorkloadError
from tests.demo.log_segments import stored_batches
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.long
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
BIG_TOPIC_RECORDS = 40_000
LIVE = [group.name for group in GROUPS if not group.stopped]


@contextmanager
def prepared(cluster: EmbeddedKafka, directory: Path) -> Iterator[Workload]:
    """A small workload; `demo.behind` needs longer for its backlog on the source than any test takes to stop it."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    settings = Settings(
        source=servers,
        target=servers,
        big_topic_records=BIG_TOPIC_RECORDS,
        small_topic_records=1_200,
        behind_per_second=300,
        stopped_after_records=150,
    )
    with Workload(directory, settings) as workload:
        workload.prepare()
        yield workload


@pytest.fixture
def cluster() -> Iterator[EmbeddedKafka]:
    """One for each test that starts the workload: its topics and groups have fixed names."""
    with EmbeddedKafka(name="workload") as cluster:
        yield cluster


@pytest.fixture
def workload(cluster: EmbeddedKafka, tmp_path: Path) -> Iterator[Workload]:
    """A workload of the test's own."""
    with prepared(cluster, tmp_path / "run") as workload:
        yield workload


@pytest.fixture(scope="module")
def quiet_cluster() -> Iterator[EmbeddedKafka]:
    """For the tests that start nothing but single groups."""
    with EmbeddedKafka(name="quiet-workload") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def quiet(quiet_cluster: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    """A workload that is prepared and not started."""
    with prepared(quiet_cluster, tmp_path_factory.mktemp("workload") / "run") as workload:
        yield workload


def hook(workload: Workload, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CONTROL_COMMAND), *arguments],
        env={"PATH": os.environ["PATH"], **workload.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def done(workload: Workload, *arguments: str) -> str:
    """What a hook says that succeeded."""
    result = hook(workload, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_until(workload: Workload, cluster: str, records: int) -> Progress:
    return workload.wait_until(
        lambda progress: progress.fewest("source" if cluster == "source" else "target") >= records,
        timeout_seconds=PATIENCE_SECONDS,
        what=f"every live group processes {records} records on the {cluster}",
    )


def client_pids(workload: Workload, group: str | None = None) -> list[int]:
    """Of the members of a group, or of every client that runs."""
    status = json.loads(done(workload, "status"))
    groups = [status["groups"][group]] if group else list(status["groups"].values())
    clients = [member for running in groups for member in running["members"]]
    return [client["pid"] for client in clients + ([] if group else status["producers"]) if client["alive"]]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_topics_prepared_start_above_zero_inside_and_between_batches(
    quiet: Workload, quiet_cluster: EmbeddedKafka
) -> None:
    starts = quiet.log_starts
    inside = set()
    for spec in TOPICS:
        for partition in range(spec.partitions):
            start = starts[spec.name][partition]
            assert start > 0
            batches = list(stored_batches(quiet_cluster.data_dir, spec.name, partition))
            assert {batch.codec for batch in batches} == {spec.codec}
            large = sum(batch.size > DEFAULT_MAX_MESSAGE_BYTES for batch in batches)
            assert large == (spec.large_records if partition == 0 else 0)
            inside.add(not any(batch.first == start for batch in batches))
            records = sum(batch.last - max(batch.first, start) + 1 for batch in batches if batch.last >= start)
            assert records * spec.partitions >= (BIG_TOPIC_RECORDS if spec.big else 1_200)
            assert any(batch.first < start <= batch.last for batch in batches) is (partition % 2 == 1)
    assert inside == {True, False}


def test_topics_prepared_have_their_configs_and_the_stopped_group_is_stopped(
    quiet: Workload, quiet_cluster: EmbeddedKafka
) -> None:
    admin = AdminClient({"bootstrap.servers": quiet_cluster.bootstrap_servers})
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, spec.name) for spec in TOPICS])
    for resource, future in described.items():
        values = {name: entry.value for name, entry in future.result(30).items()}
        spec = next(spec for spec in TOPICS if spec.name == resource.name)
        assert spec.configs.items() <= values.items()
    stopped = quiet.progress().groups["demo.stopped"]
    assert stopped.members == 0
    assert 150 <= stopped.on_source < 1_200
    assert "stays stopped" in done(quiet, "start", "demo.stopped")
    assert quiet.progress().groups["demo.stopped"].members == 0


def test_groups_moved_by_hooks_under_load_process_every_record_once(workload: Workload) -> None:
    workload.start()
    before = run_until(workload, "source", 500)
    assert before.groups["demo.members"].members == 3
    assert before.groups["demo.behind"].at_end == 0
    # A member leaves and comes back: its partitions change hands twice, amid the records.
    os.kill(client_pids(workload, "demo.members")[1], signal.SIGTERM)
    wait_until(lambda: workload.progress().groups["demo.members"].members == 2, "the member ends")
    assert "2 members ran on the source, 1 started" in done(workload, "start", "demo.members", "--cluster", "source")
    run_until(workload, "source", 1_500)

    def move(group: str) -> None:
        assert "ended" in done(workload, "stop", group)
        assert "does not run" in done(workload, "stop", group)
        assert ", 0 started" not in done(workload, "start", group)
        assert ", 0 started" in done(workload, "start", group)

    with ThreadPoolExecutor(len(LIVE)) as hooks:
        list(hooks.map(move, LIVE))
    # A late repetition of the stop hook, as after a crash, concerns the source alone.
    done(workload, "stop", "demo.members", "--cluster", "source")
    assert {workload.progress().groups[group].cluster for group in LIVE} == {"target"}
    run_until(workload, "target", 1_500)
    workload.stop_producers()
    workload.finish()

    judged = workload.judge()
    assert judged.verdict.exit_code == 0, judged.found
    account = judged.account
    assert set(account["groups"]) == {group.name for group in GROUPS}
    for name, group in account["groups"].items():
        assert group["on_source"] > 0, name
        assert group["on_target"] > 0, name
        assert account["judge"]["lost"] == account["records_lost"] == 0
    assert account["records_produced"] == workload.progress().produced
    # One for each group that moved while it was at work.
    assert account["pauses_ms"]["consumers"]["max"] > 0
    assert account["pauses_ms"]["producers"]["max"] is None
    found = "\n".join(judged.shortfalls)
    assert "no topic holds 1000000 records" in found
    assert "topics hold records" not in found


def test_group_that_continues_at_a_wrong_offset_is_caught_by_the_judge(
    workload: Workload, cluster: EmbeddedKafka
) -> None:
    workload.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    orders, clicks = TopicPartition("demo.orders", 1), TopicPartition("demo.clicks", 2)
    start = workload.log_starts[orders.topic][orders.partition]
    wait_until(lambda: committed(admin, "demo.caught-up", orders) > start + 5, "records are processed")
    for group in LIVE:
        done(workload, "stop", group)
    # As a translation would that is off by some records.
    commit(admin, "demo.caught-up", orders, committed(admin, "demo.caught-up", orders) - 5)
    commit(admin, "demo.behind", clicks, committed(admin, "demo.behind", clicks) + 7)
    for group in LIVE:
        done(workload, "start", group)
    run_until(workload, "target", 200)
    workload.stop_producers()
    workload.finish()
    account = workload.judge().account
    assert (account["records_processed_twice"], account["records_lost"], account["order_violations"]) == (5, 7, 0)
    assert account["judge"]["commits_backwards"] > 0


def committed(admin: AdminClient, group: str, place: TopicPartition) -> int:
    asked = ConsumerGroupTopicPartitions(group, [place])
    answer = admin.list_consumer_group_offsets([asked])[group].result(30)
    return int(answer.topic_partitions[0].offset)


def commit(admin: AdminClient, group: str, place: TopicPartition, offset: int) -> None:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(place.topic, place.partition, offset)])
    answer = admin.alter_consumer_group_offsets([wanted])[group].result(30)
    assert answer.topic_partitions[0].error is None


def test_group_without_committed_offset_fails_instead_of_choosing_one(
    quiet: Workload, quiet_cluster: EmbeddedKafka
) -> None:
    admin = AdminClient({"bootstrap.servers": quiet_cluster.bootstrap_servers})
    admin.delete_consumer_groups(["demo.caught-up"])["demo.caught-up"].result(30)
    done(quiet, "start", "demo.caught-up")
    wait_until(lambda: quiet.progress().failures, "the member fails")
    (failure,) = quiet.progress().failures
    assert "demo.caught-up member-1-1" in failure
    assert "No offset stored" in failure


def test_control_refuses_what_it_cannot_do(quiet: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--run-directory", str(quiet.run.path)]
    assert control(["start", "demo.behind", "--cluster", "source", *here]) == 0
    assert control(["start", "demo.behind", *here]) == 1
    assert "runs on the source: stop it before" in capsys.readouterr().err
    assert control(["stop", "demo.nobody", *here]) == 1
    assert "unknown group 'demo.nobody'" in capsys.readouterr().err
    with pytest.raises(WorkloadError, match="runs on the source"):
        quiet.finish()


def test_supervisor_killed_takes_every_client_with_it_and_hooks_say_so(workload: Workload) -> None:
    workload.start()
    run_until(workload, "source", 50)
    pids = client_pids(workload)
    assert len(pids) == 7
    # A child of a leash of this test's own: the pid cannot have been recycled.
    os.kill(json.loads((workload.run.path / CONTROL_FILE).read_text())["pid"], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)), "every client ends")
    result = hook(workload, "stop", "demo.behind")
    assert result.returncode == 3
    assert "no workload answers" in result.stderr
