"""The command line: thin around the steps. What a command does is in ``steps``, how its result looks in ``cli.render``.

Nothing here is imported at module level that costs time: ``--help`` and a wrong option answer at once, and only a
command that needs Kafka's clients, Spark or Great Expectations pays for them.
"""
