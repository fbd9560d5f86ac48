"""Every kind of fault, on real brokers, under a live workload; afterwards source and target are compared.

``python -m tests.chaos`` (make chaos). A run is made of rounds; a round has topics and a link of its own:

- ``schedule`` says what is done in which round, by the seed alone;
- ``workload`` writes to the source, in processes of its own, until the round is over;
- ``mirrors`` keeps the mirror running, as whoever operates it would: the real command, started again when it dies;
- ``progress`` sees the target grow, and ``faults`` falls in between; ``network`` stands before each broker;
- ``reader`` reads both sides, ``compare`` says what is wrong. Neither uses code of the mirror.
"""
