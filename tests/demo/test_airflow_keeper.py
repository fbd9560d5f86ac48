"""Whoever started the tree, and however they end: the whole tree ends, sessions of its own and orphans included."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.waiting import HANGS_SECONDS, wait_until

KEEPER = Path(__file__).resolve().parents[2] / "demo" / "airflow_keeper.py"

#: A root that starts a child, which starts a grandchild in a session of its own and ends: the grandchild is an orphan.
TREE = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"]
orphan = "import subprocess, sys; print(subprocess.Popen(%r, start_new_session=True, stdout=2).pid)" % (sleep,)
made = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True, check=True)
child = subprocess.Popen(sleep)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {child.pid} {int(made.stdout)}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""


def start(asker, pids: Path, *, grace="0.5"):
    command = [sys.executable, "-I", str(KEEPER), str(asker), grace, sys.executable, "-c", TREE, str(pids)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def tree_of(pids: Path):
    wait_until(pids.exists, "the tree stands")
    return [psutil.Process(int(pid)) for pid in pids.read_text().split()]


def is_over(process):
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def assert_all_end(tree):
    wait_until(lambda: all(is_over(it) for it in tree), "the tree is gone")


def test_asker_that_closes_the_pipe_ends_the_tree(tmp_path):
    # As long as it takes a loaded machine to end the command itself; what is left is killed after that.
    with start(os.getpid(), tmp_path / "pids", grace=str(HANGS_SECONDS)) as keeper:
        tree = tree_of(tmp_path / "pids")
        keeper.stdin.close()
        assert_all_end(tree)
        assert keeper.wait(180) == 128 + signal.SIGINT


def test_sigterm_to_the_keeper_ends_the_tree_also_without_an_asker(tmp_path):
    with start(0, tmp_path / "pids") as keeper:
        tree = tree_of(tmp_path / "pids")
        keeper.terminate()
        assert_all_end(tree)
        keeper.wait(180)


def test_root_that_ends_takes_what_it_started_with_it(tmp_path):
    with start(os.getpid(), tmp_path / "pids") as keeper:
        tree = tree_of(tmp_path / "pids")
        tree[0].kill()
        assert_all_end(tree)
        assert keeper.wait(180) == 128 + signal.SIGKILL


def test_asker_that_is_killed_ends_the_tree(tmp_path):
    pids = tmp_path / "pids"
    script = (
        "import subprocess, sys, os, time\n"
        f"command = [sys.executable, '-I', {str(KEEPER)!r}, str(os.getpid()), '0.5', sys.executable, '-c', {TREE!r},"
        f" {str(pids)!r}]\n"
        "subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as asker:
        tree = tree_of(pids)
        asker.kill()
        asker.wait()
        assert_all_end(tree)


def test_status_of_the_command_is_the_keepers():
    command = [sys.executable, "-I", str(KEEPER), str(os.getpid()), "1", sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as keeper:
        assert keeper.wait(180) == 7


def test_command_that_ends_at_once_has_its_status_told_all_the_same() -> None:
    """It may be over before the keeper has looked once: here, before its start has returned."""
    script = (
        "import os, runpy, subprocess, sys\n"
        "start = subprocess.Popen\n"
        "def slow(*args, **options):\n"
        "    process = start(*args, **options)\n"
        "    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)\n"
        "    return process\n"
        "subprocess.Popen = slow\n"
        "sys.argv[1:] = ['0', '1', sys.executable, '-c', 'raise SystemExit(7)']\n"
        f"runpy.run_path({str(KEEPER)!r}, run_name='__main__')"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=HANGS_SECONDS).returncode == 7
