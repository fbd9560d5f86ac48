"""What there is: the inventory of the source, the checks before a migration, the rights it needs."""
