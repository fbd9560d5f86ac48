"""Clusters that outlive their command: found again, ended by proof, and nothing else with them."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from demo.brokers import BrokerError, standing
from demo.brokers.commands import app
from demo.brokers.ports import HOST, PortError, PortReservation, is_free
from tests.waiting import wait_until


class Standing:
    """One cluster's place: a run directory and a free port of the test's own."""

    def __init__(self, run_directory: Path, port: int) -> None:
        self.run_directory = run_directory
        self.address = standing.Address(name="source", port=port)
        self.directory = run_directory / "source"

    def up(self) -> list[str]:
        return standing.up([self.address], run_directory=self.run_directory)

    def down(self, *, keep_data: bool = False) -> list[str]:
        return standing.down(keep_data=keep_data, run_directory=self.run_directory)

    def process(self) -> psutil.Process:
        record = standing.status(run_directory=self.run_directory)["source"]
        assert record is not None
        return psutil.Process(record.pid)

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address.servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(timeout=30)

    def topics(self) -> set[str]:
        return set(AdminClient({"bootstrap.servers": self.address.servers}).list_topics(timeout=30).topics)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Standing]:
    reservation = PortReservation(1)
    (port,) = reservation
    made = Standing(tmp_path / "run", port)
    yield made
    made.down()
    reservation.release()


def test_cluster_is_up_asked_up_again_keeps_it_refuses_another_port_and_down_ends_it(place: Standing) -> None:
    assert place.up()[0].startswith(f"source: up at {place.address.servers}, pid ")
    process = place.process()
    assert place.up() == [f"source: runs already at {place.address.servers}, pid {process.pid}"]
    other = standing.Address(name="source", port=1)
    with pytest.raises(BrokerError, match=r"runs already.*make brokers-down"):
        standing.up([other], run_directory=place.run_directory)
    assert place.process() == process
    assert place.topics() == set()
    assert place.down() == [f"source: ended, pid {process.pid}"]
    assert not process.is_running()
    assert not place.directory.exists()
    assert is_free(place.address.port)
    assert place.down() == ["nothing was up"]


def test_broker_was_killed_or_ended_with_its_data_kept_up_again_serves_with_its_topics(place: Standing) -> None:
    place.up()
    place.create_topic()
    process = place.process()
    process.kill()
    # Its parent is this process, which must reap it; after `make brokers` nobody need.
    process.wait(180)
    assert standing.status(run_directory=place.run_directory) == {"source": None}
    place.up()
    assert "t" in place.topics()
    place.down(keep_data=True)
    place.up()
    assert "t" in place.topics()


@pytest.mark.parametrize("difference", ["started", "command_line"])
def test_pid_was_given_to_another_process_down_leaves_it_alone(place: Standing, difference: str) -> None:
    place.directory.mkdir(parents=True)
    marker = str(place.directory) if difference == "started" else "elsewhere"
    code = "import signal; print(1, flush=True); signal.pause()"
    bystander = subprocess.Popen([sys.executable, "-c", code, marker], stdout=subprocess.PIPE)
    with bystander:
        assert bystander.stdout is not None
        bystander.stdout.readline()
        started = psutil.Process(bystander.pid).create_time()
        if difference == "started":
            started -= 3600
        standing.Record(pid=bystander.pid, started=started, port=1).write(place.directory)
        assert standing.status(run_directory=place.run_directory) == {"source": None}
        assert place.down() == ["source: was not running"]
        assert bystander.poll() is None
        bystander.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', '["x"]'])
def test_pid_file_is_no_record_taken_as_none(place: Standing, content: str) -> None:
    place.directory.mkdir(parents=True)
    (place.directory / "broker.json").write_text(content)
    assert place.down() == ["source: was not running"]


def test_second_port_is_taken_the_first_cluster_is_ended_again(place: Standing) -> None:
    with socket.create_server((HOST, 0)) as server:
        taken = standing.Address(name="target", port=server.getsockname()[1])
        with pytest.raises(PortError, match=str(taken.port)):
            standing.up([place.address, taken], run_directory=place.run_directory)
    wait_until(lambda: is_free(place.address.port), "the first cluster is ended")
    assert set(standing.status(run_directory=place.run_directory).values()) <= {None}


def test_commands_up_status_down_say_where_and_exit_as_scripts_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in (standing.up, standing.down, standing.status):
        assert function.__kwdefaults__ is not None
        monkeypatch.setitem(function.__kwdefaults__, "run_directory", tmp_path / "run")
    reservation = PortReservation(2)
    source, target = reservation
    runner = CliRunner()
    try:
        assert runner.invoke(app, ["status"]).exit_code == 1
        up = runner.invoke(app, ["up", "--source-port", str(source), "--target-port", str(target)])
        assert up.exit_code == 0, up.output
        status = runner.invoke(app, ["status"])
        assert status.exit_code == 0
        assert f"source: up at port {source}" in status.output
        assert f"target: up at port {target}" in status.output
        pids = [json.loads(file.read_text())["pid"] for file in (tmp_path / "run").glob("*/broker.json")]
        assert len(pids) == 2
    finally:
        down = runner.invoke(app, ["down"])
        reservation.release()
    assert down.exit_code == 0
    assert down.output.count("ended") == 2
