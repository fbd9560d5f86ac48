"""An admin client that is garbage-collected in its own background thread does not abort the process."""

import os
import subprocess
import sys

import pytest

from tests.shared import ROOT

#: Nobody listens there, so a request is answered, with an error, when its time is over.
_GIVES_UP = """
import gc, os, sys, threading
from kafka_migration.kafka import admin_client
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.connections import ClusterConnection

gc.disable()
main = threading.current_thread()

def ask():
    found, collected = [], threading.Event()

    def collect(_):
        found.append((threading.current_thread() is not main, gc.collect() > 0))
        collected.set()

    clients = Clients("source", ClusterConnection("kafka", {"bootstrap.servers": "127.0.0.1:9"}))
    clients.itself = clients  # as the frames of a traceback do
    asked = clients.admin().list_consumer_groups(request_timeout=0.5)
    asked.add_done_callback(collect)
    del clients
    assert collected.wait(60), "no answer"
    assert found == [(True, True)], found

if sys.argv[1] == "fork":
    ask()
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ask()
ended = threading.Event()

class Last:
    def __del__(self):
        ended.set()

admin_client._threads[-1].dropped.put(Last())
assert ended.wait(30), "those before it were not ended"
print("alive")
"""


@pytest.mark.parametrize("process", ["first", "fork"])
def test_client_that_is_garbage_in_its_own_thread_does_not_end_the_process(process):
    command = [sys.executable, "-X", "faulthandler", "-c", _GIVES_UP, process]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
