"""The wheel, outside of the checkout: all that the package needs is in it, and Airflow finds what it looks for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.waiting import HANGS_SECONDS

ROOT = Path(__file__).resolve().parents[1]
#: Of what is pinned, what only the demo, measurements, tests and other packages use.
NOT_IN_THE_PACKAGE = {"cryptography", "pyspark-client", "decorator"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=HANGS_SECONDS)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip makes of the wheel: packages, entry points, the console command in bin/."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, timeout=HANGS_SECONDS)
    return folder


def run(installed: Path, tmp_path: Path, *command: str, **variables: str) -> str:
    """What ``command`` prints, with nothing of the checkout in reach."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KAFKA_MIGRATION", "AIRFLOW"))}
    environment |= {"PYTHONPATH": str(installed), "AIRFLOW_HOME": str(tmp_path), "COLUMNS": "80", **variables}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=HANGS_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    plugins = ROOT / "plugins"
    wanted = {
        str(path.relative_to(plugins))
        for path in plugins.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".airflowignore"
    }
    wanted |= {f"kafka_migration/{path.relative_to(ROOT)}" for path in (ROOT / "spark_jobs").glob("*.py")}
    wanted.add("kafka_migration/jars.lock")
    assert wanted - found == set()
    assert {name for name in found - wanted if ".dist-info/" not in name} == set()


def test_console_command_runs_from_any_directory(installed: Path, tmp_path: Path) -> None:
    command = str(installed / "bin" / "kafka-migration")
    assert "Usage: kafka-migration [OPTIONS] COMMAND" in run(installed, tmp_path, command, "--help")


def test_shipped_files_are_found_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    code = (
        "from kafka_migration.domain.shipped import checkout, shipped\n"
        "files = ('spark_jobs/mirror.py', 'spark_jobs/validate.py', 'jars.lock')\n"
        "print(checkout(), *[shipped(name).is_file() for name in files])"
    )
    assert run(installed, tmp_path, sys.executable, "-c", code).split() == ["None", "True", "True", "True"]


def test_airflow_finds_plugin_and_provider_by_entry_point(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points\n"
        "(plugin,) = [e for e in entry_points(group='airflow.plugins') if e.name == 'kafka_migration']\n"
        "(provider,) = [e for e in entry_points(group='apache_airflow_provider') if 'kafka_migration' in e.value]\n"
        "print(plugin.load().name, provider.load()()['package-name'])"
    )
    assert run(installed, tmp_path, sys.executable, "-c", code).split()[-2:] == ["kafka_migration", "kafka-migration"]


def test_dags_folder_needs_one_file_of_two_lines(installed: Path, tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    document = "version: 1\nname: shop\nsource: a\ntarget: b\ntopics: {include: [orders]}\n"
    (plans / "shop.yaml").write_text(document, encoding="utf-8")
    code = "from kafka_migration.airflow.dags import dags\nglobals().update(dags())\nprint(migrate_shop, validate_shop)"
    printed = run(installed, tmp_path, sys.executable, "-c", code, KAFKA_MIGRATION_PLANS=str(plans))
    assert "migrate_shop" in printed
    assert "validate_shop" in printed


def test_ranges_of_the_wheel_hold_the_pins_of_requirements() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    text = text.partition("# --- Development")[0] + (ROOT / "requirements-kerberos.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    ranges = {it.name: it.specifier for it in map(Requirement, [*project["dependencies"], *extras])}
    assert ranges.keys() == pins.keys() - NOT_IN_THE_PACKAGE
    assert {name for name, allowed in ranges.items() if not allowed.contains(pins[name])} == set()


def test_shell_completes_commands_gates_and_options(installed: Path, tmp_path: Path) -> None:
    words = {"st": {"status", "stop", "stragglers"}, "approve c": {"cutover"}, "status --w": {"--watch"}}
    for typed, wanted in words.items():
        script = f"""
            PATH={shlex.quote(str(installed / "bin"))}:$PATH
            eval "$(kafka-migration --show-completion bash)"
            COMP_WORDS=(kafka-migration {typed}); COMP_CWORD={len(typed.split())}
            _kafka_migration_completion kafka-migration && echo "${{COMPREPLY[@]}}"
        """
        assert set(run(installed, tmp_path, "bash", "-c", script).split()) == wanted, typed
