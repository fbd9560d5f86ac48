"""The folder of plans: which files in it are plans, and which of them are valid."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.shipped import shipped
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.places import PLANS_DIRECTORY

#: The commented reference. It is valid, and a document: whoever wants its DAG copies it under another name.
REFERENCE = "reference.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFolder:
    """What a folder holds: valid plans by their file, and what is wrong with each of the others."""

    valid: Mapping[Path, Plan]
    problems: Mapping[Path, BadInput]

    def raise_problems(self) -> None:
        """Raises BadInput with everything that is wrong in any file, if there is anything."""
        if self.problems:
            said = "\n\n".join(str(error) for _, error in sorted(self.problems.items()))
            raise BadInput(f"{len(self.problems)} migration plans are not valid:\n\n{said}")


def read_plans(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> PlanFolder:
    """Read every plan in ``folder`` (default: KAFKA_MIGRATION_PLANS, or the checkout's migration_plans/).

    Files that are not ``*.yaml`` or ``*.yml``, and the reference plan, are none. Two plans of one name would be one
    migration: none of them is valid. A folder that is not there is a problem, too.
    """
    environ = os.environ if environ is None else environ
    folder = folder or Path(environ.get(PLANS_DIRECTORY) or shipped("migration_plans"))
    valid: dict[Path, Plan] = {}
    problems: dict[Path, BadInput] = {}
    if not folder.is_dir():
        remedy = f"create it, or set {PLANS_DIRECTORY} to the folder that holds the plans"
        problems[folder] = BadInput("there is no such folder of migration plans", file=str(folder), remedy=remedy)
        return PlanFolder(valid=valid, problems=problems)
    for file in sorted(folder.iterdir()):
        if file.suffix not in (".yaml", ".yml") or file.name == REFERENCE or file.name.startswith("."):
            continue
        try:
            valid[file] = load_plan(file)
        except BadInput as error:
            problems[file] = error
    by_name: dict[str, list[Path]] = {}
    for file, plan in valid.items():
        by_name.setdefault(plan.name, []).append(file)
    for name, files in by_name.items():
        for file in files if len(files) > 1 else ():
            # Which of them is meant nobody can say, and a run under the wrong one would go on with the other's state.
            del valid[file]
            problems[file] = BadInput(
                f"{', '.join(it.name for it in files)} have the same name",
                file=str(file),
                field="name",
                value=name,
                remedy="give each plan a name of its own: state, DAG and report are found by it",
            )
    return PlanFolder(valid=valid, problems=problems)
