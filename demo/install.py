"""Install what requirements.txt asks for into this interpreter's environment. `make setup`.

By uv, on all cores, which pip does on one; by pip itself where uv cannot, as with a login that only pip knows. Both
refuse a file whose SHA-256 is not that of the lock. Runs before anything is installed.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.errors import DemoError, run_or_explain

ROOT = Path(__file__).resolve().parent.parent
_PIP = (sys.executable, "-m", "pip")
_QUIETLY = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
#: pip's settings, and where uv looks for the same.
_AS_UV_HAS_IT = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
#: Where pip keeps settings: a later one of these wins.
_PLACES = ("global", "install", ":env:")
_SETTING = re.compile(r"^(global|install|:env:)\.([a-z-]+)='(.*)'$", re.MULTILINE)
#: Of uv's own, those by which it would install something else than the lock says.
_NOT_OF_UV = ("UV_OVERRIDE", "UV_CONSTRAINT", "UV_NO_VERIFY_HASHES")


def settings(configured: str) -> dict[str, str]:
    """Environment variables that give uv the settings of pip, from the output of `pip config list`."""
    found = sorted(_SETTING.findall(configured), key=lambda setting: _PLACES.index(setting[0]))
    # Several values are shown in one line.
    return {_AS_UV_HAS_IT[name]: value.replace("\\n", " ") for _, name, value in found if name in _AS_UV_HAS_IT}


def _by_uv() -> bool:
    """Whether uv could, which is installed first. The lock has all there is, with hashes; requirements.txt names it."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as work:
        first = Path(work, "requirements.txt")
        first.write_text(locked("uv", lock), encoding="utf-8")
        if subprocess.run([*_PIP, *_QUIETLY, "--no-deps", "-r", first], check=False).returncode != 0:
            return False
    configured = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    own = {name: value for name, value in os.environ.items() if name not in _NOT_OF_UV}
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    command = [*uv, "--require-hashes", "-r", "requirements.lock"]
    try:
        return subprocess.run(command, cwd=ROOT, env=own | settings(configured), check=False).returncode == 0
    except OSError as error:
        print(f"uv cannot be run: {error}", file=sys.stderr)
        return False


def locked(package: str, lock: str) -> str:
    """The lines of one package in the lock file: its pin, and its hashes."""
    found = re.search(rf"^{re.escape(package)}==.*(?:\n .*)*\n", lock, re.MULTILINE)
    if found is None:
        raise DemoError(f"requirements.lock has no {package}; `make lock` writes it anew")
    return found[0]


def install() -> None:
    """Raises:
    DemoError: neither could; the reason is above.
    """
    if _by_uv():
        return
    print("uv could not; pip installs all of it", file=sys.stderr)
    if subprocess.run([*_PIP, *_QUIETLY, "-r", "requirements.txt"], cwd=ROOT, check=False).returncode != 0:
        raise DemoError("requirements.txt cannot be installed; the reason is above")


if __name__ == "__main__":
    run_or_explain(install)
