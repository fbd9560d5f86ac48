"""Clusters that processes of a run share: one for all, and gone with the run, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from demo.brokers import BrokerError
from demo.brokers.ports import is_free
from tests.cli.processes import environment
from tests.shared import PROPERTIES, Run, shared_cluster
from tests.waiting import HANGS_SECONDS, wait_until

ASK = "from pathlib import Path; from tests.shared import *; "


def test_run_is_killed_its_cluster_that_all_shared_ends(tmp_path: Path) -> None:
    """By SIGKILL, like a machine out of memory; nobody has the time to clean up."""
    own = ASK + "run = Run(); print(run.folder, flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", own],
        stdin=pipe,
        stdout=pipe,
        text=True,
        cwd=tmp_path,
        env={**environment({}), "TMPDIR": str(tmp_path)},
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        ask = f"{ASK} it = shared_cluster(Path({str(folder)!r}), 'source'); print(it.bootstrap_servers, it.data_dir)"
        asking = [
            subprocess.Popen([sys.executable, "-c", ask], stdout=pipe, text=True, cwd=tmp_path, env=environment({}))
            for _ in range(2)
        ]
        answers = {process.communicate(timeout=HANGS_SECONDS)[0].strip() for process in asking}
        assert [process.returncode for process in asking] == [0, 0]
        ((servers, directory),) = (answer.split() for answer in answers)
        data = Path(directory)
        assert data.exists()
        # Who asked is gone; the cluster is not.
        assert len(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).brokers) == 1
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: is_free(int(servers.rpartition(":")[2])), "the cluster ended")
    wait_until(lambda: not data.exists(), "its data are gone")


def test_cluster_cannot_start_error_shows_why_and_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(BrokerError, match="JAVA_HOME is /nowhere"):
        shared_cluster(run.folder, next(iter(PROPERTIES)))
    run.end()
    assert not run.folder.exists()


def test_cluster_that_some_tests_need_begins_once_and_ends_with_the_last_of_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from tests.conftest import pytest_collection_modifyitems, pytest_runtest_teardown\n"
        "@pytest.fixture(scope='session')\n"
        "def three():\n    print('BEGUN')\n    yield 3\n    print('ENDED')\n"
    )
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(
            f"def test_before(): print('{name}.before')\n"
            f"def test_with(three): print('{name}.with')\n"
            f"def test_after(): print('{name}.after')\n"
        )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = [word.lstrip(".") for word in done.stdout.split() if "." in word[1:] or word.isupper()]
    at = words.index("BEGUN")
    assert words[at : at + 4] == ["BEGUN", "a.with", "b.with", "ENDED"]
    assert words.count("BEGUN") == words.count("ENDED") == 1
