"""What a KDC of our own and Kerberos clients need beside `make setup`. `make setup-kerberos`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from demo.brokers.kdc import missing_tools
from demo.errors import DemoError

_REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements-kerberos.txt"
#: gssapi is built here.
_TO_BUILD = ("krb5-config", "cc")
_REMEDY = "On Debian and Ubuntu: apt install krb5-kdc krb5-admin-server libkrb5-dev gcc"


def set_up() -> None:
    """Install gssapi into this environment, unless it is there.

    Raises:
        DemoError: packages of the system are missing, which it names; or gssapi cannot be built.
    """
    is_there = find_spec("gssapi") is not None
    missing = missing_tools() + [name for name in _TO_BUILD if not is_there and shutil.which(name) is None]
    if missing:
        raise DemoError(f"no {', '.join(missing)} on PATH. {_REMEDY}")
    if is_there:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    if subprocess.run([*command, "-r", _REQUIREMENTS], check=False).returncode != 0:
        raise DemoError(f"{_REQUIREMENTS.name} cannot be installed; the reason is above.")
