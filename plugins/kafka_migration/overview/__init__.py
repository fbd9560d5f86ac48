"""Where a migration stands and what needs a person, for commands, pages, notices and the report."""
