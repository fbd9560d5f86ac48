"""The pages of migrations in Airflow's own server: the board, a page for each, its report, the validation's Data Docs.

The board and the pages show what tasks and triggers wrote down last (:mod:`kafka_migration.overview.board`), and open
no cluster; `status` alone does, as JSON.

Every route asks Airflow whether this user may see the DAG; without that, a plugin's application is open to anyone.
Imported by the API server alone.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, status
from fastapi.responses import FileResponse, HTMLResponse, Response

from kafka_migration.airflow.base import reports_directory
from kafka_migration.airflow.factory import (
    control_dag_id,
    migrate_dag_id,
    plan_name_of,
    rollback_dag_id,
    validate_dag_id,
)
from kafka_migration.airflow.links import PREFIX
from kafka_migration.domain.errors import MigrationError
from kafka_migration.migration.reports import BOARD_FORMAT, Place, Store, board_files, read_json
from kafka_migration.overview.html import rendered
from kafka_migration.overview.plots import is_drawn, over_time
from kafka_migration.plans.folder import plans_folder, read_plans
from kafka_migration.plans.model import Plan

#: Pages are shown in a frame of Airflow's, with Airflow's origin: they load nothing from elsewhere, and run no script.
_ALWAYS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline' 'self'; img-src 'self' data:;"
    " font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
#: Summaries that are fetched from a store at once.
_AT_ONCE = 16
#: Older than this, what is not over is shown as out of date: nothing works on it, or nothing can write.
_OLD_SECONDS = 600.0
_AHEAD_SECONDS = 60.0


def application() -> FastAPI:
    """The application, to be mounted below :data:`kafka_migration.airflow.links.PREFIX`."""
    # What the server has loaded by now stays until its end. To look through it for garbage would take one load of the
    # board in twenty several times as long as the others.
    gc.freeze()
    app = FastAPI(title="Kafka migrations", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = [Depends(requires_access_dag(method="GET"))]

    @app.get("/")
    def board(user: GetUserDep, refresh: bool = False) -> Response:
        return _page("board.html.j2", prefix=PREFIX, refresh=refresh, rows=_rows(_visible(user)))

    @app.get("/{dag_id}/", dependencies=may_see)
    def migration(dag_id: str, user: GetUserDep, refresh: bool = False) -> Response:
        return _migration(dag_id, lambda dag: _may_start(user, dag), refresh=refresh)

    @app.get("/{dag_id}/status", dependencies=may_see)
    def migration_status(dag_id: str) -> dict[str, Any]:
        from kafka_migration.migration.context import open_context
        from kafka_migration.overview import status as phase_status

        plan = _plan_of(dag_id)
        try:
            with open_context(plan) as ctx:
                return phase_status.read(ctx).as_dict()
        except MigrationError as error:
            raise _unavailable(error) from None

    @app.get("/{dag_id}/report", dependencies=may_see)
    def report(dag_id: str) -> Response:
        return _file(dag_id, "report.html", "no report yet: the migration's last phase writes it")

    @app.get("/{dag_id}/docs/{path:path}", dependencies=may_see)
    def docs(dag_id: str, path: str) -> Response:
        return _file(dag_id, f"data_docs/{path or 'index.html'}", "no Data Docs yet: validation writes them")

    return app


def _migration(dag_id: str, may_start: Callable[[str], bool], *, refresh: bool = False) -> Response:
    name = _plan_of(dag_id).name
    found = _document(board_files(reports_directory(), name)[0])
    plot = over_time("Lag in offsets", found["history"]) if found and is_drawn(found["history"]) else None
    acts = {
        "validate": validate_dag_id(name),
        "roll back": rollback_dag_id(name),
        "pause, throttle, cancel, complete": control_dag_id(name),
    }
    dags = {"runs": migrate_dag_id(name)} | {what: dag for what, dag in acts.items() if may_start(dag)}
    how_old = {"age": _age(found["at"]), "is_old": _is_old(found)} if found else {}
    known = {"prefix": PREFIX, "refresh": refresh, "name": name, "page": found, "plot": plot, "dags": dags}
    return _page("migration.html.j2", **known, **how_old)


def _page(template: str, **values: Any) -> Response:
    return HTMLResponse(rendered(template, **values), headers=_ALWAYS)


def _rows(plans: list[Plan]) -> list[dict[str, Any]]:
    """What the board has of each plan; those that need a person first, those that are over last."""
    place = reports_directory()

    def row(plan: Plan) -> dict[str, Any]:
        known: dict[str, Any] = {"found": None, "problem": ""}
        try:
            found = _document(board_files(place, plan.name)[1])
            known |= {"found": found, "age": _age(found["at"]), "is_old": _is_old(found)} if found else {}
        except HTTPException as error:
            # Of this one alone: the others are shown.
            known["problem"] = error.detail["message"]  # type: ignore[index]
        return {"name": plan.name, "dag_id": migrate_dag_id(plan.name), **known}

    if not isinstance(place, Store):
        # Threads would wait for each other longer than for files of this machine.
        return sorted(map(row, plans), key=_urgency)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="board") as pool:
        return sorted(pool.map(row, plans), key=_urgency)


def _urgency(row: Mapping[str, Any]) -> tuple[int, str]:
    found = row["found"]
    if found is None:
        return 3, row["name"]
    return 4 if found["is_over"] else 0 if found["need"] else 1 if row["is_old"] else 2, row["name"]


def _document(file: Place) -> dict[str, Any] | None:
    """What was written down there; None for what another version wrote, too."""
    try:
        found = read_json(file)
    except MigrationError as error:
        raise _unavailable(error) from None
    return found if found is not None and found.get("format") == BOARD_FORMAT else None


def _is_old(found: Mapping[str, Any]) -> bool:
    """Whether nobody has written for long, though the migration goes on; or somebody did whose clock is ahead."""
    return not found["is_over"] and not 0 <= _age(found["at"]) + _AHEAD_SECONDS <= _OLD_SECONDS


def _age(at: str) -> float:
    """Seconds, by the clock of this machine."""
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()


def _visible(user: Any) -> list[Plan]:
    from airflow.api_fastapi.app import get_auth_manager

    allowed = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return [plan for plan in _plans() if migrate_dag_id(plan.name) in allowed]


def _may_start(user: Any, dag_id: str) -> bool:
    from airflow.api_fastapi.app import get_auth_manager

    details, runs = DagDetails(id=dag_id), DagAccessEntity.RUN
    return get_auth_manager().is_authorized_dag(method="POST", access_entity=runs, details=details, user=user)


def _plans() -> tuple[Plan, ...]:
    """The valid ones, as the folder is now: hundreds take seconds to read, and are read again once a file changes."""
    folder, files = plans_folder(), []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # A link that leads nowhere is no plan.
            with suppress(OSError):
                now = entry.stat()
                files.append((entry.name, now.st_mtime_ns, now.st_size))
    return _read_once(folder, frozenset(files))


@lru_cache(maxsize=1)
def _read_once(folder: Path, _files: frozenset[tuple[str, int, int]]) -> tuple[Plan, ...]:
    return tuple(read_plans(folder).valid.values())


def _plan_of(dag_id: str) -> Plan:
    name = plan_name_of(dag_id)
    for plan in _plans():
        if plan.name == name:
            return plan
    raise HTTPException(status.HTTP_404_NOT_FOUND, "no plan has this DAG")


def _unavailable(error: MigrationError) -> HTTPException:
    return HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, {"message": error.message, "remedy": error.remedy})


def _file(dag_id: str, path: str, missing: str) -> Response:
    name = _plan_of(dag_id).name
    try:
        folder = reports_directory() / name
        if isinstance(folder, Store):
            # Some stores take dots for the folder above.
            content = None if ".." in PurePosixPath(path).parts else (folder / path).read()
            if content is not None:
                return Response(content, media_type=guess_type(path)[0], headers=_ALWAYS)
            raise HTTPException(status.HTTP_404_NOT_FOUND, missing)
    except MigrationError as error:
        raise _unavailable(error) from None
    folder = folder.resolve()
    file = (folder / path).resolve()
    # A path with dots, or a link, must not lead out of the plan's own folder.
    if not file.is_relative_to(folder) or not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, missing)
    return FileResponse(file, headers=_ALWAYS)
