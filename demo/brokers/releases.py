"""The releases of Kafka that a cluster can be made of: what each is started with, and what controls it."""

from __future__ import annotations

from dataclasses import dataclass

from demo.brokers.process import BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release. ``jar_set`` is its name in jars.lock; ``has_zookeeper``: a ZooKeeper holds its metadata, and not
    brokers of its own (KRaft); ``has_log4j_1``: it logs through log4j's first API, whose configuration looks
    otherwise."""

    name: str
    jar_set: str
    has_zookeeper: bool = False
    has_log4j_1: bool = False


NEWEST = Release(name="4.3", jar_set="kafka")
_RELEASES = {
    it.name: it
    for it in (
        NEWEST,
        Release(name="3.9", jar_set="kafka-3.9", has_log4j_1=True),
        Release(name="2.8", jar_set="kafka-2.8", has_zookeeper=True, has_log4j_1=True),
    )
}
OLD = tuple(it for it in _RELEASES.values() if it is not NEWEST)


def release(name: str) -> Release:
    """The release called ``name``, such as 2.8. Raises BrokerError for another."""
    if name not in _RELEASES:
        raise BrokerError(f"no brokers of Kafka {name!r}; there are {', '.join(_RELEASES)}.")
    return _RELEASES[name]
