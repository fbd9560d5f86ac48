"""An empty KRaft data directory, as Kafka's own tool makes it, without a JVM for each.

The tool runs once for each release. It writes two files: `meta.properties`, which holds the ids, and
`bootstrap.checkpoint`, the first metadata (the release's feature levels), which holds none. The second is kept below
.cache and copied; without it a broker starts too, but with the features of an upgraded cluster, not of a new one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from demo import jars
from demo.brokers import config
from demo.brokers.process import BrokerError
from demo.brokers.releases import Release
from demo.java import require_java

TIMEOUT_SECONDS = 60.0
CACHE_DIRECTORY = jars.CACHE_DIRECTORY.parent / "formatted"
CHECKPOINT = "bootstrap.checkpoint"
META = "meta.properties"


def new_id() -> str:
    """A random id as Kafka writes them: 16 bytes in base64. The first bit is 0: "-" would be read as an option."""
    raw = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([raw[0] & 0x7F]) + raw[1:]).rstrip(b"=").decode("ascii")


def format_data(node: config.Layout, cluster_id: str, *, cache: Path = CACHE_DIRECTORY) -> None:
    """Make the data directory of ``node`` a new one of the cluster ``cluster_id``.

    Raises:
        BrokerError: Kafka's tool, asked for the first time, failed.
    """
    checkpoint = _checkpoint(node.release, cache)
    node.data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, node.data / CHECKPOINT)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node.node_id), "directory.id": new_id()}
    # The last, and in one step: whoever finds it takes the directory for formatted.
    temporary = node.data / f"{META}.tmp"
    temporary.write_text(config.render_properties(ids), encoding="utf-8")
    temporary.replace(node.data / META)


def run_tool(node: config.Layout, cluster_id: str) -> None:
    """Let Kafka's tool format the data directory of ``node``, whose files of properties must be there.

    Raises:
        BrokerError: it failed, or took too long.
    """
    command = config.format_command(
        java=require_java(), class_path=jars.class_path(node.release.jar_set), node=node, cluster_id=cluster_id
    )
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"formatting {node.data} took over {TIMEOUT_SECONDS} s.") from error
    if run.returncode != 0:
        raise BrokerError(f"formatting {node.data} failed:\n{run.stdout}{run.stderr}".strip())


def _checkpoint(release: Release, cache: Path) -> Path:
    sums = "".join(jar.sha256 for jar in jars.locked(release.jar_set))
    kept = cache / f"{release.jar_set}-{hashlib.sha256(sums.encode()).hexdigest()[:16]}.checkpoint"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # On the cache's own file system, so that the file appears in one step; whoever comes at once makes the same.
        with tempfile.TemporaryDirectory(prefix=f".{release.jar_set}-", dir=cache) as work:
            node = config.Layout(
                node_id=1, client_port=1, internal_port=2, controller_port=3, directory=Path(work), release=release
            )
            config.write_files(node, config.server_properties(node, [node], {}))
            run_tool(node, new_id())
            os.replace(node.data / CHECKPOINT, kept)
    return kept
