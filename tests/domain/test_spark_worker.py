"""What a Python worker of Spark need not do between its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from kafka_migration.domain.spark_worker import at_niceness

_LOOKED_AT = """
import gc, importlib, sys, zipimport
from kafka_migration.domain.spark_worker import keep_imports, keep_memory

sys.path.insert(0, sys.argv[1])
import inside.one
finders = lambda: [path for path, one in sys.path_importer_cache.items() if isinstance(one, zipimport.zipimporter)]
assert len(finders()) == 2, finders()
keep_memory()
keep_imports()
assert not finders()
assert gc.get_freeze_count() > 1_000
importlib.invalidate_caches()
import inside.two
"""


def test_worker_keeps_its_imports_and_still_finds_what_is_in_archives(tmp_path: Path) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("__init__", "one", "two"):
            file.writestr(f"inside/{name}.py", "")
    subprocess.run([sys.executable, "-c", _LOOKED_AT, str(archive)], check=True, timeout=60)


def niceness() -> int:
    """Of this thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_work_gives_way_and_what_follows_in_the_process_does_not() -> None:
    own = niceness()
    assert at_niceness(own + 3, niceness) == own + 3
    assert (niceness(), at_niceness(0, niceness)) == (own, own)
    with pytest.raises(ZeroDivisionError):
        at_niceness(own + 3, lambda: 1 // 0)
