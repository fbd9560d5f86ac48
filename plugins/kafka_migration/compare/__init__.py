"""The independent comparison: both clusters read again, digested by segment, and judged.

By a reader of its own, which shares no code with the mirror: an error that both made would be seen by neither. At two
levels (:class:`kafka_migration.domain.levels.Level`): *record* level decodes every record, *batch* level those alone
whose batches differ. What both share with the mirror is the offset map, and it is tested with the rest: a record
counts as equal only if it stands on the target exactly where the map has it. The *drill-down*
(:mod:`kafka_migration.compare.explain.drill`) finds which records of what is unequal differ, and how.
"""
