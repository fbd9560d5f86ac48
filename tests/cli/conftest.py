"""Commands on a migration in memory: the same code as on real clusters, but for where the context comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kafka_migration.cli.app import app
from kafka_migration.cli.commands import prove
from kafka_migration.migration import context
from kafka_migration.migration.context import Context
from kafka_migration.plans.model import Plan
from tests.steps.gates import Migration


@dataclass
class Terminal:
    """Runs commands on ``shop``; ``opened`` holds how each context was opened."""

    shop: Migration
    plan: Path
    opened: list[dict[str, bool]] = field(default_factory=list)

    def run(self, *arguments: str, input: str | None = None) -> Result:
        command, *rest = arguments
        words = (
            [command, *rest[:1], str(self.plan), *rest[1:]]
            if command == "approve"
            else [command, str(self.plan), *rest]
        )
        return CliRunner().invoke(app, words, input=input, env={"COLUMNS": "80"})

    def json(self, *arguments: str) -> Any:
        """What a command prints with ``--json``: nothing but one document."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def write_plan(self, **fields: Any) -> None:
        self.plan.write_text(yaml.safe_dump(self.shop.plan(**fields).snapshot()))


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in a directory of its own."""
    shop = Migration()
    found = Terminal(shop=shop, plan=tmp_path / "shop.yaml")
    found.write_plan()

    @contextmanager
    def open_context(
        plan: Plan,
        *,
        log: Callable[[str], None] = context.silent,
        dry_run: bool = False,
        make_state: bool = False,
        to_check: bool = False,
    ) -> Iterator[Context]:
        found.opened.append({"dry_run": dry_run, "make_state": make_state})
        ctx = shop.ctx(dry_run=dry_run, **{k: v for k, v in plan.snapshot().items() if k != "version"})
        ctx.log = log
        yield ctx

    monkeypatch.setattr(context, "open_context", open_context)
    monkeypatch.setattr(prove, "answering", lambda: "ada")
    monkeypatch.chdir(tmp_path)
    for conn_id in ("A", "B"):
        extra = {"bootstrap.servers": "127.0.0.1:1"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", json.dumps({"conn_type": "kafka", "extra": extra}))
    return found
