"""Whether a topic's log is compacted, and whether some of it may lie in remote storage: by its configs."""

from __future__ import annotations

from collections.abc import Mapping

#: Of Kafka (KIP-405), Confluent and Redpanda: what a broker fetches from elsewhere may be late, and left out.
_TIERS = ("remote.storage.enable", "confluent.tier.enable", "redpanda.remote.read")
_POLICY = "cleanup.policy"
#: Those that are looked at here.
LOOKED_AT = (_POLICY, *_TIERS)


def is_compacted(configs: Mapping[str, str | None]) -> bool:
    """Whether newer records of a key may have taken older ones from it."""
    return "compact" in (configs.get(_POLICY) or "")


def is_tiered(configs: Mapping[str, str | None]) -> bool:
    """Whether some of it lies in remote storage: what a broker does not send may be there all the same."""
    return any(configs.get(name) == "true" for name in _TIERS)
