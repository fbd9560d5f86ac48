"""A zero-downtime Kafka migration orchestrator: exact, verified, reversible.

The rooms, from the inside out:

- ``domain``: words, offsets, maps, named checks; pure, imports nothing of ours.
- ``plans``: the plan file and everything that can be wrong with it.
- ``wire``: record batches, fetch, produce and fences at the protocol's level.
- ``state``: what a migration remembers, in internal topics on the target.
- ``clusters``: connections, topics, groups and offsets through confluent-kafka.
- ``mirror``: the running copy, in epochs on Spark.
- ``validation``: the independent comparison, on Spark's own Kafka source.
- ``phases``: what a migration does, one module a phase, with the table of all of them.
- ``operators``, ``triggers``, ``cli``: thin faces of the phases.
"""

__version__ = "0.1.0"
