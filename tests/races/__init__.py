"""Two movers of one group at once, at every interleaving: `python -m tests.races`."""
