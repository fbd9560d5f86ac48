"""The mirror: a running copy of record batches, in copy rounds, with an exactly-once argument (docs/mirror.md).

``partition`` holds one partition's state and rules, without any I/O; ``task`` drives many of them over the wire inside
one Spark task; ``takeover`` fences and finds where to go on; ``mirror`` is the driver's loop; ``spark`` runs the tasks
of a round as Spark jobs. Imported by executors: only domain and wire may be imported here.
"""
