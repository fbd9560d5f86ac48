"""Writes the notes of one client process.

    recorder = Recorder(folder / "orders-1.0.jsonl", client="orders-1", cluster="source", kind="idempotent")
    seq = recorder.send("orders-1-17", "orders", key="k4")
    producer.produce("orders", ..., on_delivery=...)      # which calls recorder.ack(seq, partition, offset)

What would otherwise be misjudged after a kill is handed to the operating system before the call returns: an intention
(a send, the end of a transaction, a commit of offsets) with everything noted before it. Notes of what happened may
wait: if they are gone with the process, their outcome is unknown, or a record is received once more.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # Not at run time: a client should start fast, and needs none of what reads notes.
    from checker.notes import Isolation, Kind, Place, Position, Start

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def clock_name() -> str:
    """A name for this machine's monotonic clock since its boot; where none is known, one for this process alone."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


class Recorder:
    """One file of notes. Any thread may note; a signal handler may not: note later, with `mono`."""

    def __init__(
        self,
        path: Path,
        *,
        client: str,
        cluster: str,
        kind: Kind | None = None,
        group: str | None = None,
        isolation: Isolation = "read_committed",
        final: bool = False,
        started: int | None = None,
        clock: str | None = None,
        buffer_bytes: int = 64 * 1024,
        wall: Callable[[], int] = time.time_ns,
        mono: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create the file and note `Open` (see there) in it.

        Raises:
            FileExistsError: another process noted there, or this one before it was restarted: each gets its own file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._buffer: list[str] = []
        self._buffered = 0
        self._buffer_bytes = buffer_bytes
        self._wall, self._mono = wall, mono
        self._seq = self._txn = self._commit = 0
        self._note(
            "open", flush=True, version=1, client=client, cluster=cluster, clock=clock or clock_name(), kind=kind,
            group=group, isolation=isolation, final=final, started=started,
        )  # fmt: skip

    # --- producers ----------------------------------------------------------------------------------------------------

    def send(
        self, value: str, topic: str, *, partition: int | None = None, key: str | None = None, txn: int | None = None
    ) -> int:
        """Note a send before it happens; its number, for `ack` and `failed`."""
        with self._lock:
            self._seq += 1
            seq = self._seq
            self._add("send", seq=seq, value=value, topic=topic, partition=partition, key=key, txn=txn)
            self._write()
        return seq

    def ack(self, seq: int, partition: int, offset: int | None, *, cluster: str | None = None) -> None:
        """Note that a send was acknowledged."""
        self._note("ack", seq=seq, partition=partition, offset=offset, cluster=cluster)

    def failed(self, seq: int, *, certain: bool) -> None:
        """Note that a send failed; `certain` only if its record can never appear."""
        self._note("failed", seq=seq, certain=certain)

    def begin(self) -> int:
        """Note that a transaction begins; its number."""
        with self._lock:
            self._txn += 1
            txn = self._txn
            self._add("begin", txn=txn)
        return txn

    def end(self, txn: int, how: Literal["commit", "abort"]) -> None:
        """Note, before it happens, that a transaction is committed or aborted."""
        self._note("end", flush=True, txn=txn, how=how)

    def ended(self, txn: int, outcome: Literal["committed", "aborted", "unknown"]) -> None:
        """Note what became of a transaction."""
        self._note("ended", txn=txn, outcome=outcome)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[Start], *, cluster: str | None = None) -> None:
        """Note partitions that were added, before the first of their records is received."""
        self._note("assign", partitions=list(partitions), cluster=cluster)

    def revoke(self, partitions: Iterable[Place], *, cluster: str | None = None) -> None:
        """Note partitions that are no longer this consumer's."""
        self._note("revoke", partitions=list(partitions), cluster=cluster)

    def receipt(
        self,
        topic: str,
        partition: int,
        offset: int,
        value: str,
        *,
        key: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Note a record that was received."""
        self._note(
            "receipt", topic=topic, partition=partition, offset=offset, value=value, key=key, cluster=cluster
        )  # fmt: skip

    def commit(self, positions: Iterable[Position], *, txn: int | None = None, cluster: str | None = None) -> int:
        """Note, before it happens, a commit of offsets; its number, for `committed`."""
        with self._lock:
            self._commit += 1
            commit = self._commit
            self._add("commit", commit=commit, positions=list(positions), txn=txn, cluster=cluster)
            self._write()
        return commit

    def committed(self, commit: int, outcome: Literal["ok", "failed", "unknown"]) -> None:
        """Note what became of a commit of offsets."""
        self._note("committed", commit=commit, outcome=outcome)

    # --- both ---------------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Note that the client has started."""
        self._note("ready")

    def stop(self, *, mono: int | None = None) -> None:
        """Note that the client was asked to stop, now or at ``mono``."""
        self._note("stop", mono=mono)

    def flush(self) -> None:
        """Hand all notes to the operating system: they outlive this process, not the machine."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Note that the client stopped in order, and close the file on disk."""
        with self._lock:
            self._add("close")
            self._write()
            os.fdatasync(self._file)
            os.close(self._file)

    def _note(self, event: str, *, flush: bool = False, mono: int | None = None, **fields: object) -> None:
        with self._lock:
            self._add(event, mono=mono, **fields)
            if flush or self._buffered >= self._buffer_bytes:
                self._write()

    def _add(self, event: str, *, mono: int | None = None, **fields: object) -> None:
        now_wall, now_mono = self._wall(), self._mono()
        ago = 0 if mono is None else now_mono - mono
        note = {"event": event, "wall": now_wall - ago, "mono": now_mono - ago}
        note |= {name: value for name, value in fields.items() if value is not None}
        line = json.dumps(note, separators=(",", ":")) + "\n"
        self._buffer.append(line)
        self._buffered += len(line)

    def _write(self) -> None:
        data = memoryview("".join(self._buffer).encode("utf-8"))
        self._buffer.clear()
        self._buffered = 0
        while data:
            data = data[os.write(self._file, data) :]
