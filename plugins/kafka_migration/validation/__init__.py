"""The independent comparison: both clusters read again through Spark's own Kafka source, digested, and judged.

Shares no code with the mirror (:mod:`kafka_migration.wire` and :mod:`kafka_migration.mirror` are never imported here):
an error that both made would be seen by neither. What is shared is the offset map, and it is tested with the rest: a
record counts as equal only if it stands on the target exactly where the map says.
"""
