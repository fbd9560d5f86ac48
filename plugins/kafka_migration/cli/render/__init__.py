"""How results look in a terminal: every table fits 80 columns, and no name from a cluster is taken for markup."""
