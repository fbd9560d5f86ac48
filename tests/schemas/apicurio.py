"""Apicurio Registry, the real server: in memory, on a free port of 127.0.0.1, by Confluent's API."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Self

import httpx

from demo import jars
from demo.brokers.ports import PortReservation
from demo.java import java_since
from tests.waiting import PATIENCE_SECONDS, wait_until

#: Of its class files.
JAVA = 21


def _unpacked() -> Path:
    """Its folder in the cache."""
    (archive,) = jars.paths("apicurio")
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=archive.parent) as work, tarfile.open(archive) as content:
            content.extractall(work, filter="data")
            Path(work).chmod(0o755)
            if not folder.exists():
                # Somebody else may be as far; what lies there then is the same.
                os.rename(work, folder)
            Path(work).mkdir(exist_ok=True)
    return folder


class Apicurio:
    """A running server. ``url`` is where Confluent's API is, and ``http`` asks there: not in a hurry."""

    def __init__(self, folder: Path) -> None:
        # Before anything is fetched.
        java = java_since(JAVA)
        self._ports = PortReservation(2)
        port, management = self._ports
        self.url, self._log = f"http://127.0.0.1:{port}/apis/ccompat/v7", folder / "apicurio.log"
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=PATIENCE_SECONDS)
        command = [str(java), "-Xmx384m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
        # By default on every address of the machine, at a port that two runs side by side would share.
        command += ["-Dquarkus.management.host=127.0.0.1", f"-Dquarkus.management.port={management}"]
        # Elsewhere an administrator decides whether anything may be deleted for good.
        command += [f"-Dapicurio.rest.deletion.{what}.enabled=true" for what in ("artifact", "artifact-version")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-jar", str(_unpacked() / "quarkus-run.jar")],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        try:
            wait_until(self._answers, "the registry answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self.http.close()
        self._ports.release()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
        try:
            return self.http.get("/subjects").is_success
        except httpx.TransportError:
            return False
