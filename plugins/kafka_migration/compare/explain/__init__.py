"""The drill-down: of what was found unequal, which records differ, and how."""
