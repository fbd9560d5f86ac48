"""requirements.txt is what people read, requirements.lock what is installed: they say the same."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from demo import install
from demo.errors import DemoError
from demo.lock import LOCK, REQUIREMENTS, ROOT, pins


def test_direct_pins_are_locked_at_the_same_version() -> None:
    assert pins(REQUIREMENTS)
    assert pins(REQUIREMENTS) <= pins(LOCK)


def test_direct_requirements_are_pinned_exactly_with_a_reason() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "-r requirements.lock"
    assert [line for line in lines[1:] if not re.fullmatch(r"[a-z0-9-]+==\S+ +# .{10,}", line)] == []


def test_locked_requirements_are_hashed_and_name_no_host() -> None:
    text = LOCK.read_text()
    requirements = [block for block in re.split(r"\n(?=[a-z0-9])", text) if "==" in block.splitlines()[0]]
    assert len(requirements) == len(re.findall(r"^[a-z0-9].*==", text, re.MULTILINE))
    assert [block.splitlines()[0] for block in requirements if "--hash=sha256:" not in block] == []
    assert "://" not in text
    assert "://" not in REQUIREMENTS.read_text()


def test_installed_environment_is_the_locked_one() -> None:
    locked: dict[str, set[str]] = {}
    for name, pinned in pins(LOCK):
        locked.setdefault(name, set()).add(pinned)
    wrong = {}
    for name, versions in locked.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if installed not in versions:
            wrong[name] = (installed, versions)
    assert wrong == {}
    assert [name for name, pinned in pins(REQUIREMENTS) if version(name) != pinned] == []


def test_uv_is_installed_by_its_pin_and_hashes_alone() -> None:
    lines = install.locked("uv", LOCK.read_text()).splitlines()
    assert lines[0] == f"uv=={version('uv')} \\"
    assert len(lines) > 2
    assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines[1:])
    with pytest.raises(DemoError, match="has no nothing"):
        install.locked("nothing", LOCK.read_text())


def test_uv_asks_the_index_that_pip_was_told_to_ask() -> None:
    configured = [
        ":env:.cert='/etc/own.pem'",
        "global.cert='/etc/everybodys.pem'",
        r"global.extra-index-url='https://one.example\nhttps://two.example'",
        "install.index-url='https://index.example/simple'",
        "global.user='true'",
    ]
    assert install.settings("\n".join(configured)) == {
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "SSL_CERT_FILE": "/etc/own.pem",
    }


@pytest.mark.parametrize(
    "words",
    [
        # Without an index: pip accepts the file, hashes and all, and this environment is what it asks for.
        ("install", "--dry-run", "--no-index", "--no-deps", "-r", "requirements.txt"),
        # And it lacks nothing that one of its packages asks for.
        ("check",),
    ],
    ids=lambda words: words[0],
)
def test_pip_finds_nothing_to_install(words: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pip", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Would install" not in run.stdout
