"""Buttons on a task's page that lead to the migration's own pages, which the plugin serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

#: Where the plugin's application is mounted.
PREFIX = "/kafka-migration"


class MigrationLink(BaseOperatorLink):
    """Where the migration stands."""

    name = "Migration"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A path of Airflow's own server."""
        return f"{PREFIX}/{ti_key.dag_id}/"


class ReportLink(BaseOperatorLink):
    """The migration's report."""

    name = "Migration report"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A path of Airflow's own server."""
        return f"{PREFIX}/{ti_key.dag_id}/report"


class DocsLink(BaseOperatorLink):
    """The validation's Data Docs."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """A path of Airflow's own server."""
        return f"{PREFIX}/{ti_key.dag_id}/docs/index.html"
