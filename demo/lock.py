"""Write requirements.lock: the pins of requirements.txt, resolved and hashed. `make lock`."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.errors import DemoError, run_or_explain

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements.txt"
LOCK = ROOT / "requirements.lock"
HEADER = "# The whole environment, with hashes, for Python 3.11 and later. `make lock` writes it.\n"

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\#]+)", re.MULTILINE)


def pins(path: Path) -> set[tuple[str, str]]:
    """Every `name==version` of a requirements file, names as package indexes normalize them (PEP 503).

    A name can occur with several versions: for different Pythons.
    """
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in _PIN.findall(path.read_text())}


def write() -> None:
    """Resolve for every supported Python and platform at once.

    Raises:
        DemoError: uv is missing, or the pins contradict each other.
    """
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        raise DemoError(f"no uv beside {sys.executable}. Run `make setup` first.")
    with tempfile.TemporaryDirectory() as work:
        # Without the line that includes the lock itself: it would hold every version where it is.
        source = Path(work) / "requirements.txt"
        lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines(keepends=True)
        source.write_text("".join(line for line in lines if not line.startswith("-r ")), encoding="utf-8")
        target = Path(work) / "requirements.lock"
        command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
        options = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        run = subprocess.run([*command, *options, str(source), "-o", str(target)], check=False)
        if run.returncode != 0:
            raise DemoError("uv could not resolve requirements.txt; the reason is above.")
        LOCK.write_text(HEADER + target.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    run_or_explain(write)
