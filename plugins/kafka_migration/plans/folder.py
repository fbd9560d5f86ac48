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
            texts = "\n\n".join(str(error) for _, error in sorted(self.problems.items()))
            raise BadInput(f"{len(self.problems)} migration plans are not valid:\n\n{texts}")


def read_plans(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> PlanFolder:
    """Read every plan in ``folder`` (default: KAFKA_MIGRATION_PLANS, or the checkout's migration_plans/).

    Files that are not ``*.yaml`` or ``*.yml``, and the reference plan, are none. Two plans of one name would be one
    migration: none of them is valid. A folder that is not there is a problem, too.
    """
    folder = folder or plans_folder(environ)
    valid: dict[Path, Plan] = {}
    problems: dict[Path, BadInput] = {}
    if not folder.is_dir():
        remedy = f"create it, or set {PLANS_DIRECTORY} to the folder that holds the plans"
        problems[folder] = BadInput("there is no such folder of migration plans", file=str(folder), remedy=remedy)
        return PlanFolder(valid=valid, problems=problems)
    for file in sorted(filter(_is_plan, folder.iterdir())):
        try:
            valid[file] = load_plan(file)
        except BadInput as error:
            problems[file] = error
    problems |= _ambiguous(valid)
    sound = {file: plan for file, plan in valid.items() if file not in problems}
    return PlanFolder(valid=sound, problems=problems)


def plans_folder(environ: Mapping[str, str] | None = None) -> Path:
    """KAFKA_MIGRATION_PLANS, or the checkout's migration_plans/."""
    environ = os.environ if environ is None else environ
    return Path(environ.get(PLANS_DIRECTORY) or shipped("migration_plans"))


def _is_plan(file: Path) -> bool:
    return file.suffix in (".yaml", ".yml") and file.name != REFERENCE and not file.name.startswith(".")


def _ambiguous(plans: Mapping[Path, Plan]) -> dict[Path, BadInput]:
    """Files that share a plan's name: a run under the wrong one would continue with the other's state."""
    by_name: dict[str, list[Path]] = {}
    for file, plan in plans.items():
        by_name.setdefault(plan.name, []).append(file)
    return {
        file: BadInput(
            f"{', '.join(same.name for same in files)} have the same name",
            file=str(file),
            field="name",
            value=name,
            remedy="give each plan a name of its own: state, DAG and report are found by it",
        )
        for name, files in by_name.items()
        if len(files) > 1
        for file in files
    }
