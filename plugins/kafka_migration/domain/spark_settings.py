"""What every Spark session of ours is set to, so that nobody listens in: the mirror's and the validation's alike.

A driver hands its tasks to whoever connects to its ports, and the tasks hold the credentials of both clusters.
"""

from __future__ import annotations

from collections.abc import Callable

#: Orders travel inside of what tasks run, credentials included. Above a megabyte PySpark would write them to a file,
#: one for each round, and leave it there.
_ALWAYS = {"spark.broadcast.UDFCompressionThreshold": "1g"}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def settings_for(master: str) -> dict[str, str]:
    """Settings of a session on ``master``. On a local one nothing listens beyond loopback, Spark's pages included."""
    return _ALWAYS | _LOCAL if is_local(master) else dict(_ALWAYS)


def is_local(master: str) -> bool:
    """Whether driver and executors are processes of this machine."""
    return master.startswith("local")


def exposure(master: str, setting: Callable[[str, str], str | None]) -> str:
    """What is open to the network in a session on ``master``, and what to do about it, as one line; "" if nothing is.

    ``setting`` looks up a setting of the session, with a default.
    """
    if is_local(master):
        return ""
    if setting("spark.authenticate", "false") != "true":
        return (
            f"WARN: Spark at {master} runs without spark.authenticate: whoever reaches the driver's ports can read the "
            "credentials of both clusters; set spark.authenticate and spark.network.crypto.enabled to true "
            "(docs/security.md, Spark)"
        )
    if not any(setting(name, "false") == "true" for name in _ENCRYPTION):
        return (
            f"WARN: Spark at {master} runs without encryption: the credentials of both clusters cross the network in "
            "clear; set spark.network.crypto.enabled to true (docs/security.md, Spark)"
        )
    return ""
