"""The plan as it was when a run began, in a file of its own: a run works from this, whatever becomes of the plan file.

Every task finds the file by the run that it belongs to, and never by what another task handed on: whoever may edit
XComs must not choose the plan that a run obeys. The digest, which tasks do hand on, is compared on every load, so that
a snapshot that was edited is refused. It holds no secret, as the plan does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from kafka_migration.domain.errors import BadInput, StateConflict
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.model import Plan

#: Where runs keep their files. Every machine that runs tasks or triggers must see the same folder there.
STATE_DIRECTORY = "KAFKA_MIGRATION_STATE_DIR"
_FILE = "plan.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where a snapshot is, and the digest that its plan must have."""

    path: str
    digest: str

    @classmethod
    def take(cls, plan: Plan, folder: Path) -> Self:
        """Write ``plan``, defaults included, to ``folder``/plan.yaml, in one step; replaces an earlier one."""
        folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(plan.snapshot(), file, sort_keys=False, allow_unicode=True)
        target = folder / _FILE
        os.replace(part, target)
        return cls(path=str(target), digest=plan.digest)

    @classmethod
    def of(cls, value: Mapping[str, str]) -> Self:
        """The inverse of ``as_dict``."""
        return cls(path=value["path"], digest=value["digest"])

    def as_dict(self) -> dict[str, str]:
        """JSON types only: what tasks pass each other."""
        return {"path": self.path, "digest": self.digest}

    def load(self) -> Plan:
        """The plan. Raises BadInput if it is not there, StateConflict if it is not the plan that was taken."""
        if not Path(self.path).is_file():
            raise BadInput(
                "the run's snapshot of the plan is not here",
                file=self.path,
                remedy=f"set {STATE_DIRECTORY} to a folder that every worker and triggerer sees at the same path; if"
                " the file was removed, clear the task take_snapshot, or start a new run",
            )
        plan = load_plan(self.path)
        if plan.digest != self.digest:
            raise StateConflict(
                f"{self.path}: the snapshot's digest is {plan.digest}, the run began with {self.digest}",
                remedy="a run does not follow edits, be they of the snapshot or of the XCom of take_snapshot: start a"
                " new run from the edited plan",
            )
        return plan


def snapshot_path(dag_id: str, run_id: str) -> str:
    """Where the snapshot of one run is."""
    return str(run_folder(dag_id, run_id) / _FILE)


def run_folder(dag_id: str, run_id: str, environ: Mapping[str, str] | None = None) -> Path:
    """The folder of one run: below KAFKA_MIGRATION_STATE_DIR, or else below AIRFLOW_HOME."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    root = Path(environ.get(STATE_DIRECTORY) or home / "kafka_migration")
    return root / _file_name(dag_id) / _file_name(run_id)


def _file_name(text: str) -> str:
    """``text`` as a name of plain characters; two texts never share one.

    Run ids hold colons, which Hadoop's paths (and so Spark's) do not take, and Airflow accepts one that is dots only.
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    if plain == text and plain.strip("."):
        return plain
    return f"{plain.strip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
