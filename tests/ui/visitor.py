"""Somebody in front of a browser: goes through Airflow and our pages, and notes what a page should never do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, expect

#: Far more than a page needs; a migration's own steps are waited for by Airflow's API.
_PAGE_MS = 60_000
_SERIOUS = ("serious", "critical")


@dataclass(slots=True)
class Notes:
    """What was seen over all visits, and what should not have been."""

    pages: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    foreign_requests: list[str] = field(default_factory=list)
    a11y_serious: list[str] = field(default_factory=list)
    console_errors: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, int]:
        """How many of each."""
        return {name: len(getattr(self, name)) for name in self.__slots__}

    @property
    def faults(self) -> list[str]:
        """What should not have been, in words."""
        return [*self.foreign_requests, *self.a11y_serious, *self.console_errors]


class Visitor:
    """One user, logged in. Screenshots go into ``folder``, if one is given."""

    def __init__(self, browser: Browser, url: str, user: str, password: str, notes: Notes, folder: Path | None) -> None:
        self.url, self.user, self.notes, self._folder = url, user, notes, folder
        self._context = browser.new_context(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
        self._context.set_default_timeout(_PAGE_MS)
        self.page = self._context.new_page()
        self.page.on("request", self._request)
        self._log_in(password)
        # Until then, Airflow's own pages ask what nobody may know who has not logged in.
        self.page.on("response", self._response)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: notes.console_errors.append(f"{self.page.url}: {error}"))

    def close(self) -> None:
        """Leave."""
        self._context.close()

    def _log_in(self, password: str) -> None:
        self.page.goto(self.url)
        self.page.locator("input[name=username]").fill(self.user)
        self.page.locator("input[name=password]").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_text("Browse", exact=True).first.wait_for()
        self.page.wait_for_load_state("networkidle")
        self._did("logged in")

    def go(self, path: str) -> Page:
        """To a page of this Airflow."""
        answer = self.page.goto(self.url + path, wait_until="load")
        assert answer is not None
        assert answer.ok, (path, answer.status)
        return self.page

    def ours(self, path: str, name: str) -> Page:
        """To a page of ours, which anybody has to be able to use."""
        page = self.go(f"/kafka-migration/{path}")
        self.check(name)
        return page

    def check(self, name: str) -> None:
        """Note this page, have it judged, and keep a picture."""
        self.notes.pages.append(name)
        found = Axe().run(self.page)
        for violation in found.response["violations"]:
            if violation["impact"] in _SERIOUS:
                nodes = ", ".join(node["target"][0] for node in violation["nodes"][:3])
                self.notes.a11y_serious.append(f"{name}: {violation['id']}: {violation['help']}: {nodes}")
        self.picture(name)

    def picture(self, name: str) -> None:
        """Keep a picture of what is seen now."""
        if self._folder is not None:
            self.page.screenshot(path=self._folder / f"{name}.png")

    def trigger(self, dag_id: str) -> None:
        """Start a run by the button of a DAG's page."""
        page = self.go(f"/dags/{dag_id}")
        page.get_by_role("button", name="Trigger").first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Trigger").click()
        expect(dialog).to_be_hidden(timeout=_PAGE_MS)
        self._did(f"triggered {dag_id}")

    def approve(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Answer a question with the option that approves."""
        page = self.go(f"/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/required_actions")
        page.get_by_role("button", name=re.compile(r"^Approve\b")).click()
        self._did(f"approved {task_id}")

    def refused(self, method: str, path: str, body: dict[str, Any]) -> None:
        """A request of this user that Airflow has to refuse."""
        token = next(c["value"] for c in self._context.cookies() if c["name"] == "_token")
        headers = {"Authorization": f"Bearer {token}"}
        answer = self._context.request.fetch(f"{self.url}{path}", method=method, data=body, headers=headers)
        assert answer.status == 403, (path, answer.status, answer.text())

    def _did(self, what: str) -> None:
        self.notes.actions.append(f"{self.user} {what}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.netloc != urlsplit(self.url).netloc:
            self.notes.foreign_requests.append(f"{self.page.url} asks {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.notes.console_errors.append(f"{response.url}: {response.status}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.notes.console_errors.append(f"{self.page.url}: {message.text}")
