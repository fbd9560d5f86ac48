"""The command line: a thin face of the phases. What a command does is in ``phases``, how it looks in ``cli.render``.

Nothing here is imported at module level that costs time: ``--help`` and a wrong option answer at once, and only a
command that needs Kafka's clients, Spark or Great Expectations pays for them.
"""
