"""What this project adds to Airflow's server: a page for each migration, and the buttons that lead there.

Airflow runs this file at the start of every task, so it imports nothing that a task does not have already. The
application is built when the API server gets its first request for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from kafka_migration.airflow.links import PREFIX, DocsLink, MigrationLink, ReportLink


class _Lazily:
    """An ASGI application that is built when it is first asked."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._built: Any = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        if self._built is None:
            self._built = self._build()
        await self._built(scope, receive, send)


def _application() -> Any:
    from kafka_migration.airflow.pages import application

    return application()


class KafkaMigrationPlugin(AirflowPlugin):
    """Pages and links of the migrations."""

    name = "kafka_migration"
    fastapi_apps = [{"name": "kafka migration", "url_prefix": PREFIX, "app": _Lazily(_application)}]  # noqa: RUF012
    operator_extra_links = [MigrationLink(), ReportLink(), DocsLink()]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Migration",
            "href": f"{PREFIX}/{{DAG_ID}}/report",
            "destination": "dag_run",
            "url_route": "kafka-migration-report",
        },
        {
            "name": "Kafka migrations",
            # Not in a frame, from which Airflow lets no link lead to its own pages.
            "href": f"{PREFIX}/",
            "destination": "nav",
            "category": "browse",
        },
    ]
