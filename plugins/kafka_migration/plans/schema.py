"""The plan's JSON schema, for editors: ``python -m kafka_migration.plans.schema`` writes it beside the plans."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kafka_migration.plans.model import Plan

SCHEMA_FILE = "plan.schema.json"


def plan_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of what a plan file may hold. Contradictions are found by ``load_plan`` only."""
    schema = Plan.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Kafka migration plan",
    }


def schema_text() -> str:
    """The schema file's exact content."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def write_schema(directory: Path) -> Path:
    """Writes the schema into ``directory`` and returns its path."""
    path = directory / SCHEMA_FILE
    path.write_text(schema_text(), encoding="utf-8")
    return path


if __name__ == "__main__":
    written = write_schema(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("migration_plans"))
    sys.stdout.write(f"{written}\n")
