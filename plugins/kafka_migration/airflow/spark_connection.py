"""Airflow's Spark connections, as far as our jobs can be submitted through them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka.lookup import from_airflow


def require_spark_connection(conn_id: str, *, field: str) -> Any:
    """The connection. Raises BadInput if there is none (the provider would quietly take YARN), or for cluster mode.

    In cluster mode the driver runs elsewhere, and what is in its environment, secrets included, is part of Spark's
    configuration. ``field`` is where the plan names the connection.
    """
    connection = from_airflow(conn_id)
    if connection is None:
        raise BadInput(
            f"no connection has the id {conn_id!r}",
            field=field,
            value=conn_id,
            remedy="add it in Airflow under Admin, Connections (type Spark; host local[2], spark://host:7077, yarn or "
            "k8s://...), or name another one in the plan",
        )
    mode = connection.extra_dejson.get("deploy-mode")
    if mode not in (None, "", "client"):
        raise BadInput(
            f"deploy-mode is {mode}, but the clusters' secrets reach the driver through its environment alone",
            file=f"connection {conn_id}",
            field="deploy-mode",
            value=mode,
            remedy="set deploy-mode to client; executors still run on the Spark cluster",
        )
    return connection


def require_kubernetes_client(master: str) -> None:
    """Raises BadInput if ``master`` is Kubernetes and its client is missing: the provider fails with a NameError."""
    if master.startswith("k8s") and find_spec("kubernetes") is None:
        raise BadInput(
            "the Spark provider needs the Kubernetes client for this master, and it is not installed",
            field="master",
            value=master,
            remedy="install apache-airflow-providers-cncf-kubernetes where the workers run",
        )


def spark_master(conn_id: str, *, field: str) -> str:
    """The connection's master URL, put together as the provider does. Raises what the check raises."""
    connection = require_spark_connection(conn_id, field=field)
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    return f"{master}:{connection.port}" if connection.port else master
