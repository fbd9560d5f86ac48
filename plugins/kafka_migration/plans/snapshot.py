"""The plan as it was when a run began: a run works from this, whatever becomes of the plan file.

Its text travels in the XCom of take_snapshot: a plan is a few KB and holds no secret, and so no folder has to be shared
by machines. Whoever may edit XComs must not choose the plan that a run obeys: see :func:`require_own`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from kafka_migration.domain.errors import BadInput, StateConflict
from kafka_migration.plans.load import load_plan, restore_plan
from kafka_migration.plans.model import Plan

#: Where runs of the version before kept their snapshots, in files that all machines had to see.
STATE_DIRECTORY = "KAFKA_MIGRATION_STATE_DIR"

_START_ANEW = "start a new run from the edited plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The plan's text (JSON, defaults included), and the digest that its plan must have.

    ``path`` is the file that the version before wrote it to, "" for one that travels by itself.
    """

    text: str
    digest: str
    path: str = ""

    @classmethod
    def take(cls, plan: Plan) -> Self:
        """``plan`` as it is now."""
        return cls(text=json.dumps(plan.snapshot(), ensure_ascii=False), digest=plan.digest)

    @classmethod
    def of(cls, value: object, *, dag_id: str, run_id: str) -> Self:
        """What take_snapshot of this run handed on.

        Of the version before that is where a file is: it is read by the run that it belongs to, since XComs can be
        edited. Raises BadInput if the file is not here, StateConflict for what is no snapshot.
        """
        if isinstance(value, Mapping) and isinstance(digest := value.get("digest"), str):
            if isinstance(text := value.get("text"), str):
                return cls(text=text, digest=digest)
            if "path" in value:
                return cls.in_file(run_folder(dag_id, run_id) / "plan.yaml", digest)
        raise _no_snapshot("the XCom of take_snapshot")

    @classmethod
    def in_file(cls, path: Path, digest: str) -> Self:
        """A snapshot that the version before took. Raises BadInput if it is not there."""
        if not path.is_file():
            raise BadInput(
                "the run's snapshot of the plan is not here: an earlier version kept it in a file",
                file=str(path),
                remedy=f"set {STATE_DIRECTORY} to the folder that it was set to, or, if the plan file is as it was when"
                " the run began, clear the task take_snapshot alone; else start a new run",
            )
        text = json.dumps(load_plan(path).snapshot(), ensure_ascii=False)
        return cls(text=text, digest=digest, path=str(path))

    @classmethod
    def unpack(cls, packed: str, digest: str) -> Self:
        """The inverse of :meth:`pack`."""
        try:
            return cls(text=zlib.decompress(b64decode(packed)).decode(), digest=digest)
        except (ValueError, zlib.error):
            raise _no_snapshot("the trigger's argument") from None

    def pack(self) -> str:
        """The text in few characters: some databases keep no more than 64 KB of a trigger's arguments."""
        return b64encode(zlib.compress(self.text.encode(), 9)).decode()

    def as_dict(self) -> dict[str, str]:
        """JSON types only: what take_snapshot hands on."""
        return {"digest": self.digest, "text": self.text}

    def content(self) -> Mapping[str, Any]:
        """The text's fields, unproved. Raises StateConflict if it is no text of a plan."""
        try:
            content = json.loads(self.text)
        except ValueError:
            raise _no_snapshot("its text") from None
        if not isinstance(content, Mapping):
            raise _no_snapshot("its text")
        return content

    def load(self) -> Plan:
        """The plan. Raises BadInput if this version refuses it, StateConflict if it is not the one that was taken."""
        plan = restore_plan(self.content())
        if plan.digest != self.digest:
            raise StateConflict(
                f"the digest of the run's snapshot is {plan.digest}, and the run began with {self.digest}",
                remedy=f"a run does not follow edits of its snapshot: {_START_ANEW}",
            )
        return plan


def identity(plan: Plan) -> tuple[str, str, str]:
    """What no edit of a plan changes while its migration runs: its name, and the connections of source and target."""
    return plan.name, plan.source, plan.target


def require_same_migration(snapshot: Snapshot, own: Sequence[str]) -> None:
    """Refuse a ``snapshot`` of a plan whose :func:`identity` is another than ``own``.

    The journal that vouches for a snapshot is found by it: whoever brings a plan of his own would bring the journal,
    too. Raises StateConflict.
    """
    # The plan itself, which may be long, is read by whoever works by it, and its digest compared.
    found = tuple(str(snapshot.content().get(field)) for field in ("name", "source", "target"))
    if found != tuple(own):
        raise StateConflict(
            f"the run's snapshot is of plan {_shown(found)}, and its DAG of plan {_shown(own)}",
            remedy="find out who edits XComs, and clear the task take_snapshot with what follows it; a migration"
            " between other clusters is a plan of another name",
        )


def _shown(migration: Sequence[str]) -> str:
    name, source, target = migration
    return f"{name} from {source} to {target}"


def require_own(snapshot: Snapshot, *, own: Sequence[str], plan_file: str) -> None:
    """Refuse a ``snapshot`` that is not its run's own, by what no edit of an XCom changes.

    ``own`` are the digests of the journal: first the one that create_targets has recorded for the run, then that of the
    corrected plan that the plan gate has let join. Before that there is none, and nobody has vouched for the snapshot
    but the plan file: an edited XCom could bring approvers of its own. So until then the file must be as it was when
    the run began. The version before vouched by a file of the run's own, and recorded nothing.
    Raises StateConflict, and what reading the file raises.
    """
    if own and snapshot.digest not in own:
        raise StateConflict(
            f"the snapshot's digest is {snapshot.digest}, and this run created its targets by {own[0]}",
            remedy="a run does not follow edits, be they of the XCom of take_snapshot or of the plan file:"
            f" {_START_ANEW}",
        )
    if not own and not snapshot.path and (now := load_plan(plan_file).digest) != snapshot.digest:
        raise StateConflict(
            f"{plan_file}: its digest is {now}, and the snapshot's is {snapshot.digest}: the plan file, or the XCom of"
            " take_snapshot, was edited since this run began",
            remedy="clear the task take_snapshot with what follows it: the run then begins with the plan as it is now",
        )


def write_plan(plan: Plan, folder: Path) -> Path:
    """``plan`` as a file that ``load_plan`` reads, in ``folder``."""
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(plan.snapshot(), sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def run_folder(dag_id: str, run_id: str, environ: Mapping[str, str] | None = None) -> Path:
    """Where the version before kept the files of one run: below KAFKA_MIGRATION_STATE_DIR, or else AIRFLOW_HOME."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    root = Path(environ.get(STATE_DIRECTORY) or home / "kafka_migration")
    return root / _file_name(dag_id) / _file_name(run_id)


def _file_name(text: str) -> str:
    """``text`` as a name of plain characters, by the rules of the version before."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    if plain == text and plain.strip("."):
        return plain
    return f"{plain.strip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _no_snapshot(what: str) -> StateConflict:
    return StateConflict(
        f"{what} is no snapshot of a plan",
        remedy="clear the task take_snapshot; if this run has created its targets, the plan must be as it was then",
    )
