"""A Spark standalone cluster on 127.0.0.1: one master, some workers, ended with the test."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from demo.brokers.ports import PortReservation
from tests.waiting import wait_until

_JARS = str(Path(pyspark.__file__).parent / "jars" / "*")


@contextmanager
def spark_standalone(
    folder: Path, *, workers: int, settings: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[str]:
    """The master's URL, once all workers have registered. `folder` takes logs, work directories and `settings`, which
    master and workers read from a file that only this user may read. `python` is what workers have, if a driver names
    no other."""
    properties = folder / "daemons.conf"
    properties.touch(0o600)
    properties.write_text("".join(f"{key} {value}\n" for key, value in (settings or {}).items()), encoding="utf-8")
    environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",  # otherwise found by looking into a build tree, which a wheel is not
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    environment.pop("PYTHONPATH", None)  # what workers know of the package must come from --py-files
    reserved = PortReservation(2)
    with ExitStack() as stack:
        stack.callback(reserved.release)
        port, web = reserved
        url, page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{web}/json/"
        classes = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]]
        classes += [
            ["worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", url]
        ] * workers
        for at, arguments in enumerate(classes):
            log = stack.enter_context((folder / f"daemon-{at}.log").open("wb"))
            command = ["java", "-Xmx256m", "-cp", _JARS, f"org.apache.spark.deploy.{arguments[0]}"]
            command += ["--properties-file", str(properties), *arguments[1:]]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
            stack.callback(_end, process)
            if at == 0:
                wait_until(lambda: _workers(page) is not None, "Spark master up")
        wait_until(lambda: _workers(page) == workers, f"{workers} workers registered")
        yield url


def _workers(page: str) -> int | None:
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        # A master that is still starting answers with another page.
        return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(180)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
