"""The processes of a validation: jars found or named, and none left behind by an interruption."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kafka_migration.compare import launch, session
from kafka_migration.compare.launch import local_runner
from kafka_migration.compare.session import JARS_VARIABLE, spark_jars
from kafka_migration.domain.errors import BadInput


def test_jars_are_those_that_the_variable_lists(tmp_path):
    first, second = tmp_path / "a.jar", tmp_path / "b.jar"
    first.touch()
    second.touch()
    assert spark_jars({JARS_VARIABLE: f"{second}, {first},"}) == (second, first)
    with pytest.raises(BadInput, match="does not exist"):
        spark_jars({JARS_VARIABLE: f"{first},{tmp_path / 'c.jar'}"})


def test_jars_are_those_of_the_cache_or_missing_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_CACHE", tmp_path)
    with pytest.raises(BadInput, match="make setup") as caught:
        spark_jars({})
    assert caught.value.exit_code == 2
    lock = tmp_path / "jars.lock"
    monkeypatch.setattr(session, "_LOCK", lock)
    jars = {"b-1.jar": b"two", "a-1.jar": b"one"}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in jars.items()}
    lock.write_text("[spark]\n" + "".join(f'"g:{name[0]}:1" = "{digest}"\n' for name, digest in sums.items()))
    (tmp_path / "planted.jar").touch()
    (tmp_path / "b-1.jar").write_bytes(jars["b-1.jar"])
    with pytest.raises(BadInput, match="make setup"):
        spark_jars({})
    (tmp_path / "a-1.jar").write_bytes(jars["a-1.jar"])
    assert spark_jars({}) == (tmp_path / "a-1.jar", tmp_path / "b-1.jar")
    (tmp_path / "a-1.jar").write_bytes(b"planted")
    with pytest.raises(BadInput, match="its checksum is another") as caught:
        spark_jars({})
    assert str(tmp_path / "a-1.jar") in str(caught.value.value)


def test_missing_jars_are_refused_before_anything_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_CACHE", tmp_path)
    with pytest.raises(BadInput):
        local_runner({})


def _job(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    job = folder / "job.py"
    job.write_text(text)
    monkeypatch.setattr(launch, "VALIDATE_JOB", job)
    monkeypatch.setenv(JARS_VARIABLE, str(job))


def test_interruption_ends_the_job_and_what_it_started(tmp_path, monkeypatch):
    """Whoever listens is interrupted (a task's timeout, say) while the job and its child are at work."""
    _job(
        tmp_path,
        monkeypatch,
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "child.wait()\n",
    )
    pids: list[int] = []

    def interrupted(line: str) -> None:
        pids.extend(int(part) for part in line.split())
        raise TimeoutError

    with pytest.raises(TimeoutError):
        local_runner(os.environ, log=interrupted)(tmp_path / "request", tmp_path / "result")
    assert len(pids) == 2
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    gone, left = psutil.wait_procs(alive, timeout=20)
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
    assert len(gone) <= 2


def test_job_and_what_it_started_end_with_a_process_that_is_killed(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "child.wait()\n"
    )
    running = (
        "import os, sys; from pathlib import Path; from kafka_migration.compare import launch;"
        " launch.VALIDATE_JOB = Path(sys.argv[1]);"
        " launch.local_runner(os.environ, log=lambda line: print(line, flush=True))(Path('q'), Path('r'))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), JARS_VARIABLE: str(job)}
    command = [sys.executable, "-c", running, str(job)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(part) for part in process.stdout.readline().split()]
        process.kill()
    assert len(pids) == 2
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs(alive, timeout=20)
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


def test_job_that_refuses_its_input_is_bad_input_and_hides_secrets(tmp_path, monkeypatch):
    _job(tmp_path, monkeypatch, "import sys\nprint('connection x: hush-hush is wrong', file=sys.stderr)\nsys.exit(2)\n")
    with pytest.raises(BadInput, match="<hidden> is wrong") as caught:
        local_runner(os.environ, secrets=["hush-hush"])(tmp_path / "request", tmp_path / "result")
    assert "hush-hush" not in str(caught.value)


def test_jvm_that_does_little_is_compiled_once_and_what_is_given_otherwise_counts():
    script = (
        "from kafka_migration.compare.session import open_session;"
        "session = open_session('test', master='local[1]');"
        "found = session.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean();"
        "print(*found.getInputArguments())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=3", "JDK_JAVA_OPTIONS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    levels = [word for word in done.stdout.split() if word.startswith("-XX:TieredStopAtLevel")]
    assert levels == ["-XX:TieredStopAtLevel=1", "-XX:TieredStopAtLevel=3"]
