"""The independent comparison: both clusters read again, digested by segment, and judged.

At two levels (:class:`kafka_migration.domain.levels.Level`). *Record* level decodes every record by a reader of its own
and shares no code with the mirror: an error that both made would be seen by neither. *Batch* level fetches and decodes
with the mirror's wire layer, three times as fast, and so record level stands beside it, on samples and wherever batch
level finds a difference. What both share with the mirror is the offset map, and it is tested with the rest: a record
counts as equal only if it stands on the target exactly where the map has it. The *drill-down*
(:mod:`kafka_migration.compare.explain.drill`) finds which records of what is unequal differ, and how.
"""
