"""The mirror: a running copy of record batches, in epochs, with an exactly-once argument (docs/mirror.md).

``partition`` holds one partition's state and rules, without any I/O; ``task`` drives many of them over the wire inside
one Spark task; ``takeover`` fences and finds where to go on; ``epochs`` is the driver's loop; ``spark`` runs one epoch
as a Spark job. Imported by executors: only domain and wire may be imported here.
"""
