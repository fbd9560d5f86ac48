"""The independent comparison: both clusters read again, digested by segment, and judged.

At two levels (:class:`kafka_migration.domain.levels.Level`). *Record* level reads through Spark's own Kafka source and
shares no code with the mirror: an error that both made would be seen by neither. *Batch* level is as fast as the copy;
it fetches and decodes with the mirror's wire layer, and so record level stands beside it, on samples and wherever batch
level finds a difference. What both share with the mirror is the offset map, and it is tested with the rest: a record
counts as equal only if it stands on the target exactly where the map has it. The *drill-down*
(:mod:`kafka_migration.compare.explain.drill`) finds which records of what is unequal differ, and how.
"""
