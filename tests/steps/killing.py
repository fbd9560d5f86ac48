"""Killing a process at every point where it changes something, so that a rerun can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.state.store import Store, Value


class Killed(BaseException):
    """The process is gone: nothing catches this, as nothing catches SIGKILL."""


class Killer:
    """Kills at the ``at``-th point of a run, and counts them. ``at`` = 0 never kills."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.seen = at, 0

    def point(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise Killed(f"at point {self.at}")

    def around(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """``change`` with a point before it and one after it."""

        def changed(*args: Any, **kwargs: Any) -> Any:
            self.point()
            result = change(*args, **kwargs)
            self.point()
            return result

        return changed


@contextmanager
def dying_before(last: Step) -> Iterator[None]:
    """What runs within dies right before it would note ``last`` of a group; a test in which it lives on fails."""
    mark = GroupRecord.mark

    def dies(self: GroupRecord, step: Step, *args: Any, **evidence: Any) -> None:
        if step is last:
            raise Killed(f"before {step} was noted")
        mark(self, step, *args, **evidence)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupRecord, "mark", dies)
        with pytest.raises(Killed):
            yield


class MortalStore:
    """A store whose writer may be killed before or after each write; what was written stays."""

    def __init__(self, store: Store, killer: Killer) -> None:
        self._store = store
        self.get, self.items, self.close, self.located = store.get, store.items, store.close, store.located
        self.keys, self.deleted = store.keys, store.deleted
        self._put, self._delete = killer.around(store.put), killer.around(store.delete)

    def put(self, key: str, value: Value) -> None:
        self._put(key, value)

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        for key, value in values.items():
            if value is None:
                self._delete(key)
            else:
                self._put(key, value)

    def delete(self, key: str) -> None:
        self._delete(key)


class MortalCluster:
    """A cluster as seen by a process that may be killed before or after it commits; others see the cluster itself."""

    def __init__(self, cluster: Any, killer: Killer) -> None:
        self._cluster = cluster
        self.commit = killer.around(cluster.commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
