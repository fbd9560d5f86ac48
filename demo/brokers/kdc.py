"""A Kerberos KDC of a run's own (MIT's): on a port and in a folder of its own, for this machine only."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.brokers.ports import HOST, PortReservation
from demo.brokers.process import BrokerError, LeashedProcess, tail

REALM = "MIGRATION.TEST"
SERVICE = "kafka"
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local")
#: Debian has them where only root's PATH looks.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_START_SECONDS, _END_SECONDS = 30.0, 10.0


def missing_tools() -> list[str]:
    """What of a KDC is not installed here."""
    return [name for name in _TOOLS if shutil.which(name, path=_PATH) is None]


class Kdc:
    """One KDC of realm ``MIGRATION.TEST``, while the block runs. All of its files are below ``directory``.

    Clients find it by the environment variable ``KRB5_CONFIG`` (:attr:`config`), JVMs by :attr:`jvm_option`.
    """

    def __init__(self, directory: Path, *, ticket_seconds: int = 36_000) -> None:
        """Describe it; nothing is started. Tickets are good for ``ticket_seconds`` at the longest."""
        self._directory, self._ticket_seconds = directory, ticket_seconds
        self._process: LeashedProcess | None = None
        self._reservation: PortReservation | None = None
        self.config, self.log = directory / "krb5.conf", directory / "krb5kdc.log"
        # Brokers are addressed by number. Both MIT's library and the JVM ask for the ticket of the host by this name.
        self.broker = f"{SERVICE}/{socket.gethostbyaddr(HOST)[0]}"

    @property
    def jvm_option(self) -> str:
        """Of every JVM that takes part: JVMs do not look into the environment."""
        return f"-Djava.security.krb5.conf={self.config}"

    @property
    def environment(self) -> dict[str, str]:
        """Of every other process that takes part."""
        return {"KRB5_CONFIG": str(self.config)}

    def create(self) -> Self:
        """Make the realm's database: principals may be made, and keytabs, before it is started.

        Raises:
            BrokerError: it is not installed, or no port is free.
        """
        if missing := missing_tools():
            raise BrokerError(f"no {', '.join(missing)} here. Run: make setup-kerberos")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._reservation = PortReservation(1)
        self._write_config(next(iter(self._reservation)))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_hex(16))
        return self

    def __enter__(self) -> Self:
        """Start, and make the realm's database, if there is none yet.

        Raises:
            BrokerError: it is not installed, or does not start.
        """
        if self._reservation is None:
            self.create()
        self.launch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.kill()
        if self._reservation is not None:
            self._reservation.release()

    def launch(self) -> None:
        """Start the process, also again after :meth:`kill`, and wait until it answers."""
        self._process = LeashedProcess(
            [self._tool("krb5kdc"), "-n", "-r", REALM], console=self.log, scratch=None, env=self._environment()
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.status is not None or time.monotonic() > deadline:
                raise BrokerError(f"the KDC does not start:\n{tail(self.log)}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the process; tickets that were issued stay good."""
        process, self._process = self._process, None
        if process is not None and process.alive():
            process.send(signal.SIGKILL)
            process.wait(_END_SECONDS)

    def keytab(self, principal: str) -> Path:
        """A keytab of ``principal``, both made at the first call."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        return path if path.exists() else self.new_keytab(principal, path)

    def new_keytab(self, principal: str, path: Path) -> Path:
        """New keys of ``principal``, in the keytab ``path``. Keytabs that were made before are void."""
        self._run(
            "kadmin.local", "-r", REALM, input_text=f"addprinc -randkey {principal}\nktadd -k {path} {principal}\n"
        )
        if not path.exists():
            raise BrokerError(f"no keytab of {principal} was made at {path}")
        return path

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self._port)) == 0

    def _write_config(self, port: int) -> None:
        self._port = port
        self.config.write_text(
            f"""\
[libdefaults]
    default_realm = {REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    # Over TCP a KDC that is gone is noticed at once.
    udp_preference_limit = 1
    ticket_lifetime = {self._ticket_seconds}s
[realms]
    {REALM} = {{
        kdc = {HOST}:{port}
    }}
""",
            encoding="utf-8",
        )
        self._profile.write_text(
            f"""\
[kdcdefaults]
    kdc_listen = {HOST}:{port}
    kdc_tcp_listen = {HOST}:{port}
[realms]
    {REALM} = {{
        database_name = {self._directory}/principal
        key_stash_file = {self._directory}/stash
        acl_file = {self._directory}/kadm5.acl
        max_life = {self._ticket_seconds}s
        max_renewable_life = 0s
    }}
[logging]
    kdc = STDERR
    admin_server = STDERR
""",
            encoding="utf-8",
        )

    @property
    def _profile(self) -> Path:
        return self._directory / "kdc.conf"

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self._profile)}

    def _tool(self, name: str) -> str:
        return shutil.which(name, path=_PATH) or name

    def _run(self, name: str, *arguments: str, input_text: str = "") -> None:
        done = subprocess.run(
            [self._tool(name), *arguments],
            env=self._environment(),
            input=input_text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerError(f"{name} ended with {done.returncode}: {done.stderr.strip()}")
