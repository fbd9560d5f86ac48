"""A whole migration in front of a browser: `make test-ui`.

A Chromium of this machine goes through a real Airflow, while live clients of two clusters write and read: it logs in,
looks at the board and at the migration's page, starts the migration, answers its questions, follows the cutover, reads
report and Data Docs, and has everything taken back. Then a user who may only look tries the same.

The last line is JSON: how many pages of ours were judged and actions done, and how often a page asked another host, had
a serious fault for people who cannot use a mouse or see (axe-core), or reported an error. Exit code 0 if the last three
are 0, and the clients' own notes have no fault.

    python -m tests.ui [--pictures FOLDER] [--chromium PATH]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from demo.airflow import EmbeddedAirflow
from demo.airflow_api import ENDED, AirflowApi
from kafka_migration.cli.render import live
from kafka_migration.migration.context import open_context
from kafka_migration.overview import attention, status
from kafka_migration.plans.load import load_plan
from tests.dags import shop
from tests.dags.patience import PATIENCE_SECONDS
from tests.dags.shop import Shop
from tests.ui.visitor import Notes, Visitor

VIEWER = "visitor"
USERS = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{VIEWER}:viewer"}
_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where screenshots go; none by default")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, _CHROMIUMS)), ""), metavar="PATH")
    options = parser.parse_args()
    if not options.chromium:
        parser.error("no Chromium on PATH: install it (Debian and Ubuntu: apt install chromium), or give --chromium")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    notes = Notes()
    with tempfile.TemporaryDirectory() as work, shop.opened(Path(work)) as world:
        with shop.airflow_of(world, Path(work, "airflow"), USERS) as airflow, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.chromium)
            tour = Tour(world, airflow, browser, notes, options.pictures)
            tour.migrate()
            tour.look_back()
            tour.roll_back()
            tour.only_look()
            browser.close()
        verdict = world.judged("source")
    for fault in notes.faults:
        print(fault)
    print(f"clients' notes: {verdict.summary()}")
    print(json.dumps(notes.as_dict()))
    return 1 if notes.faults or verdict.faults else 0


class Tour:
    """The visits, in their order."""

    def __init__(
        self, world: Shop, airflow: EmbeddedAirflow, browser: Browser, notes: Notes, pictures: Path | None
    ) -> None:
        self.world, self.airflow, self.api, self.notes = world, airflow, airflow.api, notes
        self.browser, self.pictures = browser, pictures
        self.there, self.back = f"migrate_{world.name}", f"rollback_{world.name}"
        airflow.wait_for_dags([self.there, self.back], deadline_seconds=PATIENCE_SECONDS)
        self.admin = self.visitor("admin")

    def visitor(self, user: str) -> Visitor:
        """Somebody who has logged in."""
        passwords = json.loads((self.airflow.home / "simple_auth_manager_passwords.json.generated").read_text())
        return Visitor(self.browser, self.airflow.url, user, passwords[user], self.notes, self.pictures)

    def migrate(self) -> None:
        """From the board to the end of the migration."""
        _say("the board, before anything has begun")
        page = self.admin.go("/")
        page.get_by_text("Browse", exact=True).first.click()
        # It opens a tab of its own; this one goes there.
        item = page.get_by_text("Kafka migrations", exact=True).first
        self.admin.go(str(item.evaluate("item => new URL(item.closest('a').href).pathname")))
        self.admin.check("board-before")
        page.get_by_role("link", name=self.world.name).click()
        self.admin.check("migration-before")
        self.admin.trigger(self.there)
        run = self._run_of(self.there)
        for task in ("approve_plan", "wave_first.approve_cutover", "wave_second.approve_cutover", "approve_producers"):
            self._answer(self.there, run, task)
            if task == "wave_second.approve_cutover":
                self._board_and_page("board", "migration")
        self._ended(self.there, run)
        self._board_and_page("board-after", "migration-after")

    def look_back(self) -> None:
        """Report and Data Docs, as pages and in Airflow's frame."""
        _say("report and Data Docs")
        run = self._run_of(self.there)
        self.admin.go(f"/dags/{self.there}/runs/{run}/plugin/kafka-migration-report")
        frame = self.admin.page.frame_locator("iframe").locator("h1")
        frame.first.wait_for()
        self.admin.picture("report-in-airflow")
        self.admin.ours(f"{self.there}/report", "report")
        page = self.admin.ours(f"{self.there}/docs/index.html", "data-docs")
        page.locator("table a").first.click()
        page.wait_for_load_state()
        self.admin.check("data-docs-run")
        page.get_by_role("link", name="All runs").click()
        page.wait_for_load_state()
        assert page.url.endswith("/docs/index.html"), page.url
        self._terminal()

    def roll_back(self) -> None:
        """Everything goes back."""
        self.admin.trigger(self.back)
        run = self._run_of(self.back)
        self._answer(self.back, run, "approve_rollback")
        self._ended(self.back, run)
        self._board_and_page("board-back", "migration-back")

    def only_look(self) -> None:
        """A user who may look sees the same, and can do nothing."""
        _say("as a user who may only look")
        visitor = self.visitor(VIEWER)
        for path, name in (("", "board"), (f"{self.there}/", "migration"), (f"{self.there}/report", "report")):
            visitor.ours(path, f"{name}-of-a-viewer")
        visitor.go(f"/kafka-migration/{self.there}/")
        for act in ("validate", "roll back", "pause, throttle, cancel, complete"):
            assert visitor.page.get_by_role("link", name=act).count() == 0, act
            assert self.admin.go(f"/kafka-migration/{self.there}/").get_by_role("link", name=act).count() == 1, act
        # Airflow shows its own buttons to everybody, and refuses.
        for kind in ("migrate", "rollback", "validate", "control"):
            visitor.refused("POST", f"/api/v2/dags/{kind}_{self.world.name}/dagRuns", {"logical_date": None})
        visitor.close()

    def _board_and_page(self, board: str, page: str) -> None:
        """Once the migration's page has been written."""
        file = self.world.folder / "reports" / ".board" / "pages" / f"{self.world.name}.json"
        self.api.wait(file.is_file, "a page of the migration", deadline_seconds=PATIENCE_SECONDS)
        self.admin.ours("", board)
        self.admin.ours(f"{self.there}/", page)

    def _run_of(self, dag: str) -> str:
        runs = self.api.call("GET", f"/dags/{dag}/dagRuns")["dag_runs"]
        assert len(runs) == 1, runs
        return str(runs[0]["dag_run_id"])

    def _answer(self, dag: str, run: str, task: str) -> None:
        _say(f"waiting for the question of {task}")
        self.api.wait(
            lambda: any(question.task_id == task for question in self.api.pending_approvals(dag)),
            f"{task} asks",
            deadline_seconds=PATIENCE_SECONDS,
            unless=lambda: self._failed(dag, run),
        )
        asked = datetime.now(UTC)
        # Until the scheduler has looked again, it takes the task that asks for one that runs.
        self.api.wait(
            lambda: (self.api.scheduler_heartbeat() or asked) > asked + timedelta(seconds=3),
            "time to read",
            deadline_seconds=PATIENCE_SECONDS,
        )
        self.admin.approve(dag, run, task)

    def _ended(self, dag: str, run: str) -> None:
        _say(f"waiting for the end of {dag}")
        self.api.wait(
            lambda: self.api.state(dag, run) in ENDED,
            f"{dag} ends",
            deadline_seconds=PATIENCE_SECONDS,
            unless=lambda: self._failed(dag, run),
        )
        assert self.api.state(dag, run) == "success"

    def _failed(self, dag: str, run: str) -> str:
        return failures(self.api, dag, run)

    def _terminal(self) -> None:
        """`status --watch`, as a picture."""
        if self.pictures is None:
            return
        with open_context(load_plan(self.world.path)) as ctx:
            page = status.read(ctx)
            console = Console(record=True, width=110, file=StringIO())
            console.print(live.screen(page, attention.needed(page, ctx.plan)))
        drawn = console.export_svg(title=f"status {self.world.name} --watch")
        # Its fonts lie on another host; the machine's own will do.
        own = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
        (self.pictures / "terminal.svg").write_text(own, encoding="utf-8")


def failures(api: AirflowApi, dag: str, run: str) -> str:
    """The logs of tasks that have failed."""
    bad = [task for task in api.task_instances(dag, run) if task["state"] == "failed"]
    return "\n".join(
        f"{task['task_id']} failed:\n"
        + api.log(dag, run, task["task_id"], try_number=task["try_number"], map_index=task["map_index"])
        for task in bad
    )


def _say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    sys.exit(main())
