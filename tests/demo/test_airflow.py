"""EmbeddedAirflow where it does not come up. That it runs is shown by tests/dags/test_migration.py."""

import json
import socket

import psutil
import pytest
import sqlalchemy

from demo.airflow import EmbeddedAirflow
from demo.airflow_api import AirflowError
from demo.brokers.ports import HOST, PortReservation


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
