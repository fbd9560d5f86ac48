"""A zero-downtime Kafka migration orchestrator: exact, verified, reversible.

The rooms, from the inside out:

- ``domain``: words, offsets, maps, named checks; pure, imports nothing of ours.
- ``plans``: the plan file and everything that can be wrong with it.
- ``wire``: record batches, fetch, produce and fences at the protocol's level.
- ``kafka``: connections, topics, groups and offsets through confluent-kafka.
- ``state``: what a migration remembers, in internal topics on the target.
- ``copy``: record batches copied on Spark, each exactly once; ``compare``: both clusters read again by another reader.
- ``migration``: what every step works with, and what the journal keeps of steps.
- ``topics``, ``link``, ``groups``: mirror topics, the mirror's own life, consumer groups.
- ``validation``, ``inventory``, ``approvals``: what a go or no-go rests on.
- ``steps``: the workflow as a table.
- ``airflow``, ``cli``: thin faces of it.
"""

__version__ = "0.1.0"
