"""The demo's approver: a person who reads nothing and says yes, after a while. Nothing outside the demo uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import httpx

from demo.airflow_api import AirflowApi, AirflowError, Approval

DELAY_SECONDS = 4.0
_ROUND_SECONDS = 2.0
"""The scheduler has to hear that the asking process has ended before it hears the answer. Otherwise it takes the
resumed task for one that ended without saying so, and fails it. People are slower than that; this approver waits for a
round of the scheduler that began so long after the question was seen."""
_POLL_SECONDS = 1.0


class DemoApprover:
    """Answers every gate of one DAG, each ``delay_seconds`` after it was first seen, from a thread.

    with DemoApprover(api, "migrate_demo", log=print):
        ...
    """

    def __init__(
        self,
        api: AirflowApi,
        dag_id: str,
        *,
        log: Callable[[str], None] = lambda _text: None,
        option: str = "Approve",
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        """``log`` hears what was answered."""
        self.answered: list[Approval] = []
        self._api, self._dag_id, self._log, self._option = api, dag_id, log, option
        self._delay = delay_seconds
        self._seen: dict[Approval, datetime] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo approver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self._look()
            except (AirflowError, httpx.HTTPError) as error:
                # Airflow under load: the question stays, and is seen again.
                self._log(f"approver: {error}")

    def _look(self) -> None:
        now = datetime.now(UTC)
        pending = self._api.pending_approvals(self._dag_id)
        # A question that was taken back and asked again (a cleared task) is a new one.
        self._seen = {approval: self._seen.get(approval, now) for approval in pending}
        for approval, since in self._seen.items():
            if (now - since).total_seconds() >= self._delay and self._is_settled(since) and not self._stopping.is_set():
                # The option that approves names the evidence besides.
                (option,) = (name for name in approval.options if name.startswith(self._option))
                self._api.answer(approval, option)
                self.answered.append(approval)
                self._log(f"approver: {approval.task_id}: {self._option}")

    def _is_settled(self, since: datetime) -> bool:
        heartbeat = self._api.scheduler_heartbeat()
        return heartbeat is not None and heartbeat >= since + timedelta(seconds=_ROUND_SECONDS)
