"""Airflow's users as FAB has them: known by name, and identified by a number that no plan knows.

FAB itself is not in the environment: flask-appbuilder 5.2 wants a python-dateutil older than the locked one. What is
played here is what Airflow and the gate see of it, as apache-airflow-providers-fab 3.10.2 has it (auth_manager/models,
``User``): ``get_id`` is the number of the user's row, as text, and ``get_name`` the user's name.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

#: Put into Airflow's home as ``config/airflow_local_settings.py``, which all of its processes read when they start:
#: ``airflow standalone`` has no other manager than its own.
LOCAL_SETTINGS = """\
import faulthandler
import os
import signal

# Where each process stands: for whoever finds that one of them does not go on.
stacks = open(os.path.join(os.environ["AIRFLOW_HOME"], "stacks.log"), "a")
faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
os.environ["AIRFLOW__CORE__AUTH_MANAGER"] = "tests.dags.users.NumberedUsers"
"""


class NumberedUser(SimpleAuthManagerUser):
    """A user whose id is a number, the same in every process."""

    def get_id(self) -> str:
        return str(int.from_bytes(self.username.encode()) % 1_000_003)


class NumberedUsers(SimpleAuthManager):
    """Airflow's own manager for tests, with its passwords and roles, over users that have numbers."""

    def deserialize_user(self, token: dict[str, Any]) -> NumberedUser:
        user = super().deserialize_user(token)
        return NumberedUser(username=user.username, role=user.role, teams=user.teams)
