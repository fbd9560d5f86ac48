"""EmbeddedAirflow where it does not come up. That it runs is shown by tests/dags/test_migration.py."""

import json
import os
import socket
import subprocess

import psutil
import pytest
import sqlalchemy

from demo.airflow import RESTARTING, EmbeddedAirflow
from demo.airflow_api import AirflowError
from demo.brokers.ports import HOST, PortReservation
from tests.waiting import wait_until


def airflow(home, **options):
    return EmbeddedAirflow(home=home, plans_dir=home, connections={}, **options)


def test_airflow_that_ends_while_starting_shows_the_end_of_its_log_and_leaves_nothing_running(tmp_path):
    broken = airflow(tmp_path, env={"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nosuchdatabase://nowhere"})
    with pytest.raises(AirflowError, match=r"ended while starting[\s\S]*nosuchdatabase"):
        broken.start()
    assert broken.pid is None
    # One that has ended and was not waited for yet has no command line any more.
    living = (it for it in psutil.process_iter(["ppid", "cmdline", "status"]) if it.status() != psutil.STATUS_ZOMBIE)
    assert not [it for it in living if str(tmp_path) in " ".join(it.info["cmdline"] or ())]


def test_given_port_that_is_taken_is_refused_by_number(tmp_path):
    with (
        socket.create_server((HOST, 0)) as server,
        pytest.raises(AirflowError, match=str(server.getsockname()[1])),
    ):
        airflow(tmp_path, port=server.getsockname()[1]).start()


def test_airflow_that_was_not_started_says_so_and_can_be_stopped(tmp_path):
    it = airflow(tmp_path)
    with pytest.raises(AirflowError, match="not started"):
        it.api.dag_ids()
    it.stop()


def test_home_that_has_a_password_keeps_it_and_nobody_else_may_read_it(tmp_path):
    first = airflow(tmp_path)
    first._write_password()
    file = tmp_path / "simple_auth_manager_passwords.json.generated"
    assert file.stat().st_mode & 0o077 == 0
    second = airflow(tmp_path)
    second._write_password()
    assert second.password == first.password == json.loads(file.read_text())["admin"]


def test_database_that_is_locked_for_a_minute_is_waited_for(tmp_path):
    """Scheduler and triggerer end for good where one stays locked for longer than they wait."""
    it = airflow(tmp_path)
    it._reservation = PortReservation(3)
    try:
        url = it.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    finally:
        it.stop()
    with sqlalchemy.create_engine(url).connect() as database:
        assert database.exec_driver_sql("PRAGMA busy_timeout").scalar_one() >= 60_000


PLAYED = """#!/usr/bin/env python3
import pathlib, signal, sys, time
runs = pathlib.Path(__file__).with_name("runs")
runs.write_text((runs.read_text() if runs.exists() else "") + sys.argv[1] + " ")
if sys.argv[2:] == ["waits"] and len(runs.read_text().split()) > 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    runs.with_name("waits").touch()
    time.sleep(60)
sys.exit(0 if len(runs.read_text().split()) > 2 else 3)
"""


def played(folder, *words):
    """The command that restarts, with an `airflow` that fails twice."""
    file = folder / "airflow"
    file.write_text(PLAYED)
    file.chmod(0o700)
    environment = {**os.environ, "KAFKA_MIGRATION_DEMO_AIRFLOW": str(file)}
    return subprocess.Popen([str(RESTARTING / "airflow"), *words], env=environment)


def test_part_of_airflow_that_fails_is_started_again_and_anything_else_is_not(tmp_path):
    assert played(tmp_path, "scheduler").wait(180) == 0
    assert (tmp_path / "runs").read_text().split() == ["scheduler"] * 3
    (tmp_path / "runs").unlink()
    assert played(tmp_path, "api-server").wait(180) == 3
    assert (tmp_path / "runs").read_text().split() == ["api-server"]


def test_part_of_airflow_that_is_asked_to_end_is_not_started_again(tmp_path):
    process = played(tmp_path, "scheduler", "waits")
    wait_until((tmp_path / "waits").exists, "it runs for the second time")
    process.terminate()
    assert process.wait(180) == 5
    assert (tmp_path / "runs").read_text().split() == ["scheduler"] * 2
