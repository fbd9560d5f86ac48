"""The pages of migrations in Airflow's own server: status as JSON, the report, the validation's Data Docs.

Every route asks Airflow whether this user may see the DAG; without that, a plugin's application is open to anyone.
Imported by the API server alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from mimetypes import guess_type
from pathlib import PurePosixPath
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, status
from fastapi.responses import FileResponse, HTMLResponse, Response

from kafka_migration.airflow.factory import migrate_dag_id, plan_name_of
from kafka_migration.airflow.links import PREFIX
from kafka_migration.airflow.steps import reports_directory
from kafka_migration.domain.errors import MigrationError
from kafka_migration.migration.reports import Store
from kafka_migration.plans.folder import read_plans
from kafka_migration.plans.model import Plan

#: Pages are shown in a frame of Airflow's, with Airflow's origin: they load nothing from elsewhere, and only Great
#: Expectations' pages run scripts, their own.
_OWN = "default-src 'none'; style-src 'unsafe-inline' 'self'; img-src 'self' data:; font-src 'self' data:; "
_REPORT = {"Content-Security-Policy": _OWN + "frame-ancestors 'self'"}
_DOCS = {"Content-Security-Policy": _OWN + "script-src 'unsafe-inline' 'self'; frame-ancestors 'self'"}
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def application() -> FastAPI:
    """The application, to be mounted below :data:`kafka_migration.airflow.links.PREFIX`."""
    app = FastAPI(title="Kafka migrations", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = [Depends(requires_access_dag(method="GET"))]

    @app.get("/", response_class=HTMLResponse)
    def plans(user: GetUserDep) -> str:
        rows = "".join(
            f'<li><a href="{PREFIX}/{migrate_dag_id(p.name)}/report">{escape(p.name)}</a></li>' for p in _visible(user)
        )
        title = "Kafka migrations"
        return f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1><ul>{rows}</ul>"

    @app.get("/{dag_id}/status", dependencies=may_see)
    def migration_status(dag_id: str) -> dict[str, Any]:
        from kafka_migration.migration.context import open_context
        from kafka_migration.steps import status as phase_status

        plan = _plan_of(dag_id)
        try:
            with open_context(plan) as ctx:
                return phase_status.read(ctx).as_dict()
        except MigrationError as error:
            raise _unavailable(error) from None

    @app.get("/{dag_id}/report", dependencies=may_see)
    def report(dag_id: str) -> Response:
        return _file(dag_id, "report.html", _REPORT, "no report yet: the migration's last phase writes it")

    @app.get("/{dag_id}/docs/{path:path}", dependencies=may_see)
    def docs(dag_id: str, path: str) -> Response:
        return _file(dag_id, f"data_docs/{path or 'index.html'}", _DOCS, "no Data Docs yet: validation writes them")

    return app


def _visible(user: Any) -> list[Plan]:
    from airflow.api_fastapi.app import get_auth_manager

    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return [plan for plan in read_plans().valid.values() if migrate_dag_id(plan.name) in allowed]


def _plan_of(dag_id: str) -> Plan:
    name = plan_name_of(dag_id)
    for plan in read_plans().valid.values():
        if plan.name == name:
            return plan
    raise HTTPException(status.HTTP_404_NOT_FOUND, "no plan has this DAG")


def _unavailable(error: MigrationError) -> HTTPException:
    return HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, {"message": error.message, "remedy": error.remedy})


def _file(dag_id: str, path: str, headers: Mapping[str, str], missing: str) -> Response:
    name = _plan_of(dag_id).name
    try:
        folder = reports_directory() / name
        headers = {**_ALWAYS, **headers}
        if isinstance(folder, Store):
            # Some stores take dots for the folder above.
            content = None if ".." in PurePosixPath(path).parts else (folder / path).read()
            if content is not None:
                return Response(content, media_type=guess_type(path)[0], headers=headers)
            raise HTTPException(status.HTTP_404_NOT_FOUND, missing)
    except MigrationError as error:
        raise _unavailable(error) from None
    folder = folder.resolve()
    file = (folder / path).resolve()
    # A path with dots, or a link, must not lead out of the plan's own folder.
    if not file.is_relative_to(folder) or not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, missing)
    return FileResponse(file, headers=headers)
