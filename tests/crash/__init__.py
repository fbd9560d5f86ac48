"""A process that dies before or after each change that it makes, and the same command again: `python -m tests.crash`.

- ``boundary`` says which calls change something, of all that the product can make;
- ``process`` is what stands at that boundary: it records, and it dies;
- ``shop`` is a migration in memory, with the clients that it moves, and ``scenarios`` what is run of it;
- ``matrix`` runs each scenario once undisturbed, and once for each point, and compares the ends.
"""
