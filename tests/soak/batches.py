"""Batches of every codec and format, decoded by the Java client and by record level's own reader: `make fuzz-reader`.

Both kernels are asked. The last line is JSON: how many batches and records were compared, and of how many frames of
them something differed.
"""

import argparse
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import numpy as np
import pyspark

from demo import jars
from demo.java import java_executable
from kafka_migration.compare.decode import columns, compiled, plain
from kafka_migration.compare.reader import log
from kafka_migration.compare.record_digest import ordered_hashes

_PROGRAM = Path(__file__).with_name("RandomBatches.java")
_SHOWN_SECONDS = 10.0
_MASK = 2**64 - 1
_DECODERS = {columns.COMPILED: compiled.decode, columns.PLAIN: plain.decode}


def class_path() -> str:
    """The Java client that Spark uses, and the codecs that come with Spark."""
    of_spark = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return ":".join(map(str, [*jars.paths("spark"), *of_spark]))


def frames(seed: int, count: int, folder: Path) -> Iterator[tuple[bytes, int, tuple[int, int, int]]]:
    """Bytes of batches, how many these are, and what the Java client finds in them: records, and both sums."""
    java, path = str(java_executable()), class_path()
    compile_ = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-cp", path]
    subprocess.run([*compile_, "-d", str(folder), str(_PROGRAM)], check=True, timeout=120)
    command = [java, "-Xmx512m", "-cp", f"{folder}:{path}", _PROGRAM.stem, str(seed), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while (size := struct.unpack(">i", _read(process.stdout, 4))[0]) >= 0:
            records = _read(process.stdout, size)
            batches, *found = struct.unpack(">iiqq", _read(process.stdout, 24))
            yield records, batches, (found[0], found[1] & _MASK, found[2] & _MASK)


def _read(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise RuntimeError("the Java program ended early: run it by hand to see why")
    return found


def ours(records: bytes, kernel: str) -> tuple[int, int, int]:
    """What record level's reader finds."""
    answer: Any = log.Log(records)
    with patch.object(log, "decode", lambda data, ends, facts, _change: _DECODERS[kernel](data, ends, facts)):
        found = answer.decoded(np.ones(len(answer), np.bool_))
    ordered = ordered_hashes(found.hashes, found.offsets)
    return len(found), int(found.hashes.sum()) & _MASK, int(ordered.sum()) & _MASK


def compare(seed: int, count: int, *, log_line: Any = print) -> dict[str, int]:
    """How many batches were read alike."""
    figures = {"batches": 0, "records": 0, "different": 0}
    folder = Path(tempfile.mkdtemp(prefix="random-batches-"))
    shown = time.monotonic()
    try:
        for records, batches, theirs in frames(seed, count, folder):
            for kernel in _DECODERS:
                if ours(records, kernel) != theirs:
                    figures["different"] += 1
                    log_line(f"batch {figures['batches']} and those behind, {kernel}: {records[:2000].hex()}")
            figures["batches"] += batches
            figures["records"] += theirs[0]
            if time.monotonic() - shown > _SHOWN_SECONDS:
                shown = time.monotonic()
                log_line(f"{figures['batches']:,} batches, {figures['records']:,} records")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.batches", description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    options = parser.parse_args()
    figures = compare(options.seed, options.batches)
    print(json.dumps({"seed": options.seed, **figures}))
    return 1 if figures["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
